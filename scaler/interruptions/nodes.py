"""Notices that stand on the nodes themselves: taints and conditions that others set, and our own record of a notice.

Policy
* A taint of Karpenter's, of node-termination-handler's or of Cluster Autoscaler's says that its owner takes the node. The
  deadline is when the taint was added, plus the grace that its setter is known to give. Where nobody says when, first
  sight counts.
* A condition of EKS's node monitoring agent that is False says that the node will be repaired: its last transition plus
  the wait that EKS and Karpenter have before they replace a node, by default.
* Our own annotation is what a controller before this one recorded; it stands until void, or until its expiry.
* `PreferNoSchedule` binds nobody: such a node may well live on.
Level-based: a notice falls with its cause, and a mere hint after its while. Only nodes of instances of ours count, found by
the exact instance id of their `providerID`; a name is never compared.
Non-goals: which pods run there, and taints of our own.
Sources: research "autoscalers" section 1.1, "deepep-efa" section 4.2; Cluster Autoscaler writes the time into its taint's value.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from scaler.interruptions.base import InstanceOwner, Ownership, SourceHealth, Unacknowledged, by_deadline
from scaler.interruptions.counts import Counts
from scaler.interruptions.messages.times import time_s
from scaler.interruptions.skew import Skew
from scaler.kube.facts import EXPIRY_ANNOTATION, NOTICE_ANNOTATION, Condition, NodeFacts, NodeIndex, Taint
from scaler.model.clock import Clock
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind, void_at_s
from scaler.model.notice_file import parse_notice

_SETTLE_S = 0.2
"""Nodes change all the time: they are looked through no more often than this."""
_SPOT_S = 110.0
"""Node-termination-handler looks every 2 s and its queue takes some: 120 s less what may have gone by before the taint."""
_HANDLER_S = 120.0
_KARPENTER_S = 120.0
"""Karpenter has no time limit of its own by default, but ends nodes for Spot interruptions behind this same taint."""
_AUTOSCALER_S = 600.0

_HANDLER = "aws-node-termination-handler/"
TAINTS: Mapping[str, tuple[NoticeKind, float]] = {
    "karpenter.sh/disrupted": (NoticeKind.NODE_DISRUPTED, _KARPENTER_S),
    "karpenter.sh/disruption": (NoticeKind.NODE_DISRUPTED, _KARPENTER_S),
    f"{_HANDLER}spot-itn": (NoticeKind.SPOT_INTERRUPTION, _SPOT_S),
    f"{_HANDLER}scheduled-maintenance": (NoticeKind.SCHEDULED_CHANGE, _HANDLER_S),
    f"{_HANDLER}asg-lifecycle-termination": (NoticeKind.LIFECYCLE_HOOK, _HANDLER_S),
    f"{_HANDLER}rebalance-recommendation": (NoticeKind.REBALANCE_RECOMMENDATION, 0.0),
    "node.kubernetes.io/out-of-service": (NoticeKind.NODE_DISRUPTED, 0.0),
    "ToBeDeletedByClusterAutoscaler": (NoticeKind.NODE_DISRUPTED, _AUTOSCALER_S),
}
"""Key -> what it announces, and seconds from the taint to the end. A node that is out of service has nothing to hand over."""
_OTHER_OF_HANDLER = (NoticeKind.NODE_DISRUPTED, _HANDLER_S)

CONDITIONS: Mapping[str, float] = {
    "AcceleratedHardwareReady": 600.0,
    "NetworkingReady": 1800.0,
    "StorageReady": 1800.0,
    "KernelReady": 1800.0,
    "ContainerRuntimeReady": 1800.0,
}
"""Type -> seconds that False lasts before the node is repaired, which ends it without a drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNoticeSettings:
    """The nodes, and whose instances they are."""

    nodes: NodeIndex
    owner: InstanceOwner
    ahead_s: Callable[[], float | None] = lambda: None
    """The API server's clock minus ours; taints and conditions are on its clock."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a node goes. `since_s` None: nobody says since when."""

    name: str
    kind: NoticeKind
    since_s: float | None
    grace_s: float


@dataclass(frozen=True, slots=True)
class _Read:
    """What a version of a node says."""

    version: str
    causes: tuple[_Cause, ...] = ()
    recorded: InterruptionNotice | None = None
    expires_at_s: float = math.inf
    malformed: bool = False

    @property
    def speaks(self) -> bool:
        """Whether it says anything of its going."""
        return bool(self.causes) or self.recorded is not None


class NodeNotices(Unacknowledged):
    """A `NoticeSource`; see the module's docstring."""

    def __init__(self, settings: NodeNoticeSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._skew = Skew(settings.ahead_s)
        self._counts = Counts()
        self._read: dict[str, _Read] = {}
        self._first_seen_s: dict[tuple[str, str], float] = {}
        self._told: tuple[InterruptionNotice, ...] = ()
        self._known: set[tuple[str, str, NoticeKind]] = set()

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices, by deadline, on our clock; none before the nodes have been listed.

        What we recorded ourselves is on our clock already; what others wrote is brought to it.
        """
        self._told = self._look()
        return self._told

    async def changed(self) -> None:
        """Return when what stands is something else than `current` told."""
        while self._look() == self._told:
            await self._settings.nodes.changed()
            await self._clock.sleep(_SETTLE_S)

    def health(self) -> SourceHealth:
        """Counters since start, and up to when the nodes are known."""
        at_s = self._settings.nodes.current_at_s
        return self._counts.health(at_s, error="" if at_s is not None else "nodes: not listed yet")

    def _look(self) -> tuple[InterruptionNotice, ...]:
        now_s = self._clock.now_s()
        nodes = [node for node in self._settings.nodes.all() if node.instance_id]
        self._forget({node.uid for node in nodes})
        speaking = [node for node in nodes if self._reading(node).speaks]
        notices = [notice for node in speaking for notice in self._notices(node, now_s)]
        earliest: dict[tuple[str, NoticeKind], InterruptionNotice] = {}
        for notice in sorted(notices, key=by_deadline):
            earliest.setdefault((notice.instance_id, notice.kind), notice)
        return tuple(earliest.values())

    def _notices(self, node: NodeFacts, now_s: float) -> Iterator[InterruptionNotice]:
        read = self._reading(node)
        for cause in read.causes:
            if cause.since_s is None:
                since_s = self._first_seen_s.setdefault((node.uid, cause.name), now_s)
                notice = _notice(node.instance_id, cause, since_s)
            else:
                (notice,) = self._skew.ours([_notice(node.instance_id, cause, cause.since_s)])
            if notice.kind in BINDING or now_s < void_at_s(notice):
                yield from self._ours(node, notice)
        if read.recorded is not None and now_s < min(read.expires_at_s, void_at_s(read.recorded)):
            yield from self._ours(node, read.recorded)

    def _ours(self, node: NodeFacts, notice: InterruptionNotice) -> Iterator[InterruptionNotice]:
        if self._settings.owner.knows(notice.instance_id) is not Ownership.OURS:
            return
        key = (node.uid, notice.instance_id, notice.kind)
        self._counts.received += key not in self._known
        self._known.add(key)
        yield notice

    def _reading(self, node: NodeFacts) -> _Read:
        """What the node says; read anew only when it has changed."""
        known = self._read.get(node.uid)
        if known is not None and known.version == node.resource_version:
            return known
        read = _read(node)
        self._counts.malformed += read.malformed and not (known is not None and known.malformed)
        self._read[node.uid] = read
        causes = {cause.name for cause in read.causes}
        for uid, name in [key for key in self._first_seen_s if key[0] == node.uid and key[1] not in causes]:
            del self._first_seen_s[uid, name]
        return read

    def _forget(self, uids: set[str]) -> None:
        """Nodes that are gone; what comes with their name is another."""
        if len(self._read) <= len(uids) and self._read.keys() <= uids:
            return
        self._read = {uid: read for uid, read in self._read.items() if uid in uids}
        self._first_seen_s = {key: at_s for key, at_s in self._first_seen_s.items() if key[0] in uids}
        self._known = {key for key in self._known if key[0] in uids}


def make(settings: object, *, clock: Clock) -> NodeNotices:
    """The source of the cluster's nodes; `TypeError` where the settings are another source's."""
    if not isinstance(settings, NodeNoticeSettings):
        raise TypeError(f"nodes take NodeNoticeSettings, not {type(settings).__name__}")
    return NodeNotices(settings, clock=clock)


def _read(node: NodeFacts) -> _Read:
    causes = (*_taint_causes(node.taints), *_condition_causes(node.conditions))
    text = node.annotations.get(NOTICE_ANNOTATION)
    if text is None:
        return _Read(node.resource_version, causes)
    try:
        recorded = parse_notice(text)
    except ValueError:
        return _Read(node.resource_version, causes, malformed=True)
    if recorded.instance_id != node.instance_id or not _finite(recorded):
        return _Read(node.resource_version, causes, malformed=True)
    expires_at_s = time_s(node.annotations.get(EXPIRY_ANNOTATION))
    return _Read(node.resource_version, causes, recorded, math.inf if expires_at_s is None else expires_at_s)


def _taint_causes(taints: tuple[Taint, ...]) -> Iterator[_Cause]:
    for taint in taints:
        announced = TAINTS.get(taint.key)
        if announced is None and taint.key.startswith(_HANDLER):
            announced = _OTHER_OF_HANDLER
        if announced is not None and taint.effect != "PreferNoSchedule":
            yield _Cause(taint.key, announced[0], _added_at_s(taint), announced[1])


def _condition_causes(conditions: tuple[Condition, ...]) -> Iterator[_Cause]:
    for condition in conditions:
        wait_s = CONDITIONS.get(condition.type)
        if wait_s is not None and condition.status == "False":
            yield _Cause(condition.type, NoticeKind.NODE_DISRUPTED, condition.changed_at_s, wait_s)


def _added_at_s(taint: Taint) -> float | None:
    """When it was added: by itself, or by a value that is a Unix time."""
    if taint.added_at_s is not None:
        return taint.added_at_s
    written = taint.value.isascii() and taint.value.isdigit() and len(taint.value) == 10
    return float(taint.value) if written else None


def _notice(instance_id: str, cause: _Cause, since_s: float) -> InterruptionNotice:
    hint = cause.kind is NoticeKind.REBALANCE_RECOMMENDATION
    deadline_s = None if hint else since_s + cause.grace_s
    return InterruptionNotice(instance_id=instance_id, kind=cause.kind, noticed_at_s=since_s, deadline_s=deadline_s)


def _finite(notice: InterruptionNotice) -> bool:
    return math.isfinite(notice.noticed_at_s) and (notice.deadline_s is None or math.isfinite(notice.deadline_s))
