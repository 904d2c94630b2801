"""Karpenter's NodeClaims of one NodePool, as facts: what is under way, and what was refused.

Karpenter deletes a claim that finds no capacity within moments of making it, so only who watches sees that. A claim that
ends without ever having been launched is a refusal of every offering that it would have taken; so is a launch error that
stays on a claim, of whatever kind (unknown errors too), but throttling, which says nothing about capacity.
Invariants: what is remembered is bounded; an empty provider id or node name finds nothing.
Source: Karpenter's NodeClaim API v1 (conditions Launched, Registered, Initialized).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from scaler.kube.contract import Json
from scaler.model.capacity import CapacityType, Offering

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


class ClaimMemory:
    """Claims by UID, and what their ends say of capacity."""

    def __init__(self) -> None:
        self._claims: dict[str, ClaimFacts] = {}
        self._refusals: deque[Refusal] = deque(maxlen=_KEPT)

    def replace(self, claims: Iterable[ClaimFacts], at_s: float) -> None:
        """A new whole list: claims that are not in it have ended."""
        listed = {claim.uid: claim for claim in claims}
        for claim in [known for uid, known in self._claims.items() if uid not in listed]:
            self.ended(claim, at_s)
        for claim in listed.values():
            self.put(claim, at_s)

    def put(self, claim: ClaimFacts, at_s: float) -> None:
        """A claim as it is now; trouble is a refusal when it is new."""
        before = self._claims.get(claim.uid)
        self._claims[claim.uid] = claim
        if claim.trouble and not claim.launched and (before is None or before.trouble != claim.trouble):
            self._refused(claim, at_s)

    def ended(self, claim: ClaimFacts, at_s: float) -> None:
        """A claim that is gone."""
        known = self._claims.pop(claim.uid, claim)
        if not (known.launched or claim.launched or known.trouble):
            self._refused(claim, at_s)

    def all(self) -> tuple[ClaimFacts, ...]:
        """Every claim."""
        return tuple(self._claims.values())

    def refusals(self) -> tuple[Refusal, ...]:
        """The latest refusals, oldest first."""
        return tuple(self._refusals)

    def _refused(self, claim: ClaimFacts, at_s: float) -> None:
        if not any(word in claim.trouble.lower() for word in _THROTTLED):
            self._refusals.append(Refusal(claim=claim, at_s=at_s))


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
