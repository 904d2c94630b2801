"""Two processes, one lease, a real API server: killed, stopped, cut off, and the server killed under them.

What every test checks: in the journal that both write to while they lead, epochs only rise, and each belongs to one
process. An act after the next leader's first would show as an epoch that falls.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from scaler.runtime.clock import SystemClock
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USUAL_S = ("10", "7", "2")
BRISK_S = ("4", "2.5", "0.8")
_ROOT = Path(__file__).parents[3]
_PROGRAM = "tests.kube.real.elector_process"


class Act(NamedTuple):
    epoch: int
    who: str
    at_s: float


class Rivals:
    """Processes that stand for the same lease."""

    def __init__(self, plane: ControlPlane, folder: Path, times_s: tuple[str, str, str]) -> None:
        self._plane = plane
        self._journal = folder / "journal"
        self._journal.touch()
        self._lease = f"lease-{uuid4().hex[:8]}"
        self._times_s = times_s
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, who: str) -> None:
        words = [str(self._plane.kubeconfig), self._lease, who, str(self._journal), *self._times_s]
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", _PROGRAM, *words]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        self.processes[who] = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL)

    def send(self, who: str, what: signal.Signals) -> None:
        self.processes[who].send_signal(what)

    def acts(self) -> list[Act]:
        lines = self._journal.read_text().splitlines()
        return [Act(int(epoch), who, float(at_s)) for epoch, who, at_s in (line.split() for line in lines)]

    async def until(self, holds: Callable[[list[Act]], bool]) -> list[Act]:
        """The journal once it is so; the test's time-out is its end."""
        while not holds(acts := self.acts()):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
        return acts

    async def until_acts(self, who: str, *, more: int = 20) -> float:
        """When `who` did its first act of those to come."""
        before = len(self.acts())
        acts = await self.until(lambda acts: sum(act.who == who for act in acts[before:]) >= more)
        return next(act.at_s for act in acts[before:] if act.who == who)

    def check(self) -> None:
        acts = self.acts()
        epochs = [act.epoch for act in acts]
        assert epochs == sorted(epochs)
        owners = {(act.epoch, act.who) for act in acts}
        assert len(owners) == len({epoch for epoch, _ in owners})

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def rivals(plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rivals]:
    rivals = Rivals(plane, tmp_path, request.param)
    try:
        yield rivals
    finally:
        rivals.end()
    rivals.check()


usual = pytest.mark.parametrize("rivals", [USUAL_S], indirect=True, ids=["usual"])
brisk = pytest.mark.parametrize("rivals", [BRISK_S], indirect=True, ids=["brisk"])


async def two(rivals: Rivals) -> None:
    """a leads, b stands by."""
    rivals.start("a")
    await rivals.until_acts("a")
    rivals.start("b")
    await asyncio.sleep(2.0)


@usual
async def test_after_kill_9_of_the_leader_the_other_leads_within_20_s(rivals: Rivals) -> None:
    await two(rivals)
    rivals.send("a", signal.SIGKILL)
    rivals.processes["a"].wait()
    last_s = rivals.acts()[-1].at_s
    first_s = await rivals.until_acts("b")
    assert first_s - last_s < 20.0


@usual
async def test_a_leader_stopped_past_its_lease_does_nothing_when_it_goes_on(rivals: Rivals) -> None:
    await two(rivals)
    rivals.send("a", signal.SIGSTOP)
    await rivals.until_acts("b")
    rivals.send("a", signal.SIGCONT)
    await rivals.until_acts("b", more=300)
    assert rivals.acts()[-1].who == "b"


@brisk
async def test_a_leader_that_ends_in_good_order_is_followed_at_once(rivals: Rivals) -> None:
    await two(rivals)
    rivals.send("a", signal.SIGTERM)
    await asyncio.to_thread(rivals.processes["a"].wait)
    last_s = rivals.acts()[-1].at_s
    assert await rivals.until_acts("b") - last_s < 4.0


@brisk
async def test_while_the_api_server_hangs_nobody_acts_past_the_deadline(rivals: Rivals, plane: ControlPlane) -> None:
    await two(rivals)
    plane.pause("kube-apiserver")
    try:
        stopped_s = SystemClock().monotonic_s()
        await asyncio.sleep(6.0)
        assert rivals.acts()[-1].at_s <= stopped_s + float(BRISK_S[1])
    finally:
        plane.resume("kube-apiserver")
    before = len(rivals.acts())
    acts = await rivals.until(lambda acts: len(acts) > before + 20)
    assert acts[-1].epoch > acts[before - 1].epoch


@brisk
@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_after_a_kill_and_a_restart_of_the_server_one_leads(
    rivals: Rivals, plane: ControlPlane, part: str
) -> None:
    await two(rivals)
    await asyncio.to_thread(plane.kill, part)
    await asyncio.sleep(3.5)
    quiet = len(rivals.acts())
    await asyncio.sleep(1.0)
    assert len(rivals.acts()) == quiet
    await asyncio.to_thread(plane.restart, part)
    await rivals.until(lambda acts: len(acts) > quiet + 20)
