"""The rollout worker: leases units, has an engine generate, publishes progress, commits samples, leaves when told to."""
