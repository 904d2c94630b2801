from scaler.act.base import InstanceState, LaunchResult
from tests.builders.ec2_pools import FLEET, ZONE_A, ZONE_B, Bed, a_launch, an_offering, by_token, listed


async def test_a_launch_brings_one_instance_of_the_offering_tagged_and_listed(bed: Bed) -> None:
    pool = bed.pool()
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.LAUNCHED
    (instance,) = await listed(pool)
    assert instance.instance_id == outcome.instance_id
    assert (instance.launch_token, instance.state) == ("t-1", InstanceState.PENDING)
    assert instance.offering_id == an_offering().offering_id
    bed.pass_time(30)
    assert await by_token(pool) == {"t-1": InstanceState.RUNNING}
    (running,) = bed.running()
    assert running.tags["headrace.dev/fleet"] == FLEET
    assert running.tags["headrace.dev/launch-token"] == "t-1"
    assert running.tags["headrace.dev/replica"] == instance.replica_id


async def test_the_same_token_never_launches_twice_whichever_controller_repeats_it(bed: Bed) -> None:
    first = await bed.pool().launch(a_launch("t-1"))
    again = await bed.pool().launch(a_launch("t-1"))
    elsewhere = await bed.restarted().launch(a_launch("t-1"))
    assert again.result is elsewhere.result is LaunchResult.ALREADY
    assert first.instance_id == again.instance_id == elsewhere.instance_id
    assert len(bed.running()) == 1


async def test_the_launch_goes_to_the_offerings_zone() -> None:
    bed = Bed()
    bed.group(zones=(ZONE_A, ZONE_B))
    pool = bed.pool(offerings=(an_offering(ZONE_A), an_offering(ZONE_B)))
    await bed.up(pool, "t-1", "t-2", "t-3", offering=an_offering(ZONE_B))
    assert {instance.zone for instance in bed.running()} == {ZONE_B}
    assert len(bed.running()) == 3
