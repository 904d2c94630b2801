"""What the fleet's stages pay, and what is left under the caps of each stage and of the whole fleet.

Two sums a stage (USD/h): `counting`, of what counts as capacity, and `held`, which adds drains of our own choice that are
not ended yet. Lowering looks at the first, or it would lower twice for one excess; launching at the second. Where the
fleet is over its cap, stages named later in the specification give way first.
"""

import math
from collections.abc import Mapping, Sequence

from scaler.decide.world import StageWorld


class Rents:
    """Running account of one decision; stages report what they change."""

    def __init__(
        self, worlds: Sequence[StageWorld], ended: Mapping[str, frozenset[str]], fleet_cap_usd_per_h: float | None
    ) -> None:
        self._fleet_cap = math.inf if fleet_cap_usd_per_h is None else fleet_cap_usd_per_h
        self._counting = {world.spec.name: world.counting_usd_per_h for world in worlds}
        self._held = {
            world.spec.name: self._counting[world.spec.name]
            + world.rent_usd_per_h(
                replica for replica in world.leaving if replica.replica_id not in ended[world.spec.name]
            )
            for world in worlds
        }

    def held_usd_per_h(self, stage: str) -> float:
        """What a stage pays for."""
        return self._held[stage]

    def cap_usd_per_h(self, world: StageWorld) -> float:
        """What a stage's counting replicas may cost, after the stages before it."""
        before = 0.0
        for name, rent in self._counting.items():
            if name == world.spec.name:
                break
            before += rent
        return min(world.spec.guard_rails.max_spend_usd_per_h, self._fleet_cap - before)

    def left_to_take_back(self, world: StageWorld) -> float:
        """What replicas that are paid for already may add to what counts."""
        return self._left(world, self._counting)

    def left_to_launch(self, world: StageWorld) -> float:
        """What new replicas may add."""
        return self._left(world, self._held)

    def _left(self, world: StageWorld, paid: Mapping[str, float]) -> float:
        stage_left = world.spec.guard_rails.max_spend_usd_per_h - paid[world.spec.name]
        return min(stage_left, self._fleet_cap - sum(paid.values()))

    def change(self, stage: str, *, counting_usd_per_h: float, held_usd_per_h: float) -> None:
        """A stage's commands add so much (or take away, negative)."""
        self._counting[stage] += counting_usd_per_h
        self._held[stage] += held_usd_per_h
