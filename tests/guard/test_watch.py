"""The guard at work: what it says of what it cannot see, what it does about repairs that fail, and that it never stops."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from scaler.act.trainer_repairs import RepairOutcome
from scaler.aws.contract import AwsError, AwsFault
from scaler.decide.trainer_checks.disruption import SAFE_TO_EVICT
from scaler.guard.watch import trainers_of
from scaler.kube.contract import DISRUPTION_BUDGETS, PODS, Denied, KubeUnreachable
from scaler.model.spec import FleetSpec
from scaler.model.trainers import CHECKPOINT_ANNOTATION, CheckCode, RepairKind, Severity
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.guard import Guarding
from tests.builders.trainer_objects import TrainerOnApi
from tests.builders.trainers import a_trainer, codes, instance, node_facts

UNKNOWN, ALARM, REPAIRABLE = Severity.UNKNOWN, Severity.ALARM, Severity.REPAIRABLE


class World:
    """A trainer on the fake API server, under a clock that stands still."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.place = TrainerOnApi(api=self.kube, clock=self.clock)

    async def begin(self, *repair: RepairKind, **over: Any) -> Guarding:
        await self.place.begin()
        self.place.repair = frozenset(repair)
        guarding = Guarding(kube=self.kube, clock=self.clock, trainers=(self.place.trainer,), **over)
        await self.indexes(guarding)
        return guarding

    async def indexes(self, guarding: Guarding) -> None:
        nodes, pods = await self.place.indexes()
        guarding.nodes.held, guarding.pods.held = nodes.held, pods.held
        guarding.nodes.current = guarding.pods.current = self.clock.now_s


def blind(guarding: Guarding) -> set[CheckCode]:
    return {finding.check for finding in guarding.watch.findings or () if finding.severity is UNKNOWN}


@pytest.mark.parametrize(
    ("plural", "unknown"),
    [
        ("poddisruptionbudgets", {CheckCode.DISRUPTION_BUDGET}),
        ("priorityclasses", {CheckCode.PRIORITY, CheckCode.ROLLOUT_PREEMPTION}),
    ],
)
async def test_a_missing_permission_makes_its_checks_unknown_and_says_so(plural: str, unknown: set[CheckCode]) -> None:
    world = World()
    guarding = await world.begin()
    world.kube.fail_next("list", plural, Denied(f"{plural} is forbidden", status=403), times=10)
    await guarding.watch.look()
    assert blind(guarding) == unknown
    assert all(f"{plural} is forbidden" in finding.message for finding in guarding.watch.findings or ())
    assert guarding.watch.protected is None
    world.kube.heal()
    await guarding.watch.look()
    assert guarding.watch.findings == ()
    assert guarding.watch.protected is True


async def test_pods_that_cannot_be_listed_leave_nothing_that_is_known_of_it() -> None:
    world = World()
    guarding = await world.begin()
    world.kube.fail_next("list", "pods", Denied("pods is forbidden", status=403), times=100)
    await guarding.watch.look()
    assert CheckCode.QOS in blind(guarding)
    assert CheckCode.TAINT in blind(guarding), "its nodes follow from its pods"
    assert codes(guarding.watch.findings or ()) == {(check, UNKNOWN) for check in blind(guarding)}


async def test_an_api_server_that_is_away_for_a_moment_is_no_finding_and_for_long_is_one() -> None:
    world = World()
    guarding = await world.begin()
    await guarding.watch.look()
    world.kube.fail_next("list", "*", KubeUnreachable("away"), times=1000)
    world.clock.pass_time(30.0)
    await guarding.watch.look()
    assert guarding.watch.findings == ()
    world.clock.pass_time(600.0)
    await guarding.watch.look()
    assert guarding.watch.protected is None
    assert guarding.protector.against_node(world.place.of("node-0")) is not None


async def test_a_watch_of_nodes_that_is_behind_is_told() -> None:
    world = World()
    guarding = await world.begin()
    at_s = world.clock.now_s()
    guarding.nodes.current = lambda: at_s
    world.clock.pass_time(500.0)
    await guarding.watch.look()
    assert CheckCode.NODE_CONDITION in blind(guarding)


async def test_a_repair_that_is_refused_is_an_alarm_with_its_reason() -> None:
    world = World()
    guarding = await world.begin(RepairKind.DISRUPTION_BUDGET)
    await world.kube.delete(DISRUPTION_BUDGETS, "trainer", namespace=world.place.namespace)
    world.kube.fail_next("create", "poddisruptionbudgets", Denied("may not create", status=403), times=5)
    await guarding.watch.look()
    (finding,) = guarding.watch.findings or ()
    assert (finding.check, finding.severity, finding.repair) == (CheckCode.DISRUPTION_BUDGET, ALARM, None)
    assert "repair refused: may not create" in finding.message


async def test_bug_079_a_repair_that_somebody_undoes_is_made_anew_and_then_told() -> None:
    """Kueue #14811: nothing looked again at what had been dealt with once."""
    world = World()
    guarding = await world.begin(RepairKind.ANNOTATIONS)
    undo = {"metadata": {"annotations": {SAFE_TO_EVICT: None}}}
    seen = []
    for _ in range(5):
        await world.place.change_pod("trainer-0", undo)
        await guarding.watch.look()
        seen.append(codes(guarding.watch.findings or ()))
        world.clock.pass_time(60.0)
        await world.indexes(guarding)
    assert seen == [set(), set(), set(), {(CheckCode.SAFE_TO_EVICT, ALARM)}, {(CheckCode.SAFE_TO_EVICT, ALARM)}]
    assert guarding.repaired[RepairKind.ANNOTATIONS, RepairOutcome.CONTESTED] == 2


async def test_what_changed_since_it_was_judged_comes_again_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    guarding = await world.begin(RepairKind.ANNOTATIONS)
    await world.place.change_pod("trainer-0", {"metadata": {"annotations": {SAFE_TO_EVICT: None}}})
    read = guarding.observer.read

    async def read_and_then_somebody_writes(*args: Any) -> Any:
        facts = await read(*args)
        await world.place.change_pod("trainer-0", {"metadata": {"labels": {"touched": "yes"}}})
        monkeypatch.undo()
        return facts

    monkeypatch.setattr(guarding.observer, "read", read_and_then_somebody_writes)
    await guarding.watch.look()
    assert codes(guarding.watch.findings or ()) == {(CheckCode.SAFE_TO_EVICT, REPAIRABLE)}
    await guarding.watch.look()
    assert guarding.watch.findings == ()


async def test_the_guard_that_breaks_says_so_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    guarding = await world.begin()

    async def break_once(*args: Any) -> Any:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(guarding.observer, "read", break_once)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(guarding.watch.run())
        await world.clock.settle()
        assert blind(guarding) == {CheckCode.PODS}
        assert guarding.watch.protected is None
        await world.clock.advance(guarding.spec.interval_s)
        assert guarding.watch.findings == ()
        work.cancel()


async def test_a_repair_shows_at_the_next_look_however_seldom_its_source_is_asked() -> None:
    world = World()
    guarding = await world.begin(RepairKind.DISRUPTION_BUDGET, slow_s=60.0)
    await world.kube.delete(DISRUPTION_BUDGETS, "trainer", namespace=world.place.namespace)
    for _ in range(2):
        await guarding.watch.look()
        world.clock.pass_time(10.0)
    assert guarding.watch.findings == ()
    assert guarding.repaired == {(RepairKind.DISRUPTION_BUDGET, RepairOutcome.DONE): 1}


async def test_slow_sources_are_asked_once_a_minute_and_pods_at_every_look() -> None:
    world = World()
    guarding = await world.begin(slow_s=60.0)
    before = dict(world.kube.counts())
    for _ in range(12):
        await guarding.watch.look()
        world.clock.pass_time(10.0)
    asked = {key: count - before.get(key, 0) for key, count in world.kube.counts().items()}
    assert asked["list", "poddisruptionbudgets"] == 2
    assert asked["list", "priorityclasses"] == 2
    assert asked["list", "pods"] == 12 + 2 * 2, "the trainer's at every look, and those on its two nodes twice"


async def test_a_fleet_without_trainers_has_no_findings_and_asks_nobody() -> None:
    world = World()
    guarding = await world.begin()
    guarding.change(trainers=())
    before = dict(world.kube.counts())
    await guarding.watch.look()
    assert guarding.watch.findings is None
    assert guarding.watch.protected is None
    assert world.kube.counts() == before


def test_a_trainer_without_a_namespace_is_in_the_fleets() -> None:
    trainers = (a_trainer(namespace=""), a_trainer(name="b", namespace="other"))
    spec = FleetSpec(name="demo", namespace="rl", stages=(), trainers=trainers)
    assert [trainer.namespace for trainer in trainers_of(spec)] == ["rl", "other"]
    assert [trainer.namespace for trainer in trainers_of(replace(spec, namespace=""))] == ["default", "other"]
    assert trainers_of(replace(spec, trainers=())) == ()


class Cloud:
    """EC2 and Auto Scaling for one instance in a capacity block that ends soon."""

    def __init__(self, ends_at_s: float) -> None:
        self.ends = datetime.fromtimestamp(ends_at_s, UTC)
        self.protected: set[str] = set()

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        if operation == "SetInstanceProtection":
            self.protected.update(parameters["InstanceIds"])
            return {}
        if operation == "DescribeInstanceAttribute":
            return {"DisableApiTermination": {"Value": True}}
        raise AwsError(operation, fault=AwsFault.UNKNOWN)

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        one = {"InstanceId": instance(0)}
        answers: dict[str, dict[str, Any]] = {
            "DescribeInstances": {
                "Instances": [{**one, "InstanceLifecycle": "capacity-block", "CapacityReservationId": "cr-1"}]
            },
            "DescribeAutoScalingInstances": {
                **one,
                "AutoScalingGroupName": "trainers",
                "LifecycleState": "InService",
                "ProtectedFromScaleIn": instance(0) in self.protected,
            },
            "DescribeAutoScalingGroups": {"AutoScalingGroupName": "trainers"},
            "DescribeInstanceStatus": {**one, "Events": []},
            "DescribeCapacityReservations": {
                "CapacityReservationId": "cr-1",
                "ReservationType": "capacity-block",
                "EndDate": self.ends,
            },
            "DescribeInstanceTypes": {"InstanceType": "p5en.48xlarge"},
        }
        return (answers[operation],)

    def ahead_s(self) -> float | None:
        return None

    def counts(self) -> Mapping[tuple[str, str], int]:
        return {}

    async def close(self) -> None:
        return None


async def test_a_trainer_whose_block_ends_is_asked_for_a_checkpoint_and_its_instance_protected() -> None:
    world = World()
    cloud = Cloud(ends_at_s=world.clock.now_s() + 1800.0 + 1200.0)
    guarding = await world.begin(RepairKind.CHECKPOINT, RepairKind.SCALE_IN_PROTECTION, aws=cloud)
    guarding.nodes.held = [
        replace(node, instance_id=instance(0), capacity_type="capacity-block") if node.name.endswith("node-0") else node
        for node in guarding.nodes.held
    ]
    await guarding.watch.look()
    assert codes(guarding.watch.findings or ()) == {(CheckCode.CAPACITY_END, ALARM)}
    assert cloud.protected == {instance(0)}
    for name in ("trainer-0", "trainer-1"):
        pod = await world.kube.get(PODS, name, namespace=world.place.namespace)
        assert pod["metadata"]["annotations"][CHECKPOINT_ANNOTATION] == "1970-01-12T14:06:40Z"
    writes = {key: count for key, count in world.kube.counts().items() if key[0] not in ("list", "get", "create")}
    await guarding.watch.look()
    assert codes(guarding.watch.findings or ()) == {(CheckCode.CAPACITY_END, ALARM)}
    assert {key: count for key, count in world.kube.counts().items() if key in writes} == writes


async def test_bug_089_a_look_works_on_what_it_read_not_on_what_changes_meanwhile() -> None:
    """KEDA #7843: a map that one task changed while another walked it."""
    world = World()
    guarding = await world.begin()
    facts = await guarding.observer.read(trainers_of(guarding.spec))
    guarding.nodes.held.append(node_facts("late"))
    await world.kube.delete(PODS, "trainer-0", namespace=world.place.namespace, grace_s=0)
    assert [len(each.pods) for each in facts] == [2]
    assert {node.name for each in facts for node in each.nodes} == {world.place.of("node-0"), world.place.of("node-1")}
