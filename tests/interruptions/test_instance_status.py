"""DescribeInstanceStatus as a source: what EC2 says now, instance by instance, and nothing from partial answers."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from scaler.aws.contract import AwsError, AwsFault
from scaler.interruptions.instance_status import IMPAIRED_S, InstanceStatusNotices, InstanceStatusSettings
from scaler.interruptions.registry import make_source
from scaler.model.interruption import NoticeKind
from scaler.runtime.clock import SystemClock
from tests.builders.aws import REGION, aws_environment, moto_server, opened
from tests.builders.clock import FakeClock

__all__ = ["aws_environment", "moto_server"]

NOW_S = 1_700_000_000.0
INSTANCE, OTHER = "i-0b662ef9931388ba0", "i-0f00ba4f00ba4f00b"

Status = dict[str, Any]


class FakeEc2:
    """Statuses by instance; refuses a call that names one it does not know, as EC2 does."""

    def __init__(self) -> None:
        self.statuses: dict[str, Status] = {INSTANCE: a_status(), OTHER: a_status()}
        self.error: AwsError | None = None
        self.asked: list[list[str]] = []
        self.names_unknown = True
        self.fails_for = ""
        self.ahead: float | None = None

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        assert (service, operation, key) == ("ec2", "DescribeInstanceStatus", "InstanceStatuses")
        assert parameters["IncludeAllInstances"] is True
        ids = parameters["InstanceIds"]
        assert 1 <= len(ids) <= 100
        self.asked.append(ids)
        if self.error is not None and (not self.fails_for or self.fails_for in ids):
            raise self.error
        unknown = [each for each in ids if each not in self.statuses]
        if unknown:
            names = ", ".join(unknown) if self.names_unknown else "some"
            message = f"The instance IDs '{names}' do not exist"
            raise AwsError(message, fault=AwsFault.NOT_FOUND, code="InvalidInstanceID.NotFound")
        return tuple({"InstanceId": each} | self.statuses[each] for each in ids)

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        raise AssertionError(operation)

    def ahead_s(self) -> float | None:
        return self.ahead

    def counts(self) -> Mapping[tuple[str, str], int]:
        return {}

    async def close(self) -> None: ...


def a_status(
    *events: Status, state: str = "running", system: Status | None = None, own: Status | None = None
) -> Status:
    fine = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    return {
        "InstanceState": {"Code": 16, "Name": state},
        "SystemStatus": system or fine,
        "InstanceStatus": own or fine,
        "Events": list(events),
    }


def an_event(code: str = "instance-retirement", not_before: object = NOW_S + 3600.0, description: str = "x") -> Status:
    moment = datetime.fromtimestamp(not_before, UTC) if isinstance(not_before, float) else not_before
    return {"InstanceEventId": f"event-{code}", "Code": code, "Description": description, "NotBefore": moment}


def impaired(since_s: float | None = None) -> Status:
    detail: Status = {"Name": "reachability", "Status": "failed"}
    if since_s is not None:
        detail["ImpairedSince"] = datetime.fromtimestamp(since_s, UTC)
    return {"Status": "impaired", "Details": [detail]}


@pytest.fixture
def ec2() -> FakeEc2:
    return FakeEc2()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S)


def a_source(ec2: FakeEc2, clock: FakeClock, *ids: str) -> InstanceStatusNotices:
    instances = ids or (INSTANCE, OTHER)
    return InstanceStatusNotices(InstanceStatusSettings(aws=ec2, instances=lambda: instances), clock=clock)


async def told(source: InstanceStatusNotices) -> list[tuple[str, NoticeKind, float | None]]:
    return [
        (each.instance_id, each.kind, None if each.deadline_s is None else each.deadline_s - NOW_S)
        for each in await source.current()
    ]


@pytest.mark.parametrize(
    "code", ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop", "newer"]
)
async def test_a_scheduled_event_of_any_code_is_a_notice_by_its_not_before(
    ec2: FakeEc2, clock: FakeClock, code: str
) -> None:
    ec2.statuses[INSTANCE] = a_status(an_event(code))
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.SCHEDULED_CHANGE, 3600.0)]
    assert source.health().received == 1


@pytest.mark.parametrize("description", ["[Completed] x", "[Canceled] x", "[CANCELLED] x", "[completed]"])
async def test_what_is_over_stays_listed_and_counts_for_nothing(
    ec2: FakeEc2, clock: FakeClock, description: str
) -> None:
    ec2.statuses[INSTANCE] = a_status(an_event(description=description))
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == []


async def test_an_event_that_is_cancelled_falls_and_wakes(ec2: FakeEc2, clock: FakeClock) -> None:
    ec2.statuses[INSTANCE] = a_status(an_event())
    source = a_source(ec2, clock)
    await source.ask()
    await source.current()
    waiting = asyncio.ensure_future(source.changed())
    await source.ask()
    await clock.settle()
    assert not waiting.done(), "the same again is no news"
    ec2.statuses[INSTANCE] = a_status(an_event(description="[Canceled] x"))
    await source.ask()
    await clock.settle()
    assert waiting.done()
    assert await told(source) == []


@pytest.mark.parametrize("not_before", [None, "", "soon", 12])
async def test_bug_018_an_event_without_a_legible_time_names_no_deadline(
    ec2: FakeEc2, clock: FakeClock, not_before: object
) -> None:
    ec2.statuses[INSTANCE] = a_status(an_event(not_before=not_before))
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.SCHEDULED_CHANGE, None)]


async def test_of_several_events_the_first_counts(ec2: FakeEc2, clock: FakeClock) -> None:
    events = (an_event("instance-stop", NOW_S + 900.0), an_event("instance-reboot", NOW_S + 60.0), an_event("x", None))
    ec2.statuses[INSTANCE] = a_status(*events)
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.SCHEDULED_CHANGE, 60.0)]


@pytest.mark.parametrize("which", ["system", "own"])
async def test_a_check_has_to_fail_for_two_minutes_before_it_counts(ec2: FakeEc2, clock: FakeClock, which: str) -> None:
    ec2.statuses[INSTANCE] = a_status(
        system=impaired() if which == "system" else None, own=impaired() if which == "own" else None
    )
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == []
    clock.pass_time(IMPAIRED_S)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.NODE_DISRUPTED, 2 * IMPAIRED_S)]
    ec2.statuses[INSTANCE] = a_status()
    await source.ask()
    assert await told(source) == []
    ec2.statuses[INSTANCE] = a_status(system=impaired())
    await source.ask()
    assert await told(source) == [], "a new failure begins anew"


async def test_a_check_counts_from_when_ec2_says_that_it_failed(ec2: FakeEc2, clock: FakeClock) -> None:
    ec2.statuses[INSTANCE] = a_status(own=impaired(NOW_S - 150.0))
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.NODE_DISRUPTED, 90.0)]


@pytest.mark.parametrize("status", ["initializing", "insufficient-data", "not-applicable"])
async def test_other_statuses_are_no_failure(ec2: FakeEc2, clock: FakeClock, status: str) -> None:
    ec2.statuses[INSTANCE] = a_status(own={"Status": status}, system={"Status": status})
    source = a_source(ec2, clock)
    for _ in range(3):
        await source.ask()
        clock.pass_time(IMPAIRED_S)
    assert await told(source) == []


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
async def test_bug_023_an_instance_that_ends_without_an_event_is_seen(
    ec2: FakeEc2, clock: FakeClock, state: str
) -> None:
    ec2.statuses[INSTANCE] = a_status(state=state)
    source = a_source(ec2, clock)
    await source.ask()
    clock.pass_time(60.0)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.STATE_CHANGE, 0.0)]


@pytest.mark.parametrize("named", [True, False], ids=["named by the error", "not named"])
async def test_bug_010_an_instance_that_ec2_does_not_know_fails_nothing_for_the_others(
    ec2: FakeEc2, clock: FakeClock, named: bool
) -> None:
    ids = [f"i-{n:017x}" for n in range(250)]
    ec2.statuses = {each: a_status() for each in ids if each not in (ids[3], ids[140])}
    ec2.statuses[ids[200]] = a_status(an_event())
    ec2.names_unknown = named
    source = a_source(ec2, clock, *ids)
    await source.ask()
    assert [each[0] for each in await told(source)] == [ids[200]]
    assert source.health().error == ""
    assert len(ec2.asked) <= (5 if named else 40)


async def test_a_batch_that_fails_leaves_what_is_known_and_is_shown(ec2: FakeEc2, clock: FakeClock) -> None:
    ids = [f"i-{n:017x}" for n in range(150)]
    ec2.statuses = {each: a_status(an_event()) for each in (ids[0], ids[149])} | {
        each: a_status() for each in ids[1:149]
    }
    source = a_source(ec2, clock, *ids)
    await source.ask()
    answered_at_s = source.health().answered_at_s
    clock.pass_time(60.0)
    ec2.statuses[ids[0]] = ec2.statuses[ids[149]] = a_status()
    ec2.error, ec2.fails_for = AwsError("throttled", fault=AwsFault.THROTTLED), ids[149]
    await source.ask()
    assert [each[0] for each in await told(source)] == [ids[149]]
    assert "throttled" in source.health().error
    assert source.health().answered_at_s == answered_at_s
    ec2.error = None
    await source.ask()
    assert await told(source) == []
    assert source.health().error == ""


async def test_an_instance_that_is_not_ours_any_more_is_forgotten(ec2: FakeEc2, clock: FakeClock) -> None:
    ec2.statuses[INSTANCE] = a_status(an_event())
    ours = [INSTANCE]
    source = InstanceStatusNotices(InstanceStatusSettings(aws=ec2, instances=lambda: ours), clock=clock)
    await source.ask()
    assert len(await told(source)) == 1
    ours.clear()
    await source.ask()
    assert await told(source) == []
    assert len(source._found) == len(source._first_seen_s) == len(source._known) == 0


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"Events": None, "SystemStatus": None, "InstanceState": None},
        {"Events": "x", "SystemStatus": "x", "InstanceState": 7},
        {"Events": [None, 7], "SystemStatus": {"Status": "impaired", "Details": None}},
    ],
)
async def test_a_status_of_another_form_is_no_notice(ec2: FakeEc2, clock: FakeClock, status: Status) -> None:
    ec2.statuses[INSTANCE] = status
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == []


async def test_it_asks_every_minute(ec2: FakeEc2, clock: FakeClock) -> None:
    source = a_source(ec2, clock)
    running = asyncio.ensure_future(source.run())
    await clock.advance(119.0)
    assert len(ec2.asked) == 2
    running.cancel()


async def test_first_sights_are_on_the_clouds_clock(ec2: FakeEc2, clock: FakeClock) -> None:
    ec2.ahead = 100.0
    ec2.statuses[INSTANCE] = a_status(state="stopped")
    source = a_source(ec2, clock)
    await source.ask()
    assert await told(source) == [(INSTANCE, NoticeKind.STATE_CHANGE, 100.0)]


async def test_on_the_wire_format_of_moto_running_ones_are_quiet_and_stopped_ones_are_not(
    moto_server: str, aws_environment: None
) -> None:
    client = boto3.client("ec2", region_name=REGION, endpoint_url=moto_server)
    image = client.describe_images()["Images"][0]["ImageId"]
    ids = [each["InstanceId"] for each in client.run_instances(ImageId=image, MinCount=2, MaxCount=2)["Instances"]]
    client.stop_instances(InstanceIds=ids[:1])
    async with opened(moto_server, SystemClock()) as aws:
        settings = InstanceStatusSettings(aws=aws, instances=lambda: [*ids, "i-00000000000000bad"])
        source = InstanceStatusNotices(settings, clock=SystemClock())
        await source.ask()
        assert [(each.instance_id, each.kind) for each in await source.current()] == [(ids[0], NoticeKind.STATE_CHANGE)]
        assert source.health().error == ""
    client.close()


def test_the_registry_makes_the_source(ec2: FakeEc2, clock: FakeClock) -> None:
    settings = InstanceStatusSettings(aws=ec2, instances=tuple)
    assert isinstance(make_source("instance_status", settings, clock=clock), InstanceStatusNotices)
    with pytest.raises(TypeError, match="InstanceStatusSettings"):
        make_source("instance_status", None, clock=clock)
