"""What a row is given, and what it finds: only what is wrong. Whether it could see at all is the business of the table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scaler.model.trainer_facts import Source, TrainerFacts, TrainerNode, TrainerPod
from scaler.model.trainers import CheckCode, GuardSettings, Repair, RepairKind, Severity, SubjectKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trainer at one moment."""

    facts: TrainerFacts
    settings: GuardSettings
    now_s: float

    def placed(self) -> Iterator[tuple[TrainerPod, TrainerNode]]:
        """Its pods that have a node, with it."""
        nodes = {node.name: node for node in self.facts.nodes}
        for pod in self.facts.pods:
            if pod.node_name in nodes:
                yield pod, nodes[pod.node_name]

    def asks_for(self, resource: str) -> bool:
        """Whether any of its pods asks for such a device."""
        return any(pod.requests.get(resource, 0) > 0 for pod in self.facts.pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a row found; the table makes a `Finding` of it."""

    kind: SubjectKind
    subject: str
    message: str
    severity: Severity = Severity.ALARM
    repair: Repair | None = None
    repair_kind: RepairKind | None = None


Judge = Callable[[Case], Iterator[Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A check: its code, the sources without which it is unknown, and its function."""

    code: CheckCode
    needs: frozenset[Source]
    judge: Judge


def row(code: CheckCode, judge: Judge, *needs: Source) -> Row:
    """A line of the table."""
    return Row(code=code, needs=frozenset(needs), judge=judge)


def pod_found(pod: TrainerPod, message: str, severity: Severity = Severity.ALARM) -> Found:
    """Something about a pod."""
    return Found(kind=SubjectKind.POD, subject=f"{pod.namespace}/{pod.name}", message=message, severity=severity)


def node_found(node: TrainerNode, message: str, severity: Severity = Severity.ALARM) -> Found:
    """Something about a node."""
    return Found(kind=SubjectKind.NODE, subject=node.name, message=message, severity=severity)
