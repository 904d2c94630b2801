"""Which offerings a picture of the fleet tells apart, in which order and colour: the same in all pictures of a case.

Policy: steady capacity at the bottom, on-demand on top; within a type the most used first. What the palette has no colour
for is drawn as one layer and named when the pointer rests on it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scaler.model.capacity import CapacityType
from scaler.simulate.report.content import Case
from scaler.simulate.report.style import OTHERS, SHADES
from scaler.simulate.result import Timeline

_BOTTOM_UP = (CapacityType.CAPACITY_BLOCK, CapacityType.SPOT, CapacityType.ON_DEMAND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Offerings that share a colour."""

    label: str
    colour: str
    capacity_type: CapacityType
    offerings: tuple[str, ...]

    def sum_of(self, held: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
        """Their instances together, step by step; empty where none of them is there."""
        there = [held[name] for name in self.offerings if name in held]
        return tuple(map(sum, zip(*there, strict=True)))


def layers_of(case: Case) -> tuple[Layer, ...]:
    """The layers of a case, from the bottom up; offerings never held by any run are left out."""
    used = _used(case)
    by_type: dict[CapacityType, list[str]] = {kind: [] for kind in _BOTTOM_UP}
    for name in sorted(used, key=lambda name: (-used[name], name)):
        by_type[type_of(case, name)].append(name)
    return tuple(layer for kind in _BOTTOM_UP for layer in _of_type(kind, by_type[kind]))


def type_of(case: Case, offering_id: str) -> CapacityType:
    """The capacity type of an offering; by the end of its id where the scenario does not name it."""
    for offering in case.facts.offerings:
        if offering.offering_id == offering_id:
            return offering.capacity_type
    ending = offering_id.rpartition("/")[2]
    return CapacityType(ending) if ending in set(CapacityType) else CapacityType.SPOT


def spot_capacity(case: Case, timeline: Timeline) -> tuple[float, ...]:
    """Replicas that all spot offerings together would hold, step by step; empty where the timeline does not say."""
    spot = [values for name, values in timeline.capacity.items() if type_of(case, name) is CapacityType.SPOT]
    return tuple(map(sum, zip(*spot, strict=True)))


def timelines(case: Case) -> Iterator[Timeline]:
    """Of all runs, and of the optimum where it has one."""
    for shown in case.runs:
        yield shown.run.timeline
    if case.optimum is not None and case.optimum.timeline is not None:
        yield case.optimum.timeline


def _used(case: Case) -> dict[str, float]:
    used: Counter[str] = Counter()
    for timeline in timelines(case):
        used.update({name: sum(values) * timeline.step_s for name, values in timeline.held.items()})
    return {name: total for name, total in used.items() if total > 0}


def _of_type(kind: CapacityType, names: Sequence[str]) -> Iterator[Layer]:
    palette = SHADES[kind]
    for name, colour in zip(names, palette, strict=False):
        yield Layer(label=name, colour=colour, capacity_type=kind, offerings=(name,))
    if rest := tuple(names[len(palette) :]):
        label = rest[0] if len(rest) == 1 else f"{len(rest)} other {kind} offerings"
        yield Layer(label=label, colour=OTHERS, capacity_type=kind, offerings=rest)
