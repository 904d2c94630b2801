"""The cloud of a world: what runs there, what it can hold, what it takes back, and how late and how badly it answers.

Beside ours it holds a trainer's instance: protected, in nobody's pool, and never to be named by any command.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from scaler.act.base import Instance, InstanceState, LaunchOutcome, LaunchResult
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import LaunchReplica
from tests.faults.virtual_loop import START_S, VirtualLoop
from tests.faults.watch import Watch

TRAINER_INSTANCE = "i-trainer"
TRAINER_WORKER = "trainer-node"
"""An evaluation worker on it, known to the ledger as any worker is."""
_LISTED_WITHIN_S = 3.0
"""Lists lag by at most this."""


@dataclass(slots=True, eq=False)
class Machine:
    """An instance of ours. Times are the loop's."""

    instance_id: str
    pool: str
    offering_id: str
    token: str
    launched_s: float
    listed_from_s: float
    state: InstanceState = InstanceState.PENDING
    gone: bool = False
    notice: InterruptionNotice | None = None
    taken_s: float | None = None
    """When the cloud takes it."""
    told_to_end_s: float | None = None

    @property
    def replica_id(self) -> str:
        """One instance a replica."""
        return f"r{self.instance_id[1:]}"

    def listed(self) -> Instance:
        """As lists show it."""
        return Instance(
            instance_id=self.instance_id,
            replica_id=self.replica_id,
            offering_id=self.offering_id,
            state=self.state,
            launched_at_s=START_S + self.launched_s,
            launch_token=self.token,
        )


class Hosts(Protocol):
    """Who runs workers on instances."""

    def booted(self, machine: Machine) -> None:
        """It is up."""
        ...

    def told_to_end(self, machine: Machine) -> None:
        """SIGTERM."""
        ...

    def gone(self, machine: Machine) -> None:
        """It is no more, whoever ended it."""
        ...


@dataclass(slots=True)
class Troubles:
    """What the cloud does badly, each until a loop time, or a share of calls."""

    away_until_s: dict[str, float] = field(default_factory=dict)
    """Pool -> until when it does not answer."""
    partial_until_s: float = 0.0
    """Lists come in part: an adapter that notices says that it could not list."""
    hangs_until_s: float = 0.0
    broken_until_s: float = 0.0
    """Adapters raise what they should not."""
    notices_broken_until_s: float = 0.0
    """The source of notices raises what it should not."""
    loss: float = 0.0
    """Share of launches and ends whose answer gets lost."""
    slowness_s: float = 0.0
    stillborn: float = 0.0
    """Share of instances that die before their worker is up."""
    slow_boot: float = 0.0
    """Share of instances that take longer than a launch may."""


class Cloud:
    """See the module's docstring."""

    def __init__(self, loop: VirtualLoop, random: Random, watch: Watch, capacity: dict[str, int]) -> None:
        self.loop = loop
        self.random = random
        self.watch = watch
        self.capacity = capacity
        self.troubles = Troubles()
        self.machines: dict[str, Machine] = {}
        self.by_token: dict[str, Machine] = {}
        self.hosts: Hosts | None = None
        self.notices: list[InterruptionNotice] = []
        """Given out by the source of notices, in the order they became known to it."""
        self.news = asyncio.Event()

    def living(self) -> list[Machine]:
        """Everything of ours that is not gone."""
        return [machine for machine in self.machines.values() if not machine.gone]

    def came_and_went(self, token: str) -> bool:
        """Whether what a launch brought is gone."""
        machine = self.by_token.get(token)
        return machine is not None and machine.gone

    def listed(self, pool: str) -> tuple[Machine, ...]:
        """What a list of a pool shows now."""
        now_s = self.loop.time()
        return tuple(each for each in self.living() if each.pool == pool and each.listed_from_s <= now_s)

    def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """The effect of a launch call; the same token never launches twice."""
        before = self.by_token.get(command.token)
        if before is not None:
            return LaunchOutcome(result=LaunchResult.ALREADY, instance_id=before.instance_id)
        held = Counter(machine.offering_id for machine in self.living())
        if held[command.offering_id] >= self.capacity.get(command.offering_id, 0):
            result = self.random.choice(
                (LaunchResult.INSUFFICIENT_CAPACITY, LaunchResult.QUOTA, LaunchResult.THROTTLED)
            )
            return LaunchOutcome(result=result, message="no")
        machine = self._start(command)
        return LaunchOutcome(result=LaunchResult.LAUNCHED, instance_id=machine.instance_id)

    def _start(self, command: LaunchReplica) -> Machine:
        now_s, lag_s = self.loop.time(), self.random.choice((0.0, 0.0, self.random.uniform(0, _LISTED_WITHIN_S)))
        machine = Machine(
            instance_id=f"i{len(self.machines)}",
            pool=command.pool,
            offering_id=command.offering_id,
            token=command.token,
            launched_s=now_s,
            listed_from_s=now_s + lag_s,
        )
        self.machines[machine.instance_id] = self.by_token[command.token] = machine
        self.watch.event("launched", machine.instance_id, command.offering_id, command.token)
        slow = self.random.random() < self.troubles.slow_boot
        self.loop.call_later(60.0 if slow else self.random.uniform(5.0, 14.0), self._boot, machine)
        return machine

    def _boot(self, machine: Machine) -> None:
        if machine.gone or machine.state is not InstanceState.PENDING:
            return
        if self.random.random() < self.troubles.stillborn:
            self.end(machine, "stillborn")
            return
        machine.state = InstanceState.RUNNING
        if self.hosts is not None:
            self.hosts.booted(machine)

    def terminate(self, machine: Machine) -> bool:
        """The effect of an end call; False where it has been told before, or is gone."""
        if machine.gone or machine.told_to_end_s is not None:
            return False
        machine.told_to_end_s = self.loop.time()
        self.watch.event("told to end", machine.instance_id)
        self.loop.call_later(self.random.uniform(0.0, _LISTED_WITHIN_S), self._shows_its_end, machine)
        self.loop.call_later(self.random.uniform(4.0, 8.0), self.end, machine, "ended")
        if self.hosts is not None:
            self.hosts.told_to_end(machine)
        return True

    def _shows_its_end(self, machine: Machine) -> None:
        machine.state = InstanceState.SHUTTING_DOWN

    def end(self, machine: Machine, how: str) -> None:
        """It is gone from now on."""
        if machine.gone:
            return
        self.watch.event(how, machine.instance_id)
        if self.hosts is not None:
            self.hosts.gone(machine)
        machine.gone = True
        self.news.set()

    def interrupt(self, machine: Machine, *, warning_s: float, spared: bool = False) -> InterruptionNotice:
        """Take an instance back after `warning_s`, or let it be after all; who hears of it is the caller's business."""
        at_s = self.loop.time()
        notice = InterruptionNotice(
            instance_id=machine.instance_id,
            kind=NoticeKind.SPOT_INTERRUPTION,
            noticed_at_s=START_S + at_s,
            deadline_s=START_S + at_s + warning_s,
        )
        machine.notice = machine.notice or notice
        if not spared and machine.taken_s is None:
            machine.taken_s = at_s + warning_s
            self.loop.call_later(warning_s, self.end, machine, "taken")
        return notice

    def tell(self, notice: InterruptionNotice, *, wakes: bool = True) -> None:
        """The source of notices knows it from now on; its wake-up may get lost."""
        self.notices.append(notice)
        self.watch.event("notice", notice.instance_id, notice.kind, notice.deadline_s)
        if wakes:
            self.news.set()

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Do something that no crash of a caller stops any more."""
        self.loop.call_later(seconds, what)
