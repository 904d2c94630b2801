"""Which nodes are to carry a mark, from a snapshot and its plan; and which notices are recorded beyond losing.

Policy: a node is marked while its replica is noticed, draining, drained or ending with a deadline, and from the plan that says
so on. Its deadline is the notice's, or the drain's where that is earlier. Nodes whose taints belong to somebody else get
annotations only. A noticed node is emptied once the replica has handed over, or its deadline is near; one that goes by our own
choice, or is ended by us long before it must, at once, but for its workers and within budgets, and not while the fleet is paused.
A notice is recorded once its node carries the mark, and the drain by its deadline is in the ledger or in the journal, where a
crash of ours cannot lose it. An instance whose node has not joined keeps its message; one that is already ending has no need,
and neither has a hint, which asks for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from scaler.act.nodes import NodeKeeper, NodeMark, Owned
from scaler.decide.endings import DEADLINE_TOLERANCE_S, goes_by_itself, shows_drain_by
from scaler.decide.world import ON_ITS_WAY_OUT, finite, is_noticed, notice_deadline_s
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import DrainReplica, Plan, ReasonCode
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import Duties, FleetSpec

_EMPTY_BEFORE_S = 10.0
"""This long before its deadline a node is emptied, whatever its worker still does: SIGTERM is a drain too."""
_AT_ONCE_S = 0.0


class Marks(Protocol):
    """What the loop tells of nodes."""

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        """Say which nodes are to be marked from now on; returns at once."""
        ...

    def rest(self) -> None:
        """Touch no node until something is wanted again: a dry run, or nothing is known."""
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
        """Whatever is ordered to drain in time, is ending, or asks for nothing."""
        return _settled(snapshot) | (_ordered(snapshot) if durable else frozenset())


class NodeMarks:
    """Marks by a `NodeKeeper`."""

    def __init__(self, keeper: NodeKeeper) -> None:
        self._keeper = keeper

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        """See `Marks`."""
        wanted = {mark.instance_id: mark for mark in marks_of(spec, snapshot, plan)}
        # A paused fleet answers notices and takes nothing more into possession: else `headrace release` could not stand.
        self._keeper.want(wanted, owned_by(snapshot), taking=not spec.paused)

    def rest(self) -> None:
        """See `Marks`."""
        self._keeper.rest()

    def recorded(self, snapshot: Snapshot, *, durable: bool) -> frozenset[str]:
        """See `Marks`."""
        ordered = _ordered(snapshot) if durable else ()
        return _settled(snapshot) | {each for each in ordered if self._keeper.recorded(each)}


def owned_by(snapshot: Snapshot) -> dict[str, Owned]:
    """Every instance of the fleet that is not ending already."""
    return {
        instance_id: Owned(replica.pool)
        for stage in snapshot.stages
        for replica in stage.replicas
        if replica.phase is not ReplicaPhase.TERMINATING
        for instance_id in replica.instance_ids
    }


def marks_of(spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> Iterator[NodeMark]:
    """Every mark that is to stand, one an instance."""
    duties = {pool.name: pool.duties for stage in spec.stages for pool in stage.pools}
    ordered = {command.replica_id: command for command in plan.commands if isinstance(command, DrainReplica)}
    for stage in snapshot.stages:
        for replica in stage.replicas:
            order = ordered.get(replica.replica_id)
            deadline_s = _deadline_s(replica, order, snapshot.now_s)
            if replica.pool in duties and deadline_s is not None:
                yield from _marks(
                    _Going(replica, duties[replica.pool], _reason(replica, order), deadline_s, spec.paused),
                    snapshot.leader_epoch,
                )


@dataclass(frozen=True, slots=True)
class _Going:
    """A replica that is to go."""

    replica: ReplicaView
    duties: Duties
    reason: str
    deadline_s: float
    paused: bool

    @property
    def voluntary(self) -> bool:
        """Whether who ends it is us, at a time of our choice."""
        return not is_noticed(self.replica) or (self.duties.replaces and not goes_by_itself(self.replica))

    @property
    def empty_from_s(self) -> float | None:
        if not self.duties.evicts or (self.paused and self.voluntary):
            return None
        handed_over = self.replica.phase in (ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING)
        return _AT_ONCE_S if handed_over or self.voluntary else self.deadline_s - _EMPTY_BEFORE_S


def _marks(going: _Going, epoch: int) -> Iterator[NodeMark]:
    replica, noticed = going.replica, is_noticed(going.replica)
    for instance_id in replica.instance_ids:
        # Of k nodes that go together one may have the notice: the annotation of each is about itself.
        notice = replica.notice if noticed and replica.notice and replica.notice.instance_id == instance_id else None
        yield NodeMark(
            instance_id=instance_id,
            deadline_s=going.deadline_s,
            reason=going.reason,
            epoch=epoch,
            noticed_at_s=notice.noticed_at_s if notice else None,
            notice=notice,
            taint=going.duties.taints,
            empty_from_s=going.empty_from_s,
            voluntary=going.voluntary,
        )


def _deadline_s(replica: ReplicaView, order: DrainReplica | None, now_s: float) -> float | None:
    """By when the node is to be empty; None where it is not to go."""
    if order is not None:
        return finite(order.deadline_s)
    shown_s = finite(replica.drain_deadline_s) if replica.phase in ON_ITS_WAY_OUT else None
    if not is_noticed(replica):
        return shown_s
    due_s = notice_deadline_s(replica, now_s)
    return due_s if shown_s is None or shown_s > due_s - DEADLINE_TOLERANCE_S else shown_s


def _reason(replica: ReplicaView, order: DrainReplica | None) -> str:
    if order is not None:
        return order.reason.code.value
    return ReasonCode.NOTICE.value if is_noticed(replica) else replica.drain_reason or ReasonCode.SIZE_DOWN.value


def _ordered(snapshot: Snapshot) -> frozenset[str]:
    """Instances that are ordered to drain by their notice's deadline, or have handed over and said goodbye."""
    return frozenset(
        instance_id
        for stage in snapshot.stages
        for replica in stage.replicas
        if is_noticed(replica) and shows_drain_by(replica, notice_deadline_s(replica, snapshot.now_s))
        for instance_id in replica.instance_ids
    )


def _settled(snapshot: Snapshot) -> frozenset[str]:
    """Instances on their way down already, which is success, whoever ended them; and those that have but a hint."""
    return frozenset(
        instance_id
        for stage in snapshot.stages
        for replica in stage.replicas
        if replica.notice is not None and (replica.phase is ReplicaPhase.TERMINATING or not is_noticed(replica))
        for instance_id in replica.instance_ids
    )


def handed_over(snapshot: Snapshot) -> frozenset[str]:
    """Instances that hold no work any more and get none: drained, or never had a worker that could."""
    return frozenset(
        instance_id
        for stage in snapshot.stages
        for replica in stage.replicas
        if replica.phase is ReplicaPhase.DRAINED
        for instance_id in replica.instance_ids
    )
