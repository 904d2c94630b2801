"""The bound's problem as plain numbers: nothing but this goes to the solver, and to whoever checks it (`FORMAT.md`).

Counts are of whole replicas, meaned over a step; samples are accepted ones; money is USD; times are seconds from the start.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = "headrace-optimum/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One way to be taken for nothing: granted then, held until the fall, ready meanwhile and a little longer."""

    granted_s: float
    ready_from_s: float
    ready_to_s: float
    fades: bool = False
    """After the fall it is there only as often as `Draws` says: where the bound is one of the mean and the refund is sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A fall of an offering's capacity, and the lives whose rent it may refund."""

    at_s: float
    most_replicas: float
    """By how much it falls: so many it takes at the most."""
    stays: float
    """The count after it: it takes nothing before so many others are held."""
    lives: tuple[Life, ...]


def fades_after(fall: Fall, life: Life) -> float | None:
    """When the share of those who live it begins to sink; None where it does not."""
    return fall.at_s if life.fades else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingLimits:
    """What an offering allows, step by step."""

    pool: str
    offering_id: str
    capacity_type: str
    usd_per_h: float
    """Of a whole replica."""
    warm_replicas: int
    """Held and ready at the start, and long before."""
    held_most: tuple[float, ...]
    ready_most: tuple[float, ...]
    falls: tuple[Fall, ...] = ()
    """Those that may refund."""
    minimum_s: float = 0.0
    """What is granted is charged for so long; 0 where that follows from the launch time."""
    unforeseen_refund_s: float = 0.0
    """Where instances are taken at times of their own: the longest life that is refunded whenever it ends. 0: none is."""

    @property
    def key(self) -> tuple[str, str]:
        """(pool, offering id)."""
        return self.pool, self.offering_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What is made and not yet worked off, in samples."""

    start_least: float
    start_most: float
    most: float
    """After every step."""
    slack: float
    """What a run may yield above goodput times ready time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A guard rail over all offerings together: sum of weight * held is at most so much."""

    name: str
    weights: tuple[float, ...]
    """By offering, in their order."""
    mean_most: tuple[float, ...]
    """Over each step."""
    falls_most: tuple[float, ...]
    """At the moments of `Problem.instants_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Who is ready in `step` was held throughout a step before, or was granted since and is ready by luck."""

    step: int
    earlier: int
    """-1: the start; then only warm ones were held."""
    edges: tuple[int, ...]
    """Grants, given to the edges around them, that count ..."""
    weights: tuple[float, ...]
    """... by the share of them that is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What holds in the mean over draws that a policy does not know: of launches, and of whom a fall takes."""

    blind_s: float
    """From a grant: nobody has registered by then."""
    least_unready_s: float
    """Spent, in the mean, for each launch that becomes ready, wherever others are given up."""
    stays_from_s: tuple[float, ...]
    """Ages after a fall, from which on ..."""
    stays: tuple[float, ...]
    """... at most so large a share of those that it marked is still there; none after the last."""
    late: tuple[Late, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """See `FORMAT.md`."""

    scenario: str
    edges_s: tuple[float, ...]
    """Of the steps: one more than there are steps."""
    launch_s: float
    """Least time from grant to ready."""
    trainer_usd_per_h: float
    goodput_samples_per_s: float
    """Of a ready replica."""
    demand_samples_per_s: float
    """Of the trainer, never waiting."""
    credit_most_samples: float
    """Of the batches that a trainer which never waits finishes."""
    credit_ahead_samples: float
    """How far finished batches may run ahead of `demand_samples_per_s`."""
    useful_replicas: float
    """More ready ones than this find no work that the ledger admits."""
    stock: Stock
    offerings: tuple[OfferingLimits, ...]
    instants_s: tuple[float, ...] = ()
    """Edges at which capacity falls: `limits` hold just before."""
    limits: tuple[Limit, ...] = ()
    draws: Draws | None = None
    """Where the bound is one of the mean."""

    @property
    def steps(self) -> int:
        """How many steps."""
        return len(self.edges_s) - 1

    @property
    def hours(self) -> float:
        """Length of the window."""
        return self.edges_s[-1] / 3600.0

    @property
    def trainer_usd(self) -> float:
        """Charged whatever happens."""
        return self.trainer_usd_per_h * self.hours

    def to_json(self) -> dict[str, Any]:
        """As `FORMAT.md` describes."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Problem":
        """The inverse of `to_json`; `ValueError` where the format is another."""
        facts = dict(document)
        if facts.pop("format", None) != FORMAT:
            raise ValueError(f"not a problem of format {FORMAT}")
        stock = Stock(**facts.pop("stock"))
        offerings = tuple(_offering(one) for one in facts.pop("offerings"))
        limits = tuple(Limit(**_tuples(one)) for one in facts.pop("limits"))
        draws = _draws(facts.pop("draws", None))
        return cls(stock=stock, offerings=offerings, limits=limits, draws=draws, **_tuples(facts))


def _offering(document: Mapping[str, Any]) -> OfferingLimits:
    facts = dict(document)
    falls = tuple(_fall(fall) for fall in facts.pop("falls"))
    return OfferingLimits(falls=falls, **_tuples(facts))


def _draws(document: Mapping[str, Any] | None) -> Draws | None:
    if document is None:
        return None
    facts = dict(document)
    late = tuple(Late(**_tuples(one)) for one in facts.pop("late"))
    return Draws(late=late, **_tuples(facts))


def _fall(document: Mapping[str, Any]) -> Fall:
    facts = dict(document)
    return Fall(lives=tuple(Life(**life) for life in facts.pop("lives")), **facts)


def _tuples(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
