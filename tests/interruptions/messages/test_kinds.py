"""Every kind of message, as AWS sends it: the right notice, or the right reason for none."""

import json
from collections.abc import Callable

import pytest

from scaler.interruptions.messages.parsed import (
    BlockEnding,
    Ignored,
    IgnoredReason,
    LifecycleHook,
    Malformed,
    Parsed,
    TestNotification,
    Told,
)
from scaler.interruptions.messages.table import KINDS, parse
from scaler.model.interruption import InterruptionNotice, NoticeKind
from tests.builders import messages as m
from tests.builders.messages import EVENT_AT_S, INSTANCE, OTHER, SENT_AT_S, Fields


def parsed(fields: Fields) -> Parsed:
    return parse(json.dumps(fields).encode(), sent_at_s=SENT_AT_S)


def told(fields: Fields) -> tuple[InterruptionNotice, ...]:
    result = parsed(fields)
    assert isinstance(result, Told), result
    return result.notices


def the_notice(fields: Fields) -> tuple[str, NoticeKind, float, float | None]:
    """Instance, kind, and its times after the event's own."""
    (notice,) = told(fields)
    deadline_s = None if notice.deadline_s is None else notice.deadline_s - EVENT_AT_S
    return notice.instance_id, notice.kind, notice.noticed_at_s - EVENT_AT_S, deadline_s


def without(fields: Fields, *keys: str) -> Fields:
    fields["detail"] = {key: value for key, value in fields["detail"].items() if key not in keys}
    return fields


@pytest.mark.parametrize(
    ("fields", "kind", "deadline_s"),
    [
        pytest.param(m.spot(), NoticeKind.SPOT_INTERRUPTION, 120.0, id="spot: two minutes"),
        pytest.param(m.spot(action="stop"), NoticeKind.SPOT_INTERRUPTION, 120.0, id="spot stop: two minutes"),
        pytest.param(m.spot(action="hibernate"), NoticeKind.SPOT_INTERRUPTION, 0.0, id="spot hibernate: at once"),
        pytest.param(without(m.spot(), "instance-action"), NoticeKind.SPOT_INTERRUPTION, 120.0, id="spot, no action"),
        pytest.param(m.rebalance(), NoticeKind.REBALANCE_RECOMMENDATION, None, id="rebalance: no deadline"),
        pytest.param(m.reservation(), NoticeKind.CAPACITY_RESERVATION_END, 120.0, id="reservation: its own time"),
        pytest.param(m.reservation(ends=""), NoticeKind.CAPACITY_RESERVATION_END, 120.0, id="reservation, no time"),
        pytest.param(m.lifecycle(), NoticeKind.LIFECYCLE_HOOK, 120.0, id="lifecycle"),
        pytest.param(m.lifecycle_direct(), NoticeKind.LIFECYCLE_HOOK, 120.0, id="lifecycle direct"),
        pytest.param(m.by_sns(m.lifecycle_direct()), NoticeKind.LIFECYCLE_HOOK, 120.0, id="lifecycle by SNS"),
        pytest.param(m.by_sns(m.lifecycle()), NoticeKind.LIFECYCLE_HOOK, 120.0, id="EventBridge by SNS"),
        pytest.param(m.by_sns(m.spot()), NoticeKind.SPOT_INTERRUPTION, 120.0, id="spot by SNS"),
        pytest.param({"Message": json.dumps(m.spot())}, NoticeKind.SPOT_INTERRUPTION, 120.0, id="bare SNS"),
        pytest.param(m.health(), NoticeKind.SCHEDULED_CHANGE, 10_191.0, id="health: start of the change"),
    ],
)
def test_a_message_of_this_kind_tells_this_deadline(fields: Fields, kind: NoticeKind, deadline_s: float | None) -> None:
    assert the_notice(fields) == (INSTANCE, kind, 0.0, deadline_s)


def test_bug_015_an_instance_that_has_begun_to_end_leaves_no_time_to_drain() -> None:
    assert the_notice(m.state_change())[3] == 0.0


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_bug_023_each_state_that_ends_an_instance_counts(state: str) -> None:
    assert the_notice(m.state_change(state=state)) == (INSTANCE, NoticeKind.STATE_CHANGE, 0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param(m.state_change(state="pending"), IgnoredReason.HARMLESS_STATE, id="pending"),
        pytest.param(m.state_change(state="running"), IgnoredReason.HARMLESS_STATE, id="running"),
        pytest.param(m.launch_lifecycle(), IgnoredReason.LAUNCH, id="launch hook"),
        *(
            pytest.param(m.scaling_result(f"EC2 Instance {what}"), IgnoredReason.SCALING_RESULT, id=what)
            for what in ("Launch Successful", "Launch Unsuccessful", "Terminate Successful", "Terminate Unsuccessful")
        ),
        pytest.param(m.capacity_block(kind="Capacity Block Delivered"), IgnoredReason.DELIVERED, id="delivered"),
        pytest.param(
            m.capacity_block(kind="Capacity Block Reservation Delivered"), IgnoredReason.DELIVERED, id="delivered too"
        ),
        pytest.param(
            m.envelope("EC2 Interruptible Capacity Reservation Allocation Reclamation Completed", {}),
            IgnoredReason.DELIVERED,
            id="reclaimed",
        ),
        pytest.param(m.envelope("EBS Volume Notification", {}), IgnoredReason.UNKNOWN_KIND, id="a kind of AWS's"),
        pytest.param({"Type": "SubscriptionConfirmation", "Message": "x"}, IgnoredReason.SUBSCRIPTION, id="SNS"),
    ],
)
def test_what_asks_for_nothing_says_why(fields: Fields, reason: IgnoredReason) -> None:
    assert parsed(fields) == Ignored(reason=reason)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(m.hook_test(), id="as documented"),
        pytest.param({"LifecycleTransition": "autoscaling:TEST_NOTIFICATION"}, id="by transition"),
        pytest.param(m.by_sns(m.hook_test()), id="by SNS"),
    ],
)
def test_bug_011_a_test_notification_is_known_as_one(fields: Fields) -> None:
    assert parsed(fields) == TestNotification()


@pytest.mark.parametrize("kind", ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"])
@pytest.mark.parametrize("key", ["detail-type", "detail_type"])
def test_a_capacity_block_is_taken_half_an_hour_before_its_end_in_each_wording(kind: str, key: str) -> None:
    fields = m.capacity_block(kind=kind)
    fields[key] = fields.pop("detail-type")
    assert parsed(fields) == BlockEnding(
        reservation_id=m.RESERVATION, noticed_at_s=EVENT_AT_S, deadline_s=EVENT_AT_S + 600.0
    )


@pytest.mark.parametrize("end", ["", None, "soon", 17])
def test_a_capacity_block_without_a_legible_end_goes_ten_minutes_after_its_warning(end: object) -> None:
    result = parsed(m.capacity_block(end=end))
    assert isinstance(result, BlockEnding)
    assert result.deadline_s == EVENT_AT_S + 600.0


def test_the_hook_of_an_eks_node_group_is_a_notice_and_not_ours_to_complete() -> None:
    fields = m.lifecycle()
    fields["detail"]["LifecycleHookName"] = "Terminate-LC-Hook"
    result = parsed(fields)
    assert isinstance(result, Told)
    assert [notice.kind for notice in result.notices] == [NoticeKind.LIFECYCLE_HOOK]
    assert result.hook is None


@pytest.mark.parametrize("wrap", [m.lifecycle, m.lifecycle_direct, lambda: m.by_sns(m.lifecycle_direct())])
def test_a_hook_comes_with_what_it_takes_to_complete_it(wrap: Callable[[], Fields]) -> None:
    result = parsed(wrap())
    assert isinstance(result, Told)
    assert result.hook == LifecycleHook(
        instance_id=INSTANCE, group="rollout-a", hook="headrace", token="630aa23f-48eb-45e7-aba6-799ea6093a0f"
    )


def test_health_names_each_instance_once_whatever_the_form_of_its_entity() -> None:
    fields = m.health(INSTANCE, m.arn(OTHER), OTHER, "h-0abcdef", "vol-1")
    assert [notice.instance_id for notice in told(fields)] == [INSTANCE, OTHER]


@pytest.mark.parametrize("start", ["", None, "not yet known", 12, [], "Sat, 99 Jun 2021 15:10:09 GMT", "0001-01-01"])
def test_bug_018_an_empty_or_odd_start_still_is_a_notice_and_it_names_no_deadline(start: object) -> None:
    assert the_notice(m.health(start=start))[3] is None


@pytest.mark.parametrize(
    "start", ["2021-06-05T18:00:00Z", "5 Jun 2021 18:00:00 GMT", "Fri, 05 Jun 2021 18:00:00 GMT", "2021-06-05T18:00:00"]
)
def test_bug_018_each_form_of_time_is_read(start: str) -> None:
    assert the_notice(m.health(start=start))[3] == 10_191.0


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("service", "RDS", IgnoredReason.OTHER_SERVICE),
        ("eventTypeCategory", "issue", IgnoredReason.NOT_SCHEDULED),
        ("eventTypeCategory", "accountNotification", IgnoredReason.NOT_SCHEDULED),
        ("eventTypeCategory", "investigation", IgnoredReason.NOT_SCHEDULED),
        ("statusCode", "closed", IgnoredReason.OVER),
        ("affectedEntities", [{"entityValue": "h-0123"}], IgnoredReason.NO_INSTANCE),
    ],
)
def test_health_that_schedules_nothing_for_instances_is_ignored(key: str, value: object, reason: IgnoredReason) -> None:
    fields = m.health()
    fields["detail"][key] = value
    assert parsed(fields) == Ignored(reason=reason)


@pytest.mark.parametrize(
    "code", ["AWS_EC2_SYSTEM_MAINTENANCE_EVENT", "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", ""]
)
@pytest.mark.parametrize("page", ["2", 2, None, "x"])
def test_health_of_any_code_and_page_counts(code: str, page: object) -> None:
    fields = m.health()
    fields["detail"] |= {"eventTypeCode": code, "page": page, "totalPages": page, "backupEvent": True}
    assert the_notice(fields)[1] is NoticeKind.SCHEDULED_CHANGE


@pytest.mark.parametrize(
    "resource",
    [
        f"arn:aws:ec2:us-east-1b:instance/{INSTANCE}",
        f"arn:aws-cn:ec2:cn-north-1:123456789012:instance/{INSTANCE}",
        f"arn:aws:ec2:us-east-1:123456789012:instance:{INSTANCE}",
        INSTANCE,
        f" {INSTANCE} ",
    ],
)
@pytest.mark.parametrize("named", [None, "", "nonsense"])
def test_an_instance_named_by_its_resource_alone_is_found_whatever_form_that_has(resource: str, named: object) -> None:
    fields = m.spot()
    fields["detail"]["instance-id"] = named
    fields["resources"] = ["arn:aws:iam::1:role/x", resource]
    assert the_notice(fields)[0] == INSTANCE


def test_the_detail_outranks_the_resources() -> None:
    fields = m.spot()
    fields["resources"] = [m.arn(OTHER)]
    assert the_notice(fields)[0] == INSTANCE


@pytest.mark.parametrize("time", [None, "", "soon", 5, "2999-01-01T00:00:00Z", "2021-06-06T15:10:09Z"])
def test_an_event_without_a_legible_time_counts_from_when_it_was_sent(time: object) -> None:
    fields = m.spot()
    fields["time"] = time
    assert the_notice(fields)[2:] == (1.0, 121.0)


def test_a_late_event_keeps_its_own_time() -> None:
    late = parse(json.dumps(m.spot()), sent_at_s=EVENT_AT_S + 86_400.0)
    assert isinstance(late, Told)
    assert late.notices[0].deadline_s == EVENT_AT_S + 120.0


WITHOUT_INSTANCE = [m.spot, m.rebalance, m.state_change, m.reservation, m.lifecycle, m.capacity_block]


@pytest.mark.parametrize("make", WITHOUT_INSTANCE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("value", [None, "", 12, [], {}, "x", "i-", "i-é", "i-12 3", "../i-12/"])
def test_what_names_no_instance_is_malformed(make: Callable[[], Fields], value: object) -> None:
    fields = make()
    fields["resources"] = []
    fields["detail"] |= {"instance-id": value, "EC2InstanceId": value, "capacity-reservation-id": value}
    assert isinstance(parsed(fields), Malformed)


@pytest.mark.parametrize("make", [m.spot, m.rebalance, m.state_change, m.reservation])
def test_what_names_two_instances_by_its_resources_is_malformed(make: Callable[[], Fields]) -> None:
    fields = without(make(), "instance-id")
    fields["resources"] = [m.arn(INSTANCE), m.arn(OTHER)]
    assert isinstance(parsed(fields), Malformed)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (m.state_change, "state"),
        (m.health, "service"),
        (m.health, "eventTypeCategory"),
        (m.lifecycle, "LifecycleTransition"),
        (m.lifecycle, "AutoScalingGroupName"),
        (m.lifecycle, "LifecycleHookName"),
    ],
)
@pytest.mark.parametrize("value", [None, "", 7, [], {}])
def test_a_kind_without_what_it_cannot_do_without_is_malformed(
    make: Callable[[], Fields], key: str, value: object
) -> None:
    fields = make()
    fields["detail"][key] = value
    assert isinstance(parsed(fields), Malformed)


@pytest.mark.parametrize("value", ["x", 7, {}, None, True])
def test_health_whose_entities_are_no_list_is_malformed(value: object) -> None:
    fields = m.health()
    fields["detail"]["affectedEntities"] = value
    assert isinstance(parsed(fields), Malformed)


@pytest.mark.parametrize("make", [m.spot, m.health, m.lifecycle, m.capacity_block])
@pytest.mark.parametrize("key", ["source", "detail-type", "detail"])
@pytest.mark.parametrize("value", [None, 7, [], "", "x"])
def test_an_envelope_that_is_none_is_malformed(make: Callable[[], Fields], key: str, value: object) -> None:
    fields = make()
    fields[key] = value
    expected = Ignored if key == "detail-type" and isinstance(value, str) else Malformed
    assert isinstance(parsed(fields), expected)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"17",
        b'"text"',
        b"\xff\xfe\x00",
        b"{}",
        b'{"Message": "no JSON"}',
        b'{"Message": 7}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5_000,
        b'{"time": NaN}',
        json.dumps(m.by_sns(m.by_sns(m.by_sns(m.by_sns(m.spot()))))).encode(),
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_what_is_no_message_is_malformed_with_a_reason(body: bytes) -> None:
    result = parse(body, sent_at_s=SENT_AT_S)
    assert isinstance(result, Malformed)
    assert result.reason.isprintable()


def test_every_kind_of_the_table_has_its_sample_here() -> None:
    wordings = {"Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"}
    assert len(KINDS) == 16
    assert {kind for _, kind in KINDS} >= wordings
