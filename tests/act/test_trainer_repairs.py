"""Repairs: on the very object that was judged, verified, bounded, and never against somebody's will."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scaler.act.trainer_repairs import RepairOutcome, TrainerRepairs, budget_body
from scaler.aws.contract import AwsError, AwsFault
from scaler.kube.contract import (
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    Conflict,
    Denied,
    Invalid,
    KubeUnreachable,
    NotFound,
    TooMany,
)
from scaler.model.trainers import (
    AnnotateNode,
    AnnotatePod,
    CheckCode,
    CreateBudget,
    Finding,
    ProtectFromScaleIn,
    Repair,
    RepairKind,
    Severity,
    SubjectKind,
)
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube

KEY = "karpenter.sh/do-not-disrupt"
BUDGET = CreateBudget(namespace="rl", name="headrace-policy", trainer="policy", match_labels=(("app", "trainer"),))


class Groups:
    """Auto Scaling as far as protection goes."""

    def __init__(self, *, deaf: bool = False, error: AwsError | None = None) -> None:
        self.calls: list[Sequence[str]] = []
        self.protected: set[str] = set()
        self.deaf = deaf
        self.error = error

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        assert (service, operation) == ("autoscaling", "SetInstanceProtection")
        assert parameters["ProtectedFromScaleIn"] is True
        self.calls.append(parameters["InstanceIds"])
        if self.error is not None:
            raise self.error
        if not self.deaf:
            self.protected.update(parameters["InstanceIds"])
        return {}

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        return tuple(
            {"InstanceId": each, "ProtectedFromScaleIn": each in self.protected} for each in parameters["InstanceIds"]
        )

    def ahead_s(self) -> float | None:
        return None

    def counts(self) -> Mapping[tuple[str, str], int]:
        return {}

    async def close(self) -> None:
        return None


class Bench:
    """A fake API server with a pod and a node, and the repairs."""

    def __init__(self, *, aws: Groups | None = None, **limits: int) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.counted: Counter[tuple[RepairKind, RepairOutcome]] = Counter()
        self.repairs = TrainerRepairs(kube=self.kube, aws=aws, clock=self.clock, count=self._count, **limits)
        self.pod = self.kube.place(PODS, {"metadata": {"name": "trainer-0", "namespace": "rl"}}, namespace="rl")
        self.node = self.kube.place(NODES, {"metadata": {"name": "node-0"}})

    def _count(self, kind: RepairKind, outcome: RepairOutcome) -> None:
        self.counted[kind, outcome] += 1

    def annotate_pod(self) -> AnnotatePod:
        meta = self.pod["metadata"]
        return AnnotatePod(
            namespace="rl",
            name="trainer-0",
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            annotations=((KEY, "true"),),
        )

    def annotate_node(self) -> AnnotateNode:
        meta = self.node["metadata"]
        return AnnotateNode(
            name="node-0", uid=meta["uid"], resource_version=meta["resourceVersion"], annotations=((KEY, "true"),)
        )

    async def outcome(self, repair: Repair) -> RepairOutcome:
        (result,) = await self.repairs.carry_out([a_finding(repair)])
        return result.outcome

    async def pod_annotations(self) -> Mapping[str, str]:
        found = (await self.kube.get(PODS, "trainer-0", namespace="rl"))["metadata"].get("annotations") or {}
        return dict(found)


def a_finding(repair: Repair | None, subject: str = "it") -> Finding:
    kinds = {CreateBudget: RepairKind.DISRUPTION_BUDGET, ProtectFromScaleIn: RepairKind.SCALE_IN_PROTECTION}
    return Finding(
        check=CheckCode.QOS,
        trainer="policy",
        subject_kind=SubjectKind.POD,
        subject=subject,
        severity=Severity.REPAIRABLE,
        message="",
        repair=repair,
        repair_kind=kinds.get(type(repair), RepairKind.ANNOTATIONS) if repair else None,
    )


async def test_annotations_are_added_and_others_left_alone() -> None:
    bench = Bench()
    await bench.kube.patch(PODS, "trainer-0", {"metadata": {"annotations": {"a": "b"}}}, namespace="rl")
    bench.pod = await bench.kube.get(PODS, "trainer-0", namespace="rl")
    assert await bench.outcome(bench.annotate_pod()) is RepairOutcome.DONE
    assert await bench.outcome(bench.annotate_node()) is RepairOutcome.DONE
    assert await bench.pod_annotations() == {"a": "b", KEY: "true"}


async def test_an_object_that_has_changed_since_it_was_judged_is_left_alone() -> None:
    bench = Bench()
    stale = bench.annotate_pod()
    await bench.kube.patch(PODS, "trainer-0", {"metadata": {"annotations": {KEY: "2h"}}}, namespace="rl")
    assert await bench.outcome(stale) is RepairOutcome.PRECONDITION
    assert await bench.pod_annotations() == {KEY: "2h"}


async def test_another_pod_of_that_name_is_left_alone() -> None:
    bench = Bench()
    old = bench.annotate_pod()
    await bench.kube.delete(PODS, "trainer-0", namespace="rl", grace_s=0)
    assert await bench.outcome(old) is RepairOutcome.PRECONDITION
    new = bench.kube.place(PODS, {"metadata": {"name": "trainer-0", "namespace": "rl"}}, namespace="rl")
    same_version = replace(old, resource_version=new["metadata"]["resourceVersion"])
    assert await bench.outcome(same_version) in (RepairOutcome.PRECONDITION, RepairOutcome.REFUSED)
    assert await bench.pod_annotations() == {}


async def test_a_budget_that_is_there_already_is_not_touched() -> None:
    bench = Bench()
    assert await bench.outcome(BUDGET) is RepairOutcome.DONE
    assert await bench.outcome(BUDGET) is RepairOutcome.ALREADY
    other = budget_body(BUDGET)
    other["metadata"]["name"] = "headrace-other"
    other["spec"]["maxUnavailable"] = 1
    await bench.kube.create(DISRUPTION_BUDGETS, other, namespace="rl")
    assert await bench.outcome(replace(BUDGET, name="headrace-other")) is RepairOutcome.PRECONDITION
    kept = await bench.kube.get(DISRUPTION_BUDGETS, "headrace-other", namespace="rl")
    assert kept["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Denied("forbidden", status=403), RepairOutcome.REFUSED),
        (Invalid("no", status=422), RepairOutcome.REFUSED),
        (Conflict("changed", status=409), RepairOutcome.PRECONDITION),
        (NotFound("gone", status=404), RepairOutcome.PRECONDITION),
        (TooMany("slow", status=429), RepairOutcome.UNAVAILABLE),
        (KubeUnreachable("away"), RepairOutcome.UNAVAILABLE),
    ],
)
async def test_a_failure_is_an_outcome_and_hinders_no_other_repair(error: Exception, outcome: RepairOutcome) -> None:
    bench = Bench()
    bench.kube.fail_next("patch", "pods", error)
    results = await bench.repairs.carry_out([a_finding(bench.annotate_pod()), a_finding(bench.annotate_node())])
    assert [result.outcome for result in results] == [outcome, RepairOutcome.DONE]
    assert bench.counted == {(RepairKind.ANNOTATIONS, outcome): 1, (RepairKind.ANNOTATIONS, RepairOutcome.DONE): 1}


async def test_a_write_whose_answer_was_lost_comes_again_and_finds_it_done() -> None:
    bench = Bench()
    bench.kube.fail_next("create", "poddisruptionbudgets", KubeUnreachable("no answer"), landed=True)
    assert await bench.outcome(BUDGET) is RepairOutcome.UNAVAILABLE
    assert await bench.outcome(BUDGET) is RepairOutcome.ALREADY


async def test_an_annotation_that_something_takes_away_at_once_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    async def mutated_by_a_webhook(*args: Any, **more: Any) -> Any:
        return {}

    monkeypatch.setattr(bench.kube, "patch", mutated_by_a_webhook)
    assert await bench.outcome(bench.annotate_pod()) is RepairOutcome.UNVERIFIED


async def test_protection_that_does_not_show_is_no_success() -> None:
    bench = Bench(aws=Groups(deaf=True))
    assert await bench.outcome(ProtectFromScaleIn(group="g", instance_id="i-1")) is RepairOutcome.UNVERIFIED


@pytest.mark.parametrize("count", [1, 50, 51, 120])
async def test_protection_is_set_for_up_to_50_instances_a_call_and_one_group_at_a_time(count: int) -> None:
    groups = Groups()
    bench = Bench(aws=groups)
    wanted = [ProtectFromScaleIn(group=f"g-{number % 2}", instance_id=f"i-{number}") for number in range(count)]
    results = await bench.repairs.carry_out([a_finding(each, each.instance_id) for each in wanted])
    assert {result.outcome for result in results} == {RepairOutcome.DONE}
    assert groups.protected == {each.instance_id for each in wanted}
    assert all(len(call) <= 50 and len({int(each[2:]) % 2 for each in call}) == 1 for call in groups.calls)
    assert len(groups.calls) == sum(
        -(-len([w for w in wanted if w.group == g]) // 50) for g in {w.group for w in wanted}
    )


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (AwsFault.THROTTLED, RepairOutcome.UNAVAILABLE),
        (AwsFault.AUTHORISATION, RepairOutcome.REFUSED),
        (AwsFault.CONFIGURATION, RepairOutcome.REFUSED),
        (AwsFault.NOT_FOUND, RepairOutcome.PRECONDITION),
    ],
)
async def test_what_auto_scaling_answers_is_an_outcome(fault: AwsFault, outcome: RepairOutcome) -> None:
    bench = Bench(aws=Groups(error=AwsError("no", fault=fault)))
    assert await bench.outcome(ProtectFromScaleIn(group="g", instance_id="i-1")) is outcome


async def test_without_aws_protection_is_refused() -> None:
    assert await Bench().outcome(ProtectFromScaleIn(group="g", instance_id="i-1")) is RepairOutcome.REFUSED


async def test_somebody_who_undoes_a_repair_wins_after_a_few_times_until_an_hour_has_passed() -> None:
    bench = Bench(times_an_hour=3)
    outcomes = []
    for _ in range(5):
        outcomes.append(await bench.outcome(bench.annotate_pod()))
        undone = {"metadata": {"annotations": {KEY: None}}}
        bench.pod = await bench.kube.patch(PODS, "trainer-0", undone, namespace="rl")
        bench.clock.pass_time(60.0)
    assert outcomes == [RepairOutcome.DONE] * 3 + [RepairOutcome.CONTESTED] * 2
    assert await bench.outcome(bench.annotate_node()) is RepairOutcome.DONE
    bench.clock.pass_time(3600.0)
    assert await bench.outcome(bench.annotate_pod()) is RepairOutcome.DONE


async def test_no_more_writes_a_minute_than_allowed() -> None:
    bench = Bench(per_minute=3)
    names = [f"headrace-{number}" for number in range(5)]
    findings = [a_finding(replace(BUDGET, name=name)) for name in names]
    outcomes = [result.outcome for result in await bench.repairs.carry_out(findings)]
    assert outcomes == [RepairOutcome.DONE] * 3 + [RepairOutcome.LIMITED] * 2
    bench.clock.pass_time(60.0)
    rest = await bench.repairs.carry_out(findings[3:])
    assert [result.outcome for result in rest] == [RepairOutcome.DONE] * 2


async def test_findings_without_a_repair_are_none_of_its_business() -> None:
    bench = Bench()
    assert await bench.repairs.carry_out([a_finding(None)]) == ()
    assert bench.kube.counts() == {}


async def test_a_server_that_hangs_is_given_up() -> None:
    bench = Bench()
    bench.kube.hang("patch", "pods")
    async with asyncio.TaskGroup() as group:
        work = group.create_task(bench.outcome(bench.annotate_pod()))
        await bench.clock.advance(60.0)
    assert work.result() is RepairOutcome.UNAVAILABLE
