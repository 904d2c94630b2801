"""What Karpenter's kwok provider may launch: three GPU types in three zones, Spot and on-demand.

Prices are round figures near the public on-demand ones, and Spot is 40 % of them, dearer by zone: tests need their order,
not their amount.
"""

from tests.cluster.paths import JsonObject

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
_SPOT_RATIO = 0.4
_A_ZONE_RATIO = 0.01


def instance_types() -> list[JsonObject]:
    """The provider's file, as JSON."""
    return [
        _instance_type("p5.48xlarge", 55.0, "2048Gi", efa=32),
        _instance_type("p5en.48xlarge", 63.0, "2048Gi", efa=16),
        _instance_type("g6e.48xlarge", 30.0, "1536Gi", efa=1),
    ]


def _instance_type(name: str, on_demand_usd_per_h: float, memory: str, *, efa: int) -> JsonObject:
    offerings = [
        _offering(kind, zone, on_demand_usd_per_h * ratio * (1 + _A_ZONE_RATIO * i))
        for kind, ratio in (("spot", _SPOT_RATIO), ("on-demand", 1.0))
        for i, zone in enumerate(ZONES)
    ]
    room = {"cpu": "192", "memory": memory, "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": str(efa), "pods": "110"}
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": room,
        "offerings": offerings,
    }


def _offering(capacity_type: str, zone: str, usd_per_h: float) -> JsonObject:
    def is_one(key: str, value: str) -> JsonObject:
        return {"key": key, "operator": "In", "values": [value]}

    where = [is_one("karpenter.sh/capacity-type", capacity_type), is_one("topology.kubernetes.io/zone", zone)]
    return {"Price": round(usd_per_h, 4), "Available": True, "Requirements": where}
