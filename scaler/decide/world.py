"""A stage as the engine looks at it: replicas in a fixed order, each with its role, and pools with their prices.

Policy: a replica is *noticed* when a notice of a binding kind stands for it, or when its drain mark says that one did (the
mark outlives the notice source's memory). A rebalance recommendation binds nothing. What counts as capacity is in the
model; noticed replicas and launches that took too long do not count.

A refused offering is left alone for initial * 2^(refusals - 1) seconds, at most the pool's maximum.

Invariants: nothing here depends on the order of the snapshot's tuples; a replica id appears once.
Non-goals: judgement about sizes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from scaler.model.capacity import COUNTS_AS_CAPACITY, CapacityType, ReplicaPhase
from scaler.model.interruption import BINDING, DEFAULT_WARNING_S, InterruptionNotice
from scaler.model.once import for_same, once
from scaler.model.plan import ReasonCode
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, StageView
from scaler.model.spec import PoolSpec, StageSpec

T = TypeVar("T")
Slot: TypeAlias = tuple[str, str]
"""(pool, offering id)."""
SPEND_TOLERANCE_USD_PER_H = 1e-6
"""Rents are sums of floats: caps are kept to this."""
NOT_READY_YET = frozenset({ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING, ReplicaPhase.LOADING})
_NONE: Mapping[str, float] = MappingProxyType({})
_SLOT: Callable[[ReplicaView], Slot] = attrgetter("pool", "offering_id")
ON_ITS_WAY_OUT = frozenset({ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING})


def _arrived(replicas: Sequence[ReplicaView]) -> int:
    return len(replicas) - [replica.phase for replica in replicas].count(ReplicaPhase.REQUESTED)


def finite(value: float | None) -> float | None:
    """The value, or None where it is no usable number."""
    return value if value is not None and math.isfinite(value) else None


def is_noticed(replica: ReplicaView) -> bool:
    """Whether the cloud takes it."""
    return _binding(replica.notice) is not None or _marked_by_notice(replica)


def notice_deadline_s(replica: ReplicaView, now_s: float) -> float:
    """When a noticed replica goes; what cannot be read counts as due now."""
    notice = _binding(replica.notice)
    if notice is None:
        return finite(replica.drain_deadline_s) or now_s
    named = finite(notice.deadline_s)
    if named is not None:
        return named
    noticed_at_s = finite(notice.noticed_at_s)
    return now_s if noticed_at_s is None else noticed_at_s + DEFAULT_WARNING_S


def _binding(notice: InterruptionNotice | None) -> InterruptionNotice | None:
    return notice if notice is not None and notice.kind in BINDING else None


def _marked_by_notice(replica: ReplicaView) -> bool:
    return replica.drain_reason == ReasonCode.NOTICE and replica.phase in ON_ITS_WAY_OUT


def by_name(items: Sequence[T], key: Callable[[T], str]) -> dict[str, T]:
    """Items by name, in order; of those that share a name the last by all else, so that the input's order never shows."""
    ordered = sorted(items, key=key)
    found = dict(zip(map(key, ordered), ordered, strict=True))
    if len(found) < len(ordered):
        found = {key(item): item for item in sorted(items, key=lambda item: (key(item), repr(item)))}
    return found


def named_once(items: Sequence[T], key: Callable[[T], str]) -> dict[str, T]:
    """Items by name, without any name that comes twice: what contradicts itself is not known."""
    found = {key(item): item for item in items}
    if len(found) == len(items):
        return found
    times = Counter(map(key, items))
    return {name: item for name, item in found.items() if times[name] == 1}


def _later(a_s: float | None, b_s: float | None) -> float | None:
    if a_s is None or b_s is None:
        return b_s if a_s is None else a_s
    return max(a_s, b_s)


ASKED_WITHIN_S = 20.0
"""One offering after the other is asked: the answer, and the wait for the next decision. A pool that asks again sooner than that
after a first refusal is taken to be answered as soon."""


@for_same
def round_s(spec: StageSpec) -> float:
    """How long it takes to ask all spot offerings of a stage, one after the other."""
    return sum(
        [_spot_offerings(pool) * min(ASKED_WITHIN_S, pool.refusal_backoff_initial_s) for pool in spec.pools], 0.0
    )


def _spot_offerings(pool: PoolSpec) -> int:
    return [each.capacity_type for each in pool.offerings].count(CapacityType.SPOT)


def backoff_ends_at_s(pool: PoolSpec, view: OfferingView, around_s: float) -> float:
    """When an offering may be asked again; minus infinity where it did not refuse.

    `around_s`: the longest wait is no shorter than this round of asking, or the first offering would be asked again before
    the last, and what is dearer never.
    """
    refused_at_s = finite(view.refused_at_s)
    if refused_at_s is None:
        return -math.inf
    doublings = min(max(view.refusals, 1), 64) - 1
    longest_s = max(pool.refusal_backoff_max_s, around_s)
    return refused_at_s + min(pool.refusal_backoff_initial_s * 2.0**doublings, longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offering where a launch may be asked for now. `price`: USD/h of a whole replica."""

    view: OfferingView
    price: float


def _later_reclaimed(offer: Offer, at_s: float) -> Offer:
    view = _reclaiming_at(offer.view, _later(offer.view.reclaiming_at_s, at_s))
    return offer if view is offer.view else replace(offer, view=view)


def _reclaiming_at(view: OfferingView, at_s: float | None) -> OfferingView:
    return view if at_s == view.reclaiming_at_s else replace(view, reclaiming_at_s=at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What a pool's list comes to, whatever the time. By offering id, in order, but for `known`."""

    known: Mapping[str, OfferingView]
    prices_usd_per_h: Mapping[str, float]
    """Rent of one replica, all its nodes; without offerings whose price is unknown or none."""
    offers: tuple[tuple[Slot, Offer], ...]
    """Those with a price; a reclaim at no finite time is left out."""
    backoffs_end_s: Mapping[Slot, float]
    """When each that refused may be asked again."""


@for_same
def _listed(spec: PoolSpec, seen: tuple[OfferingView, ...], stage: StageSpec) -> _Listed:
    """Lists change rarely, and are looked at in every decision."""
    views = by_name(seen, lambda view: view.offering.offering_id)
    specified = {offering.offering_id: offering for offering in spec.offerings}
    known = {name: OfferingView(offering=offering) for name, offering in specified.items() if name not in views} | views
    found = ((name, finite(view.offering.price_usd_per_h)) for name, view in known.items())
    prices = {name: price * spec.nodes_per_replica for name, price in found if price is not None and price >= 0}
    return _Listed(
        known=known,
        prices_usd_per_h=prices,
        offers=tuple(
            (
                (spec.name, name),
                Offer(view=_reclaiming_at(known[name], finite(known[name].reclaiming_at_s)), price=price),
            )
            for name, price in sorted(prices.items())
        ),
        backoffs_end_s={
            (spec.name, name): backoff_ends_at_s(spec, view, round_s(stage))
            for name, view in known.items()
            if view.refused_at_s is not None
        },
    )


@dataclass(frozen=True, kw_only=True)
class PoolWorld:
    """A pool of the specification and what was listed of it. `view` None: never listed."""

    spec: PoolSpec
    stage: StageSpec
    view: PoolView | None
    now_s: float
    max_age_s: float

    @property
    def listed(self) -> bool:
        """Whether it was ever listed completely."""
        return self.view is not None and self.view.listed_at_s is not None

    @once
    def current(self) -> bool:
        """Whether its list is recent enough to act on."""
        return self.view is not None and self.view.listed_at_s is not None and not self._old(self.view.listed_at_s)

    @once
    def usable(self) -> bool:
        """Whether we may launch and end there."""
        return self.current and self.view is not None and self.view.refused_reason is None

    def _old(self, listed_at_s: float) -> bool:
        return not self.now_s - listed_at_s <= self.max_age_s

    @once
    def facts(self) -> _Listed:
        """What its list comes to; what was not seen is as specified."""
        return _listed(self.spec, () if self.view is None else self.view.offerings, self.stage)

    @property
    def offerings(self) -> Mapping[str, OfferingView]:
        """Offering id -> offering as last seen; as specified where it was not seen."""
        return self.facts.known

    @property
    def prices_usd_per_h(self) -> Mapping[str, float]:
        """Offering id -> rent of one replica, all its nodes; without those whose price is unknown or none."""
        return self.facts.prices_usd_per_h

    def offers(self) -> Iterator[tuple[Slot, Offer]]:
        """What may be launched there at all now, in order of name."""
        if not self.usable:
            return iter(())
        if not self.facts.backoffs_end_s:
            return iter(self.facts.offers)
        ends_s, now_s = self.facts.backoffs_end_s, self.now_s
        return ((slot, offer) for slot, offer in self.facts.offers if slot not in ends_s or now_s >= ends_s[slot])

    def waiting(self) -> Iterator[OfferingView]:
        """What refused and may not be asked yet."""
        ends_s, now_s = self.facts.backoffs_end_s, self.now_s
        return (self.facts.known[name] for (_, name), end_s in ends_s.items() if now_s < end_s)


@dataclass(frozen=True, kw_only=True)
class StageWorld:
    """One stage: its specification, its view, its clock."""

    spec: StageSpec
    view: StageView
    now_s: float
    paused: bool

    @once
    def pools(self) -> Mapping[str, PoolWorld]:
        """Every pool of the specification by name."""
        seen = named_once(self.view.pools, lambda view: view.name)
        return {
            spec.name: PoolWorld(
                spec=spec,
                stage=self.spec,
                view=seen.get(spec.name),
                now_s=self.now_s,
                max_age_s=self.spec.guard_rails.signal_max_age_s,
            )
            for spec in self.spec.pools
        }

    @once
    def replicas(self) -> tuple[ReplicaView, ...]:
        """Every replica once, by id."""
        return tuple(by_name(self.view.replicas, attrgetter("replica_id")).values())

    @once
    def restless(self) -> tuple[ReplicaView, ...]:
        """All but those that are just ready: neither noticed, nor told to go, nor on their way up or down."""
        ready = ReplicaPhase.READY
        return tuple(
            [
                replica
                for replica in self.replicas
                if replica.phase is not ready or replica.notice is not None or replica.drain_deadline_s is not None
            ]
        )

    def listed(self, replica: ReplicaView) -> bool:
        """Whether the replica's pool was ever listed: else no command may name it."""
        pool = self.pools.get(replica.pool)
        return pool is not None and pool.listed

    def may_end(self, replica: ReplicaView) -> bool:
        """Whether we may drain or end it by our own choice."""
        return replica.pool in self._ours_to_end and not replica.comes_by_itself

    @once
    def _ours_to_end(self) -> frozenset[str]:
        """The pools where we may end anything."""
        return frozenset(() if self.paused else (name for name, pool in self.pools.items() if pool.usable))

    def failed_launch(self, replica: ReplicaView) -> bool:
        """Whether it took longer than its pool allows to become ready, and may be given up."""
        if replica.phase not in NOT_READY_YET:
            return False
        since_s = self.launch_seen_since_s(replica)
        if since_s is None or not self.may_end(replica):
            return False
        return not is_noticed(replica) and self.now_s - since_s > self.pools[replica.pool].spec.launch_timeout_s

    def launch_seen_since_s(self, replica: ReplicaView) -> float | None:
        """When its launch time-out began: at its launch, or anew when the ledger, where its worker is seen, came back."""
        launched_at_s, workers_since_s = finite(replica.launched_at_s), finite(self.view.workers_since_s)
        if launched_at_s is None or workers_since_s is None or replica.phase is ReplicaPhase.REQUESTED:
            return launched_at_s
        return max(launched_at_s, workers_since_s)

    @once
    def counting(self) -> tuple[ReplicaView, ...]:
        """What counts as capacity: requested to ready, neither noticed nor a failed launch."""
        ready = ReplicaPhase.READY
        return tuple(
            [
                replica
                for replica in self.replicas
                if (replica.phase is ready and replica.notice is None) or self._counts(replica)
            ]
        )

    def _counts(self, replica: ReplicaView) -> bool:
        return replica.phase in COUNTS_AS_CAPACITY and not is_noticed(replica) and not self.failed_launch(replica)

    @once
    def ready(self) -> int:
        """How many of those counting are ready."""
        return [replica.phase for replica in self.counting].count(ReplicaPhase.READY)

    @once
    def arrived(self) -> int:
        """How many of those counting have an instance."""
        return _arrived(self.counting)

    @once
    def observed(self) -> int:
        """How many of all have an instance, or had one."""
        return _arrived(self.replicas)

    @once
    def leaving(self) -> tuple[ReplicaView, ...]:
        """Draining or drained by our own choice, and not ended yet: no capacity, but rent."""
        out = (ReplicaPhase.DRAINING, ReplicaPhase.DRAINED)
        return tuple(replica for replica in self.restless if replica.phase in out and not is_noticed(replica))

    @once
    def slots(self) -> Mapping[Slot, int]:
        """How many of those counting each offering holds."""
        return Counter(map(_SLOT, self.counting))

    @once
    def counting_usd_per_h(self) -> float:
        """Rent of what counts as capacity."""
        prices = self._prices
        return sum([prices.get(pool, _NONE).get(name, 0.0) * count for (pool, name), count in self.slots.items()], 0.0)

    def rent_usd_per_h(self, replicas: Iterable[ReplicaView]) -> float:
        """Rent of these replicas; an offering without a price counts nothing."""
        prices = self._prices
        return sum([prices.get(replica.pool, _NONE).get(replica.offering_id, 0.0) for replica in replicas], 0.0)

    def price_usd_per_h(self, replica: ReplicaView) -> float:
        """Rent of one replica, 0 where unknown."""
        return self._prices.get(replica.pool, _NONE).get(replica.offering_id, 0.0)

    @once
    def _prices(self) -> Mapping[str, Mapping[str, float]]:
        return {name: pool.prices_usd_per_h for name, pool in self.pools.items()}

    @once
    def reclaiming(self) -> Mapping[Slot, float]:
        """(pool, offering id) -> when a notice of a replica in sight, hints too, was last given there."""
        latest: dict[Slot, float] = {}
        for replica in self.restless:
            if replica.notice is not None:
                key = (replica.pool, replica.offering_id)
                at_s = finite(replica.notice.noticed_at_s)
                latest[key] = max(latest.get(key, -math.inf), self.now_s if at_s is None else at_s)
        return latest

    def reclaiming_at_s(self, pool: str, offering_id: str) -> float | None:
        """When capacity was last taken from an offering, as far as anybody knows."""
        world = self.pools.get(pool)
        view = None if world is None else world.offerings.get(offering_id)
        return _later(None if view is None else finite(view.reclaiming_at_s), self.reclaiming.get((pool, offering_id)))

    @once
    def offers(self) -> Mapping[Slot, Offer]:
        """What may be launched at all now, in a fixed order, with what is known of reclaims."""
        found = {slot: offer for _, pool in sorted(self.pools.items()) for slot, offer in pool.offers()}
        for slot, at_s in self.reclaiming.items():
            if slot in found:
                found[slot] = _later_reclaimed(found[slot], at_s)
        return found

    def room(self, ended: frozenset[str] = frozenset()) -> dict[str, int]:
        """Replicas that each pool may hold yet. `ended`: ids of replicas whose room is free; none of those counts."""
        room = {name: pool.spec.max_replicas for name, pool in self.pools.items()}
        for (name, _), count in self.slots.items():
            if name in room:
                room[name] -= count
        for replica in self.leaving:
            if replica.pool in room and replica.replica_id not in ended:
                room[replica.pool] -= 1
        return room

    @once
    def risks(self) -> Mapping[tuple[str, str], tuple[bool, float]]:
        """(pool, offering id) -> how risky, the riskiest greatest: spot over the rest, then the latest reclaim."""
        return {key: self._risk(*key) for key in {(replica.pool, replica.offering_id) for replica in self.replicas}}

    def _risk(self, pool: str, offering_id: str) -> tuple[bool, float]:
        world = self.pools.get(pool)
        view = None if world is None else world.offerings.get(offering_id)
        spot = view is not None and view.offering.capacity_type is CapacityType.SPOT
        at_s = self.reclaiming_at_s(pool, offering_id)
        return spot, -math.inf if at_s is None else at_s
