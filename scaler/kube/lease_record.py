"""What a Lease object says of who leads, and what we write into it. Pure.

A counter of renewals is written besides their time, so that every renewal changes the record, whatever the clock does: a
replacement that changes nothing makes no new version, and those who wait would take the holder for dead.
Source: `coordination.k8s.io/v1` Lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scaler.kube.contract import Json

EPOCH_ANNOTATION = "headrace.dev/epoch"
RENEWALS_ANNOTATION = "headrace.dev/renewals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Equal records: nobody has renewed in between."""

    uid: str
    holder: str
    """Empty: free."""
    duration_s: float | None
    """What the holder promised; None where it is no positive number."""
    renewed_at: str
    epoch: int
    """0 where there is none."""
    renewals: int


def record_of(lease: Json) -> Record:
    """Total: whatever is missing or odd is as if it were not there."""
    meta, spec = _part(lease, "metadata"), _part(lease, "spec")
    notes = _part(meta, "annotations")
    promised = spec.get("leaseDurationSeconds")
    return Record(
        uid=str(meta.get("uid") or ""),
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=float(promised) if isinstance(promised, int) and promised > 0 else None,
        renewed_at=str(spec.get("renewTime") or ""),
        epoch=_count(notes.get(EPOCH_ANNOTATION)),
        renewals=_count(notes.get(RENEWALS_ANNOTATION)),
    )


def written(lease: Json | None, *, name: str, holder: str, epoch: int, duration_s: int, now_s: float) -> Json:
    """The lease as `holder` leaves it, at the resource version it was read at; None: it is not there yet."""
    old = record_of(lease or {})
    meta, spec = dict(_part(lease or {}, "metadata")), dict(_part(lease or {}, "spec"))
    stamp = _stamp(now_s)
    if holder and epoch != old.epoch:
        transitions = spec.get("leaseTransitions")
        spec["leaseTransitions"] = transitions + 1 if isinstance(transitions, int) else 0
        spec["acquireTime"] = stamp
    spec.update(holderIdentity=holder, leaseDurationSeconds=duration_s, renewTime=stamp)
    marks = {EPOCH_ANNOTATION: str(epoch), RENEWALS_ANNOTATION: str(old.renewals + 1)}
    meta.update(name=name, annotations={**_part(meta, "annotations"), **marks})
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def _part(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _count(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _stamp(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
