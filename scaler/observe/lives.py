"""What only comparing two looks can tell: who became ready when, which instances went, and whether we know why.

Everything here is lost with the process, and that is harmless: READY times start anew, and the leases of a replica that
went unseen run out.
"""

from collections.abc import Mapping

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import TAKEN_BY_CLOUD
from scaler.model.pool import Instance, PoolObservation
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.observe.offerings import OfferingMemory

_REMEMBER_GONE_S = 600.0
"""By then the leases of a worker whose instance went have long run out."""
_SURELY_GONE_S = 10.0
"""A list may leave one out for a moment; one that was begun so much later does not."""
_LEAVING = frozenset({ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING})


class Lives:
    """The lives of replicas, from one complete list to the next."""

    def __init__(self, offerings: OfferingMemory) -> None:
        self._offerings = offerings
        self._ready_since_s: dict[str, float] = {}
        self._gone: dict[str, dict[str, tuple[float, Instance]]] = {}
        self._pools: dict[str, PoolObservation] = {}
        self._views: dict[str, ReplicaView] = {}

    @property
    def ready_since_s(self) -> Mapping[str, float]:
        """When each replica was first seen ready."""
        return self._ready_since_s

    def gone(self) -> dict[str, tuple[Instance, ...]]:
        """Instances that were listed and are not any more, by pool."""
        return {pool: tuple(instance for _, instance in gone.values()) for pool, gone in self._gone.items()}

    def surely_gone(self) -> frozenset[str]:
        """Ids of those that a later list has missed too: nothing is left to be done about a notice of theirs."""
        return frozenset(
            instance_id
            for pool, gone in self._gone.items()
            if pool in self._pools
            for instance_id, (at_s, _) in gone.items()
            if self._pools[pool].listed_at_s - at_s >= _SURELY_GONE_S
        )

    def listed(self, pools: Mapping[str, PoolObservation], now_s: float, leaving: frozenset[str]) -> None:
        """Take the newest complete list of each pool. `leaving`: replicas told to go since the last look."""
        for name, listed in pools.items():
            before = self._pools.get(name)
            if before is not None and before is not listed:
                stillborn = self._stillborn(name, before, listed)
                for instance in self._compare(name, before, listed, now_s):
                    if instance.replica_id in self._views and instance.replica_id not in leaving:
                        self._judge(name, instance, now_s)
                for instance in stillborn:
                    if instance.replica_id not in leaving:
                        self._judge(name, instance, now_s)
        self._pools = dict(pools)

    def seen(self, snapshot: Snapshot) -> None:
        """Take the phases that the snapshot shows; marks offerings whose instances have notices as reclaiming."""
        self._views = {view.replica_id: view for stage in snapshot.stages for view in stage.replicas}
        for view in self._views.values():
            self._mark(view, snapshot.now_s)
        self._ready_since_s = {key: at for key, at in self._ready_since_s.items() if key in self._views}

    def _mark(self, view: ReplicaView, now_s: float) -> None:
        if view.phase is ReplicaPhase.READY and view.replica_id not in self._ready_since_s:
            self._ready_since_s[view.replica_id] = now_s
            self._offerings.became_ready(view.pool, view.offering_id)
        if view.notice is not None and view.notice.kind in TAKEN_BY_CLOUD:
            self._offerings.reclaiming(view.pool, view.offering_id, min(view.notice.noticed_at_s, now_s))

    def _compare(self, pool: str, before: PoolObservation, listed: PoolObservation, now_s: float) -> list[Instance]:
        """Remember what went between two lists, and return it."""
        present = {instance.instance_id for instance in listed.instances}
        gone = self._gone.setdefault(pool, {})
        missing = [instance for instance in before.instances if instance.instance_id not in present]
        gone |= {instance.instance_id: (now_s, instance) for instance in missing}
        for instance_id, (at_s, _) in list(gone.items()):
            if instance_id in present or now_s - at_s > _REMEMBER_GONE_S:
                del gone[instance_id]
        return missing

    def _stillborn(self, pool: str, before: PoolObservation, listed: PoolObservation) -> list[Instance]:
        """Those that begin to die before they were ready, many of them before any list shows them alive.

        Others are judged when they are gone; these would then be leaving. One that a list left out for a moment was judged.
        """
        known = {instance.instance_id for instance in before.instances if instance.dying} | set(
            self._gone.get(pool, ())
        )
        dying = (each for each in listed.instances if each.dying and each.instance_id not in known)
        return [instance for instance in dying if instance.replica_id not in self._ready_since_s]

    def _judge(self, pool: str, instance: Instance, now_s: float) -> None:
        view = self._views.get(instance.replica_id)
        if view is not None and (view.phase in _LEAVING or view.notice is not None):
            return
        was_ready = instance.replica_id in self._ready_since_s
        asked_at_s = instance.launched_at_s
        self._offerings.lost(pool, instance.offering_id, now_s, was_ready=was_ready, asked_at_s=asked_at_s)
