"""Capacity reservations: capacity blocks, which end by the calendar, and interruptible ones, which their owner takes back.

Sources: EC2 user guide, "Capacity Blocks for ML" and "Monitor Capacity Blocks using EventBridge": a warning 40 minutes before
the end of the block, its instances are ended from 30 minutes before it. Assumed: each instance has its own warning two
minutes ahead of that, as the guide shows the event but not its time.
"""

from dataclasses import dataclass

from tests.simcloud.asked import Asked, Json, page
from tests.simcloud.bus import RESERVATION_INTERRUPTION, Bus
from tests.simcloud.catalogue import zone_id
from tests.simcloud.errors import CloudError
from tests.simcloud.instances import Instance, Instances
from tests.simcloud.journal import EndedBy
from tests.simcloud.kernel import Kernel, as_date, iso
from tests.simcloud.market import CAPACITY_BLOCK, Market, Offering
from tests.simcloud.settings import Settings

BLOCK_DELIVERED = "Capacity Block Reservation Delivered"
BLOCK_ENDING = "Capacity Block Reservation Expiration Warning"
_WARNED_S, _TAKEN_S = 40 * 60.0, 30 * 60.0


@dataclass(slots=True, kw_only=True)
class Reservation:
    """One of them."""

    reservation_id: str
    arn: str
    instance_type: str
    zone: str
    instances: int
    began_at_s: float
    ends_at_s: float | None = None
    block: bool = False
    interruptible: bool = False
    state: str = "active"


class Reservations:
    """By id."""

    def __init__(self, kernel: Kernel, settings: Settings, market: Market, instances: Instances, bus: Bus) -> None:
        self._kernel = kernel
        self._settings = settings
        self._market = market
        self._instances = instances
        self._bus = bus
        self.by_id: dict[str, Reservation] = {}

    def add(
        self,
        instance_type: str,
        zone: str,
        instances: int,
        *,
        ends_in_s: float | None = None,
        block: bool = False,
        interruptible: bool = False,
    ) -> str:
        """A new one, active at once; a block needs an end. Its id."""
        with self._kernel.lock:
            self._kernel.advance()
            now_s, name = self._kernel.now_s(), self._kernel.hex_id("cr-")
            made = Reservation(
                reservation_id=name,
                arn=f"arn:aws:ec2:{self._settings.region}:{self._settings.account}:capacity-reservation/{name}",
                instance_type=instance_type,
                zone=zone,
                instances=instances,
                began_at_s=now_s,
                ends_at_s=None if ends_in_s is None else now_s + ends_in_s,
                block=block,
                interruptible=interruptible,
            )
            self.by_id[name] = made
            if block and ends_in_s is not None:
                self._begin_block(made, ends_in_s)
            return name

    def _begin_block(self, one: Reservation, lasts_s: float) -> None:
        offering = Offering(one.instance_type, one.zone, CAPACITY_BLOCK)
        self._market.set_capacity(offering, one.instances)
        self._tell(one, BLOCK_DELIVERED)
        self._kernel.after(lasts_s - _WARNED_S, lambda: self._tell(one, BLOCK_ENDING))
        self._kernel.after(lasts_s - _TAKEN_S - self._settings.notice_s, lambda: self._take(one, offering))
        self._kernel.after(lasts_s, lambda: self._expire(one))

    def _tell(self, one: Reservation, kind: str) -> None:
        end = iso(one.ends_at_s or 0.0)
        self._bus.emit(kind, "aws.ec2", [one.arn], {"capacity-reservation-id": one.reservation_id, "end-date": end})

    def _take(self, one: Reservation, offering: Offering) -> None:
        self._market.set_capacity(offering, 0)
        for instance in self._instances.alive():
            if instance.spec.reservation_id == one.reservation_id:
                self.interrupt(instance)

    def _expire(self, one: Reservation) -> None:
        one.state = "expired"

    def interrupt(self, one: Instance) -> None:
        """Warn, and take it when the notice is over."""
        one.noticed_at_s = self._kernel.now_s()
        place = {"azId": zone_id(one.zone)}
        if one.spec.market == CAPACITY_BLOCK:
            place = {"availability-zone-id": zone_id(one.zone), "instance-lifecycle": CAPACITY_BLOCK}
        ends = iso(self._kernel.now_s() + self._settings.notice_s)
        detail = {"instance-action": "terminate", "instance-termination-time": ends, **place}
        self._bus.about_instance(RESERVATION_INTERRUPTION, one.instance_id, **detail)
        self._kernel.after(self._settings.notice_s, lambda: self._instances.end(one, EndedBy.RESERVATION))

    def describe_capacity_reservations(self, asked: Asked) -> Json:
        ids = asked.p.get("CapacityReservationIds") or list(self.by_id)
        unknown = [name for name in ids if name not in self.by_id]
        if unknown:
            message = f"The capacity reservation ID '{unknown[0]}' does not exist"
            raise CloudError("InvalidCapacityReservationId.NotFound", message)
        shown, token = page(
            [self._view(self.by_id[name]) for name in ids], asked.p.get("NextToken"), asked.p.get("MaxResults")
        )
        return {"CapacityReservations": shown, "NextToken": token}

    def _view(self, one: Reservation) -> Json:
        used = sum(instance.spec.reservation_id == one.reservation_id for instance in self._instances.alive())
        view: Json = {
            "CapacityReservationId": one.reservation_id,
            "CapacityReservationArn": one.arn,
            "OwnerId": self._settings.account,
            "InstanceType": one.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": one.zone,
            "AvailabilityZoneId": zone_id(one.zone),
            "TotalInstanceCount": one.instances,
            "AvailableInstanceCount": max(0, one.instances - used),
            "State": one.state,
            "StartDate": as_date(one.began_at_s),
            "CreateDate": as_date(one.began_at_s),
            "EndDateType": "unlimited" if one.ends_at_s is None else "limited",
            "InstanceMatchCriteria": "targeted",
            "ReservationType": CAPACITY_BLOCK if one.block else "default",
            "Interruptible": one.interruptible,
        }
        return view if one.ends_at_s is None else view | {"EndDate": as_date(one.ends_at_s)}
