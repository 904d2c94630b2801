"""Karpenter's NodeClaims of one NodePool, as facts: what is under way, and what was refused.

Karpenter deletes a claim that finds no capacity within moments of making it, so only who watches sees that. A claim that
ends without ever having been launched is a refusal of every offering that it would have taken; so is a launch error that
stays on a claim, of whatever kind (unknown errors too), but throttling, which says nothing about capacity. Refusals are in a
row until a claim is launched on the offering; claims that were under way together are refused together, as one.
Invariants: what is remembered is bounded.
Source: Karpenter's NodeClaim API v1 (conditions Launched, Registered, Initialized).
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
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


def _nobody() -> None:
    """Where nobody is to hear of it."""


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
    labels: Mapping[str, str]
    """Once launched, they say what was bought."""

    def allows(self, offering: Offering) -> bool:
        """Whether the claim would take this offering."""
        labels = {TYPE_LABEL: offering.instance_type, ZONE_LABEL: offering.zone, CAPACITY_LABEL: bought_as(offering)}
        return all(each.allows(labels[each.key]) for each in self.requirements if each.key in labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A claim that was not launched, since when it was there, and when its refusal was seen (controller's clock)."""

    claim: ClaimFacts
    since_s: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Refusals of an offering in a row, and when the last was seen (controller's clock)."""

    refusals: int
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

    def row(self, offering: Offering) -> Row | None:
        """Its refusals since a claim was launched there; None where there are none."""
        ...


class Refusals:
    """What launches, troubles and ends of claims say of capacity; bounded."""

    def __init__(self, clock: Clock, refused: Callable[[], None] = _nobody) -> None:
        """`refused` is called at every refusal."""
        self._clock = clock
        self._refused = refused
        self._kept: deque[Refusal] = deque(maxlen=_KEPT)
        self._since_s: dict[str, float] = {}
        """Of claims that are there and not launched, by UID."""
        self._launched_at_s: dict[tuple[str, ...], float] = {}
        """By what was bought: no more than there are offerings in the NodePool."""

    def moved(self, uid: str, before: ClaimFacts | None, after: ClaimFacts | None) -> None:
        """A claim has changed, or come (no `before`), or gone (no `after`)."""
        now_s, claim = self._clock.now_s(), after or before
        since_s = self._since_s.pop(uid, now_s)
        if claim is None:
            return
        if claim.launched:
            self._launched(claim, before)
            return
        if after is not None:
            self._since_s[uid] = since_s
        told = before is not None and before.trouble == claim.trouble != ""
        if (after is None or claim.trouble) and not told and not _is_throttling(claim.trouble):
            self._kept.append(Refusal(claim=claim, since_s=since_s, at_s=now_s))
            self._refused()

    def _launched(self, claim: ClaimFacts, before: ClaimFacts | None) -> None:
        if before is None or not before.launched:
            self._launched_at_s[_bought(claim.labels)] = self._clock.now_s()

    def row(self, offering: Offering) -> Row | None:
        """See `ClaimIndex`."""
        launched_at_s = max(self._launched_at_s.get(bought, -math.inf) for bought in _may_be_bought_as(offering))
        row = [each for each in self._kept if each.at_s > launched_at_s and each.claim.allows(offering)]
        if not row:
            return None
        apart = sum(later.since_s > earlier.at_s for earlier, later in pairwise(row))
        return Row(refusals=1 + apart, at_s=row[-1].at_s)


def _is_throttling(trouble: str) -> bool:
    return any(word in trouble.lower() for word in _THROTTLED)


class WatchedClaims:
    """`ClaimIndex`, once somebody awaits `run`."""

    def __init__(self, api: KubeApi, node_pool: str, *, clock: Clock, refused: Callable[[], None] = _nobody) -> None:
        """`refused` is called at every refusal, as soon as it is seen."""
        self._refusals = Refusals(clock, refused)
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

    def row(self, offering: Offering) -> Row | None:
        """See `ClaimIndex`."""
        return self._refusals.row(offering)

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
        labels=dict(meta.get("labels") or {}),
    )


def bought_as(offering: Offering) -> str:
    """Karpenter's word for how an offering is bought: capacity blocks are reservations to it."""
    return "reserved" if offering.capacity_type is CapacityType.CAPACITY_BLOCK else str(offering.capacity_type)


def _bought(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in (TYPE_LABEL, ZONE_LABEL, CAPACITY_LABEL))


def _may_be_bought_as(offering: Offering) -> Iterable[tuple[str, ...]]:
    """As `_bought` tells it of a claim on this offering; what is on demand to us may be reserved to Karpenter."""
    ways = {bought_as(offering)} | ({"reserved"} if offering.capacity_type is CapacityType.ON_DEMAND else set())
    return ((offering.instance_type, offering.zone, way) for way in ways)


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
