"""A simulated worker replica, its offering's state, and a lease: plain records that the rooms of the world share."""

import math
from dataclasses import dataclass, field

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import InterruptionNotice
from scaler.model.snapshot import ReplicaView
from scaler.simulate.groups import Group
from scaler.simulate.scenario import OfferingModel


class Lease:
    """A replica's hold on a group. The lane is taken until `lane_ends_s`, the group is complete at `ends_s`."""

    __slots__ = ("begun_s", "ends_s", "group", "holder", "in_lane", "lane_ends_s", "live", "stopped_s")

    def __init__(self, group: Group, holder: "Replica", begun_s: float, lane_s: float, run_s: float) -> None:
        self.group = group
        self.holder = holder
        self.begun_s = begun_s
        self.lane_ends_s = begun_s + lane_s
        self.ends_s = begun_s + run_s
        self.in_lane = True
        self.live = True
        self.stopped_s = math.inf
        """When its holder was lost: nothing is generated after it, though nobody may know yet."""


@dataclass(slots=True, eq=False)
class Replica:
    """One worker replica from its request to its end. Times in seconds of the world.

    What a controller sees of it, but for its leases, is changed by its methods alone: views of it are kept until then.
    """

    replica_id: str
    stage: str
    offering: "OfferingState"
    requested_s: float
    phase: ReplicaPhase = ReplicaPhase.REQUESTED
    """REQUESTED, LAUNCHING, LOADING, READY or TERMINATING; draining is in `drain_deadline_s`."""
    slot: int = -1
    granted_s: float | None = None
    ready_s: float | None = None
    gone: bool = False
    lost_at_s: float | None = None
    """When the cloud took it, or it failed."""
    notice: InterruptionNotice | None = None
    doomed: bool = False
    """The cloud will take it."""
    drain_deadline_s: float | None = None
    drain_reason: str | None = None
    free_lanes: int = 0
    pause_debt_s: float = 0.0
    """Lane time that swaps of weights took and no lane has paid yet."""
    leases: dict[int, Lease] = field(default_factory=dict)
    shown: dict[int, ReplicaView] = field(default_factory=dict)
    """Views of it as it is now by the leases that it holds: their number goes to and fro between a few."""

    def is_granted(self, slot: int, at_s: float) -> None:
        """It is an instance in this slot from then on."""
        self.slot, self.granted_s, self.phase = slot, at_s, ReplicaPhase.LAUNCHING
        self.shown.clear()

    def registers(self) -> None:
        """Its worker is there, and loads."""
        self.phase = ReplicaPhase.LOADING
        self.shown.clear()

    def is_ready(self, at_s: float) -> None:
        """It can work."""
        self.phase, self.ready_s = ReplicaPhase.READY, at_s
        self.shown.clear()

    def is_noticed(self, notice: InterruptionNotice) -> None:
        """The cloud says that it takes it."""
        self.notice = notice
        self.shown.clear()

    def drains(self, deadline_s: float | None, reason: str | None) -> None:
        """It is to hand over until then; None: it is not, after all."""
        self.drain_deadline_s, self.drain_reason = deadline_s, reason
        self.shown.clear()

    def ends(self) -> None:
        """It is there no more."""
        self.gone = True
        self.shown.clear()

    @property
    def leases_now(self) -> bool:
        """Whether it takes new leases."""
        return self.phase is ReplicaPhase.READY and self.drain_deadline_s is None and not self.gone

    def shown_phase(self) -> ReplicaPhase:
        """The phase as a controller would see it."""
        if self.gone:
            return ReplicaPhase.TERMINATING
        if self.drain_deadline_s is None or self.phase is ReplicaPhase.REQUESTED:
            return self.phase
        if self.phase is ReplicaPhase.LAUNCHING:
            return ReplicaPhase.DRAINED
        return ReplicaPhase.DRAINING if self.leases else ReplicaPhase.DRAINED


@dataclass(slots=True)
class Lanes:
    """A station's count, which others look at all the time."""

    busy: int = 0
    """Lanes that are taken, of replicas alive or gone until their leases end."""


@dataclass(slots=True, eq=False)
class OfferingState:
    """An offering as it is now."""

    model: OfferingModel
    count: int
    """Replicas that it would hold."""
    held: dict[int, Replica] = field(default_factory=dict)
    """By slot: granted and not gone, doomed ones too."""
    asked: int = 0
    occupants: dict[int, int] = field(default_factory=dict)
    """How often each slot was taken."""
    falls: int = 0
    key: tuple[str, str] = ("", "")
    """(pool, offering id) of the model, kept: it is asked for all the time."""

    def __post_init__(self) -> None:
        self.key = self.model.key

    def free_slot(self) -> int:
        """The lowest slot that is free."""
        slot = 0
        while slot in self.held:
            slot += 1
        return slot
