"""A schedule: a seed's job, fleet, weather and faults. The same seed gives the same schedule on every machine.

Swarm testing (Groce et al. 2012): each schedule leaves about half of the kinds of faults out altogether, since faults
that are always there hide what only others can show.
"""

from dataclasses import dataclass
from random import Random

from tests.faults.kinds import FAULTS
from tests.faults.setup import Setup, draw_setup

FIRST_S, LAST_S = 18.0, 120.0
CALM_S = 125.0
"""From here on no more faults, and what went on ends."""
_FEWEST, _MOST = 7, 15
_OFTEN = {"burst": 4, "resized": 2, "changing_notice": 2, "kill_controller": 2, "kill_trainer": 2}
"""What happens more often than other things, as in life; 1 where it is not here."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at a moment; `seed` is where its own draws start."""

    at_s: float
    kind: str
    seed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """See the module's docstring."""

    seed: int
    setup: Setup
    faults: tuple[Fault, ...]


def draw_schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    random = Random(f"faults/{seed}")
    setup = draw_setup(random)
    kinds = [kind for kind in FAULTS if random.random() < 0.5] or list(FAULTS)
    times = sorted(round(random.uniform(FIRST_S, LAST_S), 2) for _ in range(random.randint(_FEWEST, _MOST)))
    weights = [_OFTEN.get(kind, 1) for kind in kinds]
    drawn = random.choices(kinds, weights, k=len(times))
    faults = tuple(
        Fault(at_s, kind, f"{seed}/{number}") for number, (at_s, kind) in enumerate(zip(times, drawn, strict=True))
    )
    return Schedule(seed=seed, setup=setup, faults=faults)
