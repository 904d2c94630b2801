"""Over how long rates are averaged."""

_OVER_INTERVALS = 10
"""Goodput is averaged over some turns: one turn sees too few samples."""
_SHORTEST_S = 10.0


def averaged_over_s(interval_s: float) -> float:
    """Time constant of averages for a loop of that interval."""
    return max(_SHORTEST_S, _OVER_INTERVALS * interval_s)
