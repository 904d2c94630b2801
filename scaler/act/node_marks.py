"""What marks a node that is to go, as the one patch that puts the mark there or takes it away. Pure.

Policy
* The patch holds only what is missing; there is none where the mark stands. Times are whole seconds on the node, so a
  deadline stands that is shown a little early; one that is shown later than `LATER_S` does not: it would not record it.
* What was there before us is left there: only a cordon and a label that we added, and noted as ours, are undone.
* Every mark runs out. Whoever still wants it renews it in time, so one that has run out belongs to nobody who lives.

Invariants: a patch names the node's UID and the resource version it was computed from, and holds all taints of others: nothing
that somebody else writes meanwhile is lost. The taint's value is a valid label value, whatever the reason was.
Sources: Kubernetes API conventions (a merge patch replaces lists); resource versions of one kind of object compare as
integers (KEP-5504).
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from scaler.kube.contract import Json
from scaler.kube.facts import (
    DEADLINE_ANNOTATION,
    DRAIN_TAINT,
    EXCLUDE_LABEL,
    EXPIRY_ANNOTATION,
    FLEET_LABEL,
    NOTICE_ANNOTATION,
    POOL_LABEL,
    NodeFacts,
    Taint,
)
from scaler.model.interruption import InterruptionNotice
from scaler.model.notice_file import dump_notice, parse_notice
from scaler.model.units import utc_text

MARKED_BY_ANNOTATION = "headrace.dev/marked-by"
"""Key of the fleet whose mark it is."""
EPOCH_ANNOTATION = "headrace.dev/epoch"
CORDONED_ANNOTATION = "headrace.dev/cordoned"
"""We cordoned it: only then do we uncordon it."""
EXCLUDED_ANNOTATION = "headrace.dev/excluded"
"""We took it out of load balancers: only then do we put it back."""
_OURS = (
    DEADLINE_ANNOTATION,
    EXPIRY_ANNOTATION,
    NOTICE_ANNOTATION,
    MARKED_BY_ANNOTATION,
    EPOCH_ANNOTATION,
    CORDONED_ANNOTATION,
    EXCLUDED_ANNOTATION,
)

EXPIRES_AFTER_S = 1800.0
"""After the deadline, or after it was last renewed: by then the instance was taken, or reaped."""
RENEW_WITHIN_S = 600.0
EARLIER_S, LATER_S = 3.0, 1.0
"""A deadline shown up to this much earlier or later stands: two clocks lie between a drain as ordered and as shown."""
_LATEST_S = 253_402_300_000.0
"""The year 9999; what is beyond cannot be written."""
_OTHER_REASON = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMark:
    """What is to stand on the node of one instance. Times are on the controller's clock."""

    instance_id: str
    deadline_s: float
    reason: str
    epoch: int
    noticed_at_s: float | None = None
    notice: InterruptionNotice | None = None
    taint: bool = True
    """Else only the annotations: somebody else owns this node's taints."""
    empty_from_s: float | None = None
    """From when on its pods are to go; None: they are not ours to evict."""
    voluntary: bool = False
    """Our own choice: budgets are never overridden, and worker pods go with their replica, by the pool's actor."""


@dataclass(frozen=True, slots=True)
class Owned:
    """Of a node of the fleet: its pool."""

    pool: str


def marking(node: NodeFacts, mark: NodeMark, *, fleet: str, pool: str, now_s: float) -> Json | None:
    """The patch after which `mark` stands; None: it stands. `pool` labels a node without an owner; empty: it stays so."""
    annotations = _annotations(node, mark, fleet, now_s)
    labels: Json = _owner_labels(node, fleet, pool)
    spec: Json = {}
    if mark.taint:
        spec = _cordon(node, mark)
        if not node.unschedulable:
            annotations[CORDONED_ANNOTATION] = "true"
        if EXCLUDE_LABEL not in node.labels:
            labels[EXCLUDE_LABEL] = annotations[EXCLUDED_ANNOTATION] = "true"
    if not (annotations or labels or spec):
        return None
    annotations |= {
        EXPIRY_ANNOTATION: _utc(max(now_s, mark.deadline_s) + EXPIRES_AFTER_S),
        EPOCH_ANNOTATION: str(mark.epoch),
    }
    return _patch(node, annotations, labels, spec)


def owning(node: NodeFacts, *, fleet: str, pool: str) -> Json | None:
    """The patch after which the node is the fleet's; None where it is anybody's already, or going."""
    labels = {} if node.deleting else _owner_labels(node, fleet, pool)
    return _patch(node, {}, labels, {}) if labels else None


def undoing(node: NodeFacts) -> Json | None:
    """The patch after which nothing of a mark is left; None: nothing is."""
    annotations: Json = dict.fromkeys(key for key in _OURS if key in node.annotations)
    labels: Json = {}
    spec: Json = {}
    if is_tainted(node):
        spec["taints"] = _taints(_others(node.taints))
    if node.annotations.get(CORDONED_ANNOTATION) == "true" and node.unschedulable:
        spec["unschedulable"] = None
    if node.annotations.get(EXCLUDED_ANNOTATION) == "true" and EXCLUDE_LABEL in node.labels:
        labels[EXCLUDE_LABEL] = None
    return _patch(node, annotations, labels, spec) if annotations or spec else None


def is_tainted(node: NodeFacts) -> bool:
    """Whether our taint keeps pods away from it."""
    return any(taint.key == DRAIN_TAINT for taint in node.taints)


def marked_by(node: NodeFacts) -> str | None:
    """The fleet whose mark is on it; of a taint without its annotations, the node's owner."""
    return node.annotations.get(MARKED_BY_ANNOTATION) or (node.labels.get(FLEET_LABEL) if is_tainted(node) else None)


def has_run_out(node: NodeFacts, now_s: float) -> bool:
    """Whether its mark is void. One that does not say when it ends is left to its owner."""
    return now_s > seconds(node.annotations.get(EXPIRY_ANNOTATION, ""), never_s=math.inf)


def is_newer(one: NodeFacts, other: NodeFacts) -> bool:
    """Whether `one` is a later state of the same node; not, where versions are no numbers."""
    versions = one.resource_version, other.resource_version
    return all(version.isdecimal() for version in versions) and int(versions[0]) > int(versions[1])


def seconds(text: str, *, never_s: float) -> float:
    """UTC seconds of an ISO 8601 time; `never_s` where the text is none."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return never_s


def _annotations(node: NodeFacts, mark: NodeMark, fleet: str, now_s: float) -> Json:
    """Those that are missing or say something else."""
    had = node.annotations
    missing: Json = {}
    if not _same_time(seconds(had.get(DEADLINE_ANNOTATION, ""), never_s=math.inf), mark.deadline_s):
        missing[DEADLINE_ANNOTATION] = _utc(mark.deadline_s)
    if had.get(MARKED_BY_ANNOTATION) != fleet:
        missing[MARKED_BY_ANNOTATION] = fleet
    if mark.notice is not None and not _tells(had, mark.notice):
        missing[NOTICE_ANNOTATION] = dump_notice(mark.notice)
    ends_s = seconds(had.get(EXPIRY_ANNOTATION, ""), never_s=-math.inf)
    if ends_s < min(max(now_s, _writable(mark.deadline_s)) + RENEW_WITHIN_S, _LATEST_S):
        missing[EXPIRY_ANNOTATION] = ""
    return missing


def _tells(annotations: Mapping[str, str], notice: InterruptionNotice) -> bool:
    try:
        told = parse_notice(annotations.get(NOTICE_ANNOTATION, ""))
    except ValueError:
        return False
    if (told.instance_id, told.kind) != (notice.instance_id, notice.kind):
        return False
    if told.deadline_s is None or notice.deadline_s is None:
        return told.deadline_s == notice.deadline_s
    return _same_time(told.deadline_s, notice.deadline_s)


def _same_time(shown_s: float, wanted_s: float) -> bool:
    wanted_s = _writable(wanted_s)
    return wanted_s - EARLIER_S <= shown_s <= wanted_s + LATER_S


def _owner_labels(node: NodeFacts, fleet: str, pool: str) -> Json:
    return {FLEET_LABEL: fleet, POOL_LABEL: pool} if pool and not node.labels.get(FLEET_LABEL) else {}


def _cordon(node: NodeFacts, mark: NodeMark) -> Json:
    taint = Taint(key=DRAIN_TAINT, value=_label_value(mark.reason), effect="NoSchedule")
    if node.unschedulable and [each for each in node.taints if each.key == DRAIN_TAINT] == [taint]:
        return {}
    return {"unschedulable": True, "taints": _taints([*_others(node.taints), taint])}


def _label_value(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", text) else _OTHER_REASON


def _others(taints: Iterable[Taint]) -> list[Taint]:
    return [taint for taint in taints if taint.key != DRAIN_TAINT]


def _taints(taints: Iterable[Taint]) -> list[Json]:
    return [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        | ({} if taint.added_at_s is None else {"timeAdded": _utc(taint.added_at_s)})
        for taint in taints
    ]


def _patch(node: NodeFacts, annotations: Json, labels: Json, spec: Json) -> Json:
    metadata: Json = {"uid": node.uid, "resourceVersion": node.resource_version}
    parts = {"annotations": annotations, "labels": labels}
    metadata |= {key: part for key, part in parts.items() if part}
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def _writable(at_s: float) -> float:
    """The nearest time that can be written; what is no number is due at once."""
    return 0.0 if math.isnan(at_s) else min(max(at_s, 0.0), _LATEST_S)


def _utc(at_s: float) -> str:
    """As Kubernetes writes it."""
    return utc_text(_writable(at_s))
