"""Karpenter's NodeClaims of one NodePool, as facts: what is under way, and what was refused.

Karpenter deletes a claim that finds no capacity within moments of making it, so only who watches sees that. A claim that
ends without ever having been launched is a refusal of every offering that it would have taken; so is a launch error that
stays on a claim, of whatever kind (unknown errors too), but throttling, which says nothing about capacity.
Invariants: what is remembered is bounded; an empty provider id or node name finds nothing.
Source: Karpenter's NodeClaim API v1 (conditions Launched, Registered, Initialized).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from scaler.kube.contract import Json
from scaler.model.capacity import CapacityType, Offering
from scaler.model.clock import Clock

NODE_POOL_LABEL = "karpenter.sh/nodepool"
TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
CAPACITY_LABEL = "karpenter.sh/capacity-type"
_THROTTLED = ("requestlimitexceeded", "throttl", "rate exceeded", "toomanyrequests")
_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term of what a claim asks for."""

    key: str
    operator: str
    values: frozenset[str]

    def allows(self, value: str) -> bool:
        """Whether a node whose label has this value may serve; operators that compare numbers allow all."""
        if self.operator == "In":
            return value in self.values
        return self.operator != "NotIn" or value not in self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """A NodeClaim, as last watched."""

    name: str
    uid: str
    created_at_s: float
    node_name: str
    provider_id: str
    requirements: tuple[Requirement, ...]
    launched: bool
    initialized: bool
    trouble: str
    """Why its launch does not get on; empty where nothing is wrong so far."""
    deleting: bool
    annotations: Mapping[str, str]

    def allows(self, offering: Offering) -> bool:
        """Whether the claim would take this offering."""
        labels = {TYPE_LABEL: offering.instance_type, ZONE_LABEL: offering.zone, CAPACITY_LABEL: bought_as(offering)}
        return all(each.allows(labels[each.key]) for each in self.requirements if each.key in labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A claim that was not launched, and when that was seen (controller's clock)."""

    claim: ClaimFacts
    at_s: float


class ClaimIndex(Protocol):
    """The NodeClaims of one NodePool, watched."""

    @property
    def current_at_s(self) -> float | None:
        """Up to when it is known to be whole (controller's clock); None before the first list."""
        ...

    def all(self) -> tuple[ClaimFacts, ...]:
        """Every claim."""
        ...

    def refusals(self) -> tuple[Refusal, ...]:
        """The latest refusals, oldest first."""
        ...


class Refusals:
    """What the ends and troubles of claims say of capacity; bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Refusal] = deque(maxlen=_KEPT)

    def moved(self, _uid: str, before: ClaimFacts | None, after: ClaimFacts | None) -> None:
        """A claim has changed, or come (no `before`), or gone (no `after`)."""
        claim = after or before
        if claim is None or claim.launched or (before is not None and before.trouble == claim.trouble != ""):
            return
        if (after is None or claim.trouble) and not _is_throttling(claim.trouble):
            self._kept.append(Refusal(claim=claim, at_s=self._clock.now_s()))

    def all(self) -> tuple[Refusal, ...]:
        """The latest, oldest first."""
        return tuple(self._kept)


def _is_throttling(trouble: str) -> bool:
    return any(word in trouble.lower() for word in _THROTTLED)


def claim_facts(body: Json) -> ClaimFacts:
    """The facts of a NodeClaim's JSON. `KeyError` or `ValueError` where it is none."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    return ClaimFacts(
        name=meta["name"],
        uid=meta["uid"],
        created_at_s=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        node_name=status.get("nodeName") or "",
        provider_id=status.get("providerID") or "",
        requirements=tuple(_requirement(each) for each in spec.get("requirements") or ()),
        launched=_is_true(conditions.get("Launched")),
        initialized=_is_true(conditions.get("Initialized")),
        trouble=_trouble(conditions.get("Launched") or {}),
        deleting=bool(meta.get("deletionTimestamp")),
        annotations=dict(meta.get("annotations") or {}),
    )


def bought_as(offering: Offering) -> str:
    """Karpenter's word for how an offering is bought: capacity blocks are reservations to it."""
    return "reserved" if offering.capacity_type is CapacityType.CAPACITY_BLOCK else str(offering.capacity_type)


def node_selector(offering: Offering, node_pool: str) -> Mapping[str, str]:
    """Labels of the nodes that Karpenter makes of this offering in this NodePool."""
    return {
        NODE_POOL_LABEL: node_pool,
        TYPE_LABEL: offering.instance_type,
        ZONE_LABEL: offering.zone,
        CAPACITY_LABEL: bought_as(offering),
    }


def _requirement(body: Json) -> Requirement:
    return Requirement(
        key=str(body.get("key")),
        operator=str(body.get("operator")),
        values=frozenset(map(str, body.get("values") or ())),
    )


def _is_true(condition: Json | None) -> bool:
    return bool(condition) and condition is not None and condition.get("status") == "True"


def _trouble(launched: Json) -> str:
    """Karpenter leaves `AwaitingReconciliation` on what it has not tried yet."""
    reason = str(launched.get("reason") or "")
    if launched.get("status") in (None, "True") or reason in ("", "AwaitingReconciliation"):
        return ""
    return f"{reason}: {launched.get('message') or ''}"
