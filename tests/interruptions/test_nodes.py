"""Taints and conditions of others as notices, and our own record of one, read back after a restart."""

import asyncio
import math
from datetime import UTC, datetime

import pytest

from scaler.interruptions.nodes import CONDITIONS, TAINTS, NodeNotices, NodeNoticeSettings
from scaler.interruptions.registry import make_source
from scaler.kube.facts import EXPIRY_ANNOTATION, NOTICE_ANNOTATION, Condition, NodeFacts, Taint
from scaler.model.interruption import HINT_TTL_S, VOID_AFTER_DEADLINE_S, InterruptionNotice, NoticeKind
from scaler.model.notice_file import dump_notice
from tests.builders.clock import FakeClock
from tests.builders.fake_sqs import Owner
from tests.builders.nodes import Nodes, a_node

NOW_S = 1_700_000_000.0
INSTANCE, OTHER = "i-0b662ef9931388ba0", "i-0f00ba4f00ba4f00b"


def a_taint(key: str, added_s: float | None = NOW_S - 10.0, *, effect: str = "NoSchedule", value: str = "") -> Taint:
    return Taint(key=key, value=value, effect=effect, added_at_s=added_s)


def a_condition(kind: str, status: str = "False", changed_s: float | None = NOW_S - 10.0) -> Condition:
    return Condition(type=kind, status=status, reason="NvidiaXID79Error", message="", changed_at_s=changed_s)


def a_record(deadline_s: float | None = NOW_S + 50.0, *, instance_id: str = INSTANCE) -> InterruptionNotice:
    return InterruptionNotice(
        instance_id=instance_id, kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=NOW_S - 70.0, deadline_s=deadline_s
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S)


def a_source(nodes: Nodes, clock: FakeClock, *, ahead: float = 0.0) -> NodeNotices:
    settings = NodeNoticeSettings(nodes=nodes, owner=Owner({INSTANCE, OTHER}), ahead_s=lambda: ahead)
    return NodeNotices(settings, clock=clock)


async def told(clock: FakeClock, *nodes: NodeFacts) -> list[tuple[str, NoticeKind, float | None]]:
    """Instance, kind, and the deadline after now."""
    return [
        (each.instance_id, each.kind, None if each.deadline_s is None else each.deadline_s - NOW_S)
        for each in await a_source(Nodes(*nodes), clock).current()
    ]


@pytest.mark.parametrize(
    ("key", "kind", "deadline_s"),
    [
        ("karpenter.sh/disrupted", NoticeKind.NODE_DISRUPTED, 110.0),
        ("karpenter.sh/disruption", NoticeKind.NODE_DISRUPTED, 110.0),
        ("aws-node-termination-handler/spot-itn", NoticeKind.SPOT_INTERRUPTION, 100.0),
        ("aws-node-termination-handler/scheduled-maintenance", NoticeKind.SCHEDULED_CHANGE, 110.0),
        ("aws-node-termination-handler/asg-lifecycle-termination", NoticeKind.LIFECYCLE_HOOK, 110.0),
        ("aws-node-termination-handler/rebalance-recommendation", NoticeKind.REBALANCE_RECOMMENDATION, None),
        ("aws-node-termination-handler/a-later-kind", NoticeKind.NODE_DISRUPTED, 110.0),
        ("node.kubernetes.io/out-of-service", NoticeKind.NODE_DISRUPTED, -10.0),
        ("ToBeDeletedByClusterAutoscaler", NoticeKind.NODE_DISRUPTED, 590.0),
    ],
)
async def test_each_taint_of_others_is_a_notice_from_when_it_was_added(
    clock: FakeClock, key: str, kind: NoticeKind, deadline_s: float | None
) -> None:
    assert await told(clock, a_node(INSTANCE, a_taint(key))) == [(INSTANCE, kind, deadline_s)]


@pytest.mark.parametrize(
    "taint",
    [
        a_taint("DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),
        a_taint("karpenter.sh/disruption", effect="PreferNoSchedule", value="candidate"),
        a_taint("headrace.dev/draining"),
        a_taint("node.kubernetes.io/unschedulable"),
        a_taint("node.kubernetes.io/not-ready", effect="NoExecute"),
        a_taint("nvidia.com/gpu"),
    ],
    ids=lambda taint: taint.key,
)
async def test_taints_that_bind_nobody_and_our_own_are_no_notice(clock: FakeClock, taint: Taint) -> None:
    assert await told(clock, a_node(INSTANCE, taint)) == []


@pytest.mark.parametrize("kind", sorted(CONDITIONS))
async def test_a_failing_condition_leaves_what_is_left_of_the_wait_for_its_repair(clock: FakeClock, kind: str) -> None:
    node = a_node(INSTANCE, conditions=(a_condition(kind),))
    assert await told(clock, node) == [(INSTANCE, NoticeKind.NODE_DISRUPTED, CONDITIONS[kind] - 10.0)]


@pytest.mark.parametrize(
    "condition",
    [a_condition("KernelReady", "True"), a_condition("KernelReady", "Unknown"), a_condition("Ready")],
    ids=["true", "unknown", "of others"],
)
async def test_a_condition_that_does_not_fail_is_no_notice(clock: FakeClock, condition: Condition) -> None:
    assert await told(clock, a_node(INSTANCE, conditions=(condition,))) == []


async def test_a_notice_falls_with_its_cause_and_stands_as_long_as_that_does(clock: FakeClock) -> None:
    node = a_node(INSTANCE, conditions=(a_condition("KernelReady"),))
    nodes = Nodes(node)
    source = a_source(nodes, clock)
    clock.pass_time(1800.0 + 2 * VOID_AFTER_DEADLINE_S)
    assert len(await source.current()) == 1, "nobody has repaired it"
    nodes.put(a_node(INSTANCE))
    assert await source.current() == ()


async def test_a_taint_without_a_time_counts_from_first_sight_and_its_deadline_does_not_move(clock: FakeClock) -> None:
    nodes = Nodes(a_node(INSTANCE, a_taint("karpenter.sh/disrupted", None)))
    source = a_source(nodes, clock)
    (first,) = await source.current()
    clock.pass_time(30.0)
    nodes.put(a_node(INSTANCE, a_taint("karpenter.sh/disrupted", None), a_taint("more")))
    assert await source.current() == (first,)
    assert first.deadline_s == NOW_S + 120.0
    nodes.put(a_node(INSTANCE))
    assert await source.current() == ()
    nodes.put(a_node(INSTANCE, a_taint("karpenter.sh/disrupted", None)))
    (again,) = await source.current()
    assert again.deadline_s == NOW_S + 150.0, "a new taint is a new sight"


async def test_cluster_autoscaler_writes_the_time_into_the_value(clock: FakeClock) -> None:
    taint = a_taint("ToBeDeletedByClusterAutoscaler", None, value=str(int(NOW_S) - 100))
    assert await told(clock, a_node(INSTANCE, taint)) == [(INSTANCE, NoticeKind.NODE_DISRUPTED, 500.0)]


@pytest.mark.parametrize("value", ["", "soon", "1", "99999999999999", "٣" * 10])
async def test_a_value_that_is_no_time_is_none(clock: FakeClock, value: str) -> None:
    taint = a_taint("ToBeDeletedByClusterAutoscaler", None, value=value)
    assert (await told(clock, a_node(INSTANCE, taint)))[0][2] == 600.0


async def test_what_others_wrote_on_the_servers_clock_is_told_on_ours(clock: FakeClock) -> None:
    """The server is half a minute ahead: it wrote ten seconds ago what it dates twenty seconds from now."""
    dated = a_node(INSTANCE, a_taint("karpenter.sh/disrupted", NOW_S + 20.0))
    undated = a_node(OTHER, a_taint("karpenter.sh/disrupted", None))
    source = a_source(Nodes(dated, undated), clock, ahead=30.0)
    found = {notice.instance_id: notice.deadline_s for notice in await source.current()}
    assert found == {INSTANCE: NOW_S - 10.0 + 120.0, OTHER: NOW_S + 120.0}


async def test_what_we_recorded_is_on_our_clock_already_however_often_it_is_read_back(clock: FakeClock) -> None:
    node, record = recorded(dump_notice(a_record())), a_record()
    source = a_source(Nodes(node), clock, ahead=30.0)
    for _ in range(3):
        assert [notice.deadline_s for notice in await source.current()] == [record.deadline_s]


async def test_of_two_causes_of_a_kind_the_nearest_deadline_stands_and_kinds_stand_side_by_side(
    clock: FakeClock,
) -> None:
    node = a_node(
        INSTANCE,
        a_taint("ToBeDeletedByClusterAutoscaler"),
        a_taint("karpenter.sh/disrupted"),
        a_taint("aws-node-termination-handler/spot-itn"),
        conditions=(a_condition("KernelReady"),),
    )
    assert await told(clock, node) == [
        (INSTANCE, NoticeKind.SPOT_INTERRUPTION, 100.0),
        (INSTANCE, NoticeKind.NODE_DISRUPTED, 110.0),
    ]


async def test_bug_016_the_hint_of_a_taint_is_forgotten_though_the_taint_stays(clock: FakeClock) -> None:
    nodes = Nodes(a_node(INSTANCE, a_taint("aws-node-termination-handler/rebalance-recommendation", None)))
    source = a_source(nodes, clock)
    assert len(await source.current()) == 1
    clock.pass_time(HINT_TTL_S + 1.0)
    assert await source.current() == ()


# Our own record.


def recorded(text: str, **annotations: str) -> NodeFacts:
    return a_node(INSTANCE, annotations={NOTICE_ANNOTATION: text, **annotations})


async def test_a_notice_that_was_recorded_stands_again_after_a_restart_with_its_own_deadline(clock: FakeClock) -> None:
    source = a_source(Nodes(recorded(dump_notice(a_record()))), clock)
    assert await source.current() == (a_record(),)


async def test_a_record_is_void_ten_minutes_after_its_deadline_or_once_it_has_expired(clock: FakeClock) -> None:
    expiry = datetime.fromtimestamp(NOW_S + 30.0, UTC).isoformat()
    expiring = a_source(Nodes(recorded(dump_notice(a_record()), **{EXPIRY_ANNOTATION: expiry})), clock)
    lasting = a_source(Nodes(recorded(dump_notice(a_record()), **{EXPIRY_ANNOTATION: "no time"})), clock)
    assert await expiring.current() == await lasting.current() == (a_record(),)
    clock.pass_time(31.0)
    assert await expiring.current() == ()
    assert await lasting.current() == (a_record(),)
    clock.pass_time(50.0 + VOID_AFTER_DEADLINE_S)
    assert await lasting.current() == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "{}",
        dump_notice(a_record(math.nan)),
        dump_notice(a_record(math.inf)),
        pytest.param(dump_notice(a_record(instance_id=OTHER)), id="bug 19: another instance's, kept with the name"),
    ],
)
async def test_a_record_that_is_none_or_anothers_is_counted_once_and_told_never(clock: FakeClock, text: str) -> None:
    nodes = Nodes(recorded(text))
    source = a_source(nodes, clock)
    for _ in range(3):
        assert await source.current() == ()
        nodes.put(recorded(text))
    assert source.health().malformed == 1


# Whose nodes, and when.


@pytest.mark.parametrize("instance_id", ["", "i-00000000000000bad", f"{INSTANCE}0", INSTANCE[:-1]])
async def test_bug_019_only_the_exact_instance_id_of_ours_counts(clock: FakeClock, instance_id: str) -> None:
    node = a_node(instance_id, a_taint("karpenter.sh/disrupted"), name=f"ip-of-{INSTANCE}", uid="u")
    assert await told(clock, node) == []


async def test_before_the_first_list_the_source_has_not_answered(clock: FakeClock) -> None:
    nodes = Nodes(at_s=None)
    source = a_source(nodes, clock)
    assert await source.current() == ()
    assert source.health().answered_at_s is None
    assert source.health().error
    nodes.at_s = NOW_S
    assert (source.health().answered_at_s, source.health().error) == (NOW_S, "")


async def test_only_what_changes_the_notices_wakes(clock: FakeClock) -> None:
    nodes = Nodes(a_node(INSTANCE))
    source = a_source(nodes, clock)
    await source.current()
    waiting = asyncio.ensure_future(source.changed())
    for _ in range(3):
        nodes.put(a_node(INSTANCE), a_node(OTHER))
        await clock.advance(1.0)
    assert not waiting.done()
    nodes.put(a_node(OTHER, a_taint("karpenter.sh/disrupted")))
    await clock.advance(1.0)
    assert waiting.done()


async def test_bug_012_nodes_that_are_gone_are_forgotten(clock: FakeClock) -> None:
    nodes = Nodes()
    source = a_source(nodes, clock)
    for n in range(50):
        node = a_node(INSTANCE, a_taint("karpenter.sh/disrupted", None), uid=f"u-{n}")
        nodes.put(node)
        await source.current()
        nodes.remove(node.uid)
    await source.current()
    assert (len(source._read), len(source._first_seen_s), len(source._known)) == (0, 0, 0)
    assert source.health().received == 50


def test_every_taint_of_the_table_is_tried_here_and_the_registry_makes_the_source(clock: FakeClock) -> None:
    assert len(TAINTS) == 8
    settings = NodeNoticeSettings(nodes=Nodes(), owner=Owner())
    assert isinstance(make_source("nodes", settings, clock=clock), NodeNotices)
    with pytest.raises(TypeError, match="NodeNoticeSettings"):
        make_source("nodes", None, clock=clock)
