"""What happens to instances from outside: reclaims with and without notice, recommendations, maintenance, failures.

Sources: EC2 user guide, "Spot Instance interruption notices" (two minutes, best effort), "Rebalance recommendations" (may
come before, with or without a notice), "Scheduled events for your instances", AWS Health user guide.
"""

from collections.abc import Iterable, Sequence

from tests.simcloud.bus import REBALANCE, SPOT_INTERRUPTION, Bus
from tests.simcloud.instances import Instance, Instances
from tests.simcloud.journal import EndedBy
from tests.simcloud.keeper import Keeper
from tests.simcloud.kernel import Kernel, as_date
from tests.simcloud.market import SPOT
from tests.simcloud.reservations import Reservations
from tests.simcloud.settings import Settings

_DAY_S = 86_400.0
_HEALTH_CODES = {
    "instance-retirement": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
    "instance-stop": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "instance-reboot": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
    "system-reboot": "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
    "system-maintenance": "AWS_EC2_SYSTEM_MAINTENANCE_SCHEDULED",
}


class Fate:
    """See the module's docstring. Every method returns the ids it was about."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        instances: Instances,
        bus: Bus,
        keeper: Keeper,
        reservations: Reservations,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._instances = instances
        self._bus = bus
        self._keeper = keeper
        self._reservations = reservations

    def reclaim(
        self,
        number: int | None = None,
        *,
        zone: str | None = None,
        instance_type: str | None = None,
        group: str | None = None,
        ids: Sequence[str] | None = None,
        noticed: bool = True,
    ) -> list[str]:
        """Take Spot instances back: those named, or so many by chance of those that fit; with notice, or at once."""
        with self._kernel.lock:
            self._kernel.advance()
            chosen = self._choose(number, zone, instance_type, group, ids)
            for one in chosen:
                if noticed:
                    self._notice(one)
                else:
                    self._instances.end(one, EndedBy.SPOT)
            return [one.instance_id for one in chosen]

    def _choose(
        self,
        number: int | None,
        zone: str | None,
        instance_type: str | None,
        group: str | None,
        ids: Sequence[str] | None,
    ) -> list[Instance]:
        if ids is not None:
            return [one for one in map(self._instances.get, ids) if one.alive]
        fit = [
            one
            for one in self._instances.alive()
            if one.spec.market == SPOT
            and one.noticed_at_s is None
            and zone in {None, one.zone}
            and instance_type in {None, one.spec.instance_type}
            and group in {None, one.group}
        ]
        return fit if number is None else self._kernel.rng.sample(fit, min(number, len(fit)))

    def _notice(self, one: Instance) -> None:
        if one.noticed_at_s is not None:
            return
        one.noticed_at_s = self._kernel.now_s()
        self._bus.about_instance(SPOT_INTERRUPTION, one.instance_id, **{"instance-action": "terminate"})
        self._kernel.after(self._settings.notice_s, lambda: self._instances.end(one, EndedBy.SPOT))
        self._keeper.recommend(one, noticed=True)

    def recommend(self, ids: Iterable[str]) -> list[str]:
        """Rebalance recommendations; nothing follows of necessity."""
        with self._kernel.lock:
            self._kernel.advance()
            chosen = [one for one in map(self._instances.get, ids) if one.alive]
            for one in chosen:
                one.rebalanced_at_s = self._kernel.now_s()
                self._bus.about_instance(REBALANCE, one.instance_id)
                self._keeper.recommend(one, noticed=False)
            return [one.instance_id for one in chosen]

    def interrupt_reservation(self, ids: Iterable[str]) -> list[str]:
        """The owner of an interruptible reservation wants it back: a two-minute notice of its own kind."""
        with self._kernel.lock:
            self._kernel.advance()
            chosen = [one for one in map(self._instances.get, ids) if one.alive]
            for one in chosen:
                self._reservations.interrupt(one)
            return [one.instance_id for one in chosen]

    def schedule(
        self, ids: Sequence[str], code: str = "instance-retirement", *, in_s: float = 14 * _DAY_S, told: bool = True
    ) -> list[str]:
        """A scheduled event of these: DescribeInstanceStatus shows it, and AWS Health tells it in one event if `told`."""
        with self._kernel.lock:
            self._kernel.advance()
            start_s = self._kernel.now_s() + in_s
            for one in map(self._instances.get, ids):
                one.scheduled.append(self._scheduled(code, start_s))
            if told:
                text = f"EC2 has scheduled {code} for instances of yours."
                self._bus.health(_HEALTH_CODES[code], list(ids), start_s=start_s, end_s=start_s + _DAY_S, text=text)
            return list(ids)

    def _scheduled(self, code: str, start_s: float) -> dict[str, object]:
        return {
            "InstanceEventId": self._kernel.hex_id("instance-event-"),
            "Code": code,
            "Description": f"The instance is scheduled for {code}",
            "NotBefore": as_date(start_s),
            "NotAfter": as_date(start_s + _DAY_S),
        }

    def complete(self, ids: Iterable[str], *, cancelled: bool = False) -> list[str]:
        """Scheduled events are over: described with that word for a week."""
        word = "[Canceled]" if cancelled else "[Completed]"
        with self._kernel.lock:
            for one in map(self._instances.get, ids):
                for event in one.scheduled:
                    event["Description"] = f"{word} {event['Description']}"
        return list(ids)

    def impair(self, ids: Iterable[str], *, system: bool = False) -> list[str]:
        """Status checks fail from now on."""
        with self._kernel.lock:
            for one in map(self._instances.get, ids):
                one.system_ok, one.reachable = one.system_ok and not system, False
        return list(ids)

    def fail(self, ids: Iterable[str]) -> list[str]:
        """They break: gone without any notice."""
        with self._kernel.lock:
            self._kernel.advance()
            for one in map(self._instances.get, ids):
                self._instances.end(one, EndedBy.FAILED)
        return list(ids)
