"""`python -m trainer` on the real SQLite ledger: killed at exact moments, asked to stop, succeeded, refused."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from scaler.ledger.contract import Ledger
from scaler.ledger.history import EventKind
from scaler.ledger.registry import open_ledger
from tests.builders.in_process_worker import InProcessWorker
from tests.builders.trainer_child import Moment, start
from tests.builders.training import JOB
from trainer.__main__ import main
from trainer.checkpoint import CheckpointStore

UPDATES = 3


class Place:
    """A folder with a ledger, checkpoints, weights and logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite://{folder}/ledger.db"
        self.ledger: Ledger = open_ledger(self.url, "job")
        self.ledger.configure(JOB)
        self.worker = InProcessWorker(self.ledger, folder / "weights")

    def argv(self, *more: str) -> list[str]:
        return [
            *("--ledger", self.url, "--job", "job", "--task", "short", "--updates", str(UPDATES), "--threads", "1"),
            *("--weights", str(self.folder / "weights"), "--checkpoints", str(self.folder / "checkpoints")),
            *("--batch-groups", str(JOB.batch_groups), "--group-size", str(JOB.group_size), "--refill-wait-s", "0.2"),
            *("--max-staleness", str(JOB.max_staleness), "--keep-versions", "100"),
            *("--metrics-file", str(self.folder / "metrics"), "--phase-log", str(self.folder / "phases"), *more),
        ]

    def run(self, die_at: Moment | None = None) -> int | None:
        """Run a trainer until it ends, with a worker beside it; its exit code."""
        process = start(self.argv(), die_at)
        while process.is_alive():
            if list(self.folder.glob("weights/*/STABLE")):
                self.worker.work(4)
            process.join(0.01)
        return process.exitcode

    def acked(self) -> list[int]:
        events = self.ledger.history()
        return [int(event.data["batch"] or 0) for event in events if event.kind == EventKind.BATCH_ACKED]

    def lines(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("die_at", "again"),
    [
        pytest.param((1, "train", -1), True, id="before training"),
        pytest.param((1, "checkpoint", -1), True, id="before the checkpoint"),
        pytest.param((1, "checkpoint", 1), True, id="checkpoint written, not yet under its name"),
        pytest.param((1, "checkpoint", 2), False, id="checkpoint under its name"),
        pytest.param((1, "publish", -1), False, id="checkpoint durable, nothing published"),
        pytest.param((1, "publish", 4), False, id="in the middle of the publication"),
        pytest.param((1, "acknowledge", -1), False, id="between checkpoint and acknowledgement"),
    ],
)
def test_a_killed_trainer_trains_no_batch_twice_and_leaves_none_out(place: Place, die_at: Moment, again: bool) -> None:
    assert place.run(die_at) == -signal.SIGKILL
    assert place.acked() == [1]
    assert place.run() == 0
    assert place.acked() == [1, 2, 3]
    assert audit(place.ledger).findings == ()
    checkpoint = CheckpointStore(place.folder / "checkpoints").load_newest()
    assert checkpoint is not None
    assert (checkpoint.state.step, checkpoint.state.recent_batches) == (UPDATES, (1, 2, 3))
    trained = [line["batch_id"] for line in place.lines("metrics")]
    assert trained == ([1, 2, 3] if again else [1, 3]), "the killed update was trained again exactly where it had to be"
    stats = place.ledger.stats()
    assert (stats.version, stats.consumed, stats.accepted) == (UPDATES, stats.accepted, stats.consumed)


def test_a_request_to_stop_ends_the_process_well(place: Place) -> None:
    process = start(place.argv(), None)
    _until((place.folder / "phases").exists)
    process.terminate()
    process.join(30)
    assert process.exitcode == 0
    assert audit(place.ledger).findings == ()


def test_a_succeeded_trainer_says_so(place: Place) -> None:
    process = start(place.argv(), None)
    _until((place.folder / "phases").exists)
    place.ledger.attach_trainer("rival")
    process.join(30)
    assert process.exitcode == 4


def test_a_ledger_that_refuses_is_one_readable_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--job", "j", "--weights", str(tmp_path), "--checkpoints", str(tmp_path), "--updates", "1"]
    assert main(["--ledger", "paper:///shelf", *arguments]) == 3
    assert capsys.readouterr().err.startswith("the ledger refuses: ledger URL 'paper:///shelf'")


def test_a_job_that_nobody_configured_is_one_line_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--job", "j", "--weights", str(tmp_path), "--checkpoints", str(tmp_path), "--updates", "1"]
    assert main(["--ledger", f"sqlite://{tmp_path}/ledger.db", *arguments]) == 3
    told = capsys.readouterr().err
    assert told.startswith("the ledger refuses: the job is not configured yet")
    assert "--configure" in told


@pytest.mark.parametrize("url", ["sqlite:///{folder}/none/l.db", "valkey://127.0.0.1:1/0"])
def test_a_ledger_that_does_not_answer_is_one_readable_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--job", "j", "--weights", str(tmp_path), "--checkpoints", str(tmp_path), "--updates", "1"]
    assert main(["--ledger", url.format(folder=tmp_path), *arguments]) == 3
    line = capsys.readouterr().err
    assert line.startswith("the ledger does not answer: ")
    assert line.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_readable_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    arguments = ["--job", "j", "--weights", str(taken / "w"), "--checkpoints", str(tmp_path), "--updates", "1"]
    assert main(["--ledger", f"sqlite:///{tmp_path}/l.db", *arguments]) == 2
    assert capsys.readouterr().err == f"--weights {taken / 'w'}: Not a directory\n"


@pytest.mark.parametrize("wrong", [["--task", "chess"], ["--lr", "fast"], ["--updates", "-1"], ["--group-size", "0"]])
def test_wrong_input_ends_with_code_2(wrong: list[str], tmp_path: Path) -> None:
    arguments = ["--ledger", "sqlite:///x", "--job", "j", "--weights", str(tmp_path), "--checkpoints", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--updates", "1", *wrong])
    assert ended.value.code == 2


def _until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does; the test's time-out is the bound."""
    while not condition():
        time.sleep(0.01)
