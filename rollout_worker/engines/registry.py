"""Engines by name. A new engine is one file in this folder and one line in `ENGINES`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from rollout_worker.engines.base import Engine
from scaler.model.clock import Clock

ENGINES = {
    "torch": "rollout_worker.engines.torch_moe",
    "dry-run": "rollout_worker.engines.dry_run",
}
"""Name -> module with `open_engine(options, clock) -> Engine`. Imported on use: only the torch engine needs torch."""


def open_engine(name: str, options: Mapping[str, str], clock: Clock) -> Engine:
    """An engine that is not started yet.

    Raises:
        ValueError: no such engine, or an option that it does not know or cannot read.
    """
    if name not in ENGINES:
        raise ValueError(f"engine {name!r}: it must be one of {', '.join(sorted(ENGINES))}")
    make = cast("Callable[[Mapping[str, str], Clock], Engine]", import_module(ENGINES[name]).open_engine)
    return make(options, clock)
