"""Scripted trouble, throttling and eventual consistency. Source: EC2 API reference ("Request throttling", "Eventual
consistency").
"""

from itertools import pairwise

import pytest

from tests.simcloud.errors import CloudError, ConnectionDropped
from tests.simcloud.worlds import World


def test_the_next_calls_are_refused_and_then_it_is_over() -> None:
    world = World(desired=1)
    world.sim.fail_next("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress", times=2)
    for _ in range(2):
        with pytest.raises(CloudError) as refused:
            world.end(*world.members)
        assert refused.value.code == "ScalingActivityInProgress"
    world.end(*world.members)
    assert world.desired == 0


def test_a_call_whose_answer_is_lost_was_carried_out_or_not() -> None:
    world = World()
    world.sim.drop_next("LaunchInstances", carried_out=False)
    world.sim.drop_next("LaunchInstances", carried_out=True)
    for carried_out in (False, True):
        with pytest.raises(ConnectionDropped) as dropped:
            world.launch(1)
        assert dropped.value.carried_out is carried_out
        assert world.desired == int(carried_out)
    assert len(world.launch(1)["Instances"][0]["InstanceIds"]) == 1
    assert world.desired == 1


def test_a_bucket_throttles_its_action_and_fills_again() -> None:
    world = World()
    world.sim.faults.throttle("ec2", "DescribeInstances", burst=3, per_s=1.0)
    for _ in range(3):
        world.sim.call("ec2", "DescribeInstances")
    with pytest.raises(CloudError) as refused:
        world.sim.call("ec2", "DescribeInstances")
    assert refused.value.code == "RequestLimitExceeded"
    world.sim.call("ec2", "DescribeInstanceStatus")
    world.wait(1.0)
    world.sim.call("ec2", "DescribeInstances")


@pytest.mark.parametrize(
    ("service", "operation", "more", "code"),
    [
        ("autoscaling", "DescribeAutoScalingGroups", {}, "Throttling"),
        ("eks", "ListNodegroups", {"clusterName": "c"}, "ThrottlingException"),
        ("sqs", "ListQueues", {}, "RequestThrottled"),
    ],
)
def test_each_service_throttles_with_its_own_code(
    service: str, operation: str, more: dict[str, str], code: str
) -> None:
    world = World()
    world.sim.faults.throttle(service, "*", burst=0, per_s=0.0)
    with pytest.raises(CloudError) as refused:
        world.sim.call(service, operation, **more)
    assert refused.value.code == code
    world.sim.faults.unthrottle()
    world.sim.call(service, operation, **more)


def test_what_was_launched_of_late_may_not_be_there_yet() -> None:
    world = World()
    world.sim.set_describe_lag(10.0)
    [found] = world.launch(1)["Instances"][0]["InstanceIds"]
    world.wait(0.5)
    with pytest.raises(CloudError) as refused:
        world.state(found)
    assert refused.value.code == "InvalidInstanceID.NotFound"
    listed = [len(world.group["Instances"]) for _ in range(20)]
    assert listed.count(0) > 15
    world.settle()
    assert world.state(found) == "running"
    assert world.members == [found]


def test_what_has_ended_of_late_may_still_run_to_who_asks() -> None:
    world = World(desired=1)
    world.sim.set_describe_lag(10.0)
    [victim] = world.members
    world.end(victim)
    world.wait(0.5)
    assert world.state(victim) == "running"
    assert [(world.desired, world.members) for _ in range(20)].count((1, [victim])) > 10
    world.settle()
    assert world.state(victim) == "terminated"
    assert world.desired == 0


def test_two_calls_may_see_the_world_at_moments_that_run_backwards() -> None:
    world = World(desired=6)
    world.sim.set_describe_lag(10.0)
    for victim in world.members:
        world.end(victim)
        world.wait(1.0)
    seen = [world.desired for _ in range(40)]
    assert any(later > earlier for earlier, later in pairwise(seen))
    assert set(seen) <= set(range(7))


def test_every_call_is_on_record_with_who_made_it_and_how_it_ended() -> None:
    world = World(desired=1)
    [member] = world.members
    world.sim.call("ec2", "TerminateInstances", InstanceIds=[member], caller="SOMEBODY")
    with pytest.raises(CloudError):
        world.sim.call("ec2", "DescribeInstances", InstanceIds=["i-none"], caller="SOMEBODY")
    calls = [(call.service, call.operation, call.error) for call in world.sim.log.calls if call.caller == "SOMEBODY"]
    assert calls == [("ec2", "TerminateInstances", ""), ("ec2", "DescribeInstances", "InvalidInstanceID.NotFound")]
    assert world.sim.log.counts()["ec2", "TerminateInstances"] == 1
    [ended] = world.sim.ended_by_us()
    assert (ended.caller, ended.by.value, ended.group, ended.protected) == (
        "SOMEBODY",
        "terminate_instances",
        "rollout",
        True,
    )


def test_a_step_of_the_controllers_clock_moves_nothing_in_the_region() -> None:
    world = World(desired=1)
    before_s = world.sim.kernel.now_s()
    world.sim.fate.reclaim()
    world.clock.step(3600.0)
    world.sim.advance()
    assert world.sim.kernel.now_s() == before_s
    assert len(world.sim.running()) == 1


def test_the_same_seed_tells_the_same_story() -> None:
    def story(seed: int) -> list[tuple[str, str]]:
        world = World(seed=seed, desired=10, zones=("us-east-1a", "us-east-1b"))
        world.sim.fate.reclaim(4)
        world.wait(200.0)
        return [(one.instance_id, one.by.value) for one in world.sim.ended()]

    assert story(3) == story(3) != story(4)
