"""Every policy by name: a new one is one file in this folder and one line here."""

from collections.abc import Mapping
from types import MappingProxyType

from policies import (
    buffer_band,
    cheapest_available,
    marginal_value,
    rate_match,
    rlboost,
    spot_hedge,
    static,
    uniform_progress,
)
from policies.base import Registered

SIZING: Mapping[str, Registered] = MappingProxyType(
    {
        "marginal_value": Registered(params=marginal_value.Params, function=marginal_value.size),
        "rate_match": Registered(params=rate_match.Params, function=rate_match.size),
        "buffer_band": Registered(params=buffer_band.Params, function=buffer_band.size),
        "spot_hedge": Registered(params=spot_hedge.Params, function=spot_hedge.size),
        "rlboost": Registered(params=rlboost.Params, function=rlboost.size),
        "uniform_progress": Registered(params=uniform_progress.Params, function=uniform_progress.size),
        "static": Registered(params=static.Params, function=static.size),
    }
)
"""Functions are `policies.base.SizingPolicy`."""

PLACEMENT: Mapping[str, Registered] = MappingProxyType(
    {"cheapest_available": Registered(params=cheapest_available.Params, function=cheapest_available.place)}
)
"""Functions are `policies.base.PlacementPolicy`."""
