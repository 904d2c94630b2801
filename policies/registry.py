"""Every policy by name: a new one is one file in this folder and one line here."""

from collections.abc import Mapping
from types import MappingProxyType

from policies import buffer_band, cheapest_available, rate_match, static
from policies.base import Registered

SIZING: Mapping[str, Registered] = MappingProxyType(
    {
        "rate_match": Registered(params=rate_match.Params, function=rate_match.size),
        "buffer_band": Registered(params=buffer_band.Params, function=buffer_band.size),
        "static": Registered(params=static.Params, function=static.size),
    }
)
"""Functions are `policies.base.SizingPolicy`."""

PLACEMENT: Mapping[str, Registered] = MappingProxyType(
    {"cheapest_available": Registered(params=cheapest_available.Params, function=cheapest_available.place)}
)
"""Functions are `policies.base.PlacementPolicy`."""
