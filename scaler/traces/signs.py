"""What was available of an offering, as far as who asked for it can know: from what was held, and from when there was no more.

A sign says how many were held from a time on, and whether that was all there was: a launch was refused, or some were taken.

* There was never less than was held, and at a sign of "all" there was exactly that.
* Between two such signs, what was available is taken to be the most that was held before the next one: what was granted a
  moment later was there a moment before. Where nobody asked for more, more may have been there: nothing is invented.
* After a sign of "all", more is back by the time that more is held. It came back some time between; half way is assumed.

So a recording promises no capacity that nobody had, and policies that ask for more than the recorded one did are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scaler.traces.trace import CapacityTrace, Series, TraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """From `at_s` on `held` were held; `all_there_was`: and no more could be had."""

    at_s: float
    held: int
    all_there_was: bool = False


def recorded_trace(signs: Mapping[str, Sequence[Sign]], start_s: float, end_s: float, source: str) -> CapacityTrace:
    """The trace from `start_s` to `end_s` (the signs' clock) of offerings with their signs in order of time.

    Raises:
        TraceError: there is nothing to record, or no time in which it happened.
    """
    if not signs or not end_s > start_s:
        raise TraceError(source, None, "nothing was recorded")
    series = tuple(_series(name, _within(found, start_s, end_s), start_s) for name, found in sorted(signs.items()))
    return CapacityTrace(source=source, format="offering events", series=series, end_s=end_s - start_s, tick_s=1.0)


def available(signs: Sequence[Sign]) -> Iterator[tuple[float, int]]:
    """(time, available from then on), in order; the first belongs to the time of the first sign."""
    all_at_s, known = 0.0, -1
    for stretch in _stretches(signs):
        most, last = max(sign.held for sign in stretch), stretch[-1]
        if known < 0:
            yield stretch[0].at_s, most
        elif most > known:
            more_at_s = next(sign.at_s for sign in stretch if sign.held > known)
            yield (all_at_s + more_at_s) / 2, most
        if last.all_there_was:
            all_at_s, known = last.at_s, last.held
            yield all_at_s, known


def _stretches(signs: Sequence[Sign]) -> Iterator[list[Sign]]:
    """Up to each sign of "all", it included; what comes after the last one too."""
    stretch: list[Sign] = []
    for sign in signs:
        stretch.append(sign)
        if sign.all_there_was:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _within(signs: Sequence[Sign], start_s: float, end_s: float) -> list[tuple[float, int]]:
    """The steps up to the end, those before the start moved to it."""
    return [(max(start_s, at_s), count) for at_s, count in available(signs) if at_s < end_s]


def _series(name: str, steps: Sequence[tuple[float, int]], start_s: float) -> Series:
    """From 0 on, where it changes: of several steps at one time the last stands; the first holds from the start."""
    found = {0.0: steps[0][1]} if steps else {0.0: 0}
    for at_s, count in steps:
        found[round(at_s - start_s, 3)] = count
    changes = Series(name=name, times_s=tuple(found), counts=tuple(found.values())).changes()
    times_s, counts = zip(*changes, strict=True)
    return Series(name=name, times_s=times_s, counts=counts)
