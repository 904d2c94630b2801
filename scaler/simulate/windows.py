"""Windows of a trace: stretches of equal length whose starts are spread evenly over the part that may be used.

Policy: the first `TRAINING_RATIO` of a trace's time is for training, the rest for testing. A window lies in one of them as
a whole, so that nothing that was tuned on is judged on. Windows overlap where there are more than fit side by side, up to
`most_windows`: those that hardly differ are no observations, only work.
"""

from dataclasses import dataclass
from enum import StrEnum

TRAINING_RATIO = 0.6
LEAST_STEP = 0.05
"""Between the starts of two windows, as a share of a window: they have at most 95 % of their hours in common."""
_ROUNDING_H = 1e-9


class Split(StrEnum):
    """Which part of a trace."""

    TRAIN = "train"
    TEST = "test"
    ALL = "all"


def stretch_h(length_h: float, split: Split) -> tuple[float, float]:
    """(from, to) in hours of a trace that lasts `length_h`."""
    border_h = length_h * TRAINING_RATIO
    return {Split.TRAIN: (0.0, border_h), Split.TEST: (border_h, length_h), Split.ALL: (0.0, length_h)}[split]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a trace."""

    start_h: float
    hours: float


def windows_of(length_h: float, hours: float, windows: int, split: Split = Split.ALL) -> tuple[Window, ...]:
    """The windows in order: the first at the start of the part, the last ends with it.

    A part that is shorter than a window is one window.

    Raises:
        ValueError: no window, or none of any length, is asked for.
    """
    if windows < 1 or not hours > 0:
        raise ValueError(f"{windows} windows of {hours:g} h are none")
    from_h, to_h = stretch_h(length_h, split)
    room_h = to_h - from_h - hours
    if room_h <= _ROUNDING_H or windows == 1:
        return (Window(start_h=from_h, hours=min(hours, to_h - from_h)),)
    return tuple(Window(start_h=from_h + room_h * i / (windows - 1), hours=hours) for i in range(windows))


def most_windows(length_h: float, hours: float, split: Split = Split.ALL) -> int:
    """The most windows whose neighbours start `LEAST_STEP` of a window apart; 1 where there is room for one only."""
    from_h, to_h = stretch_h(length_h, split)
    return 1 + max(0, int((to_h - from_h - hours) / (LEAST_STEP * hours) + _ROUNDING_H))
