"""Capacity traces: how many instances could be had, when and where; read from files in several formats."""
