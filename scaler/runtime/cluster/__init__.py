"""The controller in a cluster: one process that leads, one runner a fleet, everything that fleets share."""
