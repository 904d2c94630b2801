"""Each protection that is an object of the API server is taken away there, found, and mended where that is allowed."""

from collections.abc import Awaitable, Callable

import pytest

from scaler.act.trainer_repairs import RepairOutcome
from scaler.decide.trainer_checks.disruption import SAFE_TO_EVICT, SCALE_DOWN_DISABLED
from scaler.kube.contract import DISRUPTION_BUDGETS, NODES, PODS
from scaler.kube.facts import FLEET_LABEL
from scaler.model.trainers import TRAINER_LABEL, CheckCode, RepairKind, Severity
from tests.builders.guard import Guarding
from tests.builders.trainer_objects import TAINT, TrainerOnApi
from tests.builders.trainer_recorder import TrainerRecorder
from tests.builders.trainers import codes

ALARM, WARN = Severity.ALARM, Severity.WARN
Drill = Callable[[TrainerOnApi], Awaitable[object]]


async def look(place: TrainerOnApi, guarding: Guarding | None = None) -> Guarding:
    """One look with fresh indexes."""
    guarding = guarding or Guarding(kube=place.api, clock=place.clock, trainers=(place.trainer,))
    nodes, pods = await place.indexes()
    guarding.nodes.held, guarding.nodes.current = nodes.held, place.clock.now_s
    guarding.pods.held, guarding.pods.current = pods.held, place.clock.now_s
    await guarding.watch.look()
    return guarding


async def _no_budget(place: TrainerOnApi) -> None:
    await place.api.delete(DISRUPTION_BUDGETS, "trainer", namespace=place.namespace)


async def _weak_budget(place: TrainerOnApi) -> None:
    await place.api.patch(DISRUPTION_BUDGETS, "trainer", {"spec": {"maxUnavailable": 1}}, namespace=place.namespace)


async def _important_rollouts(place: TrainerOnApi) -> None:
    await place.priority_class("vip", 1_000_000, never=False)
    await place.pod("vip", "rollout", labels={"app": "worker"}, priority="vip")


DRILLS: dict[str, tuple[Drill, set[tuple[CheckCode, Severity]]]] = {
    "nothing is taken away": (lambda place: place.indexes(), set()),
    "its disruption budget": (_no_budget, {(CheckCode.DISRUPTION_BUDGET, ALARM)}),
    "its budget's strength": (_weak_budget, {(CheckCode.DISRUPTION_BUDGET, ALARM)}),
    "a pod's annotation": (
        lambda place: place.change_pod("trainer-0", {"metadata": {"annotations": {SAFE_TO_EVICT: None}}}),
        {(CheckCode.SAFE_TO_EVICT, ALARM)},
    ),
    "a node's annotation": (
        lambda place: place.change_node("node-0", {"metadata": {"annotations": {SCALE_DOWN_DISABLED: None}}}),
        {(CheckCode.SCALE_DOWN_DISABLED, ALARM)},
    ),
    "its Guaranteed QoS, as the server computes it": (
        lambda place: place.again("trainer-0", "node-0", requests={"cpu": "1"}),
        {(CheckCode.QOS, ALARM)},
    ),
    "its priority, as the server computes it": (
        _important_rollouts,
        {(CheckCode.PRIORITY, ALARM), (CheckCode.ROLLOUT_PREEMPTION, ALARM)},
    ),
    "its nodes' taint": (
        lambda place: place.change_node("node-0", {"spec": {"taints": None}}),
        {(CheckCode.TAINT, ALARM)},
    ),
    "its toleration": (
        lambda place: place.again("trainer-0", "node-0", spec={"tolerations": []}),
        {(CheckCode.TOLERATION, ALARM)},
    ),
    "what keeps it off spot": (
        lambda place: place.again("trainer-0", "node-0", spec={"nodeSelector": {}}),
        {(CheckCode.PLACEMENT, ALARM)},
    ),
    "its nodes for itself": (
        lambda place: place.pod("intruder", "node-0", labels={"app": "worker"}, limits={"cpu": "1", "memory": "1Gi"}),
        {(CheckCode.CO_TENANCY, ALARM)},
    ),
    "its devices for itself": (
        lambda place: place.pod("daemon", "node-0", labels={"app": "daemon"}, owner="DaemonSet"),
        {(CheckCode.CO_TENANCY, ALARM)},
    ),
    "its node from fleets": (
        lambda place: place.change_node("node-0", {"metadata": {"labels": {FLEET_LABEL: "rl.demo"}}}),
        {(CheckCode.SHARED_POOL, ALARM)},
    ),
    "its capacity": (
        lambda place: place.change_node("node-0", {"metadata": {"labels": {"eks.amazonaws.com/capacityType": "SPOT"}}}),
        {(CheckCode.CAPACITY_TYPE, ALARM)},
    ),
    "a GPU": (
        lambda place: place.change_node("node-0", {"status": {"allocatable": {"nvidia.com/gpu": "7"}}}, "status"),
        {(CheckCode.ACCELERATORS, ALARM)},
    ),
    "an EFA device": (
        lambda place: place.change_node(
            "node-0", {"status": {"allocatable": {"vpc.amazonaws.com/efa": "15"}}}, "status"
        ),
        {(CheckCode.EFA_DEVICES, ALARM)},
    ),
    "a GPU for good": (
        lambda place: place.change_node(
            "node-0",
            {
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "True"},
                        {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"},
                    ]
                }
            },
            "status",
        ),
        {(CheckCode.FATAL_XID, ALARM)},
    ),
    "its node's kubelet": (
        lambda place: place.change_node(
            "node-0", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "status"
        ),
        {(CheckCode.NODE_CONDITION, ALARM)},
    ),
    "its node, cordoned": (
        lambda place: place.change_node("node-0", {"spec": {"unschedulable": True}}),
        {(CheckCode.NODE_LEAVING, WARN)},
    ),
    "its node, drained by somebody": (
        lambda place: place.change_node(
            "node-0",
            {"spec": {"taints": [TAINT, {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}},
        ),
        {(CheckCode.NODE_LEAVING, ALARM)},
    ),
    "its node": (
        lambda place: place.api.delete(NODES, place.of("node-0")),
        {(CheckCode.NODE_CONDITION, ALARM)},
    ),
}


@pytest.mark.parametrize(("drill", "expected"), DRILLS.values(), ids=DRILLS.keys())
async def test_what_is_taken_away_is_found(
    place: TrainerOnApi, drill: Drill, expected: set[tuple[CheckCode, Severity]]
) -> None:
    await drill(place)
    guarding = await look(place)
    assert codes(guarding.watch.findings or ()) == expected
    assert guarding.watch.protected is (ALARM not in {severity for _, severity in expected})
    assert not guarding.repaired, "nothing was allowed to be repaired"


MENDED = {
    "its disruption budget": (RepairKind.DISRUPTION_BUDGET, 1),
    "a pod's annotation": (RepairKind.ANNOTATIONS, 1),
    "a node's annotation": (RepairKind.ANNOTATIONS, 1),
}


@pytest.mark.parametrize(
    ("taken", "kind", "count"), [(taken, *how) for taken, how in MENDED.items()], ids=MENDED.keys()
)
async def test_what_may_be_mended_is_mended_once_and_shows(
    place: TrainerOnApi, taken: str, kind: RepairKind, count: int
) -> None:
    place.repair = frozenset({kind})
    await DRILLS[taken][0](place)
    guarding = await look(place)
    assert guarding.watch.findings == ()
    assert guarding.repaired == {(kind, RepairOutcome.DONE): count}
    again = await look(place, guarding)
    assert again.watch.findings == ()
    assert again.repaired.total() == count


@pytest.mark.parametrize("taken", set(DRILLS) - set(MENDED) - {"nothing is taken away"})
async def test_nothing_else_is_ever_changed(place: TrainerOnApi, taken: str) -> None:
    place.repair = frozenset(RepairKind)
    await DRILLS[taken][0](place)
    recorder = TrainerRecorder(place.api, (place.trainer,))
    await recorder.snapshot()
    guarding = await look(place)
    assert codes(guarding.watch.findings or ()) == DRILLS[taken][1]
    assert await recorder.changes() == []


@pytest.mark.parametrize("held", ["paused", "dry_run", "not leading"])
async def test_nothing_is_repaired_while_held(place: TrainerOnApi, held: str) -> None:
    place.repair = frozenset(RepairKind)
    await _no_budget(place)
    guarding = Guarding(kube=place.api, clock=place.clock, trainers=(place.trainer,))
    if held == "not leading":
        guarding.leads = False
    else:
        guarding.change(**{held: True})
    await look(place, guarding)
    assert codes(guarding.watch.findings or ()) == {(CheckCode.DISRUPTION_BUDGET, Severity.REPAIRABLE)}
    assert guarding.watch.protected is False
    assert not guarding.repaired


async def test_the_budget_that_is_made_keeps_the_pods_and_says_whose_it_is(place: TrainerOnApi) -> None:
    place.repair = frozenset({RepairKind.DISRUPTION_BUDGET})
    await _no_budget(place)
    await look(place)
    made = await place.api.get(DISRUPTION_BUDGETS, "headrace-policy", namespace=place.namespace)
    assert made["spec"]["maxUnavailable"] == 0
    assert made["metadata"]["labels"][TRAINER_LABEL] == "policy"
    pods = await place.api.list(PODS, namespace=place.namespace, label_selector="app=trainer")
    assert len(pods.items) == 2
