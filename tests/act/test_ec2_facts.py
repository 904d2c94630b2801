import pytest
import structlog

from scaler.act.base import OfferingFacts
from tests.builders.ec2_pools import TYPE, ZONE_A, ZONE_B, Bed, an_offering
from tests.simcloud.market import SPOT, Offering

HERE = Offering(TYPE, ZONE_A, SPOT)
A, B = an_offering(ZONE_A), an_offering(ZONE_B)


def a_bed() -> Bed:
    bed = Bed()
    bed.group(zones=(ZONE_A, ZONE_B))
    return bed


async def test_nothing_is_told_before_anything_is_known() -> None:
    assert a_bed().pool().facts() == {A.offering_id: OfferingFacts()}


async def test_the_newest_spot_price_of_type_and_zone_is_told() -> None:
    bed = a_bed()
    bed.sim.market.set_price(TYPE, ZONE_A, 12.0)
    bed.pass_time(60)
    bed.sim.market.set_price(TYPE, ZONE_A, 14.5)
    bed.sim.market.set_price(TYPE, ZONE_B, 9.0)
    pool = bed.pool(offerings=(A, B))
    await pool.observe()
    prices = {name: facts.price_usd_per_h for name, facts in pool.facts().items()}
    assert prices == {A.offering_id: 14.5, B.offering_id: 9.0}


async def test_prices_are_read_every_five_minutes() -> None:
    bed = a_bed()
    pool = bed.pool()
    for _ in range(20):
        await pool.observe()
        bed.pass_time(30)
    assert bed.calls("DescribeSpotPriceHistory") == 2
    assert bed.calls("GetSpotPlacementScores") == 1


async def test_placement_scores_come_by_zone_name() -> None:
    bed = a_bed()
    bed.sim.market.scores = {(TYPE, ZONE_A): 3, (TYPE, ZONE_B): 8}
    pool = bed.pool(offerings=(A, B))
    await pool.observe()
    scores = {name: facts.placement_score for name, facts in pool.facts().items()}
    assert scores == {A.offering_id: 3, B.offering_id: 8}


async def test_scores_that_may_not_be_had_are_said_once_and_done_without() -> None:
    bed = a_bed()
    pool = bed.pool()
    bed.sim.fail_next("GetSpotPlacementScores", "UnauthorizedOperation", times=99)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await pool.observe()
            bed.pass_time(4000)
    assert [entry["what"] for entry in logs if entry["event"] == "offering_facts_missing"] == ["scores"]
    assert pool.facts()[A.offering_id].placement_score is None
    assert pool.facts()[A.offering_id].price_usd_per_h is not None


async def test_a_failed_activity_for_lack_of_capacity_is_a_refusal_of_its_zone() -> None:
    bed = a_bed()
    bed.aws.ahead = bed.sim.kernel.skew_s = 500.0
    pool = bed.pool(offerings=(A, B))
    bed.sim.market.set_capacity(HERE, 0)
    bed.sim.call(
        "autoscaling",
        "LaunchInstances",
        AutoScalingGroupName="rollout",
        RequestedCapacity=1,
        ClientToken="somebody",
        AvailabilityZones=[ZONE_A],
    )
    await pool.observe()
    facts = pool.facts()
    assert facts[A.offering_id].refused_at_s == pytest.approx(bed.clock.now_s(), abs=1)
    assert facts[B.offering_id].refused_at_s is None


async def test_bug_055_an_absolute_write_by_others_is_told_once() -> None:
    """n8n terraform#50, pulumi-eks#321: two writers of one size, and nobody knew."""
    bed = a_bed()
    pool = bed.pool()
    bed.sim.call(
        "autoscaling", "SetDesiredCapacity", caller="TERRAFORM", AutoScalingGroupName="rollout", DesiredCapacity=2
    )
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            bed.pass_time(40)
            await pool.observe()
    told = [entry for entry in logs if entry["event"] == "desired_capacity_was_set"]
    assert told
    assert len(told) <= 2
    assert all("from 0 to 2" in entry["cause"] for entry in told)
