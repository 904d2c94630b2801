"""Two fleets on one Auto Scaling group."""

import asyncio

from scaler.act.base import LaunchResult
from scaler.kube.facts import FLEET_LABEL
from tests.builders.ec2_pools import OTHER_FLEET, Bed, a_detach, a_launch, an_end, by_token, listed, until_settled


async def test_each_sees_and_ends_its_own_only(bed: Bed) -> None:
    mine, theirs = bed.pool(), bed.pool(fleet=OTHER_FLEET)
    (one,) = await bed.up(mine, "t-1")
    (other,) = await bed.up(theirs, "t-1")
    assert one.instance_id != other.instance_id
    assert await mine.terminate(an_end(other)) == ()
    assert await mine.detach(a_detach(other)) == ()
    assert [instance.instance_id for instance in await listed(mine)] == [one.instance_id]
    assert [instance.instance_id for instance in await listed(theirs)] == [other.instance_id]
    assert len(bed.running()) == 2


async def test_when_room_is_short_the_higher_priority_is_served_first() -> None:
    bed = Bed()
    bed.group(high=2)
    low, high = bed.pool(priority=0), bed.pool(fleet=OTHER_FLEET, priority=5)
    first, _ = await bed.up(low, "t-1", "t-2")
    assert (await high.launch(a_launch("h-1"))).result is LaunchResult.NO_ROOM
    await low.terminate(an_end(first))
    bed.pass_time(30)
    refused = await low.launch(a_launch("t-3"))
    assert (refused.result, "kept for" in refused.message) == (LaunchResult.NO_ROOM, True)
    assert (await high.launch(a_launch("h-1"))).result is LaunchResult.LAUNCHED
    assert bed.desired() == 2


async def test_what_is_nobodys_is_adopted_by_one_of_them_and_stays_its_own() -> None:
    bed = Bed()
    bed.group(desired=2)
    bed.pass_time(30)
    low, high = bed.pool(priority=0), bed.pool(fleet=OTHER_FLEET, priority=5)
    assert await listed(low) == ()
    assert len(await listed(high)) == 2
    first = bed.running()[0]
    bed.nodes.join(first.instance_id, {FLEET_LABEL: "ml.grpo"})
    bed.pass_time(5)
    assert [instance.instance_id for instance in await listed(low)] == [first.instance_id]


async def test_both_together_never_pass_the_maximum() -> None:
    bed = Bed()
    bed.group(high=5)
    low, high = bed.pool(priority=0), bed.pool(fleet=OTHER_FLEET, priority=5)
    asked = [pool.launch(a_launch(f"t-{n}")) for n in range(5) for pool in (low, high)]
    outcomes = await asyncio.gather(*asked)
    assert sum(outcome.result is LaunchResult.LAUNCHED for outcome in outcomes) == 5
    assert bed.desired() == len(bed.running()) == 5


async def test_by_the_desired_capacity_each_gets_what_it_asked_for(bed: Bed) -> None:
    mine = bed.pool(up="set_desired_capacity")
    theirs = bed.pool(fleet=OTHER_FLEET, up="set_desired_capacity")
    await asyncio.gather(
        until_settled(lambda: mine.launch(a_launch("t-1")), bed, every_s=2.0),
        until_settled(lambda: theirs.launch(a_launch("t-1")), bed, every_s=2.0),
    )
    bed.pass_time(30)
    assert list(await by_token(mine)) == list(await by_token(theirs)) == ["t-1"]
    assert bed.desired() == len(bed.running()) == 2


async def test_a_fleet_that_closes_keeps_what_it_has_and_leaves_the_rest_to_the_other() -> None:
    bed = Bed()
    bed.group(desired=1)
    bed.pass_time(30)
    low, high = bed.pool(priority=0), bed.pool(fleet=OTHER_FLEET, priority=5)
    await bed.up(high, "h-1")
    await high.close()
    assert len(await listed(low)) == 1
    assert len(bed.running()) == 2
