"""Offerings, pools and replicas: what can be had, what was asked for, what exists (design sections 2 and 3)."""

from dataclasses import dataclass, field
from enum import StrEnum


class CapacityType(StrEnum):
    """How capacity is bought."""

    SPOT = "spot"
    CAPACITY_BLOCK = "capacity-block"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """How an offering charges. EC2's Linux Spot rule is `refund_if_interrupted_within_s=3600`."""

    minimum_s: float = 60.0
    refund_if_interrupted_within_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """Instance type x zone x capacity type, with its price."""

    instance_type: str
    zone: str
    capacity_type: CapacityType
    price_usd_per_h: float
    billing: Billing = Billing()
    offering_id: str = field(init=False, repr=False, compare=False)
    """Stable name, unique in a pool: type/zone/way of buying. Kept, since it is asked for all the time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offering_id", f"{self.instance_type}/{self.zone}/{self.capacity_type}")


class ReplicaPhase(StrEnum):
    """Where a worker replica is in its life. Transitions only go down this list, except DRAINING -> READY by undrain."""

    REQUESTED = "requested"
    """Asked for; no instance seen yet."""
    LAUNCHING = "launching"
    """Instance exists; its worker has not registered."""
    LOADING = "loading"
    """Worker registered, not ready: engine or weights on the way."""
    READY = "ready"
    DRAINING = "draining"
    """No new leases. Does not count as capacity."""
    DRAINED = "drained"
    """Holds no lease; may be ended."""
    TERMINATING = "terminating"


COUNTS_AS_CAPACITY = frozenset(
    {ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING, ReplicaPhase.LOADING, ReplicaPhase.READY}
)
"""A launching node counts, a terminating one does not (design section 3, rule 4)."""
