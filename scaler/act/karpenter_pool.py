"""What a NodePool itself says: whether it may be used, and whether it can give anything at all now.

Source: Karpenter's NodePool API v1.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from scaler.kube.contract import Json
from scaler.model.capacity import Offering

_UNITS: dict[str, Decimal | int] = {"": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_UNITS |= {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}


def refused_reason(body: Json | None, name: str) -> str | None:
    """Why this NodePool may not be acted on; None: it may."""
    if body is None:
        return f"there is no NodePool {name}"
    if body["metadata"].get("deletionTimestamp"):
        return f"NodePool {name} is being deleted"
    if (body.get("spec") or {}).get("replicas") is not None:
        return (
            f"NodePool {name} is static (spec.replicas): its count is absolute, names no victim and is tried without a pause "
            "where capacity is short; use one without spec.replicas"
        )
    return None


def available(body: Json | None, offerings: tuple[Offering, ...]) -> Mapping[str, int]:
    """Offering id -> 0 where the NodePool gives nothing now: it is not ready, or a limit is reached. Else nothing is known."""
    if body is None or not (_is_not_ready(body) or _is_full(body)):
        return {}
    return {offering.offering_id: 0 for offering in offerings}


def _is_not_ready(body: Json) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "False" for each in conditions)


def _is_full(body: Json) -> bool:
    limits: Mapping[str, Any] = (body.get("spec") or {}).get("limits") or {}
    used: Mapping[str, Any] = (body.get("status") or {}).get("resources") or {}
    return any(quantity(used.get(resource, 0)) >= quantity(limit) for resource, limit in limits.items())


def quantity(written: Any) -> Decimal:
    """A quantity as Kubernetes writes it (`1500m`, `2048Gi`, `1e3`). `ValueError` where it is none."""
    found = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?i?)", str(written))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{written!r} is no quantity")
    return Decimal(found[1]) * _UNITS[found[2]]
