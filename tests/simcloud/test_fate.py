"""What comes from outside, and the events it makes. Shapes: the sources named in `tests.simcloud.bus` and `fate`."""

import json
import re

from tests.simcloud.asked import Json
from tests.simcloud.bus import HEALTH, REBALANCE, RESERVATION_INTERRUPTION, SPOT_INTERRUPTION, STATE_CHANGE
from tests.simcloud.market import ON_DEMAND
from tests.simcloud.settings import Settings
from tests.simcloud.worlds import World


def listening(world: World, *kinds: str) -> str:
    url = world.sim.queues.create("events", {}, {}, "http://sqs").url
    world.sim.bus.subscribe("events", frozenset(kinds) if kinds else None)
    return url


def heard(world: World, url: str) -> list[Json]:
    found: list[Json] = []
    while True:
        some = world.sim.call("sqs", "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        if not some:
            return found
        found += [json.loads(message["Body"]) for message in some]


def test_a_reclaim_is_told_two_minutes_ahead_in_the_documented_shape() -> None:
    world = World(desired=3)
    url = listening(world, SPOT_INTERRUPTION)
    [victim] = world.sim.fate.reclaim(1)
    [event] = heard(world, url)
    assert event.keys() == {
        "version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail",
    }  # fmt: skip
    assert (event["version"], event["source"], event["region"]) == ("0", "aws.ec2", "us-east-1")
    assert event["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:instance/{victim}"]
    assert event["detail"] == {"instance-id": victim, "instance-action": "terminate"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event["time"])
    world.wait(119.0)
    assert world.state(victim) == "running"
    world.wait(2.0)
    assert world.state(victim) != "running"
    assert world.how(victim) == "spot"


def test_a_reclaim_without_notice_is_told_by_its_state_only() -> None:
    world = World(desired=1)
    url = listening(world, SPOT_INTERRUPTION, STATE_CHANGE)
    [victim] = world.sim.fate.reclaim(noticed=False)
    world.wait(5.0)
    assert [event["detail"] for event in heard(world, url)] == [
        {"instance-id": victim, "state": "shutting-down"},
        {"instance-id": victim, "state": "terminated"},
    ]


def test_on_demand_is_never_reclaimed_by_chance() -> None:
    world = World(desired=2, market=ON_DEMAND)
    assert world.sim.fate.reclaim() == []


def test_reclaims_are_by_zone_type_and_group() -> None:
    world = World(desired=4, zones=("us-east-1a", "us-east-1b"))
    taken = world.sim.fate.reclaim(zone="us-east-1b")
    assert len(taken) == 2
    assert world.sim.fate.reclaim(instance_type="p4d.24xlarge") == []
    assert world.sim.fate.reclaim(group="other") == []
    assert len(world.sim.fate.reclaim(group="rollout")) == 2


def test_an_instance_ended_by_its_owner_after_its_notice_is_not_ended_twice() -> None:
    world = World(desired=1)
    [victim] = world.sim.fate.reclaim()
    world.end(victim)
    world.wait(200.0)
    assert [one.by.value for one in world.sim.ended([victim])] == ["terminate_named"]


def test_a_recommendation_names_the_instance_and_nothing_more() -> None:
    world = World(desired=1)
    url = listening(world, REBALANCE)
    world.sim.fate.recommend(world.members)
    [event] = heard(world, url)
    assert event["detail"] == {"instance-id": world.members[0]}


def test_a_reservations_interruption_names_its_time() -> None:
    world = World(desired=1, market=ON_DEMAND)
    url = listening(world, RESERVATION_INTERRUPTION)
    [victim] = world.members
    world.sim.fate.interrupt_reservation([victim])
    [event] = heard(world, url)
    detail = event["detail"]
    assert (detail["instance-id"], detail["instance-action"], detail["azId"]) == (victim, "terminate", "use1-az1")
    assert detail["instance-termination-time"] > event["time"]
    world.wait(125.0)
    assert world.how(victim) == "reservation"


def test_a_scheduled_event_is_told_by_health_and_described_by_status() -> None:
    world = World(desired=2)
    url = listening(world, HEALTH)
    world.sim.fate.schedule(world.members, "instance-retirement")
    [event] = heard(world, url)
    detail = event["detail"]
    assert event["source"] == "aws.health"
    assert (detail["service"], detail["eventTypeCategory"]) == ("EC2", "scheduledChange")
    assert detail["eventTypeCode"] == "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
    assert [one["entityValue"] for one in detail["affectedEntities"]] == world.members
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", detail["startTime"])
    statuses = world.sim.call("ec2", "DescribeInstanceStatus")["InstanceStatuses"]
    assert [[one["Code"] for one in status["Events"]] for status in statuses] == [["instance-retirement"]] * 2
    world.sim.fate.complete(world.members[:1], cancelled=True)
    [shown] = world.sim.call("ec2", "DescribeInstanceStatus", InstanceIds=world.members[:1])["InstanceStatuses"]
    assert shown["Events"][0]["Description"].startswith("[Canceled]")


def test_a_scheduled_event_may_be_told_by_nobody() -> None:
    world = World(desired=1)
    url = listening(world, HEALTH)
    world.sim.fate.schedule(world.members, "system-reboot", told=False)
    assert heard(world, url) == []
    filters = [{"Name": "event.code", "Values": ["system-reboot"]}]
    assert len(world.sim.call("ec2", "DescribeInstanceStatus", Filters=filters)["InstanceStatuses"]) == 1


def test_failing_checks_are_described() -> None:
    world = World(desired=2)
    world.sim.fate.impair(world.members[:1], system=True)
    filters = [{"Name": "system-status.status", "Values": ["impaired"]}]
    [shown] = world.sim.call("ec2", "DescribeInstanceStatus", Filters=filters)["InstanceStatuses"]
    assert (shown["InstanceId"], shown["InstanceStatus"]["Status"]) == (world.members[0], "impaired")


def test_a_launch_and_an_end_are_told_as_states_and_as_results_of_activities() -> None:
    world = World()
    url = listening(world)
    [found] = world.launch(1)["Instances"][0]["InstanceIds"]
    world.settle()
    world.end(found)
    world.settle()
    kinds = [(event["detail-type"], event["detail"].get("state")) for event in heard(world, url)]
    assert kinds == [
        (STATE_CHANGE, "pending"),
        (STATE_CHANGE, "running"),
        ("EC2 Instance Launch Successful", None),
        (STATE_CHANGE, "shutting-down"),
        (STATE_CHANGE, "terminated"),
        ("EC2 Instance Terminate Successful", None),
    ]


def test_events_come_twice_late_and_out_of_order_where_the_settings_say_so() -> None:
    settings = Settings(event_copies_ratio=0.5, event_delay_s=(0.0, 20.0))
    world = World(settings=settings, desired=40)
    url = listening(world, SPOT_INTERRUPTION)
    victims = world.sim.fate.reclaim()
    assert len(heard(world, url)) < 5
    world.wait(25.0)
    events = heard(world, url)
    ids = [event["id"] for event in events]
    told = [event["detail"]["instance-id"] for event in events]
    assert set(told) == set(victims)
    assert len(set(ids)) == 40
    assert 45 < len(ids) < 75
    assert list(dict.fromkeys(told)) != victims


def test_five_hundred_notices_are_put_at_one_moment() -> None:
    world = World(desired=500, high=500)
    url = listening(world, SPOT_INTERRUPTION)
    world.sim.fate.reclaim()
    events = heard(world, url)
    assert len({event["detail"]["instance-id"] for event in events}) == 500
    assert len({event["time"] for event in events}) == 1
