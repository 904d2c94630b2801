"""Prices that tremble, and prices that swing, replace nobody: the engine in a closed loop, with every sizing policy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest

from policies.registry import SIZING
from scaler.model.plan import LaunchReplica
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, Snapshot
from scaler.model.spec import PolicySpec
from tests.builders.fluid_world import FluidWorld
from tests.builders.snapshots import a_fleet_spec, a_pool_spec, an_offering

HOUR_S = 3600.0
ZONES = ("east", "west", "north")
OFFERINGS = tuple(an_offering(zone, price=10.0) for zone in ZONES)
PARAMS: dict[str, dict[str, Any]] = {"static": {"replicas": 4}, "marginal_value": {"trainer_usd_per_h": 60.0}}
Price = Callable[[float, str], float]


@dataclass(kw_only=True)
class Market(FluidWorld):
    """Three Spot offerings whose prices (USD/h) a function tells by time and zone."""

    price: Price
    launches: int = 0

    def _snapshot(self, ready: int, made: float) -> Snapshot:
        snapshot = super()._snapshot(ready, made)
        (stage,) = snapshot.stages
        (pool,) = stage.pools
        offerings = tuple(
            OfferingView(offering=replace(each, price_usd_per_h=self.price(self.now_s, each.zone)))
            for each in OFFERINGS
        )
        version = Reading(float(int(self.now_s / 60)), self.now_s)
        stage = replace(
            stage, pools=(replace(pool, offerings=offerings),), signals=replace(stage.signals, policy_version=version)
        )
        return replace(snapshot, stages=(stage,))

    def _carry_out(self, command: object) -> None:
        super()._carry_out(command)
        if isinstance(command, LaunchReplica):
            self.launches += 1
            launched = self.replicas[command.token]
            self.replicas[command.token] = replace(launched, offering_id=command.offering_id)


def steady(now_s: float, zone: str) -> float:
    del now_s, zone
    return 10.0


def trembling(now_s: float, zone: str) -> float:
    """Two per cent up or down, anew every five minutes."""
    return 10.0 * Random(f"{zone} {int(now_s / 300)}").uniform(0.98, 1.02)


def swinging(now_s: float, zone: str) -> float:
    """Every half an hour another zone is a quarter cheaper than the others."""
    return 7.5 if ZONES[int(now_s / 1800) % 3] == zone else 10.0


def a_market(policy: str, price: Price) -> Market:
    sizing = PolicySpec(name=policy, params=SIZING[policy].params(**PARAMS.get(policy, {})))
    rails = {"max_replicas": 12, "cooldown_down_s": 300.0, "lower_after_fresh_s": 600.0}
    spec = a_fleet_spec(sizing, pools=[a_pool_spec("pool", *OFFERINGS)], **rails)
    return Market(spec=spec, price=price, demand_per_s=lambda _now_s: 1.1)


@cache
def launches_once_settled(policy: str, price: Price) -> int:
    """In two hours, after one."""
    market = a_market(policy, price).run(HOUR_S)
    assert market.replicas
    before = market.launches
    return market.run(2 * HOUR_S).launches - before


@pytest.mark.parametrize("policy", sorted(SIZING))
@pytest.mark.parametrize("price", [trembling, swinging])
def test_bug_077_nobody_is_replaced_for_a_price_that_will_be_another_soon(policy: str, price: Price) -> None:
    """KP#3921, #8536: consolidation replaced nodes for 14 hours, each by one a little cheaper."""
    assert launches_once_settled(policy, price) <= launches_once_settled(policy, steady)


def test_a_price_that_stays_another_is_followed_once() -> None:
    market = a_market("marginal_value", lambda now_s, zone: 7.5 if now_s >= HOUR_S and zone == "north" else 10.0)
    before = market.run(HOUR_S).launches
    market.run(6 * HOUR_S)
    assert {replica.offering_id.split("/")[1] for replica in market.replicas.values()} == {"north"}
    assert market.launches - before <= len(market.replicas) + 1
