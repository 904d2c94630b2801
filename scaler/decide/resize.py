"""From an allowed size to who comes and who goes: drains taken back, launches, victims; with what stood in the way.

Invariants: nothing is launched and lowered at once; a size that spend does not allow is not remembered (it would be bought
later without its cool-down), one that no offering gives today is (it is still wanted); holding picks no victims.
"""

from typing import NamedTuple

from policies.base import Place, Registered
from scaler.decide.growing import Order, place, take_back
from scaler.decide.rails import Railed
from scaler.decide.rents import Rents
from scaler.decide.victims import pick_victims
from scaler.decide.world import Slot, StageWorld
from scaler.model.plan import Clamp, ClampCode
from scaler.model.snapshot import ReplicaView


class Change(NamedTuple):
    """How a stage moves to its size. `desired` is the size to remember; `clamps` all that changed the wish."""

    desired: int
    clamps: tuple[Clamp, ...]
    launches: tuple[Slot, ...] = ()
    undrained: tuple[ReplicaView, ...] = ()
    victims: tuple[ReplicaView, ...] = ()

    @property
    def delta(self) -> int:
        """Replicas that count more after it."""
        return len(self.launches) + len(self.undrained) - len(self.victims)


class Preferences(NamedTuple):
    """Where replicas come from and who goes first: the sizing policy's own say, and the placement policy for the rest."""

    places: tuple[Place, ...] | None
    release_first: tuple[str, ...]
    placement: Registered


def resize(world: StageWorld, railed: Railed, preferences: Preferences, rents: Rents, ended: frozenset[str]) -> Change:
    """Bring what counts to the allowed size, as far as budget, spend and offerings permit; accounts for the rent."""
    gap = railed.size - len(world.counting)
    if gap > 0:
        return _grow(world, railed, preferences, rents, ended)
    if gap < 0:
        return _shrink(world, railed, preferences.release_first, rents)
    return Change(desired=railed.size, clamps=railed.clamps)


def _grow(world: StageWorld, railed: Railed, preferences: Preferences, rents: Rents, ended: frozenset[str]) -> Change:
    count, name = len(world.counting), world.spec.name
    undrained = take_back(world, railed.size - count, rents.left_to_take_back(world), preferences.places)
    rents.change(name, counting_usd_per_h=world.rent_usd_per_h(undrained), held_usd_per_h=0.0)
    reached = count + len(undrained)
    order = Order(
        wanted=railed.size - reached,
        least=min(railed.size, world.spec.guard_rails.min_replicas) - reached,
        places=preferences.places,
        policy=preferences.placement,
    )
    launches = place(world, order, rents.left_to_launch(world), ended)
    rents.change(name, counting_usd_per_h=launches.rent_usd_per_h, held_usd_per_h=launches.rent_usd_per_h)
    reached += len(launches.slots)
    short_of = launches.short_of
    return Change(
        desired=reached if short_of is ClampCode.SPEND else railed.size,
        clamps=railed.clamps if short_of is None else railed.to(short_of, reached).clamps,
        launches=launches.slots,
        undrained=undrained,
    )


def _shrink(world: StageWorld, railed: Railed, first: tuple[str, ...], rents: Rents) -> Change:
    victims = pick_victims(world, len(world.counting) - railed.size, first)
    ended_at_once = [replica for replica in victims if replica.worker is None]
    rents.change(
        world.spec.name,
        counting_usd_per_h=-world.rent_usd_per_h(victims),
        held_usd_per_h=-world.rent_usd_per_h(ended_at_once),
    )
    railed = railed.to(ClampCode.DISRUPTION_BUDGET, len(world.counting) - len(victims))
    return Change(desired=railed.size, clamps=railed.clamps, victims=victims)
