"""What a capacity trace is: for each zone or offering, a step function of time to the count available.

Times are seconds from the trace's own start, at 0; a value holds until the next; the last until `end_s`. Every change makes
a new trace. Counts are whole instances: scaling rounds down, so that no capacity is promised that was not there.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

_ROUNDING = 1e-9
_DIP_SLACK = 1.5
"""Ticks of probes jitter: what lasts less than this many is one tick."""


class TraceError(ValueError):
    """A file that is no usable trace: which, where, and why in one sentence. `line` is None where it is about the whole."""

    def __init__(self, file: str | Path, line: int | None, sentence: str) -> None:
        where = f"{file}" if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {sentence}")
        self.file = str(file)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch without measurement. The value before it is taken to hold through it."""

    start_s: float
    end_s: float
    line: int
    """Of the first row after it; 0 once the trace has been cut or scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One zone or offering. `times_s` starts at 0 and grows strictly; the counts belong to them one by one."""

    name: str
    times_s: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what is no step function; `ValueError`."""
        if len(self.times_s) != len(self.counts) or not self.times_s or self.times_s[0] != 0:
            raise ValueError(f"series {self.name}: needs a count for every time, and the first time at 0")
        if any(later <= earlier for earlier, later in pairwise(self.times_s)):
            raise ValueError(f"series {self.name}: times must grow")
        if min(self.counts) < 0:
            raise ValueError(f"series {self.name}: counts cannot be negative")

    def at(self, time_s: float) -> int:
        """The count at a time; before the start the first, after the end the last."""
        return self.counts[max(0, bisect_right(self.times_s, time_s) - 1)]

    def changes(self) -> Iterator[tuple[float, int]]:
        """(time, count) at the start and wherever the count differs from the one before."""
        before: int | None = None
        for time_s, count in zip(self.times_s, self.counts, strict=True):
            if count != before:
                yield time_s, count
            before = count

    def losses(self) -> int:
        """Sum of all falls: what a fleet that always holds everything would lose."""
        return sum(max(0, a - b) for a, b in pairwise(self.counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTrace:
    """See the module's docstring."""

    source: str
    format: str
    series: tuple[Series, ...]
    end_s: float
    tick_s: float
    """The usual distance of two measurements; of logs of events, their resolution."""
    gaps: tuple[Gap, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two series of one name, or none; `ValueError`."""
        if not self.series or len(set(self.names)) != len(self.series):
            raise ValueError(f"{self.source}: needs series, each with a name of its own, not {list(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the series, in the file's order."""
        return tuple(series.name for series in self.series)

    def one(self, name: str) -> Series:
        """The series of that name; `KeyError` says which there are."""
        for series in self.series:
            if series.name == name:
                return series
        raise KeyError(f"{self.source} has no series {name!r}; it has {', '.join(self.names)}")

    def select(self, names: Collection[str]) -> "CapacityTrace":
        """Only these series, in this order; `KeyError` where one is not there."""
        return replace(self, series=tuple(self.one(name) for name in names))

    def merged(self, name: str) -> "CapacityTrace":
        """All series as one: the sum of their counts."""
        times_s = tuple(sorted({time_s for series in self.series for time_s in series.times_s}))
        counts = tuple(sum(series.at(time_s) for series in self.series) for time_s in times_s)
        return replace(self, series=(Series(name=name, times_s=times_s, counts=counts),))

    def faster(self, ratio: float) -> "CapacityTrace":
        """Time compressed: at 60, an hour passes in a minute. `ratio` is positive."""
        if not ratio > 0:
            raise ValueError(f"a time scale of {ratio} is not positive")
        scaled = tuple(replace(s, times_s=tuple(t / ratio for t in s.times_s)) for s in self.series)
        gaps = tuple(Gap(start_s=g.start_s / ratio, end_s=g.end_s / ratio, line=0) for g in self.gaps)
        return replace(self, series=scaled, gaps=gaps, end_s=self.end_s / ratio, tick_s=self.tick_s / ratio)

    def scaled(self, ratio: float) -> "CapacityTrace":
        """Counts multiplied, rounded down. `ratio` is not negative."""
        if not ratio >= 0:
            raise ValueError(f"a count scale of {ratio} is negative")
        return self._with_counts(lambda count: int(count * ratio + _ROUNDING))

    def capped(self, most: int) -> "CapacityTrace":
        """No count above `most`, which is not negative."""
        if most < 0:
            raise ValueError(f"a cap of {most} is negative")
        return self._with_counts(lambda count: min(count, most))

    def window(self, start_h: float, hours: float) -> "CapacityTrace":
        """The part that starts `start_h` hours in and lasts `hours`, or until the end; its time starts at 0.

        Raises:
            ValueError: the window lies outside of the trace or is empty.
        """
        start_s, end_s = start_h * 3600.0, min(self.end_s, (start_h + hours) * 3600.0)
        if not (0 <= start_s < self.end_s and hours > 0):
            raise ValueError(
                f"{self.source}: no window of {hours:g} h at {start_h:g} h; the trace lasts {self.end_s / 3600:.2f} h"
            )
        gaps = (
            Gap(start_s=max(g.start_s, start_s) - start_s, end_s=min(g.end_s, end_s) - start_s, line=0)
            for g in self.gaps
            if g.end_s > start_s and g.start_s < end_s
        )
        cut = tuple(_cut(series, start_s, end_s) for series in self.series)
        return replace(self, series=cut, end_s=end_s - start_s, gaps=tuple(gaps))

    def without_dips(self) -> "CapacityTrace":
        """One-tick falls to 0 that refill taken out: they are partly failed probes, not lost capacity.

        Such a tick gets the smaller of its two neighbours, so that nothing is promised that neither side had.
        """
        return replace(self, series=tuple(_fill_dips(series, self.tick_s * _DIP_SLACK) for series in self.series))

    def _with_counts(self, change: Callable[[int], int]) -> "CapacityTrace":
        changed = tuple(replace(s, counts=tuple(change(count) for count in s.counts)) for s in self.series)
        return replace(self, series=changed)


def _cut(series: Series, start_s: float, end_s: float) -> Series:
    inside = [
        (time_s - start_s, count)
        for time_s, count in zip(series.times_s, series.counts, strict=True)
        if start_s < time_s < end_s
    ]
    times_s, counts = zip((0.0, series.at(start_s)), *inside, strict=True)
    return replace(series, times_s=times_s, counts=counts)


def _fill_dips(series: Series, dip_s: float) -> Series:
    steps = list(series.changes())
    for i in range(1, len(steps) - 1):
        (_, before), (time_s, count), (after_s, after) = steps[i - 1 : i + 2]
        if count == 0 and before > 0 and after_s - time_s < dip_s:
            steps[i] = (time_s, min(before, after))
    times_s, counts = zip(*steps, strict=True)
    return replace(series, times_s=times_s, counts=counts)
