"""Worker sets by kind, as the YAML names them. A new kind is one file in this folder and one line in `WORKER_SETS`."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from scaler.act.worker_sets.base import WorkerSet
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.model.clock import Clock

WORKER_SETS = {
    "daemon_set": "scaler.act.worker_sets.daemon_set",
    "deployment": "scaler.act.worker_sets.deployment",
    "leader_worker_set": "scaler.act.worker_sets.leader_worker_set",
    "ray_cluster": "scaler.act.worker_sets.ray_cluster",
}
"""Kind -> module with `make(settings, *, clock) -> WorkerSet`. Imported on use."""


def make_worker_set(kind: str, settings: WorkerSetSettings, *, clock: Clock) -> WorkerSet:
    """The worker set of that kind.

    Raises:
        ValueError: no such kind, or settings that do not fit it.
    """
    if kind not in WORKER_SETS:
        raise ValueError(f"no worker set {kind!r}; known are {', '.join(sorted(WORKER_SETS))}")
    make = cast("Callable[..., WorkerSet]", import_module(WORKER_SETS[kind]).make)
    return make(settings, clock=clock)
