"""Frozen facts and commands: the words every part of Headrace shares.

Standard library only. Nothing here reads a clock, a file or a socket. Times are seconds; ``*_at_s`` and
``deadline_s`` are UTC seconds since the epoch on the clock that the docstring names.
"""
