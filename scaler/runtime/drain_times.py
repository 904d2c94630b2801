"""How drains keep to their budgets: the age of notices when seen, the time until a worker has handed over, what was left.

Observed once a replica and notice, at the first tick that shows it; what the process did not see it does not make up: a replica
that had handed over before its notice was seen, or before this process began, tells nothing of how long that takes.
"""

import math

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.telemetry.metrics import Metrics

_OVER = frozenset({ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING})

_Key = tuple[str, NoticeKind]
"""(replica id, kind of its notice)."""


class DrainTimes:
    """Fed with every snapshot."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._began = False
        self._seen: set[_Key] = set()
        self._open: set[_Key] = set()
        """Seen with something left to hand over."""

    def look(self, snapshot: Snapshot) -> None:
        """Observe what is new in this tick."""
        noticed = {
            (replica.replica_id, replica.notice.kind): (replica, replica.notice)
            for stage in snapshot.stages
            for replica in stage.replicas
            if replica.notice is not None and replica.notice.kind in BINDING
        }
        for key, (replica, notice) in noticed.items():
            self._look(key, replica, notice, snapshot.now_s)
        self._seen &= noticed.keys()
        self._open &= noticed.keys()
        self._began = self._began or snapshot.synced

    def _look(self, key: _Key, replica: ReplicaView, notice: InterruptionNotice, now_s: float) -> None:
        over = replica.phase in _OVER and replica.running_units <= 0
        if key not in self._seen:
            self._seen.add(key)
            if self._began and math.isfinite(notice.noticed_at_s):
                self._metrics.notice_age.observe(max(0.0, now_s - notice.noticed_at_s))
            if not over:
                self._open.add(key)
        if over and key in self._open:
            self._open.discard(key)
            self._handed_over(notice, now_s)

    def _handed_over(self, notice: InterruptionNotice, now_s: float) -> None:
        if math.isfinite(notice.noticed_at_s):
            self._metrics.notice_to_drained.observe(max(0.0, now_s - notice.noticed_at_s))
        if notice.deadline_s is not None and math.isfinite(notice.deadline_s):
            self._metrics.drain_budget_left.observe(max(0.0, notice.deadline_s - now_s))
