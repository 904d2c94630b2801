"""Carries repairs of trainers out: each once, on the very object that was judged, looked at afterwards.

Invariants
* Only what is asked for in a `Repair` is written: annotations on the version that was judged (compare-and-set by
  `resourceVersion` and UID), a budget that does not exist, protection that is set. Nothing is removed or replaced.
* What was written is read again; a repair that does not show is no success.
* Bounded: so many writes a minute, and a repair that had to be made again and again within an hour is left to people: somebody
  undoes it, and two owners of one thing are worse than one.
Non-goals: judging what is to be repaired, and whether the operator allows it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.kube.contract import (
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    Conflict,
    Denied,
    Invalid,
    Json,
    KubeApi,
    KubeError,
    NotFound,
    Resource,
)
from scaler.model.clock import Clock
from scaler.model.trainers import (
    TRAINER_LABEL,
    AnnotateNode,
    AnnotatePod,
    CreateBudget,
    Finding,
    ProtectFromScaleIn,
    Repair,
    RepairKind,
)

log = structlog.get_logger()

_IDS_A_CALL = 50
"""Limit of SetInstanceProtection."""
_PER_MINUTE = 120
"""Writes; each is also read again. A trainer of some hundred nodes is mended within minutes, and nobody is flooded."""
_TIMES_AN_HOUR = 3
_MINUTE_S, _HOUR_S = 60.0, 3600.0
_TIME_OUT_S = 30.0
MANAGED_BY = {"app.kubernetes.io/managed-by": "headrace"}


class RepairOutcome(StrEnum):
    """What became of a repair; bounded, so that it may label a metric."""

    DONE = "done"
    ALREADY = "already"
    """It was there when we came."""
    PRECONDITION = "precondition"
    """The object has changed or gone since it was judged: the next look judges it anew."""
    REFUSED = "refused"
    """We may not, or the server will not take it."""
    UNAVAILABLE = "unavailable"
    UNVERIFIED = "unverified"
    """Written, and it does not show."""
    LIMITED = "limited"
    """Too many in this minute: it comes again."""
    CONTESTED = "contested"
    """Made several times within the hour: somebody undoes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """A finding, and what became of its repair."""

    finding: Finding
    outcome: RepairOutcome
    message: str = ""


class TrainerRepairs:
    """See the module's docstring. `count` hears every outcome."""

    def __init__(
        self,
        *,
        kube: KubeApi,
        aws: Aws | None,
        clock: Clock,
        count: Callable[[RepairKind, RepairOutcome], None],
        per_minute: int = _PER_MINUTE,
        times_an_hour: int = _TIMES_AN_HOUR,
    ) -> None:
        self._kube = kube
        self._aws = aws
        self._clock = clock
        self._count = count
        self._per_minute = per_minute
        self._times_an_hour = times_an_hour
        self._writes: deque[float] = deque()
        self._made: defaultdict[Repair, deque[float]] = defaultdict(deque)

    async def carry_out(self, findings: Iterable[Finding]) -> tuple[RepairResult, ...]:
        """Every finding with a repair, with its outcome. Never raises for a repair that fails."""
        self._forget()
        due = [finding for finding in findings if finding.repair is not None]
        results = [result for batch in _batches(due) for result in await self._attempt(batch)]
        for result in results:
            self._tell(result)
        return tuple(results)

    async def _attempt(self, batch: Sequence[Finding]) -> list[RepairResult]:
        contested = [each for each in batch if len(self._made[_key(each.repair)]) >= self._times_an_hour]
        due = [each for each in batch if each not in contested]
        results = [
            RepairResult(finding=each, outcome=RepairOutcome.CONTESTED, message="something undoes it again and again")
            for each in contested
        ]
        if not due:
            return results
        if len(self._writes) >= self._per_minute:
            return results + [RepairResult(finding=each, outcome=RepairOutcome.LIMITED) for each in due]
        self._writes.append(self._clock.monotonic_s())
        outcomes, message = await self._write(due)
        results += [
            RepairResult(finding=finding, outcome=outcome, message=message)
            for finding, outcome in zip(due, outcomes, strict=True)
        ]
        for result in results:
            if result.outcome is RepairOutcome.DONE:
                self._made[_key(result.finding.repair)].append(self._clock.monotonic_s())
        return results

    async def _write(self, batch: Sequence[Finding]) -> tuple[list[RepairOutcome], str]:
        try:
            async with asyncio.timeout(_TIME_OUT_S):
                return await self._make(batch), ""
        except (KubeError, AwsError, TimeoutError, OSError) as error:
            return [_outcome_of(error)] * len(batch), str(error) or type(error).__name__

    async def _make(self, batch: Sequence[Finding]) -> list[RepairOutcome]:
        """Protections come many at a time, everything else alone."""
        match batch[0].repair:
            case AnnotatePod() as repair:
                return [await self._annotate(PODS, repair, repair.namespace)]
            case AnnotateNode() as repair:
                return [await self._annotate(NODES, repair, None)]
            case CreateBudget() as repair:
                return [await self._create_budget(repair)]
        return await self._protect([each.repair for each in batch if isinstance(each.repair, ProtectFromScaleIn)])

    async def _annotate(
        self, resource: Resource, repair: AnnotatePod | AnnotateNode, namespace: str | None
    ) -> RepairOutcome:
        annotations = dict(repair.annotations)
        patch: Json = {
            "metadata": {
                "uid": repair.uid,
                "resourceVersion": repair.resource_version,
                "annotations": annotations,
            }
        }
        await self._kube.patch(resource, repair.name, patch, namespace=namespace)
        seen = (await self._kube.get(resource, repair.name, namespace=namespace))["metadata"]
        shows = seen.get("uid") == repair.uid and annotations.items() <= (seen.get("annotations") or {}).items()
        return RepairOutcome.DONE if shows else RepairOutcome.UNVERIFIED

    async def _create_budget(self, repair: CreateBudget) -> RepairOutcome:
        outcome = RepairOutcome.DONE
        try:
            await self._kube.create(DISRUPTION_BUDGETS, budget_body(repair), namespace=repair.namespace)
        except Conflict:
            outcome = RepairOutcome.ALREADY
        seen = await self._kube.get(DISRUPTION_BUDGETS, repair.name, namespace=repair.namespace)
        wanted = budget_body(repair)["spec"]
        if all(seen.get("spec", {}).get(key) == value for key, value in wanted.items()):
            return outcome
        return RepairOutcome.UNVERIFIED if outcome is RepairOutcome.DONE else RepairOutcome.PRECONDITION

    async def _protect(self, repairs: Sequence[ProtectFromScaleIn]) -> list[RepairOutcome]:
        if self._aws is None:
            return [RepairOutcome.REFUSED] * len(repairs)
        ids = [repair.instance_id for repair in repairs]
        await self._aws.call(
            "autoscaling",
            "SetInstanceProtection",
            AutoScalingGroupName=repairs[0].group,
            InstanceIds=ids,
            ProtectedFromScaleIn=True,
        )
        seen = await self._aws.pages(
            "autoscaling", "DescribeAutoScalingInstances", "AutoScalingInstances", InstanceIds=ids
        )
        protected = {each["InstanceId"] for each in seen if each.get("ProtectedFromScaleIn")}
        return [RepairOutcome.DONE if each in protected else RepairOutcome.UNVERIFIED for each in ids]

    def _tell(self, result: RepairResult) -> None:
        finding = result.finding
        if finding.repair_kind is not None:
            self._count(finding.repair_kind, result.outcome)
        log.info(
            "trainer_repair",
            trainer=finding.trainer,
            check=finding.check.value,
            subject=finding.subject,
            outcome=result.outcome.value,
            message=result.message,
        )

    def _forget(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._writes and now_s - self._writes[0] >= _MINUTE_S:
            self._writes.popleft()
        for times in self._made.values():
            while times and now_s - times[0] >= _HOUR_S:
                times.popleft()
        self._made = defaultdict(deque, {key: times for key, times in self._made.items() if times})


def budget_body(repair: CreateBudget) -> Json:
    """The PodDisruptionBudget that a repair makes."""
    return {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {
            "name": repair.name,
            "namespace": repair.namespace,
            "labels": {**MANAGED_BY, TRAINER_LABEL: repair.trainer},
        },
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": dict(repair.match_labels)}},
    }


def _batches(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Each finding alone, but protections of one group together, as many as one call takes."""
    alone = [[each] for each in findings if not isinstance(each.repair, ProtectFromScaleIn)]
    groups: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        if isinstance(each.repair, ProtectFromScaleIn):
            groups[each.repair.group].append(each)
    together = [
        members[start : start + _IDS_A_CALL]
        for members in groups.values()
        for start in range(0, len(members), _IDS_A_CALL)
    ]
    return alone + together


def _key(repair: Repair | None) -> Repair:
    """What makes two repairs the same one: the object, and what is written, not the version it was written on."""
    match repair:
        case AnnotatePod() | AnnotateNode():
            return replace(repair, resource_version="")
        case None:
            raise ValueError("a finding without a repair")
    return repair


def _outcome_of(error: Exception) -> RepairOutcome:
    match error:
        case Conflict() | NotFound():
            return RepairOutcome.PRECONDITION
        case Denied() | Invalid():
            return RepairOutcome.REFUSED
        case AwsError(fault=AwsFault.NOT_FOUND | AwsFault.CONTENTION):
            return RepairOutcome.PRECONDITION
        case AwsError(fault=AwsFault.AUTHORISATION | AwsFault.CONFIGURATION):
            return RepairOutcome.REFUSED
    return RepairOutcome.UNAVAILABLE
