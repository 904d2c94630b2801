"""The node agent against instance metadata on a socket: what stands in its files, whatever happens to the reads."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout_worker.notices import read_deadline_s
from scaler.model.instance_file import InstanceFile, parse_instance
from scaler.model.interruption import HINT_TTL_S, InterruptionNotice, NoticeKind
from scaler.model.notice_file import dump_notice, parse_notice
from scaler.nodeagent.agent import NodeAgent, NodeAgentSettings
from scaler.nodeagent.imds import TOKEN_PATH, Imds
from scaler.runtime.clock import SystemClock
from tests.builders.clock import FakeClock
from tests.builders.imds import INSTANCE, LIFECYCLE, REBALANCE, SCHEDULED, SPOT, FakeImds, served, session

NOW_S = 1_700_000_000.0


def iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def action(at_s: float, what: str = "terminate") -> str:
    return json.dumps({"action": what, "time": iso(at_s)})


def event(code: str, at_s: float, state: str = "active") -> str:
    moment = datetime.fromtimestamp(at_s, UTC).strftime("%d %b %Y %H:%M:%S GMT")
    return json.dumps([{"NotBefore": moment, "Code": code, "EventId": "e", "State": state, "NotAfter": ""}])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S)


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[FakeImds]:
    async with served(clock) as server:
        yield server


class Node:
    """An agent on its folder."""

    def __init__(self, folder: Path, imds: Imds, clock: FakeClock) -> None:
        self.folder = folder
        self.imds = imds
        self.clock = clock
        self.agent = self.restarted()

    def restarted(self) -> NodeAgent:
        self.agent = NodeAgent(NodeAgentSettings(folder=self.folder), self.imds, clock=self.clock, seed=7)
        return self.agent

    async def look(self) -> float:
        return await self.agent.look()

    def notice(self) -> InterruptionNotice | None:
        path = self.folder / "notice.json"
        return parse_notice(path.read_text()) if path.exists() else None

    def says(self) -> tuple[NoticeKind, float | None] | None:
        """Kind, and the deadline after the start of the test."""
        notice = self.notice()
        if notice is None:
            return None
        return notice.kind, None if notice.deadline_s is None else notice.deadline_s - NOW_S

    def beaten(self) -> bool:
        """Whether the heartbeat has moved since this was last asked."""
        path = self.folder / "heartbeat"
        moved = path.exists() and path.stat().st_mtime_ns != 0
        if path.exists():
            os.utime(path, ns=(0, 0))
        return moved


@pytest.fixture
async def node(server: FakeImds, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Node]:
    async with session() as opened:
        yield Node(tmp_path / "run" / "headrace", Imds(opened, server.url, clock=clock, time_out_s=0.3), clock)


async def test_it_says_which_instance_this_is_and_that_nothing_is_announced(node: Node) -> None:
    assert await node.look() == 1.0
    assert parse_instance((node.folder / "instance.json").read_text()) == InstanceFile(
        instance_id=INSTANCE, instance_type="g5.xlarge", zone="us-east-1b", life_cycle="spot"
    )
    assert node.notice() is None
    assert node.beaten()


async def test_a_spot_interruption_reaches_the_file_with_its_deadline_and_a_worker_heeds_it(
    node: Node, server: FakeImds
) -> None:
    await node.look()
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)
    assert read_deadline_s(node.folder / "notice.json", INSTANCE) == NOW_S + 118.0


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_deadlines_are_moved_to_this_machines_clock(node: Node, server: FakeImds, ahead_s: float) -> None:
    server.ahead_s = ahead_s
    server.documents[SPOT] = action(NOW_S + ahead_s + 118.0)
    await node.look()
    notice = node.notice()
    assert notice is not None
    assert notice.deadline_s == pytest.approx(NOW_S + 118.0, abs=1.0)
    written = (node.folder / "notice.json").stat().st_mtime_ns
    for _ in range(5):
        node.clock.pass_time(0.7)
        await node.look()
    assert (node.folder / "notice.json").stat().st_mtime_ns == written, "two readings of a clock are no news"


async def test_a_notice_that_instance_metadata_takes_back_is_withdrawn(node: Node, server: FakeImds) -> None:
    server.documents[SCHEDULED] = event("instance-stop", NOW_S + 5000.0)
    await node.look()
    assert node.says() == (NoticeKind.SCHEDULED_CHANGE, 5000.0)
    server.documents[SCHEDULED] = event("instance-stop", NOW_S + 5000.0, "canceled")
    await node.look()
    assert node.notice() is None


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize("path", [SPOT, SCHEDULED])
async def test_bug_026_a_refused_read_keeps_the_last_state_and_backs_off_with_jitter(
    node: Node, server: FakeImds, status: int, path: str
) -> None:
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    assert node.beaten()
    server.refusals[path] = [status] * 8
    waits = [await node.look() for _ in range(8)]
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)
    assert not node.beaten(), "its age is this source's health"
    assert all(0 < wait <= 10.0 for wait in waits)
    assert len(set(waits)) == 8
    assert max(waits) > 4.0
    assert await node.look() == 1.0
    assert node.beaten()


async def test_one_read_that_fails_hides_no_other(node: Node, server: FakeImds) -> None:
    await node.look()
    server.refusals[LIFECYCLE] = [503]
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"time": "x"}', "<html>"])
async def test_a_document_that_cannot_be_read_is_a_failure_and_takes_nothing_back(
    node: Node, server: FakeImds, text: str
) -> None:
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    assert node.beaten()
    server.documents[SPOT] = text
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)
    assert not node.beaten()


async def test_bug_025_without_a_token_nothing_is_written_and_the_reason_is_told(
    node: Node, server: FakeImds, capsys: pytest.CaptureFixture[str]
) -> None:
    server.hung.add(TOKEN_PATH)
    await node.look()
    assert "hop limit" in capsys.readouterr().out
    assert not (node.folder / "instance.json").exists()
    assert not node.beaten()


async def test_what_binds_comes_before_what_hints_and_the_nearest_deadline_first(node: Node, server: FakeImds) -> None:
    server.documents[REBALANCE] = json.dumps({"noticeTime": iso(NOW_S)})
    await node.look()
    assert node.says() == (NoticeKind.REBALANCE_RECOMMENDATION, None)
    server.documents[SCHEDULED] = event("instance-retirement", NOW_S + 5000.0)
    await node.look()
    assert node.says() == (NoticeKind.SCHEDULED_CHANGE, 5000.0)
    server.documents[LIFECYCLE] = "Terminated"
    await node.look()
    assert node.says() == (NoticeKind.LIFECYCLE_HOOK, 120.0)
    server.documents[SPOT] = action(NOW_S + 60.0)
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 60.0)


async def test_bug_016_a_hint_is_forgotten(node: Node, server: FakeImds) -> None:
    server.documents[REBALANCE] = json.dumps({"noticeTime": iso(NOW_S)})
    await node.look()
    node.clock.pass_time(HINT_TTL_S + 1.0)
    await node.look()
    assert node.notice() is None


async def test_bug_013_what_has_no_time_counts_from_first_sight_over_restarts(node: Node, server: FakeImds) -> None:
    server.documents[LIFECYCLE] = "Terminated"
    await node.look()
    node.clock.pass_time(30.0)
    await node.look()
    node.restarted()
    await node.look()
    assert node.says() == (NoticeKind.LIFECYCLE_HOOK, 120.0)


async def test_hibernation_leaves_no_time_and_its_deadline_does_not_move(node: Node, server: FakeImds) -> None:
    server.documents[SPOT] = action(NOW_S + 118.0, "hibernate")
    await node.look()
    node.clock.pass_time(10.0)
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 0.0)


async def test_a_restarted_agent_keeps_what_it_cannot_read_yet(node: Node, server: FakeImds) -> None:
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    server.refusals[SPOT] = [503]
    node.restarted()
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)
    del server.documents[SPOT]
    await node.look()
    assert node.notice() is None


async def test_what_another_instance_left_in_the_folder_is_removed(node: Node) -> None:
    node.folder.mkdir(parents=True)
    other = InterruptionNotice(
        instance_id="i-other", kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=NOW_S, deadline_s=NOW_S
    )
    (node.folder / "notice.json").write_text(dump_notice(other))
    await node.look()
    assert node.notice() is None


@pytest.mark.parametrize("damage", ["", "{", "gone"])
async def test_files_that_somebody_damages_are_written_anew(node: Node, server: FakeImds, damage: str) -> None:
    server.documents[SPOT] = action(NOW_S + 118.0)
    await node.look()
    for name in ("notice.json", "instance.json"):
        path = node.folder / name
        path.unlink()
        if damage != "gone" and name == "notice.json":
            path.write_text(damage)
    await node.look()
    assert node.says() == (NoticeKind.SPOT_INTERRUPTION, 118.0)
    assert (node.folder / "instance.json").exists()
    assert sorted(each.name for each in node.folder.iterdir()) == ["heartbeat", "instance.json", "notice.json"]


async def test_a_folder_that_cannot_be_written_is_a_failure_and_not_the_end(node: Node, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    assert 0 < await node.look() <= 10.0
    (tmp_path / "run").unlink()
    assert await node.look() == 1.0
    assert node.beaten()


async def test_an_instance_that_does_not_say_its_life_cycle_still_is_one(node: Node, server: FakeImds) -> None:
    del server.documents["/latest/meta-data/instance-life-cycle"]
    await node.look()
    assert parse_instance((node.folder / "instance.json").read_text()).life_cycle == ""


def started(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "scaler.cli", "node-agent", *arguments]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())}, stderr=subprocess.PIPE)


async def test_the_command_writes_and_beats_and_ends_with_0_when_told(tmp_path: Path) -> None:
    async with served(SystemClock()) as server:
        server.documents[SPOT] = action(SystemClock().now_s() + 118.0)
        process = started("--dir", str(tmp_path), "--interval", "50ms", "--metadata-url", server.url)
        async with asyncio.timeout(60):
            while not (tmp_path / "heartbeat").exists():
                assert process.poll() is None
                await SystemClock().sleep(0.05)
        assert parse_notice((tmp_path / "notice.json").read_text()).kind is NoticeKind.SPOT_INTERRUPTION
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=30)
    assert process.returncode == 0
    assert b"instance_known" in errors


@pytest.mark.parametrize(
    "arguments",
    [("--interval", "0s"), ("--interval", "5"), ("--interval", "10m"), ("--metadata-url", "169.254.169.254")],
)
def test_wrong_arguments_are_refused_with_2(tmp_path: Path, arguments: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "scaler.cli", "node-agent", "--dir", str(tmp_path), *arguments]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())}, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr


def test_the_agent_loads_no_client_of_kubernetes_or_aws() -> None:
    code = (
        "import sys, scaler.commands.node_agent; print(sorted({'kubernetes', 'boto3', 'botocore'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"
