"""The recorder of who changed a trainer's objects: it sees each change that is one, and its author where the server notes one."""

import pytest

from scaler.decide.trainer_checks.disruption import SAFE_TO_EVICT
from scaler.kube.contract import DISRUPTION_BUDGETS, NODES, PODS, PRIORITY_CLASSES
from scaler.model.trainers import RepairKind
from tests.builders.fake_kube import FakeKube
from tests.builders.trainer_objects import TrainerOnApi
from tests.builders.trainer_recorder import TrainerRecorder
from tests.guard.test_drills import look


@pytest.fixture
async def recorder(place: TrainerOnApi) -> TrainerRecorder:
    recorder = TrainerRecorder(place.api, (place.trainer,))
    await recorder.snapshot()
    return recorder


async def test_nothing_has_changed(recorder: TrainerRecorder) -> None:
    assert await recorder.changes() == []


async def test_upkeep_of_status_is_no_change(place: TrainerOnApi, recorder: TrainerRecorder) -> None:
    await place.change_pod("trainer-0", {"status": {"phase": "Running"}}, "status")
    await place.change_node("node-0", {"status": {"allocatable": {"cpu": "1"}}}, "status")
    assert await recorder.changes() == []


async def test_other_peoples_pods_and_nodes_are_not_looked_at(place: TrainerOnApi, recorder: TrainerRecorder) -> None:
    await place.change_pod("worker", {"metadata": {"labels": {"x": "y"}}})
    await place.change_node("rollout", {"spec": {"unschedulable": True}})
    await place.api.delete(PODS, "worker", namespace=place.namespace, grace_s=0)
    assert await recorder.changes() == []


async def test_each_kind_of_change_is_seen(place: TrainerOnApi, recorder: TrainerRecorder) -> None:
    await place.change_pod("trainer-0", {"metadata": {"labels": {"x": "y"}}})
    await place.change_node("node-0", {"spec": {"unschedulable": True}})
    await place.api.delete(DISRUPTION_BUDGETS, "trainer", namespace=place.namespace)
    await place.budget("another", maxUnavailable=1)
    await place.again("trainer-1", "node-1")
    await place.api.delete(PRIORITY_CLASSES, place.of("trainer"))
    await place.api.delete(NODES, place.of("node-1"))
    assert [(change.what, change.how, change.paths) for change in await recorder.changes()] == [
        (f"nodes {place.of('node-0')}", "changed", ("spec.unschedulable",)),
        (f"nodes {place.of('node-1')}", "gone", ()),
        (f"poddisruptionbudgets {place.namespace}/another", "made", ()),
        (f"poddisruptionbudgets {place.namespace}/trainer", "gone", ()),
        (f"pods {place.namespace}/trainer-0", "changed", ("metadata.labels.x",)),
        (f"pods {place.namespace}/trainer-1", "replaced", ()),
        (f"priorityclasses {place.of('trainer')}", "gone", ()),
    ]


async def test_a_repair_shows_as_ours(place: TrainerOnApi) -> None:
    place.repair = frozenset({RepairKind.ANNOTATIONS})
    await place.change_pod("trainer-0", {"metadata": {"annotations": {SAFE_TO_EVICT: None}}})
    recorder = TrainerRecorder(place.api, (place.trainer,))
    await recorder.snapshot()
    await look(place)
    (change,) = await recorder.changes()
    assert (change.what, change.how) == (f"pods {place.namespace}/trainer-0", "changed")
    assert change.paths in ((f"metadata.annotations.{SAFE_TO_EVICT}",), ("metadata.annotations",))
    if not isinstance(place.api, FakeKube):
        assert change.managers == ("headrace",)
