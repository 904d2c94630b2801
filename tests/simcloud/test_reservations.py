"""Capacity blocks and reservations. Sources are in `tests.simcloud.reservations`."""

import json

import pytest

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.helpers import in_service, make_group
from tests.simcloud.market import CAPACITY_BLOCK
from tests.simcloud.worlds import World

_HOUR_S = 3600.0


class Block(World):
    """A world with a block of four instances for two hours, and a group `trainers` in it."""

    def __init__(self) -> None:
        super().__init__()
        self.url = self.sim.queues.create("events", {}, {}, "http://sqs").url
        self.sim.bus.subscribe("events")
        self.block = self.sim.reservations.add("p5.48xlarge", "us-east-1a", 4, ends_in_s=2 * _HOUR_S, block=True)
        make_group(self.sim, "trainers", desired=4, market=CAPACITY_BLOCK, reservation_id=self.block)
        self.settle()

    def events(self, kind: str) -> list[Json]:
        found: list[Json] = []
        while some := self.sim.call("sqs", "ReceiveMessage", QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            found += [json.loads(message["Body"]) for message in some]
        return [event for event in found if event["detail-type"] == kind]


def test_instances_of_a_block_say_so_and_there_are_no_more_than_it_holds() -> None:
    world = Block()
    found = world.sim.call("ec2", "DescribeInstances", InstanceIds=in_service(world.sim, "trainers"))["Reservations"]
    shown = {(one["Instances"][0]["InstanceLifecycle"], one["Instances"][0]["CapacityReservationId"]) for one in found}
    assert (len(found), shown) == (4, {(CAPACITY_BLOCK, world.block)})
    asked: Json = {"AutoScalingGroupName": "trainers", "RequestedCapacity": 1, "ClientToken": "t"}
    [error] = world.sim.call("autoscaling", "LaunchInstances", **asked)["Errors"]
    assert error["ErrorCode"] == "ReservationCapacityExceeded"


def test_a_block_tells_its_end_and_what_is_left_of_it() -> None:
    world = Block()
    world.sim.fate.fail(in_service(world.sim, "trainers")[:1])
    [shown] = world.sim.call("ec2", "DescribeCapacityReservations", CapacityReservationIds=[world.block])[
        "CapacityReservations"
    ]
    assert (shown["ReservationType"], shown["State"], shown["EndDateType"]) == (CAPACITY_BLOCK, "active", "limited")
    assert (shown["TotalInstanceCount"], shown["AvailableInstanceCount"]) == (4, 1)
    assert (shown["EndDate"] - shown["StartDate"]).total_seconds() == 2 * _HOUR_S


def test_a_block_warns_forty_minutes_before_its_end_and_takes_its_instances_thirty_before() -> None:
    world = Block()
    world.wait(_HOUR_S + 18 * 60.0)
    assert world.events("Capacity Block Reservation Expiration Warning") == []
    world.wait(2 * 60.0)
    [warning] = world.events("Capacity Block Reservation Expiration Warning")
    assert warning["detail"]["capacity-reservation-id"] == world.block
    assert warning["resources"][0].endswith(f":capacity-reservation/{world.block}")
    world.wait(7 * 60.0)
    assert len(world.sim.running("trainers")) == 4
    world.wait(3 * 60.0)
    told = world.events("EC2 Capacity Reservation Instance Interruption Warning")
    assert {event["detail"]["instance-lifecycle"] for event in told} == {CAPACITY_BLOCK}
    assert len(told) == 4
    assert world.sim.running("trainers") == []
    assert {one.by.value for one in world.sim.ended()} == {"reservation"}
    world.wait(_HOUR_S)
    shown = world.sim.call("ec2", "DescribeCapacityReservations")["CapacityReservations"]
    assert [one["State"] for one in shown] == ["expired"]


def test_without_a_block_there_is_no_capacity_of_one() -> None:
    world = World(market=CAPACITY_BLOCK)
    assert [error["ErrorCode"] for error in world.launch(1)["Errors"]] == ["ReservationCapacityExceeded"]


def test_an_unknown_reservation_is_not_found() -> None:
    with pytest.raises(CloudError) as refused:
        World().sim.call("ec2", "DescribeCapacityReservations", CapacityReservationIds=["cr-0"])
    assert refused.value.code == "InvalidCapacityReservationId.NotFound"
