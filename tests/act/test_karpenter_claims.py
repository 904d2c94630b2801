"""NodeClaims as watched: what ends before anybody could list it is still seen as a refusal."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from scaler.act.karpenter_claims import (
    CAPACITY_LABEL,
    NODE_POOL_LABEL,
    TYPE_LABEL,
    ZONE_LABEL,
    ClaimFacts,
    Row,
    WatchedClaims,
    claim_facts,
    node_selector,
)
from scaler.kube.contract import NODE_CLAIMS
from scaler.model.capacity import CapacityType, Offering
from tests.builders.karpenter import ON_DEMAND, POOL, SPOT, KarpenterWorld


@asynccontextmanager
async def _watched(world: KarpenterWorld, refused: Callable[[], None] = lambda: None) -> AsyncIterator[WatchedClaims]:
    claims = WatchedClaims(world.kube, POOL, clock=world.clock, refused=refused)
    task = asyncio.ensure_future(claims.run())
    await world.clock.settle()
    try:
        yield claims
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _end(world: KarpenterWorld, name: str) -> None:
    claim = world.kube.store.find(NODE_CLAIMS, None, name)
    del claim["metadata"]["finalizers"]
    world.kube.store.remove(NODE_CLAIMS, None, name, None, None)


async def test_a_claim_that_comes_and_goes_between_two_looks_is_a_refusal() -> None:
    world = KarpenterWorld()
    async with _watched(world) as claims:
        world.claim("c", launched="Unknown", reason="AwaitingReconciliation")
        _end(world, "c")
        await world.clock.settle()
        assert claims.all() == ()
        assert claims.row(SPOT) == Row(refusals=1, at_s=world.clock.now_s())
        assert claims.row(ON_DEMAND) is None


async def test_a_claim_that_was_launched_and_goes_is_none() -> None:
    world = KarpenterWorld()
    async with _watched(world) as claims:
        world.claim("c", node="n")
        await world.clock.settle()
        assert [claim.node_name for claim in claims.all()] == ["n"]
        assert claims.current_at_s == world.clock.now_s()
        _end(world, "c")
        await world.clock.settle()
        assert claims.row(SPOT) is None


async def test_claims_of_other_pools_are_not_watched() -> None:
    world = KarpenterWorld()
    meta = {"name": "other", "labels": {NODE_POOL_LABEL: "other"}}
    world.kube.place(NODE_CLAIMS, {"metadata": meta, "spec": {}})
    async with _watched(world) as claims:
        assert claims.all() == ()


async def test_trouble_is_told_once_however_often_the_claim_is_seen() -> None:
    world, heard = KarpenterWorld(), list[float]()
    async with _watched(world, lambda: heard.append(world.clock.now_s())) as claims:
        world.claim("c", launched="Unknown", reason="LaunchFailed", message="InternalError")
        told_at_s = world.clock.now_s()
        await world.clock.settle()
        world.kube.expire_watches()
        await world.clock.advance(30)
        _end(world, "c")
        await world.clock.advance(30)
        assert heard == [told_at_s]
        assert claims.row(SPOT) == Row(refusals=1, at_s=told_at_s)


async def _tried(world: KarpenterWorld, *names: str, launched: str = "Unknown", **more: Any) -> None:
    """Claims that are made together, looked at for three seconds, and end one after the other."""
    for name in names:
        world.claim(name, launched=launched, reason="AwaitingReconciliation", **more)
    for name in names:
        await world.clock.advance(3)
        _end(world, name)
    await world.clock.settle()


async def test_claims_that_end_together_are_one_refusal_and_those_after_it_another() -> None:
    world = KarpenterWorld()
    async with _watched(world) as claims:
        await _tried(world, "a", "b", "c")
        assert claims.row(SPOT) == Row(refusals=1, at_s=world.clock.now_s())
        await world.clock.advance(20)
        await _tried(world, "d", "e")
        assert claims.row(SPOT) == Row(refusals=2, at_s=world.clock.now_s())


@pytest.mark.parametrize(
    ("bought", "offering", "ends"),
    [
        pytest.param("spot", SPOT, True, id="there"),
        pytest.param("on-demand", SPOT, False, id="otherwise"),
        pytest.param("reserved", replace(SPOT, capacity_type=CapacityType.ON_DEMAND), True, id="from a reservation"),
        pytest.param("spot", replace(SPOT, zone="us-west-2b"), False, id="in another zone"),
    ],
)
async def test_a_launch_of_the_offering_ends_its_row(bought: str, offering: Offering, ends: bool) -> None:
    world = KarpenterWorld()
    async with _watched(world) as claims:
        await _tried(world, "refused", requirements=[])
        refused_at_s = world.clock.now_s()
        await world.clock.advance(20)
        labels = {TYPE_LABEL: SPOT.instance_type, ZONE_LABEL: SPOT.zone, CAPACITY_LABEL: bought}
        await _tried(world, "c", launched="True", labels=labels)
        assert claims.row(offering) == (None if ends else Row(refusals=1, at_s=refused_at_s))
        await world.clock.advance(20)
        await _tried(world, "again", requirements=[])
        assert claims.row(offering) == Row(refusals=1 if ends else 2, at_s=world.clock.now_s())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"metadata": {"name": "c"}}, id="no uid"),
        pytest.param({"metadata": {"name": "c", "uid": "u"}, "status": {"conditions": [3]}}, id="odd conditions"),
    ],
)
def test_what_is_no_claim_is_left_out(body: dict[str, object]) -> None:
    assert claim_facts(body) is None


@pytest.mark.parametrize(
    ("requirement", "allowed"),
    [
        pytest.param(("In", "us-west-2a", "us-west-2b"), True, id="in"),
        pytest.param(("In", "us-west-2b"), False, id="not in"),
        pytest.param(("NotIn", "us-west-2a"), False, id="excluded"),
        pytest.param(("NotIn", "us-west-2c"), True, id="not excluded"),
        pytest.param(("Exists",), True, id="any"),
    ],
)
def test_a_claim_allows_what_its_requirements_allow(requirement: tuple[str, ...], allowed: bool) -> None:
    operator, *values = requirement
    zone = {"key": "topology.kubernetes.io/zone", "operator": operator, "values": values}
    body = {"metadata": {"name": "c", "uid": "u"}, "spec": {"requirements": [zone, {"key": "x", "operator": "Gt"}]}}
    claim = claim_facts(body)
    assert isinstance(claim, ClaimFacts)
    assert claim.allows(SPOT) is allowed


def test_pods_are_bound_to_an_offering_by_the_labels_of_its_nodes() -> None:
    assert node_selector(SPOT, POOL) == {
        "karpenter.sh/nodepool": POOL,
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": "us-west-2a",
        "karpenter.sh/capacity-type": "spot",
    }
    block = Offering(instance_type="p5", zone="z", capacity_type=CapacityType.CAPACITY_BLOCK, price_usd_per_h=1)
    assert node_selector(block, POOL)["karpenter.k8s.aws/capacity-reservation-type"] == "capacity-block"
    assert node_selector(block, POOL)["karpenter.sh/capacity-type"] == "reserved"
