"""Filling a gap: take drains back first, then launch where the placement policy says, within room and spend.

Policy: a drain for size that has not ended is taken back before anything is launched, the one with most work first: it is
ready and costs nothing more. Launches are asked of the placement policy with the offerings that may be used (pool listed
and not refused, room under `max_replicas`, no refusal back-off, price within what is left to spend), accepted one by one,
and asked again without what ran out. Where the sizing policy named places itself, those are taken in its order instead,
and the placement policy only fills the floor.

Rent under the caps is that of replicas that count and of drains of our own choice not ended yet; noticed ones are left
out, or a fleet at its cap could not replace them before they are gone. The same replicas fill a pool's room.

Invariants: no launch takes stage or fleet over its cap, or a pool over its room; the answer depends on no order of the
input; every round uses up a pool, an offering or the gap, so it ends.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from policies.base import Place, Registered
from scaler.decide.victims import by_value
from scaler.decide.world import SPEND_TOLERANCE_USD_PER_H, Offer, Slot, StageWorld, finite
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import ClampCode, ReasonCode
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import PolicySpec


class Launches(NamedTuple):
    """Where to launch, the rent that adds, and what ran out where there are fewer than wanted."""

    slots: tuple[Slot, ...] = ()
    rent_usd_per_h: float = 0.0
    short_of: ClampCode | None = None


def take_back(
    world: StageWorld, gap: int, spend_left_usd_per_h: float, places: tuple[Place, ...] | None = None
) -> tuple[ReplicaView, ...]:
    """Drains of ours to undo, at most `gap`. `spend_left_usd_per_h`: under the caps, drains left out.

    Where the sizing policy named `places`, only there and at most as many: it let the others go for these.
    """
    candidates = [replica for replica in world.leaving if _may_come_back(world, replica)]
    named = None if places is None else Counter(_named(places))
    chosen: list[ReplicaView] = []
    for replica in sorted(candidates, key=lambda replica: by_value(world, replica), reverse=True):
        price, slot = world.price_usd_per_h(replica), (replica.pool, replica.offering_id)
        affordable = price <= spend_left_usd_per_h + SPEND_TOLERANCE_USD_PER_H
        if len(chosen) < gap and affordable and (named is None or named[slot] > 0):
            chosen.append(replica)
            spend_left_usd_per_h -= price
            if named is not None:
                named[slot] -= 1
    return tuple(chosen)


def _may_come_back(world: StageWorld, replica: ReplicaView) -> bool:
    """Only what we sent away for size, and only while there is time to hear of it."""
    deadline_s = finite(replica.drain_deadline_s)
    return (
        replica.phase is ReplicaPhase.DRAINING
        and replica.worker is not None
        and replica.drain_reason == ReasonCode.SIZE_DOWN
        and deadline_s is not None
        and world.now_s < deadline_s
        and world.may_end(replica)
    )


class Order(NamedTuple):
    """What is to be launched: `wanted` replicas at `places` if the sizing policy named any, else where `policy` says.

    Where places were named, `least` of the replicas are launched all the same: the floor is filled anywhere.
    """

    wanted: int
    least: int
    places: tuple[Place, ...] | None
    policy: Registered


def place(world: StageWorld, order: Order, spend_left_usd_per_h: float, ended: frozenset[str]) -> Launches:
    """At most `order.wanted` launches. `ended`: ids of replicas that this plan ends, whose room is free."""
    room = world.room(ended)
    usable = world.offers
    left = spend_left_usd_per_h + SPEND_TOLERANCE_USD_PER_H
    slots: list[Slot] = []
    if order.places is not None:
        slots = _accept(_named(order.places), usable, room, left, order.wanted)
    anywhere = order.wanted if order.places is None else order.least
    while len(slots) < anywhere:
        left_now = left - _rent(slots, usable)
        offered = {slot: entry for slot, entry in usable.items() if room[slot[0]] > 0 and entry.price <= left_now}
        asked = min(anywhere - len(slots), sum(room[pool] for pool in {pool for pool, _ in offered}))
        accepted = _accept(_ask(world, asked, offered, order.policy), offered, room, left_now, asked)
        if not accepted:
            break
        slots += accepted
    short_of = _short_of(slots, order, usable, room)
    return Launches(slots=tuple(slots), rent_usd_per_h=_rent(slots, usable), short_of=short_of)


def _named(places: tuple[Place, ...]) -> Iterator[Slot]:
    for named in places:
        yield from repeat((named.pool, named.offering_id), max(0, named.replicas))


def _rent(slots: Sequence[Slot], usable: Mapping[Slot, Offer]) -> float:
    return sum(usable[slot].price for slot in slots)


def _ask(world: StageWorld, asked: int, offered: Mapping[Slot, Offer], policy: Registered) -> Sequence[Slot]:
    if not offered or asked <= 0:
        return ()
    spec: PolicySpec = world.spec.placement
    entries = tuple((pool, entry.view) for (pool, _), entry in offered.items())
    answer: Sequence[Slot] = policy.function(asked, entries, world.now_s, spec.params)
    return answer


def _accept(
    asked: Iterable[Slot], offered: Mapping[Slot, Offer], room: dict[str, int], left: float, most: int
) -> list[Slot]:
    """Those of the answer that fit, in its order, at most so many; takes their room."""
    accepted: list[Slot] = []
    for slot in asked:
        if len(accepted) >= most:
            break
        if slot in offered and room[slot[0]] > 0 and offered[slot].price <= left:
            accepted.append(slot)
            room[slot[0]] -= 1
            left -= offered[slot].price
    return accepted


def _short_of(
    slots: Sequence[Slot], order: Order, usable: Mapping[Slot, Offer], room: Mapping[str, int]
) -> ClampCode | None:
    if len(slots) >= order.wanted:
        return None
    if order.places is not None and sum(slot in usable for slot in _named(order.places)) < order.wanted:
        return ClampCode.NO_OFFERING
    return ClampCode.SPEND if any(room[pool] > 0 for pool, _ in usable) else ClampCode.NO_OFFERING
