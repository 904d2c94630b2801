"""An audit leaves no trace: a ledger opened for reading is neither created nor changed."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from scaler.commands.audit import audit_ledger
from scaler.ledger.contract import Ledger, LedgerRefused
from scaler.ledger.registry import open_for_reading, open_ledger
from scaler.model.job import JobSettings, WorkerIdentity


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    file = tmp_path / "ledger.db"
    ledger = open_ledger(f"sqlite://{file}", "job")
    ledger.configure(JobSettings(group_size=2, batch_groups=2))
    ledger.register(WorkerIdentity(worker="w", replica_id="r"))
    ledger.close()
    return file


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, less the shared memory and log that SQLite keeps for readers."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and not p.name.endswith(("-shm", "-wal"))}


def test_an_audit_changes_nothing_and_is_clean(ledger_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(ledger_file.parent)
    assert audit_ledger(str(ledger_file), "job", as_json=False) == 0
    assert contents(ledger_file.parent) == before
    assert "clean" in capsys.readouterr().out


def test_a_job_that_is_not_there_is_no_clean_job(ledger_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(ledger_file.parent)
    assert audit_ledger(str(ledger_file), "other", as_json=False) == 2
    assert contents(ledger_file.parent) == before
    assert "no job 'other'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["empty", "text", "foreign"])
def test_what_is_no_ledger_is_refused_and_left_alone(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thing.db"
    if kind == "foreign":
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE t (x)")
        db.close()
    else:
        file.write_text("" if kind == "empty" else "no database at all, just a line of text\n" * 50)
    before = contents(tmp_path)
    assert audit_ledger(str(file), "job", as_json=False) == 2
    assert contents(tmp_path) == before
    assert capsys.readouterr().err.startswith(str(file))


@pytest.mark.parametrize(
    "write",
    [
        lambda ledger: ledger.attach_trainer("t"),
        lambda ledger: ledger.lease("w", 1, 60.0),
        lambda ledger: ledger.commit("w", []),
    ],
    ids=["attach", "lease", "commit"],
)
def test_a_ledger_opened_for_reading_refuses_writes(ledger_file: Path, write: Callable[[Ledger], object]) -> None:
    ledger = open_for_reading(f"sqlite://{ledger_file}", "job")
    with pytest.raises(LedgerRefused, match="opened for reading"):
        write(ledger)
    assert len(ledger.workers()) == 1
    ledger.close()
