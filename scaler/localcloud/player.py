"""Plays the cloud: bounds the offerings by a capacity trace and takes instances away where there are more.

* The trace goes into `capacity.json`. An offering that holds more live instances than it may loses the excess. Instances
  on their way out (with notice, or told to end) are not counted and not taken again.
* Interruptions take turns between with notice and without, so that the ratio holds for small numbers too. With notice: a
  notice file, and SIGKILL of the group at the deadline if it still lives. Without: SIGKILL of the group at once.
* Each is logged before it is done, and the log says what is still to do: a player that was killed goes on where it was, in
  the trace too. The same seed and the same live instances give the same victims.

Not here: launching, and what becomes of an instance that is gone.
"""

import asyncio
import hashlib
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scaler.localcloud.processes import signal_group
from scaler.localcloud.state import InstanceRecord, Interruption, StateDir, read_json, write_json
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.traces.trace import CapacityTrace

STEP_S = 0.1
"""How often instances are counted: short beside the notices, which are seconds long here."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSettings:
    """How a trace is played. The trace's time is real time: compress it beforehand."""

    trace: CapacityTrace
    offerings: Mapping[str, str] = field(default_factory=dict)
    """Offering id -> series; empty: every series is the offering of its name."""
    notice_ratio: float = 0.5
    notice_s: float = 2.0
    """From notice to SIGKILL."""
    seed: int = 0
    repeat: bool = False
    """From the start again at the end; else the last values stand."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds and series that the trace lacks; `ValueError`."""
        if not 0 <= self.notice_ratio <= 1:
            raise ValueError(f"a notice ratio of {self.notice_ratio:g} is not between 0 and 1")
        if not self.notice_s >= 0:
            raise ValueError(f"{self.notice_s:g} s of notice is negative")
        missing = set(self.offerings.values()) - set(self.trace.names)
        if missing:
            raise ValueError(f"no series {min(missing)!r}; the trace has {', '.join(self.trace.names)}")

    def capacity_at(self, time_s: float) -> dict[str, int]:
        """What every offering can hold at a time of the trace."""
        time_s = time_s % self.trace.end_s if self.repeat else time_s
        offerings = self.offerings or {name: name for name in self.trace.names}
        return {offering: self.trace.one(series).at(time_s) for offering, series in offerings.items()}


def is_noticed(number: int, ratio: float) -> bool:
    """Whether the interruption of that number, from 1, comes with notice: of the first n, n * ratio do, rounded down."""
    return int(number * ratio + _ROUNDING) > int((number - 1) * ratio + _ROUNDING)


def choose_victims(
    capacity: Mapping[str, int], live: tuple[InstanceRecord, ...], leaving: frozenset[str], seed: int
) -> Iterator[InstanceRecord]:
    """Those of the live instances that their offering can no longer hold. The same arguments give the same victims."""
    staying = [record for record in live if record.instance_id not in leaving and record.terminating_at_s is None]
    for offering, count in sorted(capacity.items()):
        there = sorted(record.instance_id for record in staying if record.offering_id == offering)
        chosen = random.Random(f"{seed}/{offering}/{there}").sample(there, max(0, len(there) - count))
        yield from (record for record in staying if record.instance_id in chosen)


class Player:
    """See the module's docstring."""

    def __init__(self, state: StateDir, settings: PlayerSettings, clock: Clock) -> None:
        self._state = state
        self._settings = settings
        self._clock = clock
        self._state.create()
        logged = state.read_interruptions()
        self._count = len(logged)
        self._open = {interruption.instance_id: interruption for interruption in logged}
        """Interrupted and, as far as we saw, not gone."""
        self._capacity: Mapping[str, int] | None = None
        self._start_s = clock.monotonic_s() - self._played_s()
        """On the monotonic clock: where the trace has its 0."""

    def step(self) -> None:
        """Bring capacity and instances to what the trace says now."""
        capacity = self._settings.capacity_at(self._clock.monotonic_s() - self._start_s)
        self._publish(capacity)
        live = self._state.live_instances()
        ids = {record.instance_id for record in live}
        self._open = {instance_id: open_one for instance_id, open_one in self._open.items() if instance_id in ids}
        for victim in choose_victims(capacity, live, frozenset(self._open), self._settings.seed):
            self._interrupt(victim)
        for record in live:
            if record.instance_id in self._open:
                self._carry_out(record, self._open[record.instance_id])

    async def play(self, stop: asyncio.Event) -> None:
        """Step until told to stop; instances are left as they are."""
        while not stop.is_set():
            self.step()
            await self._clock.sleep(STEP_S)

    def _publish(self, capacity: Mapping[str, int]) -> None:
        if capacity != self._capacity:
            self._state.write_capacity(capacity)
            self._capacity = capacity

    def _interrupt(self, victim: InstanceRecord) -> None:
        self._count += 1
        now_s = self._clock.now_s()
        noticed = is_noticed(self._count, self._settings.notice_ratio)
        interruption = Interruption(
            at_s=now_s,
            instance_id=victim.instance_id,
            replica_id=victim.replica_id,
            offering_id=victim.offering_id,
            noticed=noticed,
            deadline_s=now_s + self._settings.notice_s if noticed else None,
        )
        self._state.log_interruption(interruption)
        self._open[victim.instance_id] = interruption

    def _carry_out(self, record: InstanceRecord, interruption: Interruption) -> None:
        deadline_s = interruption.deadline_s
        if deadline_s is None or deadline_s <= self._clock.now_s():
            signal_group(record.pid, record.start_ticks, signal.SIGKILL)
        elif not self._state.notice_file(record.instance_id).exists():
            self._state.write_notice(_notice(interruption))

    def _played_s(self) -> float:
        """Seconds of this trace that a player before us has played; where it began is kept for the next."""
        path = self._state.root / "player.json"
        trace = _digest(self._settings.trace)
        now_s = self._clock.now_s()
        before = read_json(path, lambda raw: (raw["trace"], float(raw["started_at_s"])))
        if before is not None and before[0] == trace and before[1] <= now_s:
            return now_s - before[1]
        write_json(path, {"trace": trace, "started_at_s": now_s})
        return 0.0


def _notice(interruption: Interruption) -> InterruptionNotice:
    return InterruptionNotice(
        instance_id=interruption.instance_id,
        kind=NoticeKind.SPOT_INTERRUPTION,
        noticed_at_s=interruption.at_s,
        deadline_s=interruption.deadline_s,
    )


def _digest(trace: CapacityTrace) -> str:
    return hashlib.sha256(repr((trace.series, trace.end_s)).encode()).hexdigest()
