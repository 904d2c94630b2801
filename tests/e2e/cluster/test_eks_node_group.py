"""A fleet on an EKS managed node group: from its floor to its ceiling, through rebalance recommendations and interruption
notices, back to its floor; and what EKS refuses.

EKS replaces by itself what is recommended to be rebalanced, and what is taken back: that one counts as the replacement, we launch
none. A recommendation alone is a hint and touches nothing; once the replacement is there, the worker drains softly and EKS ends
the instance. We end by name what we choose to be without, and nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scaler.ledger.audit import audit
from scaler.model.trainers import TrainerSpec
from tests.builders.trainer_recorder import TrainerRecorder
from tests.cluster.fixtures import require
from tests.e2e.cluster.base import CALLER, NAMESPACE
from tests.e2e.cluster.managed import WITH, ManagedBed, a_managed_bed
from tests.e2e.cluster.trainers import TRAINER_LABELS, add_trainers
from tests.simcloud.journal import BY_CALLERS, EndedBy

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

_TRAINERS = 3
_CEILING, _FLOOR = 8, 2
_AT_RISK, _TAKEN = 2, 3
_READY_IN_S = 10.0, 12.0
"""From the launch of what stands in for another: minutes, on AWS."""
_ALLOWED = {
    ("autoscaling", "LaunchInstances"),
    ("autoscaling", "SetInstanceProtection"),
    ("autoscaling", "TerminateInstanceInAutoScalingGroup"),
    ("ec2", "CreateTags"),
    ("sqs", "ChangeMessageVisibilityBatch"),
    ("sqs", "DeleteMessageBatch"),
}
"""All that may be changed: never the node group's own sizes, and its group's only by one launch or one named end."""


@pytest.mark.long
async def test_floor_ceiling_recommendations_notices_and_floor_again(tmp_path: Path) -> None:
    require(*WITH)
    async with a_managed_bed(tmp_path, most=_CEILING) as bed:
        await add_trainers(bed, _TRAINERS)
        recorder = TrainerRecorder(
            bed.api, [TrainerSpec(name="trainer", namespace=NAMESPACE, match_labels=TRAINER_LABELS)]
        )
        await recorder.snapshot()
        bed.eat(30.0)
        bed.start_controller()
        await bed.fleet(
            guardRails={"floor": _FLOOR, "ceiling": _CEILING},
            trainers=[{"name": "trainer", "selector": {"matchLabels": TRAINER_LABELS}}],
        )
        await bed.until("the floor", lambda: bed.serving(set()) >= _FLOOR)
        await bed.until("the ceiling", lambda: bed.serving(set()) == _CEILING, 120)

        bed.sim.settings.eks_join_delay_s = _READY_IN_S
        at_risk = await _recommended(bed)
        taken = await _taken_back(bed, at_risk)
        assert len(bed.sim.log.of("LaunchInstances", refused=False)) == _CEILING, "replacements come by themselves"

        await bed.change(policy={"type": "static", "replicas": _FLOOR})
        await bed.until("the floor again", lambda: len(bed.launched()) == len(bed.replicas()) == _FLOOR, 120)
        await bed.until("EKS lets the others go", lambda: len(bed.sim.running(bed.behind)) == _FLOOR)
        _ended_as_they_should(bed, at_risk | taken)
        _called_what_it_may(bed)
        await bed.until("no message is left", lambda: bed.sim.queues.by_name["notices"].messages == {}, 90)
        assert await recorder.changes() == []
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


async def _recommended(bed: ManagedBed) -> set[str]:
    """EC2 recommends to rebalance some: EKS replaces each, it hands over before EKS evicts it, and EKS ends it."""
    at_risk = set(sorted(bed.launched())[:_AT_RISK])
    bed.sim.fate.recommend(at_risk)
    await _replaced_once(bed, at_risk, at_risk)
    assert {each.by for each in bed.sim.ended(at_risk)} == {EndedBy.EKS}
    assert bed.tainted_ever == at_risk
    lives = [life for life in bed.lives.values() if life.instance_id in at_risk]
    assert len(lives) == len(at_risk)
    assert all(bed.handed_over(life.instance_id, life.told_s or 0.0) for life in lives)
    return at_risk


async def _taken_back(bed: ManagedBed, before: set[str]) -> set[str]:
    """EC2 gives notice of some: each is tainted, hands over, is replaced by EKS, and goes without our doing."""
    taken = set(sorted(bed.launched())[:_TAKEN])
    bed.sim.fate.reclaim(ids=sorted(taken))
    await bed.until("each is tainted", lambda: bed.tainted_ever >= taken)
    await _replaced_once(bed, taken, before | taken)
    ended = bed.sim.ended(taken)
    assert {each.by for each in ended} <= {EndedBy.EKS, EndedBy.SPOT}
    assert [each.instance_id for each in ended if not bed.has_left(each.instance_id, each.at_s)] == []
    return taken


async def _replaced_once(bed: ManagedBed, going: set[str], gone_ever: set[str]) -> None:
    await bed.until("as many serve as before, without them", lambda: bed.serving(going) == _CEILING, 90)
    await bed.until("they are gone", lambda: len(bed.sim.ended(going)) == len(going), 90)
    assert len(bed.ever()) == _CEILING + len(gone_ever), "each was replaced once"
    assert len(bed.launched()) == _CEILING
    assert bed.node_group.group.desired == _CEILING


def _ended_as_they_should(bed: ManagedBed, by_aws: set[str]) -> None:
    """What we ended was named by us, with decrement, ours, and had handed over when it was named; no call ended more."""
    ended = [each for each in bed.sim.log.ended if each.by in BY_CALLERS]
    assert {(each.by, each.caller, each.group) for each in ended} == {(EndedBy.TERMINATE_NAMED, CALLER, bed.behind)}
    calls = bed.sim.log.of("TerminateInstanceInAutoScalingGroup", refused=False)
    named = [str(call.parameters["InstanceId"]) for call in calls]
    assert sorted(named) == sorted({each.instance_id for each in ended})
    assert len(named) == _CEILING - _FLOOR
    assert not by_aws & set(named)
    assert all(call.parameters["ShouldDecrementDesiredCapacity"] for call in calls)
    late = [call for call in calls if not bed.handed_over(str(call.parameters["InstanceId"]), call.at_s)]
    assert late == []
    assert bed.node_group.group.desired == _FLOOR


def _called_what_it_may(bed: ManagedBed) -> None:
    calls = bed.written()
    assert {(call.service, call.operation) for call in calls} <= _ALLOWED
    assert {call.parameters.get("AutoScalingGroupName", bed.behind) for call in calls} == {bed.behind}
    tagged = {one for call in calls if call.operation == "CreateTags" for one in call.parameters["Resources"]}
    assert tagged <= bed.ever()


@pytest.mark.long
async def test_what_eks_refuses_is_told_by_the_fleets_status_and_waited_for(tmp_path: Path) -> None:
    require(*WITH)
    async with a_managed_bed(tmp_path, most=4) as bed:
        bed.eat(10.0)
        bed.start_controller()
        await bed.fleet(policy={"type": "static", "replicas": 2}, guardRails={"floor": 2, "ceiling": 6})
        await bed.until("the fleet", lambda: bed.serving(set()) == 2)
        await _told(bed, "Ready", lambda each: each["status"] == "True")

        await bed.change(policy={"type": "static", "replicas": 6})
        await bed.until("as many as may be", lambda: bed.serving(set()) == 4)
        full = await _told(bed, "CapacitySatisfied", lambda each: each["reason"] == "Refused")
        assert "there is room for 0: raise the maximum" in full["message"]

        bed.sim.settings.eks_update_delay_s = (15.0, 15.0)  # longer than a description is kept
        bed.eks("UpdateNodegroupConfig", scalingConfig={"maxSize": 6})
        updating = await _told(bed, "Ready", lambda each: each["reason"] == "PoolsHeld")
        assert "the node group is UPDATING: held until it is ACTIVE" in updating["message"]
        await bed.until("it goes on by itself", lambda: bed.serving(set()) == 6)

        bed.node_group.status = "DEGRADED"
        bed.node_group.issues = [{"code": "AsgInstanceLaunchFailures", "message": "no addresses", "resourceIds": []}]
        why = "DEGRADED (AsgInstanceLaunchFailures: no addresses)"
        await _told(bed, "Ready", lambda each: each["reason"] == "PoolsHeld" and why in each["message"])
        bed.node_group.status, bed.node_group.issues = "ACTIVE", []
        await _told(bed, "Ready", lambda each: each["status"] == "True")
        assert bed.controllers["a"].poll() is None
        assert [each for each in bed.sim.log.ended if each.by in BY_CALLERS] == []


async def _told(bed: ManagedBed, kind: str, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
    """The condition of that kind, once it is as wanted."""
    found: Mapping[str, Any] = {}
    async with asyncio.timeout(60.0):
        while not (found and holds(found)):
            await asyncio.sleep(0.2)
            conditions = (await bed.status()).get("conditions") or ()
            found = next((each for each in conditions if each["type"] == kind), {})
    return found
