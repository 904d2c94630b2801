"""Words for people that several rooms put together alike."""

from collections.abc import Iterable


def some_of(names: Iterable[str], most: int) -> str:
    """The first of these names, `most` at most, and how many more there are: a reason is one sentence."""
    named = list(names)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more
