"""In which order tests run, so that no core is idle at the end: those that take long begin first, the order within is random.

xdist's worksteal deals the list out in equal parts and lets who is done take from the end of the fullest part. So tests of a
cluster are the first part's beginning: one process has the control planes, of which each would start its own, and none waits
for another's turn at a bed. Other long ones begin the second part, where there is one.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def dealt(bedded: Sequence[T], slow: Sequence[T], rest: Sequence[T], parts: int) -> list[T]:
    """All of them, for so many equal parts."""
    if parts < 2:
        return [*bedded, *slow, *rest]
    first = max(0, (len(bedded) + len(slow) + len(rest)) // parts - len(bedded))
    return [*bedded, *rest[:first], *slow, *rest[first:]]
