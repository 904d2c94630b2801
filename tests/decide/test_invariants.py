"""The checker of plans finds each promise broken on purpose; a checker that finds nothing proves nothing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from scaler.decide import decide
from scaler.decide.invariants import check_plan
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Reason,
    ReasonCode,
    TerminateReplica,
)
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import Duties
from tests.builders.snapshots import (
    NOW_S,
    OFFERING,
    a_fleet_spec,
    a_notice,
    a_pool_spec,
    a_pool_view,
    a_replica,
    a_world_of,
    remembering,
    some_replicas,
)


def launch(token: str = "t", pool: str = "pool") -> LaunchReplica:
    return LaunchReplica(
        token=token, stage="rollout", pool=pool, offering_id=OFFERING.offering_id, reason=because(ReasonCode.SIZE_UP)
    )


def drain(name: str, code: ReasonCode = ReasonCode.SIZE_DOWN) -> DrainReplica:
    return DrainReplica(
        stage="rollout",
        pool="pool",
        replica_id=name,
        worker="w",
        instance_ids=("i",),
        deadline_s=NOW_S + 60,
        reason=because(code),
    )


def end(name: str, code: ReasonCode = ReasonCode.DRAINED) -> TerminateReplica:
    return TerminateReplica(stage="rollout", pool="pool", replica_id=name, instance_ids=("i",), reason=because(code))


def detach(name: str, *instance_ids: str) -> DetachReplica:
    return DetachReplica(
        stage="rollout",
        pool="pool",
        replica_id=name,
        instance_ids=instance_ids,
        reason=because(ReasonCode.LEAVES_GROUP),
    )


def because(code: ReasonCode) -> Reason:
    return Reason(code=code, message="on purpose")


@pytest.mark.parametrize(
    ("commands", "facts", "complaint"),
    [
        pytest.param([drain("r0"), end("r0")], {}, "r0 is named 2 times", id="named twice"),
        pytest.param([drain("r9")], {}, "names a replica that is not in the snapshot", id="unknown replica"),
        pytest.param([launch(pool="moon")], {}, "launches where nothing may be launched", id="unknown pool"),
        pytest.param([drain("r0", ReasonCode.STEADY)], {}, "has the reason steady", id="no reason to drain"),
        pytest.param([launch("a"), launch("b")], {"max_replicas": 3}, "above the ceiling of 3", id="ceiling"),
        pytest.param([drain("r0")], {"min_replicas": 2}, "below the floor of 2", id="floor"),
        pytest.param([drain("r0"), drain("r1")], {"max_step_down": 1}, "more than the step of 1", id="step"),
        pytest.param([drain("r0"), launch()], {}, "raised and lowered at once", id="both ways"),
        pytest.param([drain("r0")], {"paused": True}, "lowered although it says paused", id="paused"),
        pytest.param([launch()], {"paused": True}, "paused, and yet LaunchReplica", id="launched while paused"),
        pytest.param([launch()], {"dry_run": True}, "commands in a dry run", id="dry run"),
        pytest.param(
            [drain("r0"), drain("r1")], {"disruption_budget_ratio": 0.3}, "disruption budget of 1", id="disruption"
        ),
        pytest.param([end("r2")], {}, "r2 is noticed and would be ended 420 s too early", id="noticed"),
        pytest.param(
            [launch()], {"pools": [a_pool_spec(max_replicas=2)]}, "which has room for 0", id="no room in the pool"
        ),
        pytest.param(
            [launch()], {"max_spend_usd_per_h": 2.5}, "its rent to 3.00 USD/h, above 2.50", id="stage's spend"
        ),
        pytest.param([launch()], {"fleet_spend": 2.5}, "the fleet's rent to 3.00 USD/h", id="fleet's spend"),
        pytest.param([launch("a"), launch("a")], {}, "a launch token is used twice", id="token twice"),
        pytest.param([launch()], {}, "says 2 requested, but 3 count", id="numbers that do not add up"),
    ],
)
def test_a_broken_promise_is_found(commands: Iterable[Command], facts: dict[str, Any], complaint: str) -> None:
    noticed = a_replica("r2", ReplicaPhase.DRAINING, notice=a_notice(), drain_deadline_s=NOW_S + 120)
    snapshot = a_world_of([*some_replicas(2), noticed])
    spec = a_fleet_spec(2, **facts)
    broken = replace(decide(snapshot, spec, remembering()), commands=tuple(commands))

    assert complaint in "\n".join(check_plan(snapshot, spec, broken))


DRAINED, DRAINING = ReplicaPhase.DRAINED, ReplicaPhase.DRAINING
SPOT, CHANGE = a_notice("i-r2"), a_notice("i-r2", kind=NoticeKind.SCHEDULED_CHANGE, deadline_s=NOW_S + 9999)


@pytest.mark.parametrize(
    ("replica", "command", "duties", "complaint"),
    [
        pytest.param(
            a_replica("r2"), detach("r2", "i"), Duties(detaches=True), "leave its group, and nobody", id="not noticed"
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=CHANGE),
            detach("r2", "i"),
            Duties(detaches=True),
            "leave its group, and nobody takes it",
            id="taken by nobody",
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=SPOT),
            detach("r2", "i"),
            Duties(),
            "does not replace it",
            id="no such group",
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=SPOT, attached=False),
            detach("r2", "i"),
            Duties(detaches=True),
            "a group that it is not in",
            id="left already",
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=SPOT), detach("r2"), Duties(detaches=True), "not in", id="names nothing"
        ),
        pytest.param(
            a_replica("r2", DRAINING, notice=SPOT),
            detach("r2", "i"),
            Duties(detaches=True),
            "with 120 s left to hand over",
            id="too early",
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=a_notice("i-r2", kind=NoticeKind.LIFECYCLE_HOOK)),
            end("r2"),
            Duties(),
            "ended 420 s too early",
            id="its group waits for a hook",
        ),
        pytest.param(
            a_replica("r2", DRAINED, notice=CHANGE), end("r2"), Duties(replaces=False), "too early", id="others end it"
        ),
        pytest.param(
            a_replica("r2", DRAINING, notice=CHANGE, drain_deadline_s=NOW_S + 60),
            end("r2"),
            Duties(),
            "too early",
            id="it has not handed over",
        ),
        pytest.param(
            a_replica("r2", ReplicaPhase.REQUESTED, comes_by_itself=True),
            end("r2", ReasonCode.REPLACE_FAILED_LAUNCH),
            Duties(replaces=False),
            "r2 comes by itself, and TerminateReplica names it",
            id="comes by itself",
        ),
    ],
)
def test_leaving_and_ending_out_of_turn_are_found(
    replica: ReplicaView, command: Command, duties: Duties, complaint: str
) -> None:
    snapshot = a_world_of([*some_replicas(2), replica])
    spec = a_fleet_spec(2, pools=[a_pool_spec(duties=duties)])
    broken = replace(decide(snapshot, spec, remembering()), commands=(command,))

    assert complaint in "\n".join(check_plan(snapshot, spec, broken))


def test_naming_a_replica_of_a_pool_that_was_never_listed_is_found() -> None:
    snapshot = a_world_of(some_replicas(1), pools=[a_pool_view(listed_at_s=None)])
    spec = a_fleet_spec(1)
    broken = replace(decide(snapshot, spec, remembering()), commands=(drain("r0", ReasonCode.NOTICE),))

    assert "rollout: r0 is in a pool that was never listed" in check_plan(snapshot, spec, broken)


def test_a_stage_left_out_and_a_look_too_late_are_found() -> None:
    snapshot, spec = a_world_of(), a_fleet_spec(0)
    broken = replace(decide(snapshot, spec, remembering()), stages=(), look_again_in_s=11.0)

    assert check_plan(snapshot, spec, broken) == [
        "not one entry for every stage of the specification",
        "looks again in 11.0 s, with an interval of 10.0 s",
    ]
