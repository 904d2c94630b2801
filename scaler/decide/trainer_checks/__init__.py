"""The rows of the trainers' guard, by subject: disruption, scheduling, capacity, health."""
