"""A DaemonSet: one worker pod on every node of the pool. It has no count: nodes are what is added and removed.

Policy: a pod goes with its node, so there is nothing to take out before the node ends.
"""

from scaler.act.worker_sets.base import SetRefused, WorkerSetView
from scaler.act.worker_sets.calls import current_at_s, reading
from scaler.act.worker_sets.counted import refused, worker_pod
from scaler.act.worker_sets.pairing import ENDED
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import DAEMON_SETS
from scaler.model.clock import Clock


class DaemonSet:
    """A `WorkerSet`; see the module's docstring. A replica's key is its pod's UID."""

    def __init__(self, settings: WorkerSetSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def observe(self) -> WorkerSetView:
        """All of its pods. `PoolUnavailable` where that is not known."""
        settings = self._settings
        listed_at_s = min(current_at_s(settings.pods), self._clock.now_s())
        try:
            with reading(f"DaemonSet {settings}"):
                body = await settings.kube.get(DAEMON_SETS, settings.name, namespace=settings.namespace)
        except SetRefused as reason:
            return refused(str(reason), listed_at_s)
        pods = settings.pods.owned_by(body["metadata"]["uid"])
        return WorkerSetView(
            listed_at_s=listed_at_s,
            pods=tuple(worker_pod(pod, pod.uid) for pod in pods if pod.phase not in ENDED),
            desired=None,
            refused_reason=self._refused_reason(),
        )

    async def add(self, token: str, offering_id: str) -> bool:
        """Nothing: a new node gets its pod by itself."""
        return False

    async def remove(self, replica_key: str) -> bool:
        """True: the pod goes with its node."""
        return True

    async def close(self) -> None:
        """Nothing is held."""

    def _refused_reason(self) -> str | None:
        if self._settings.nodes_per_replica == 1:
            return None
        return f"DaemonSet {self._settings} has one pod a node; several nodes a replica need a leader_worker_set"


def make(settings: WorkerSetSettings, *, clock: Clock) -> DaemonSet:
    """The worker set of a DaemonSet."""
    return DaemonSet(settings, clock=clock)
