"""The SQLite engine's rooms: `store` (file, lock, transaction), then one file for each kind of change and reading."""
