"""Karpenter's NodeClaims of one NodePool, as facts: what is under way, and what was refused.

Karpenter deletes a claim that finds no capacity within moments of making it, so only who watches sees that. A claim that
ends without ever having been launched is a refusal of every offering that it would have taken; so is a launch error that
stays on a claim, of whatever kind (unknown errors too), but throttling, which says nothing about capacity.
Invariants: what is remembered is bounded.
Source: Karpenter's NodeClaim API v1 (conditions Launched, Registered, Initialized).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

from scaler.kube.contract import NODE_CLAIMS, Json, KubeApi
from scaler.kube.reflector import Reflector
from scaler.model.capacity import CapacityType, Offering
from scaler.model.clock import Clock

NODE_POOL_LABEL = "karpenter.sh/nodepool"
TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
CAPACITY_LABEL = "karpenter.sh/capacity-type"
RESERVATION_LABEL = "karpenter.k8s.aws/capacity-reservation-type"
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
    node_name: str
    """Empty until its node has joined."""
    requirements: tuple[Requirement, ...]
    launched: bool
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


class WatchedClaims:
    """`ClaimIndex`, once somebody awaits `run`."""

    def __init__(self, api: KubeApi, node_pool: str, *, clock: Clock) -> None:
        self._refusals = Refusals(clock)
        self._reflector = Reflector(
            api,
            NODE_CLAIMS,
            clock=clock,
            keep=claim_facts,
            moved=self._refusals.moved,
            label_selector=f"{NODE_POOL_LABEL}={node_pool}",
        )

    async def run(self) -> NoReturn:
        """Watch, for ever."""
        await self._reflector.run()

    @property
    def current_at_s(self) -> float | None:
        """Up to when it is known to be whole."""
        return self._reflector.current_at_s

    @property
    def trouble(self) -> str:
        """What keeps it from being current; empty while nothing does."""
        return self._reflector.trouble

    def all(self) -> tuple[ClaimFacts, ...]:
        """Every claim."""
        return tuple(self._reflector.items.values())

    def refusals(self) -> tuple[Refusal, ...]:
        """The latest refusals, oldest first."""
        return self._refusals.all()

    async def changed(self) -> None:
        """Return when something may have changed since this task was told last."""
        await self._reflector.changed()


def claim_facts(body: Json) -> ClaimFacts | None:
    """The facts of a NodeClaim's JSON; None where it is none."""
    try:
        return _claim_facts(body)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _claim_facts(body: Json) -> ClaimFacts:
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    return ClaimFacts(
        name=meta["name"],
        uid=meta["uid"],
        node_name=status.get("nodeName") or "",
        requirements=tuple(_requirement(each) for each in spec.get("requirements") or ()),
        launched=(conditions.get("Launched") or {}).get("status") == "True",
        trouble=_trouble(conditions.get("Launched") or {}),
        deleting="deletionTimestamp" in meta,
        annotations=dict(meta.get("annotations") or {}),
    )


def bought_as(offering: Offering) -> str:
    """Karpenter's word for how an offering is bought: capacity blocks are reservations to it."""
    return "reserved" if offering.capacity_type is CapacityType.CAPACITY_BLOCK else str(offering.capacity_type)


def node_selector(offering: Offering, node_pool: str) -> Mapping[str, str]:
    """Labels of the nodes that Karpenter makes of this offering in this NodePool."""
    labels = {
        NODE_POOL_LABEL: node_pool,
        TYPE_LABEL: offering.instance_type,
        ZONE_LABEL: offering.zone,
        CAPACITY_LABEL: bought_as(offering),
    }
    block = offering.capacity_type is CapacityType.CAPACITY_BLOCK
    return {**labels, RESERVATION_LABEL: "capacity-block"} if block else labels


def _requirement(body: Json) -> Requirement:
    return Requirement(
        key=str(body.get("key")),
        operator=str(body.get("operator")),
        values=frozenset(map(str, body.get("values") or ())),
    )


def _trouble(launched: Json) -> str:
    """Karpenter leaves `AwaitingReconciliation` on what it has not tried yet."""
    reason = str(launched.get("reason") or "")
    if launched.get("status") in (None, "True") or reason in ("", "AwaitingReconciliation"):
        return ""
    return f"{reason}: {launched.get('message') or ''}"
