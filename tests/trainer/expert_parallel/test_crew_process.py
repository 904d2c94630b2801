"""`python -m trainer --expert-parallel gloo`: two ranks of one trainer on the real ledger; losses, refusals, ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from tests.builders.crew import crew_environment, free_port
from tests.builders.in_process_worker import InProcessWorker
from tests.builders.training import JOB
from trainer.checkpoint import CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Place:
    """A folder with a ledger and a worker, and crews that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite://{folder}/ledger.db"
        self.ledger: Ledger = open_ledger(self.url, "job")
        self.ledger.configure(JOB)
        self.worker = InProcessWorker(self.ledger, folder / "weights")
        self.ranks: list[subprocess.Popen[str]] = []
        self.said: list[str] = []

    def start(self, updates: int, environments: tuple[dict[str, str], ...] = ({}, {})) -> None:
        """The ranks of a crew, each with these variables besides."""
        port = free_port()
        for rank, more in enumerate(environments):
            environment = os.environ | crew_environment(rank, len(environments), port) | more
            words = [sys.executable, "-m", "trainer", *self.argv(updates)]
            process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
            self.ranks.append(process)

    def argv(self, updates: int) -> list[str]:
        return [
            *("--ledger", self.url, "--job", "job", "--task", "repeat", "--updates", str(updates), "--threads", "1"),
            *("--weights", str(self.folder / "weights"), "--checkpoints", str(self.folder / "checkpoints")),
            *("--batch-groups", str(JOB.batch_groups), "--group-size", str(JOB.group_size), "--refill-wait-s", "0.2"),
            *("--max-staleness", str(JOB.max_staleness), "--metrics-file", str(self.folder / "metrics")),
            *("--expert-parallel", "gloo"),
        ]

    def until_they_end(self) -> list[int]:
        """Work for them meanwhile; exit codes by rank."""
        while any(rank.poll() is None for rank in self.ranks):
            self.work()
        self.said = [rank.communicate()[1] for rank in self.ranks]
        codes = [rank.returncode for rank in self.ranks]
        self.ranks.clear()
        return codes

    def work(self) -> None:
        if list(self.folder.glob("weights/*/STABLE")):
            self.worker.work(4)
        time.sleep(0.01)

    def updates(self) -> list[int]:
        path = self.folder / "metrics"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for rank in place.ranks:
        rank.kill()
        rank.communicate()


@pytest.mark.long
def test_two_ranks_train_and_go_on_from_the_checkpoint_after_one_was_lost(place: Place) -> None:
    place.start(updates=1000)
    while len(place.updates()) < 2:
        place.work()
    place.ranks[1].kill()
    assert place.until_they_end() == [6, -signal.SIGKILL]

    done = place.updates()[-1]
    place.start(updates=done + 2)
    assert place.until_they_end() == [0, 0]
    checkpoint = CheckpointStore(place.folder / "checkpoints").load_newest()
    assert checkpoint is not None
    assert checkpoint.state.step == done + 2
    assert (checkpoint.manifest["mode"], checkpoint.manifest["ranks"]) == ("gloo", "2")
    assert audit(place.ledger).findings == ()


@pytest.mark.parametrize(
    ("rank", "by", "codes"),
    [
        pytest.param(
            0, signal.SIGKILL, [-signal.SIGKILL, 6], id="a lost lead ends the other rank", marks=pytest.mark.long
        ),
        pytest.param(0, signal.SIGTERM, [0, 0], id="a lead that is asked to stop lets the other go"),
        pytest.param(1, signal.SIGTERM, None, id="a follower goes on for its lead", marks=pytest.mark.long),
    ],
)
def test_a_signal(rank: int, by: signal.Signals, codes: list[int] | None, place: Place) -> None:
    place.start(updates=1000 if codes else 2)
    while not place.updates():
        place.work()
    place.ranks[rank].send_signal(by)

    assert place.until_they_end() == (codes or [0, 0])


def test_ranks_of_different_builds_do_not_start(place: Place) -> None:
    place.start(updates=1, environments=({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}))

    assert place.until_they_end() == [5, 5]
    for said in place.said:
        assert "the ranks may not start: env.NCCL_ALGO: rank 0 has Ring, rank 1 has Tree" in said
    assert not (place.folder / "checkpoints").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--expert-parallel", "nccl"], "needs --transport"),
        (["--expert-parallel", "carrier-pigeon"], "invalid choice"),
        (["--expert-parallel", "nccl", "--transport", "p2p,pigeon"], "no transport pigeon"),
    ],
)
def test_what_is_not_declared_rightly_is_a_line_and_exit_code_2(
    words: list[str], says: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainer.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main([*place.argv(1), *words])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
