"""The documents of instance metadata: what each says, and that nothing in them raises anything but `ValueError`."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.model.interruption import NoticeKind
from scaler.nodeagent.documents import DOCUMENTS, Finding, lifecycle_state, rebalance, scheduled, spot_action

NOW_S = 1_548_057_600.0
"""2019-01-21, 08:00:00 UTC."""
AT_S = NOW_S + 3643.0


def an_event(code: str = "instance-retirement", **changed: Any) -> dict[str, Any]:
    return {
        "NotBefore": "21 Jan 2019 09:00:43 GMT",
        "Code": code,
        "Description": "scheduled",
        "EventId": "instance-event-0d59937288b749b32",
        "NotAfter": "",
        "State": "active",
    } | changed


def read(*events: dict[str, Any], now_s: float = NOW_S) -> Finding | None:
    return scheduled(json.dumps(events), now_s)


@pytest.mark.parametrize("action", ["terminate", "stop"])
def test_a_spot_action_goes_at_its_time(action: str) -> None:
    text = json.dumps({"action": action, "time": "2019-01-21T09:00:43Z"})
    assert spot_action(text, NOW_S) == Finding(deadline_s=AT_S)


def test_hibernation_begins_at_once_whatever_its_time() -> None:
    text = json.dumps({"action": "hibernate", "time": "2019-01-21T09:00:43Z"})
    assert spot_action(text, NOW_S) == Finding(deadline_s=None, grace_s=0.0)


@pytest.mark.parametrize("time", [None, "", "soon", 7])
def test_a_spot_action_without_a_time_gives_two_minutes(time: object) -> None:
    assert spot_action(json.dumps({"action": "terminate", "time": time}), NOW_S) == Finding(grace_s=120.0)


def test_a_rebalance_recommendation_has_the_time_that_it_was_given() -> None:
    assert rebalance('{"noticeTime": "2019-01-21T09:00:43Z"}', NOW_S) == Finding(at_s=AT_S)
    assert rebalance("{}", NOW_S) == Finding()


@pytest.mark.parametrize("code", ["instance-retirement", "instance-stop"])
def test_bug_018_failing_hardware_counts_at_once(code: str) -> None:
    assert read(an_event(code)) == Finding(deadline_s=AT_S)


@pytest.mark.parametrize("code", ["instance-reboot", "system-reboot", "system-maintenance", "newer"])
def test_what_is_planned_for_a_good_machine_counts_a_while_before(code: str) -> None:
    assert read(an_event(code)) is None
    assert read(an_event(code), now_s=AT_S - 900.0) == Finding(deadline_s=AT_S)


@pytest.mark.parametrize("changed", [{"State": "completed"}, {"State": "canceled"}, {"Description": "[Canceled] x"}])
def test_an_event_that_is_over_is_none(changed: dict[str, Any]) -> None:
    assert read(an_event(**changed)) is None


@pytest.mark.parametrize("not_before", [None, "", "soon"])
def test_bug_018_an_event_without_a_legible_time_still_counts(not_before: object) -> None:
    assert read(an_event("instance-reboot", NotBefore=not_before)) == Finding()


def test_of_several_events_the_first_counts_and_none_is_none() -> None:
    late = an_event(NotBefore="22 Jan 2019 09:00:43 GMT")
    assert read(late, an_event(), an_event(NotBefore="")) == Finding(deadline_s=AT_S)
    assert read() is None


@pytest.mark.parametrize(
    ("state", "going"),
    [
        ("Terminated", True),
        ("Warmed:Terminated", True),
        ("Terminated\n", True),
        ("InService", False),
        ("Detached", False),
        ("Standby", False),
        ("", False),
    ],
)
def test_a_group_that_ends_the_instance_is_a_hook(state: str, going: bool) -> None:
    assert (lifecycle_state(state, NOW_S) is not None) is going


@given(st.sampled_from(sorted(set(DOCUMENTS) - {NoticeKind.LIFECYCLE_HOOK})), st.text(max_size=60))
def test_any_text(kind: NoticeKind, text: str) -> None:
    with suppress(ValueError):
        DOCUMENTS[kind][1](text, NOW_S)


JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.lists(st.none(), max_size=2)


@given(
    st.sampled_from(sorted(DOCUMENTS)),
    st.dictionaries(st.sampled_from(["action", "time", "noticeTime", *an_event()]), JUNK),
    st.booleans(),
)
def test_any_fields(kind: NoticeKind, fields: dict[str, Any], in_a_list: bool) -> None:
    with suppress(ValueError):
        DOCUMENTS[kind][1](json.dumps([fields, None] if in_a_list else fields), NOW_S)
