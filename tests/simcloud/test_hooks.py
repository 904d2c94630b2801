"""Lifecycle hooks. Source: Auto Scaling user guide, "Lifecycle hooks" and "EventBridge event reference"."""

import json
from typing import Any

import pytest

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.worlds import World

LAUNCHING, TERMINATING = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"


def hooked(transition: str, *, desired: int = 0, **more: Any) -> World:
    world = World(desired=desired)
    world.scaling("PutLifecycleHook", LifecycleHookName="h", LifecycleTransition=transition, **more)
    return world


def done(world: World, instance_id: str, result: str = "CONTINUE", hook: str = "h") -> None:
    world.scaling(
        "CompleteLifecycleAction", LifecycleHookName=hook, InstanceId=instance_id, LifecycleActionResult=result
    )


def messages(world: World, queue: str) -> list[Json]:
    found = world.sim.call("sqs", "ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in found]


def test_a_launch_waits_for_its_hook_and_goes_on_when_completed() -> None:
    world = hooked(LAUNCHING)
    [found] = world.launch(1)["Instances"][0]["InstanceIds"]
    world.settle()
    assert world.lifecycle(found) == "Pending:Wait"
    done(world, found)
    assert world.lifecycle(found) == "InService"


def test_a_launch_that_is_abandoned_is_ended_and_replaced() -> None:
    world = hooked(LAUNCHING)
    [found] = world.launch(1)["Instances"][0]["InstanceIds"]
    world.settle()
    done(world, found, "ABANDON")
    world.settle()
    assert world.how(found) == "abandoned"
    assert [one["LifecycleState"] for one in world.group["Instances"]] == ["Pending:Wait"]


def test_a_termination_waits_and_its_instance_runs_until_completed() -> None:
    world = hooked(TERMINATING, desired=2)
    victim = world.members[0]
    world.end(victim)
    world.settle()
    assert (world.lifecycle(victim), world.state(victim), world.desired) == ("Terminating:Wait", "running", 1)
    done(world, victim)
    assert world.lifecycle(victim) == "Terminating:Proceed"
    world.settle()
    assert world.state(victim) == "terminated"
    assert world.lifecycle(victim) == ""


@pytest.mark.parametrize("result", ["CONTINUE", "ABANDON"])
def test_a_termination_goes_on_whatever_the_default_result_when_its_time_is_out(result: str) -> None:
    world = hooked(TERMINATING, desired=1, HeartbeatTimeout=120, DefaultResult=result)
    [victim] = world.members
    world.end(victim)
    world.wait(115.0)
    assert world.lifecycle(victim) == "Terminating:Wait"
    world.wait(30.0)
    assert world.how(victim) == "terminate_named"


def test_a_heartbeat_begins_the_time_out_anew() -> None:
    world = hooked(TERMINATING, desired=1, HeartbeatTimeout=120)
    [victim] = world.members
    world.end(victim)
    world.wait(100.0)
    world.scaling("RecordLifecycleActionHeartbeat", LifecycleHookName="h", InstanceId=victim)
    world.wait(100.0)
    assert world.lifecycle(victim) == "Terminating:Wait"
    world.wait(40.0)
    assert world.state(victim) != "running"


def test_heartbeats_do_not_hold_for_ever() -> None:
    """A hundred time-outs, or 48 hours."""
    world = hooked(TERMINATING, desired=1, HeartbeatTimeout=30)
    [victim] = world.members
    world.end(victim)
    for _ in range(149):
        world.wait(20.0)
        if world.lifecycle(victim) != "Terminating:Wait":
            break
        world.scaling("RecordLifecycleActionHeartbeat", LifecycleHookName="h", InstanceId=victim)
    world.wait(60.0)
    assert world.state(victim) == "terminated"


def test_every_hook_has_to_be_completed() -> None:
    world = hooked(TERMINATING, desired=1)
    world.scaling("PutLifecycleHook", LifecycleHookName="second", LifecycleTransition=TERMINATING)
    [victim] = world.members
    world.end(victim)
    done(world, victim)
    world.settle()
    assert world.lifecycle(victim) == "Terminating:Wait"
    done(world, victim, hook="second")
    world.settle()
    assert world.state(victim) == "terminated"


def test_who_does_not_wait_cannot_be_completed() -> None:
    world = hooked(TERMINATING, desired=1)
    for call in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"):
        result = {"LifecycleActionResult": "CONTINUE"} if call.startswith("Complete") else {}
        with pytest.raises(CloudError, match="No active Lifecycle Action found") as refused:
            world.scaling(call, LifecycleHookName="h", InstanceId=world.members[0], **result)
        assert refused.value.code == "ValidationError"


def test_a_hook_does_not_delay_a_reclaim() -> None:
    world = hooked(TERMINATING, desired=1)
    [victim] = world.members
    world.sim.fate.reclaim(ids=[victim])
    world.wait(125.0)
    assert world.state(victim) in {"shutting-down", "terminated"}
    assert world.how(victim) == "spot"


def test_a_wait_whose_instance_is_taken_meanwhile_ends_with_its_completion() -> None:
    world = hooked(TERMINATING, desired=1)
    [victim] = world.members
    world.end(victim)
    world.sim.fate.reclaim(ids=[victim], noticed=False)
    world.settle()
    assert world.lifecycle(victim) == "Terminating:Wait"
    done(world, victim)
    world.settle()
    assert world.group["Instances"] == []


def test_a_queue_of_its_own_is_told_a_test_first_then_each_wait() -> None:
    world = World(desired=1)
    queue = world.sim.queues.create("hooks", {}, {}, "http://sqs")
    world.scaling(
        "PutLifecycleHook",
        LifecycleHookName="h",
        LifecycleTransition=TERMINATING,
        NotificationTargetARN=queue.arn,
        RoleARN="arn:aws:iam::123456789012:role/hooks",
        NotificationMetadata="fleet=a",
    )
    [test] = messages(world, queue.url)
    assert (test["Event"], test["AutoScalingGroupName"]) == ("autoscaling:TEST_NOTIFICATION", "rollout")
    [victim] = world.members
    world.end(victim)
    [told] = messages(world, queue.url)
    assert told["Service"] == "AWS Auto Scaling"
    assert {
        key: told[key] for key in ("EC2InstanceId", "LifecycleHookName", "LifecycleTransition", "Origin", "Destination")
    } == {
        "EC2InstanceId": victim,
        "LifecycleHookName": "h",
        "LifecycleTransition": TERMINATING,
        "Origin": "AutoScalingGroup",
        "Destination": "EC2",
    }
    assert told["NotificationMetadata"] == "fleet=a"
    world.scaling(
        "CompleteLifecycleAction",
        LifecycleHookName="h",
        LifecycleActionToken=told["LifecycleActionToken"],
        LifecycleActionResult="CONTINUE",
    )
    world.settle()
    assert world.state(victim) == "terminated"


def test_the_bus_is_told_of_waits_too() -> None:
    world = hooked(TERMINATING, desired=1)
    queue = world.sim.queues.create("events", {}, {}, "http://sqs")
    world.sim.bus.subscribe("events", frozenset({"EC2 Instance-terminate Lifecycle Action"}))
    world.end(*world.members)
    [event] = messages(world, queue.url)
    assert event["source"] == "aws.autoscaling"
    assert event["resources"] == [world.group["AutoScalingGroupARN"]]
    assert event["detail"]["LifecycleTransition"] == TERMINATING
