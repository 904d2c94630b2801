"""Capacity on this machine: instances are process groups, played by a capacity trace; state is files."""
