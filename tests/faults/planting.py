"""How a bug is planted: a function of production is replaced by one that is wrong in one way.

Each is a mistake that somebody could make: a check forgotten, a step in the wrong place, an old value taken for a new
one. The schedules must find every one of them; what finds which is theirs to say.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A mistake, in the words of who would have made it."""

    area: str
    name: str
    plant: Plant


class Bugs:
    """Bugs by name, in the order in which they are written down."""

    def __init__(self) -> None:
        self.by_name: dict[str, PlantedBug] = {}

    def planted(self, area: str) -> Callable[[Plant], Plant]:
        """Register a bug by its function's name."""

        def register(plant: Plant) -> Plant:
            name = plant.__name__.replace("_", " ")
            self.by_name[name] = PlantedBug(area, name, plant)
            return plant

        return register
