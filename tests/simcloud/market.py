"""Which capacity there is, at which price, within which quotas: what decides whether a launch is granted.

Non-goals: bids, placement groups, reservations' own capacity. Texts are AWS's, from Auto Scaling's troubleshooting guide and
scaling activities as people quote them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.simcloud.catalogue import vcpus
from tests.simcloud.kernel import Kernel
from tests.simcloud.settings import Settings

SPOT = "spot"
ON_DEMAND = "on-demand"
CAPACITY_BLOCK = "capacity-block"
"""Only what a reservation made is there."""
_DEFAULT_SPOT_USD_PER_H = 10.0


class Offering(NamedTuple):
    """What a launch asks for."""

    instance_type: str
    zone: str
    market: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a launch was not granted."""

    code: str
    message: str

    def activity_message(self, market: str) -> str:
        """As the status message of a failed scaling activity words it."""
        if market == SPOT:
            return f"Could not launch Spot Instances. {self.code} - {self.message} Launching EC2 instance failed."
        return f"{self.message} Launching EC2 instance failed."


class Market:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        self._kernel = kernel
        self._settings = settings
        self._capacity: dict[Offering, int] = {}
        self._refusals: dict[Offering, Refusal] = {}
        self._quota_vcpus: dict[str, int] = {}
        self.prices: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.scores: dict[tuple[str, str], int] = {}

    def set_capacity(self, offering: Offering, instances: int | None) -> None:
        """How many instances of it may run at once; None: as many as are asked for. Takes nothing back."""
        if instances is None:
            self._capacity.pop(offering, None)
        else:
            self._capacity[offering] = instances

    def set_refusal(self, offering: Offering, refusal: Refusal | None) -> None:
        """Refuse every launch of it with this; None: no more."""
        if refusal is None:
            self._refusals.pop(offering, None)
        else:
            self._refusals[offering] = refusal

    def set_quota(self, market: str, vcpu_limit: int | None) -> None:
        """The account's limit of running vCPUs of a market; None: none."""
        if vcpu_limit is None:
            self._quota_vcpus.pop(market, None)
        else:
            self._quota_vcpus[market] = vcpu_limit

    def set_price(self, instance_type: str, zone: str, usd_per_h: float) -> None:
        """The Spot price from now on."""
        self.prices.setdefault((instance_type, zone), []).append((self._kernel.now_s(), usd_per_h))

    def price(self, instance_type: str, zone: str) -> float:
        """Spot, USD per hour, now."""
        history = self.prices.get((instance_type, zone))
        return history[-1][1] if history else _DEFAULT_SPOT_USD_PER_H

    def offered(self, instance_type: str, zone: str) -> bool:
        """Whether the zone has the type at all."""
        known = instance_type in self._settings.instance_types and zone in self._settings.zones
        return known or any(o.instance_type == instance_type and o.zone == zone for o in self._capacity)

    def free(self, offering: Offering, running: int) -> int | None:
        """Instances that may still be launched; None: unbounded."""
        capacity = self._capacity.get(offering, 0 if offering.market == CAPACITY_BLOCK else None)
        return None if capacity is None else max(0, capacity - running)

    def score(self, instance_type: str, zone: str, running: int) -> int:
        """The placement score: as set, else 9 while there is capacity and 1 where there is none."""
        free = self.free(Offering(instance_type, zone, SPOT), running)
        return self.scores.get((instance_type, zone), 1 if free == 0 else 9)

    def refusal(
        self, offering: Offering, *, running: int, market_vcpus: Callable[[], int], max_price_usd: float | None
    ) -> Refusal | None:
        """Why one more instance cannot be had; None: it can."""
        if offering in self._refusals:
            return self._refusals[offering]
        if not self.offered(offering.instance_type, offering.zone):
            return _unsupported(offering)
        if offering.market == SPOT and max_price_usd is not None:
            asked = self.price(offering.instance_type, offering.zone)
            if max_price_usd < asked:
                return _price_too_low(max_price_usd, asked)
        limit = self._quota_vcpus.get(offering.market)
        if limit is not None and market_vcpus() + vcpus(offering.instance_type) > limit:
            return _quota(offering.market, limit)
        return _insufficient(offering) if self.free(offering, running) == 0 else None


def _unsupported(offering: Offering) -> Refusal:
    message = (
        f"Your requested instance type ({offering.instance_type}) is not supported in your requested Availability "
        f"Zone ({offering.zone}). Please retry your request by not specifying an Availability Zone."
    )
    return Refusal(code="Unsupported", message=message)


def _price_too_low(offered_usd: float, asked_usd: float) -> Refusal:
    message = (
        f"Your Spot request price of {offered_usd:g} is lower than the minimum required Spot request fulfillment "
        f"price of {asked_usd:g}."
    )
    return Refusal(code="SpotMaxPriceTooLow", message=message)


def _quota(market: str, limit: int) -> Refusal:
    if market == SPOT:
        return Refusal(code="MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded.")
    message = (
        f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance "
        "bucket that the specified instance type belongs to. Please visit "
        "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
    )
    return Refusal(code="VcpuLimitExceeded", message=message)


def _insufficient(offering: Offering) -> Refusal:
    if offering.market == CAPACITY_BLOCK:
        message = "The requested configuration exceeds the available capacity of the targeted capacity reservation."
        return Refusal(code="ReservationCapacityExceeded", message=message)
    if offering.market == SPOT:
        message = (
            "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again."
        )
        return Refusal(code="UnfulfillableCapacity", message=message)
    message = (
        f"We currently do not have sufficient {offering.instance_type} capacity in the Availability Zone you "
        f"requested ({offering.zone}). Our system will be working on provisioning additional capacity."
    )
    return Refusal(code="InsufficientInstanceCapacity", message=message)
