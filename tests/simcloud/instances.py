"""Instances: launched, running, taken back, gone; and what EC2 says of their health.

Invariants: an instance ends once, and the journal says by whom; whoever listens hears of every change of state in order.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.simcloud.catalogue import subnet_of, vcpus
from tests.simcloud.errors import CloudError
from tests.simcloud.journal import AWS, Ended, EndedBy, Journal
from tests.simcloud.kernel import Kernel
from tests.simcloud.market import SPOT, Market, Offering, Refusal
from tests.simcloud.settings import Settings, draw

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = "pending", "running", "shutting-down", "terminated"
ALIVE = frozenset({PENDING, RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What to launch, zone apart."""

    instance_type: str
    market: str
    template_id: str = ""
    template_version: str = ""
    image_id: str = "ami-0123456789abcdef0"
    max_price_usd: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
    client_token: str = ""
    reservation_id: str = ""
    """The capacity reservation that it is launched into; empty: none."""


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    """One instance. Times are seconds of UTC on the region's clock."""

    instance_id: str
    spec: LaunchSpec
    zone: str
    subnet_id: str
    private_ip: str
    launched_at_s: float
    tags: dict[str, str]
    state: str = PENDING
    reason: str = ""
    group: str = ""
    """The Auto Scaling group it is in; empty: none."""
    protected: bool = False
    """From scale-in, as its group has it."""
    api_protected: bool = False
    """From TerminateInstances."""
    ended: Ended | None = None
    noticed_at_s: float | None = None
    rebalanced_at_s: float | None = None
    eks_draining: bool = False
    """A managed node group has cordoned its node and evicts."""
    system_ok: bool = True
    reachable: bool = True
    scheduled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Pending or running: what capacity is held by."""
        return self.state in ALIVE

    @property
    def offering(self) -> Offering:
        """What it was launched from."""
        return Offering(self.spec.instance_type, self.zone, self.spec.market)


class Instances:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, settings: Settings, market: Market, journal: Journal) -> None:
        self._kernel = kernel
        self._settings = settings
        self._market = market
        self._journal = journal
        self.by_id: dict[str, Instance] = {}
        self._held: Counter[Offering] = Counter()
        self._numbers = count()
        self.listeners: list[Callable[[Instance], None]] = []
        """Called after each change of state."""

    def get(self, instance_id: str) -> Instance:
        """By id.

        Raises:
            CloudError: InvalidInstanceID.NotFound.
        """
        found = self.by_id.get(instance_id)
        if found is None:
            raise CloudError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        return found

    def alive(self) -> Iterable[Instance]:
        """Those pending or running."""
        return [one for one in self.by_id.values() if one.alive]

    def held(self, offering: Offering) -> int:
        """Instances that hold its capacity."""
        return self._held[offering]

    def launch(self, spec: LaunchSpec, zone: str) -> Instance | Refusal:
        """One instance, pending, or why not."""
        offering = Offering(spec.instance_type, zone, spec.market)
        refusal = self._market.refusal(
            offering,
            running=self._held[offering],
            market_vcpus=lambda: self._vcpus(spec.market),
            max_price_usd=spec.max_price_usd,
        )
        return refusal if refusal is not None else self._begin(spec, zone)

    def _vcpus(self, market: str) -> int:
        return sum(vcpus(one.instance_type) * n for one, n in self._held.items() if one.market == market)

    def _begin(self, spec: LaunchSpec, zone: str) -> Instance:
        number = next(self._numbers)
        made = Instance(
            instance_id=self._kernel.hex_id("i-"),
            spec=spec,
            zone=zone,
            subnet_id=subnet_of(zone),
            private_ip=f"10.{number // 65025 % 256}.{number // 255 % 255}.{number % 255 + 1}",
            launched_at_s=self._kernel.now_s(),
            tags=dict(spec.tags),
        )
        self.by_id[made.instance_id] = made
        self._held[made.offering] += 1
        self._kernel.after(draw(self._kernel, self._settings.launch_delay_s), lambda: self._run(made))
        self._tell(made)
        return made

    def end(self, instance: Instance, by: EndedBy, caller: str = AWS, *, reason: str = "") -> None:
        """Shut it down; nothing where that has begun."""
        if not instance.alive:
            return
        instance.ended = Ended(
            instance_id=instance.instance_id,
            at_s=self._kernel.now_s(),
            by=by,
            caller=caller,
            group=instance.group,
            protected=instance.protected,
        )
        self._journal.ended.append(instance.ended)
        self._held[instance.offering] -= 1
        instance.reason = reason or _reason(instance, by)
        self._move(instance, SHUTTING_DOWN)
        self._kernel.after(draw(self._kernel, self._settings.shutdown_delay_s), lambda: self._terminated(instance))

    def touched(self, instance: Instance) -> None:
        """Something of it changed, its state apart."""
        self._tell(instance)

    def _run(self, instance: Instance) -> None:
        if instance.state == PENDING:
            self._move(instance, RUNNING)

    def _terminated(self, instance: Instance) -> None:
        self._move(instance, TERMINATED)
        self._kernel.after(self._settings.forget_after_s, lambda: self._forget(instance))

    def _forget(self, instance: Instance) -> None:
        del self.by_id[instance.instance_id]

    def _move(self, instance: Instance, state: str) -> None:
        instance.state = state
        self._tell(instance)

    def _tell(self, instance: Instance) -> None:
        for listener in self.listeners:
            listener(instance)


def _reason(instance: Instance, by: EndedBy) -> str:
    if by is EndedBy.SPOT and instance.spec.market == SPOT:
        return "Server.SpotInstanceTermination: Spot instance termination"
    if by in {EndedBy.FAILED, EndedBy.RESERVATION}:
        return "Server.InternalError"
    return "User initiated"
