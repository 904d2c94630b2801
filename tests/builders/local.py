"""Real instances on this machine, in a folder of the test's own, and a fixture that proves that none is left."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaler.act.base import LaunchOutcome, LaunchResult
from scaler.act.local import LocalPool, LocalPoolSettings
from scaler.localcloud.processes import PROC, signal_group, stat_of
from scaler.localcloud.state import InstanceRecord, StateDir
from scaler.model.clock import Clock
from scaler.model.plan import LaunchReplica, Reason, ReasonCode, TerminateReplica
from scaler.runtime.clock import SystemClock

MARK = "HEADRACE_TEST_DIR"
REASON = Reason(code=ReasonCode.SIZE_UP, message="a test wants it")
SLEEPER = ("sh", "-c", 'echo "$HEADRACE_LAUNCH_TOKEN" >>"$HEADRACE_TEST_DIR/started"; exec sleep 300')
"""Writes down that it started, and waits."""
STUBBORN = (
    "sh",
    "-c",
    'trap "" TERM; echo "$HEADRACE_LAUNCH_TOKEN" >>"$HEADRACE_TEST_DIR/started"; sleep 300; sleep 300',
)
"""Does not listen to SIGTERM, once it has started."""
FAMILY = ("sh", "-c", 'sleep 300 & echo "$HEADRACE_LAUNCH_TOKEN" >>"$HEADRACE_TEST_DIR/started"; wait')
"""Has a child of its own."""


@dataclass
class ManualClock:
    """Both times are `at_s`; waiting moves it on at once, and lets real processes run for a moment."""

    at_s: float = 1_000_000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        await asyncio.sleep(0.002)


@dataclass
class Site:
    """A state folder, and pools on it."""

    root: Path
    clock: ManualClock = field(default_factory=ManualClock)

    @property
    def state(self) -> StateDir:
        return StateDir(self.root / "state")

    def pool(
        self,
        command: tuple[str, ...] = SLEEPER,
        *,
        name: str = "spot",
        clock: Clock | None = None,
        grace_s: float = 10.0,
    ) -> LocalPool:
        settings = LocalPoolSettings(
            state_dir=self.state.root, command=command, env={MARK: str(self.root)}, termination_grace_s=grace_s
        )
        return LocalPool(settings, pool=name, clock=clock or self.clock)

    def started(self) -> list[str]:
        """The launch tokens of everything that ran, in order."""
        try:
            return (self.root / "started").read_text().split()
        except FileNotFoundError:
            return []

    def processes(self) -> set[int]:
        """Every living process that was started here, recorded or not."""
        mark = f"{MARK}={self.root}".encode()
        return {int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal() and _carries(entry, mark)}

    def record(self, instance_id: str | None) -> InstanceRecord:
        """The record of an instance that is there."""
        return next(each for each in self.state.list_instances().records if each.instance_id == instance_id)

    async def running(self, pool: LocalPool, *tokens: str, offering: str = "zone-a") -> list[InstanceRecord]:
        """Launch one instance a token and wait until each has started its program."""
        outcomes = [await pool.launch(a_launch(token, offering)) for token in tokens]
        assert [outcome.result for outcome in outcomes] == [LaunchResult.LAUNCHED] * len(tokens)
        await eventually(lambda: set(tokens) <= set(self.started()))
        return [self.record(outcome.instance_id) for outcome in outcomes]


def a_launch(token: str, offering: str = "zone-a", pool: str = "spot") -> LaunchReplica:
    return LaunchReplica(token=token, stage="rollout", pool=pool, offering_id=offering, reason=REASON)


def an_end_of(*records: InstanceRecord, replica_id: str | None = None) -> TerminateReplica:
    return TerminateReplica(
        stage="rollout",
        pool=records[0].pool,
        replica_id=replica_id or records[0].replica_id,
        instance_ids=tuple(record.instance_id for record in records),
        reason=REASON,
    )


def launched(outcome: LaunchOutcome) -> str:
    """The id of what was launched just now."""
    assert outcome.result is LaunchResult.LAUNCHED, outcome
    assert outcome.instance_id is not None
    return outcome.instance_id


async def eventually(holds: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait for what another process is about to do."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - it happens in another process, which sets no event of ours
            await asyncio.sleep(0.01)


def _carries(entry: Path, mark: bytes) -> bool:
    stat = stat_of(int(entry.name))
    try:
        return stat is not None and stat.alive and mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose instances end with the test; a process that no record leads to fails it."""
    here = Site(tmp_path)
    here.state.create()
    yield here
    for record in here.state.live_instances():
        signal_group(record.pid, record.start_ticks, signal.SIGKILL)
    try:
        asyncio.run(eventually(lambda: not here.processes(), timeout_s=5.0))
    except TimeoutError:
        leaked = here.processes()
        for pid in leaked:
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"processes {sorted(leaked)} were started and no record leads to them") from None


@pytest.fixture
def real_clock() -> Clock:
    return SystemClock()
