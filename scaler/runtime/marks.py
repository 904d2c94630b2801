"""Which nodes are to carry a mark, from a snapshot and its plan; and which notices are recorded beyond losing.

Policy: a node is marked while its replica is noticed, draining or drained, and from the plan that says so on; it is emptied once
the replica has handed over, or its deadline is near. Nodes whose taints belong to somebody else get annotations only.
A notice is recorded once its node carries the mark (where the node has joined) and the ledger shows the drain, or its
order is in the journal because no worker has registered yet.
"""

from collections.abc import Iterator
from typing import Protocol

from scaler.act.nodes import NodeKeeper, NodeMark, Owned
from scaler.decide.world import is_noticed, notice_deadline_s
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import DrainReplica, Plan, ReasonCode
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import Duties, FleetSpec

_EMPTY_BEFORE_S = 10.0
"""This long before its deadline a node is emptied, whatever its worker still does: SIGTERM is a drain too."""
_GOING = frozenset({ReplicaPhase.DRAINING, ReplicaPhase.DRAINED})


class Marks(Protocol):
    """What the loop tells of nodes."""

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        """Say which nodes are to be marked from now on; returns at once."""
        ...

    def rest(self) -> None:
        """Nodes are nobody's business now: a dry run."""
        ...

    def recorded(self, snapshot: Snapshot, *, durable: bool) -> frozenset[str]:
        """Instances whose notice a crash cannot lose any more. `durable`: the last turn is in the journal."""
        ...


class NoMarks:
    """For pools without nodes: the ledger and the journal record everything."""

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        """Nothing."""

    def rest(self) -> None:
        """Nothing."""

    def recorded(self, snapshot: Snapshot, *, durable: bool) -> frozenset[str]:
        """Whatever the ledger shows to drain."""
        return frozenset(_shown(snapshot, durable=durable))


class NodeMarks:
    """Marks by a `NodeKeeper`."""

    def __init__(self, keeper: NodeKeeper) -> None:
        self._keeper = keeper
        self._marked: frozenset[str] = frozenset()

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        """See `Marks`."""
        wanted = {mark.instance_id: mark for mark in marks_of(spec, snapshot, plan)}
        self._marked = frozenset(wanted)
        # A paused fleet answers notices and takes nothing into possession: `headrace release` would never come to an end.
        self._keeper.want(wanted, {} if spec.paused else owned_by(snapshot))

    def rest(self) -> None:
        """See `Marks`."""
        self._marked = frozenset()
        self._keeper.rest()

    def recorded(self, snapshot: Snapshot, *, durable: bool) -> frozenset[str]:
        """See `Marks`. An instance whose node has not joined keeps its message."""
        shown = _shown(snapshot, durable=durable)
        return frozenset(each for each in shown if each not in self._marked or self._keeper.recorded(each))


def owned_by(snapshot: Snapshot) -> dict[str, Owned]:
    """Every instance of the fleet."""
    return {
        instance_id: Owned(replica.pool)
        for stage in snapshot.stages
        for replica in stage.replicas
        for instance_id in replica.instance_ids
    }


def marks_of(spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> Iterator[NodeMark]:
    """Every mark that is to stand, one an instance."""
    duties = {pool.name: pool.duties for stage in spec.stages for pool in stage.pools}
    ordered = {command.replica_id: command for command in plan.commands if isinstance(command, DrainReplica)}
    for stage in snapshot.stages:
        for replica in stage.replicas:
            if replica.pool in duties:
                yield from _marks(replica, ordered.get(replica.replica_id), duties[replica.pool], snapshot)


def _marks(replica: ReplicaView, order: DrainReplica | None, duties: Duties, snapshot: Snapshot) -> Iterator[NodeMark]:
    deadline_s = _deadline_s(replica, order, snapshot.now_s)
    if deadline_s is None:
        return
    notice = replica.notice if is_noticed(replica) else None
    gone = replica.phase is ReplicaPhase.DRAINED or snapshot.now_s >= deadline_s - _EMPTY_BEFORE_S
    for instance_id in replica.instance_ids:
        yield NodeMark(
            instance_id=instance_id,
            deadline_s=deadline_s,
            reason=_reason(replica, order),
            epoch=snapshot.leader_epoch,
            noticed_at_s=notice.noticed_at_s if notice else None,
            notice=notice,
            taint=duties.taints,
            empty=duties.evicts and gone,
        )


def _deadline_s(replica: ReplicaView, order: DrainReplica | None, now_s: float) -> float | None:
    """By when the node is to be empty; None where it is not to go."""
    if order is not None:
        return order.deadline_s
    if is_noticed(replica):
        return notice_deadline_s(replica, now_s)
    return replica.drain_deadline_s if replica.phase in _GOING else None


def _reason(replica: ReplicaView, order: DrainReplica | None) -> str:
    if order is not None:
        return order.reason.code.value
    return ReasonCode.NOTICE.value if is_noticed(replica) else replica.drain_reason or ReasonCode.SIZE_DOWN.value


def _shown(snapshot: Snapshot, *, durable: bool) -> Iterator[str]:
    for stage in snapshot.stages:
        for replica in stage.replicas:
            safe = replica.drain_deadline_s is not None and (replica.worker is not None or durable)
            if replica.notice is not None and (safe or replica.phase is ReplicaPhase.TERMINATING):
                yield from replica.instance_ids


def handed_over(snapshot: Snapshot) -> frozenset[str]:
    """Instances that hold no work any more and get none: drained, or never had a worker that could."""
    return frozenset(
        instance_id
        for stage in snapshot.stages
        for replica in stage.replicas
        if replica.phase is ReplicaPhase.DRAINED
        for instance_id in replica.instance_ids
    )
