"""The trainers' guard: checks live objects, alarms, repairs what it may, and refuses what would touch a trainer."""
