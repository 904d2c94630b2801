"""Spot capacity from a seed, as a trace: what `scaler.simulate.generated_yaml` describes.

Every zone alternates between up and down (semi-Markov: sojourns are drawn, not exponential); while it is up, its count is
drawn anew from time to time; while a scarcity of its region strikes it, it has nothing. Each draw is keyed by (seed, zone or
region, what, number), so adding a zone or asking for a longer stretch changes nothing else. The process is `BURN_IN_S` old
at the start of the trace, so that how it began does not show.
"""

from collections.abc import Iterator

from scaler.simulate.delays import draw
from scaler.simulate.generated_yaml import Generated, Scarcity, Spread
from scaler.traces.trace import CapacityTrace, Series

BURN_IN_S = 7 * 86400.0
_TICK_S = 1.0


def generate(generated: Generated, seed: int, end_s: float) -> CapacityTrace:
    """Capacity of every zone from 0 to `end_s`, in replicas."""
    all_s = BURN_IN_S + end_s
    series = []
    for region in generated.regions:
        bad_times = list(_bad_times(generated.scarcity, region.name, seed, all_s))
        for zone in region.zones:
            struck = [
                (start_s, end_s)
                for number, (start_s, end_s) in enumerate(bad_times)
                if generated.scarcity and draw(seed, zone, "struck", number) < generated.scarcity.strikes_ratio
            ]
            series.append(_series(zone, _without(_own(generated, zone, seed, all_s), struck)))
    trace = CapacityTrace(source=f"seed {seed}", format="generated", series=tuple(series), end_s=all_s, tick_s=_TICK_S)
    return trace.window(BURN_IN_S / 3600, end_s / 3600)


def _own(generated: Generated, zone: str, seed: int, all_s: float) -> Iterator[tuple[float, int]]:
    """(time, count) of a zone by itself."""
    at_s, period = 0.0, 0
    while at_s < all_s:
        end_s = at_s + _sojourn_s(generated.up, seed, zone, "up", period)
        for number in range(1 << 30):
            if at_s >= end_s:
                break
            yield at_s, _count(generated, seed, zone, period, number)
            at_s += _sojourn_s(generated.recount, seed, zone, f"recount {period}", number)
        yield end_s, 0
        at_s = end_s + _sojourn_s(generated.down, seed, zone, "down", period)
        period += 1


def _count(generated: Generated, seed: int, zone: str, period: int, number: int) -> int:
    most, u = generated.replicas, draw(seed, zone, "count", period, number)
    if u < generated.full_ratio or most == 1:
        return most
    return 1 + int((u - generated.full_ratio) / (1 - generated.full_ratio) * (most - 1))


def _bad_times(scarcity: Scarcity | None, region: str, seed: int, all_s: float) -> Iterator[tuple[float, float]]:
    """(start, end) of the scarcities of a region."""
    at_s, number = 0.0, 0
    while scarcity is not None and at_s < all_s:
        start_s = at_s + _sojourn_s(scarcity.every, seed, region, "every", number)
        at_s = start_s + _sojourn_s(scarcity.lasts, seed, region, "lasts", number)
        yield start_s, at_s
        number += 1


def _sojourn_s(spread: Spread, seed: int, place: str, what: str, number: int) -> float:
    return spread.to_delay().at(draw(seed, place, what, number))


def _without(own: Iterator[tuple[float, int]], struck: list[tuple[float, float]]) -> Iterator[tuple[float, int]]:
    """The steps with nothing between the times struck, which are in order and apart."""
    steps = dict(own)
    counts = Series(name="own", times_s=tuple(steps), counts=tuple(steps.values()))
    down = {time_s: 0 for times_s in struck for time_s in times_s}
    for start_s, end_s in struck:
        down[end_s] = counts.at(end_s)
        for time_s in [t for t in steps if start_s <= t < end_s]:
            down[time_s] = 0
    yield from sorted((steps | down).items())


def _series(zone: str, steps: Iterator[tuple[float, int]]) -> Series:
    """Only where the count changes."""
    found: dict[float, int] = {}
    before = -1
    for at_s, count in steps:
        if count != before:
            found[at_s] = before = count
    return Series(name=zone, times_s=tuple(found), counts=tuple(found.values()))
