"""What a worker set is to a pool's actor: its pods, one replica more, and the end of exactly one named replica.

One file in this folder per kind, and one line in `scaler.act.worker_sets.registry`. Level-based: `observe` tells all there is,
from watched lists. Counts that an object holds are absolute, so each write is a compare-and-set (`resourceVersion`) that also
notes the launch's token in the object: a repeated token changes nothing, whichever controller repeats it.

Errors: `PoolUnavailable` where the API server does not answer; `SetRefused` where the object may not be written at all.
"""

from dataclasses import dataclass
from typing import Protocol


class SetRefused(Exception):
    """This worker set may not be scaled by us: another owner writes its count, or its shape does not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPod:
    """One pod of a worker set, or the main pod of a replica of several."""

    name: str
    namespace: str
    uid: str
    node_name: str
    """Empty while it is not scheduled."""
    replica_key: str
    """Pods of one replica share it: the pod's own UID where a replica is one pod."""
    launch_token: str
    """Of the launch that it answers; empty where none is noted."""
    created_at_s: float
    ready: bool
    terminating: bool
    unschedulable: bool = False
    """The scheduler found no node for it."""
    offering_id: str = ""
    """Of the launch that it answers; empty where none is noted. Where it runs is told by its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLaunch:
    """A launch that the object has noted and that no pod answers yet; `remove` takes its token for a replica's key."""

    token: str
    offering_id: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetView:
    """A worker set as last listed, completely, at `listed_at_s`."""

    listed_at_s: float
    pods: tuple[WorkerPod, ...]
    desired: int | None
    """Replicas that the object asks for; None where it has no count (a DaemonSet)."""
    waiting: tuple[WaitingLaunch, ...] = ()
    """Launches whose pods are still to come: they count, or a list made too early would have them launched again."""
    missing: int = 0
    """Replicas that the object asks for beyond those that are there or waiting: others make them by themselves."""
    refused_reason: str | None = None
    """Why it may not be written: another owner of its count (HPA, ScaledObject, Ray's autoscaler, Kueue), a wrong shape."""


class WorkerSet(Protocol):
    """See the module's docstring."""

    async def observe(self) -> WorkerSetView:
        """All pods of ours."""
        ...

    async def add(self, token: str, offering_id: str) -> bool:
        """Ask for one replica more; False where the token was noted before. A DaemonSet has no count: always False."""
        ...

    async def remove(self, replica_key: str) -> bool:
        """Take exactly this replica out, count and pods; True once every pod of it is gone (by UID).

        False: under way, come again. Raises `NotYet` with the reason where it cannot be done safely now (for example another
        pod would be chosen instead).
        """
        ...

    async def close(self) -> None:
        """Give up watches."""
        ...
