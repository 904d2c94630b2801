"""Worlds so small that every schedule can be tried, and an accounting of them that knows nothing of the bound's program.

Time goes in steps of `STEP_S`; launches, terminations, falls and reclaims fall on their edges. A schedule says at each edge
how many instances to launch in each offering and which to end; the cloud's victims are whichever suit best. It is what
`scaler.simulate.scenario` says, on a grid: the best schedule is one that a clairvoyant could really run.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

from scaler.model.capacity import Billing, CapacityType, Offering
from scaler.model.job import JobSettings
from scaler.simulate.delays import Delay
from scaler.simulate.scenario import (
    GenerationModel,
    LaunchModel,
    LengthModel,
    NoticeModel,
    OfferingModel,
    Scenario,
    TrainerModel,
)
from scaler.traces.trace import Series
from tests.builders.scenarios import a_scenario

STEP_S = 100.0
OLD = 10**6
"""Age in steps of what was warm."""


@dataclass(frozen=True)
class TinyOffering:
    counts: tuple[int, ...]
    usd_a_step: float
    spot: bool = True
    refund_steps: int = 0
    minimum_steps: int = 0


@dataclass(frozen=True)
class TinyWorld:
    offerings: tuple[TinyOffering, ...]
    launch_steps: int
    lead_steps: int
    """From a fall to the end of its victims."""
    made_a_step: float
    """By a ready replica."""
    taken_a_step: float
    """By the trainer."""
    trainer_usd_a_step: float
    stock: float
    stock_most: float
    warm: int = 0
    """Replicas of the first offering."""

    @property
    def steps(self) -> int:
        return len(self.offerings[0].counts)


def as_scenario(tiny: TinyWorld) -> Scenario:
    """The world as the bound sees it: batches of one sample, so that only steps are coarse."""
    taken_per_s = tiny.taken_a_step / STEP_S
    lengths = LengthModel(median_tokens=1000, sigma=0.0, most_tokens=1000)
    return a_scenario(
        *(_model(i, one) for i, one in enumerate(tiny.offerings)),
        hours=tiny.steps * STEP_S / 3600.0,
        job=JobSettings(group_size=1, batch_groups=1, max_staleness=round(tiny.stock_most) - 1),
        trainer=TrainerModel(usd_per_h=tiny.trainer_usd_a_step * 3600 / STEP_S, train_s=1 / taken_per_s),
        generation=GenerationModel(
            concurrent_units=1, tokens_per_s=1000 * tiny.made_a_step / STEP_S, lengths=lengths, swap_s=0.0
        ),
        launch=LaunchModel(answer=Delay(), boot=Delay(least_s=tiny.launch_steps * STEP_S), load=Delay()),
        notices=NoticeModel(lead_s=tiny.lead_steps * STEP_S, spread_s=0.0, late_ratio=0.0, none_ratio=0.0),
        warm_replicas=tiny.warm,
        warm_depth_samples=round(tiny.stock),
    )


def _model(number: int, one: TinyOffering) -> OfferingModel:
    kind = CapacityType.SPOT if one.spot else CapacityType.ON_DEMAND
    billing = Billing(minimum_s=one.minimum_steps * STEP_S, refund_if_interrupted_within_s=one.refund_steps * STEP_S)
    offering = Offering(
        instance_type="g",
        zone="ab"[number],
        capacity_type=kind,
        price_usd_per_h=one.usd_a_step * 3600 / STEP_S,
        billing=billing,
    )
    times_s = tuple(i * STEP_S for i in range(len(one.counts)))
    series = Series(name="capacity", times_s=times_s, counts=one.counts)
    return OfferingModel(pool=str(kind), offering=offering, capacity=series, reclaims=one.spot)


# the accounting

Instance = tuple[int, int | None]
"""(age in steps, steps until it is gone, or None where it is not doomed)."""
Held = tuple[Instance, ...]
Account = tuple[float, float, float]
"""(USD so far, stock, worked off)."""


def least_cost_per_sample(tiny: TinyWorld) -> float:
    """Over all schedules: cost over samples credited; infinite where none credits any."""
    start: tuple[Held, ...] = tuple(
        ((OLD, None),) * (min(tiny.warm, one.counts[0]) if i == 0 else 0) for i, one in enumerate(tiny.offerings)
    )
    states: dict[tuple[Held, ...], set[Account]] = {start: {(0.0, tiny.stock, 0.0)}}
    for step in range(tiny.steps):
        following: dict[tuple[Held, ...], set[Account]] = {}
        for held, accounts in states.items():
            for now, usd in _edges(tiny, held, step):
                ready = sum(age >= tiny.launch_steps for of in now for age, _ in of)
                older = tuple(_older(of) for of in now)
                found = {_step(tiny, account, usd, ready) for account in accounts}
                following.setdefault(older, set()).update(found)
        states = {held: _best(accounts) for held, accounts in following.items()}
    return min(_ratio(tiny, held, account) for held, accounts in states.items() for account in accounts)


def _ratio(tiny: TinyWorld, held: tuple[Held, ...], account: Account) -> float:
    usd, stock, worked = account
    usd += tiny.trainer_usd_a_step * tiny.steps
    for one, of in zip(tiny.offerings, held, strict=True):
        # A reclaim at the very end is none: what runs at the end is charged to the end.
        usd += sum(one.usd_a_step * _charged(age, tiny.steps) for age, _ in of)
    credited = worked + min(stock, tiny.stock) - tiny.stock
    return usd / credited if credited > 1e-9 else float("inf")


def _charged(age: int, since_start: int) -> int:
    return age if age < OLD else since_start


def _step(tiny: TinyWorld, account: Account, usd: float, ready: int) -> Account:
    spent, stock, worked = account
    stock += tiny.made_a_step * ready
    work = min(tiny.taken_a_step, stock)
    return spent + usd, min(tiny.stock_most, stock - work), worked + work


def _best(accounts: set[Account]) -> set[Account]:
    """Those that no other is at least as good as in everything."""
    kept: list[Account] = []
    for one in sorted(accounts, key=lambda a: (a[0], -a[1], -a[2])):
        if not any(other[1] >= one[1] and other[2] >= one[2] for other in kept):
            kept.append(one)
    return set(kept)


def _older(of: Held) -> Held:
    return tuple(sorted(((age + 1, None if left is None else left - 1) for age, left in of), key=repr))


def _edges(tiny: TinyWorld, held: tuple[Held, ...], step: int) -> Iterator[tuple[tuple[Held, ...], float]]:
    """All that may be after the edge at the start of a step, and what has ended has cost."""
    options = [list(_offering_edge(tiny, one, of, step)) for one, of in zip(tiny.offerings, held, strict=True)]
    for chosen in product(*options):
        yield tuple(of for of, _ in chosen), sum(usd for _, usd in chosen)


def _offering_edge(tiny: TinyWorld, one: TinyOffering, of: Held, step: int) -> Iterator[tuple[Held, float]]:
    count, before = one.counts[step], one.counts[max(0, step - 1)]
    seen: set[tuple[Held, float]] = set()
    for doomed in _after_fall(tiny, one, of, count, before) if one.spot else [of]:
        staying, usd = _taken(one, doomed, step)
        for kept, ended_usd in _after_ends(one, staying, step):
            for launched in range(max(0, count - len(kept)) + 1):
                option = (tuple(sorted((*kept, *((0, None),) * launched), key=repr)), usd + ended_usd)
                if option not in seen:
                    seen.add(option)
                    yield option


def _after_fall(tiny: TinyWorld, one: TinyOffering, of: Held, count: int, before: int) -> Iterator[Held]:
    """A fall dooms what is above the count; more, up to its size, where others fill the offering for a moment.

    Who is launched a moment before a fall and ended a moment after it costs nothing where there is no minimum.
    """
    free = [instance for instance in of if instance[1] is None]
    doomed = [instance for instance in of if instance[1] is not None]
    least = max(0, len(free) - count)
    most = min(len(free), max(0, before - count)) if not one.minimum_steps else least
    for number in range(least, max(least, most) + 1):
        for victims in set(combinations_of(free, number)):
            rest = list(free)
            for victim in victims:
                rest.remove(victim)
            yield (*rest, *doomed, *((age, tiny.lead_steps) for age, _ in victims))


def combinations_of(free: list[Instance], number: int) -> Iterator[tuple[Instance, ...]]:
    """All multisets of so many of them."""
    for chosen in combinations_with_replacement(sorted(set(free), key=repr), number):
        if all(chosen.count(one) <= free.count(one) for one in set(chosen)):
            yield chosen


def _taken(one: TinyOffering, of: Held, step: int) -> tuple[Held, float]:
    usd = 0.0
    for age, left in of:
        if left == 0 and age > one.refund_steps:
            usd += one.usd_a_step * max(_charged(age, step), 0 if age >= OLD else one.minimum_steps)
    return tuple(instance for instance in of if instance[1] != 0), usd


def _after_ends(one: TinyOffering, of: Held, step: int) -> Iterator[tuple[Held, float]]:
    """All ways to end some that are not doomed."""
    free = [instance for instance in of if instance[1] is None]
    for number in range(len(free) + 1):
        for ended in set(combinations_of(free, number)):
            rest = list(of)
            usd = 0.0
            for instance in ended:
                rest.remove(instance)
                age = instance[0]
                usd += one.usd_a_step * (_charged(age, step) if age >= OLD else max(age, one.minimum_steps))
            yield tuple(rest), usd


def a_tiny_world(seed: int) -> TinyWorld:
    """By lot."""
    d = random.Random(f"tiny/{seed}")
    steps = d.choice((4, 5, 6, 7))
    two = d.random() < 0.5
    refund = d.choice((0, 0, 2, 3))
    spot = TinyOffering(
        counts=_counts(d, steps, 2 if two else 3),
        usd_a_step=d.choice((1.0, 2.0, 4.0)),
        refund_steps=refund,
        minimum_steps=d.choice((0, 0, 3)) if not refund else 0,
    )
    quota = TinyOffering(counts=_counts(d, steps, 1), usd_a_step=d.choice((5.0, 10.0)), spot=False)
    return TinyWorld(
        offerings=(spot, quota) if two else (spot,),
        launch_steps=d.choice((1, 1, 2)),
        lead_steps=d.choice((0, 1)),
        made_a_step=d.choice((50.0, 100.0, 150.0)),
        taken_a_step=d.choice((100.0, 150.0, 200.0)),
        trainer_usd_a_step=d.choice((1.0, 5.0, 20.0)),
        stock=d.choice((1.0, 100.0, 200.0)),
        stock_most=d.choice((200.0, 300.0, 1000.0)),
        warm=d.choice((0, 1, 2)),
    )


def _counts(d: random.Random, steps: int, most: int) -> tuple[int, ...]:
    counts = [d.randint(0, most)]
    while len(counts) < steps:
        counts.append(d.choice((counts[-1], counts[-1], d.randint(0, most))))
    return tuple(counts)
