"""The YAML schema of a RolloutFleet, its loader, its JSON Schema, and hot reload."""
