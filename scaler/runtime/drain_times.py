"""How drains keep to their budgets: the age of notices when seen, the time until a worker has handed over, what was left.

Observed once a replica and notice, at the first tick that shows it; what the process did not see it does not make up.
"""

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import BINDING
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.telemetry.metrics import Metrics

_OVER = frozenset({ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING})


class DrainTimes:
    """Fed with every snapshot."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen: set[str] = set()
        self._over: set[str] = set()

    def look(self, snapshot: Snapshot) -> None:
        """Observe what is new in this tick."""
        noticed = [replica for stage in snapshot.stages for replica in stage.replicas if _binding(replica)]
        for replica in noticed:
            self._look(replica, snapshot.now_s)
        there = {replica.replica_id for replica in noticed}
        self._seen &= there
        self._over &= there

    def _look(self, replica: ReplicaView, now_s: float) -> None:
        notice = replica.notice
        if notice is None:
            return
        if replica.replica_id not in self._seen:
            self._seen.add(replica.replica_id)
            self._metrics.notice_age.observe(max(0.0, now_s - notice.noticed_at_s))
        if replica.phase in _OVER and not replica.running_units and replica.replica_id not in self._over:
            self._over.add(replica.replica_id)
            self._metrics.notice_to_drained.observe(max(0.0, now_s - notice.noticed_at_s))
            if notice.deadline_s is not None:
                self._metrics.drain_budget_left.observe(max(0.0, notice.deadline_s - now_s))


def _binding(replica: ReplicaView) -> bool:
    return replica.notice is not None and replica.notice.kind in BINDING
