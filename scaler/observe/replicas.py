"""Instances joined with ledger workers by instance id: one view per replica, with its phase.

The phase is derived anew from the two lists each time; nothing but the first sight of READY is remembered.

    an instance shuts down, or we are ending it           TERMINATING
    no live worker: it said goodbye, or an order to       DRAINED
      drain waits for it to register
    no worker yet                                         LAUNCHING
    a drain mark (or an order the ledger has not seen)    DRAINING, and DRAINED once it holds no lease
    registered, not ready                                 LOADING
    ready                                                 READY

A worker with leases whose instance was listed and is gone shows as TERMINATING without instances, so that its work can
be given back before its leases run out. Workers of instances that were never listed are other people's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import BINDING, InterruptionNotice
from scaler.model.job import WorkerRecord
from scaler.model.plan import ReasonCode
from scaler.model.pool import Instance, InstanceState
from scaler.model.snapshot import ReplicaView
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinInput:
    """What a replica's view is made of. Times are on the controller's clock unless they say otherwise."""

    workers: Iterable[WorkerRecord]
    store_ahead_s: float
    notices: Iterable[InterruptionNotice]
    orders: Mapping[str, DrainOrder]
    """Drains ordered and not yet seen in the ledger, by replica id."""
    ending: frozenset[str]
    """Replicas whose termination is under way."""
    ready_since_s: Mapping[str, float]


class Join:
    """The workers and notices of one tick, by instance id."""

    def __init__(self, given: JoinInput) -> None:
        self._given = given
        self._workers = _by_instance(given.workers)
        self._notices = _by_instance_most_urgent(given.notices)

    def replica(self, pool: str, instances: tuple[Instance, ...]) -> ReplicaView:
        """The view of one replica: all of its instances, and the worker that runs on them."""
        first = instances[0]
        worker = self._worker(instances)
        order = self._given.orders.get(first.replica_id)
        live = worker if worker is not None and not worker.gone else None
        told = live or (worker if worker is not None and _was_noticed(worker) else None)
        notice, deadline_s = self._notice(instances), self._deadline_s(told, order)
        return ReplicaView(
            replica_id=first.replica_id,
            pool=pool,
            offering_id=first.offering_id,
            phase=self._phase(instances, worker, order),
            instance_ids=tuple(sorted(instance.instance_id for instance in instances)),
            worker=worker.identity.worker if worker else None,
            launched_at_s=min(instance.launched_at_s for instance in instances),
            ready_at_s=self._given.ready_since_s.get(first.replica_id),
            running_units=live.leases if live else 0,
            unpublished_tokens=live.status.unpublished_tokens if live else 0,
            version=live.status.version if live else None,
            notice=notice,
            drain_deadline_s=_not_after(notice, deadline_s) if worker is not None and worker.gone else deadline_s,
            drain_reason=told.drain.reason if told and told.drain else order.reason if order else None,
            launch_token=first.launch_token,
            attached=any(instance.attached for instance in instances),
        )

    def orphan(self, pool: str, instance: Instance) -> ReplicaView | None:
        """The view of an instance that is gone while its worker still holds leases; None where it holds none."""
        worker = self._workers.get(instance.instance_id)
        if worker is None or worker.gone or not worker.leases:
            return None
        return ReplicaView(
            replica_id=instance.replica_id,
            pool=pool,
            offering_id=instance.offering_id,
            phase=ReplicaPhase.TERMINATING,
            worker=worker.identity.worker,
            launched_at_s=instance.launched_at_s,
            running_units=worker.leases,
            notice=self._notices.get(instance.instance_id),
            drain_deadline_s=self._deadline_s(worker, None),
            drain_reason=worker.drain.reason if worker.drain else None,
            launch_token=instance.launch_token,
        )

    def _worker(self, instances: tuple[Instance, ...]) -> WorkerRecord | None:
        found = [self._workers[i.instance_id] for i in instances if i.instance_id in self._workers]
        return max(found, key=_liveliest) if found else None

    def _notice(self, instances: tuple[Instance, ...]) -> InterruptionNotice | None:
        found = [self._notices[i.instance_id] for i in instances if i.instance_id in self._notices]
        return min(found, key=_urgency) if found else None

    def _phase(
        self, instances: tuple[Instance, ...], worker: WorkerRecord | None, order: DrainOrder | None
    ) -> ReplicaPhase:
        ending = instances[0].replica_id in self._given.ending
        if ending or any(instance.state is InstanceState.SHUTTING_DOWN for instance in instances):
            return ReplicaPhase.TERMINATING
        if worker is None:
            return ReplicaPhase.DRAINED if order else ReplicaPhase.LAUNCHING
        if worker.gone:
            return ReplicaPhase.DRAINED
        if worker.drain is not None or order is not None:
            return ReplicaPhase.DRAINING if worker.leases or worker.drain is None else ReplicaPhase.DRAINED
        return ReplicaPhase.READY if worker.status.ready else ReplicaPhase.LOADING

    def _deadline_s(self, worker: WorkerRecord | None, order: DrainOrder | None) -> float | None:
        if worker is not None and worker.drain is not None:
            return worker.drain.deadline_s - self._given.store_ahead_s
        return order.deadline_s if order else None


def _was_noticed(worker: WorkerRecord) -> bool:
    """For a while, the mark of one that has said goodbye may be all that a new leader has of a notice."""
    return worker.drain is not None and worker.drain.reason == ReasonCode.NOTICE


def _not_after(notice: InterruptionNotice | None, deadline_s: float | None) -> float | None:
    """Where nobody is left whom an order could reach, no notice asks for an earlier one."""
    if notice is None or notice.deadline_s is None or deadline_s is None:
        return deadline_s
    return min(notice.deadline_s, deadline_s)


def requested(intent: Intent) -> ReplicaView:
    """The view of a launch that no instance answers yet; its time-out begins anew once the provider has launched it.

    One that an earlier controller decided before a long outage is launched by the next: it is not to be given up for its age.
    """
    command = intent.command
    return ReplicaView(
        replica_id=command.token,
        pool=command.pool,
        offering_id=command.offering_id,
        phase=ReplicaPhase.REQUESTED,
        launched_at_s=intent.decided_at_s if intent.answered_at_s is None else intent.answered_at_s,
        launch_token=command.token,
    )


def _by_instance(workers: Iterable[WorkerRecord]) -> dict[str, WorkerRecord]:
    """The liveliest worker of each instance."""
    found: dict[str, WorkerRecord] = {}
    for worker in workers:
        instance_id = worker.identity.instance_id
        if instance_id and (instance_id not in found or _liveliest(worker) > _liveliest(found[instance_id])):
            found[instance_id] = worker
    return found


def _liveliest(worker: WorkerRecord) -> tuple[bool, float, int]:
    return not worker.gone, worker.registered_at_s, worker.incarnation


def _by_instance_most_urgent(notices: Iterable[InterruptionNotice]) -> dict[str, InterruptionNotice]:
    return {notice.instance_id: notice for notice in sorted(notices, key=_urgency, reverse=True)}


def _urgency(notice: InterruptionNotice) -> tuple[bool, float]:
    """Interruptions before hints, the nearest deadline first."""
    hint = notice.kind not in BINDING
    return hint, notice.deadline_s if notice.deadline_s is not None else float("inf")
