"""Pool actors by provider. A new provider is one file in this folder and one line in `ACTORS`."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from scaler.act.base import PoolActor
from scaler.model.clock import Clock

ACTORS = {
    "karpenter": "scaler.act.karpenter",
    "local": "scaler.act.local",
    "auto_scaling_group": "scaler.act.auto_scaling_group",
    "eks_node_group": "scaler.act.eks_node_group",
}
"""Provider -> module with `make(settings, *, pool, clock) -> PoolActor`. Imported on use: local pools need no cloud client."""


def make_actor(provider: str, settings: object, *, pool: str, clock: Clock) -> PoolActor:
    """The actor of the pool named `pool`. `settings` is the provider's own settings object.

    Raises:
        ValueError: no such provider.
        TypeError: the settings are another provider's.
    """
    if provider not in ACTORS:
        raise ValueError(f"pool {pool}: no provider {provider!r}; known are {', '.join(sorted(ACTORS))}")
    make = cast("Callable[..., PoolActor]", import_module(ACTORS[provider]).make)
    return make(settings, pool=pool, clock=clock)
