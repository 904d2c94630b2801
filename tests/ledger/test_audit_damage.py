"""Ledger files that a disk or a person has damaged: the audit never calls them clean and never falls over."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from scaler.commands.audit import audit_ledger
from tests.builders.ledger import READY, TTL_S, beat_of, commit_of, delta, lease_all, release_of, run_units
from tests.builders.sqlite_ledger import begin

PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of small bodies at rest: samples of a group, a unit with a journal, one that waits."""
    file = tmp_path / "ledger.db"
    ledger = begin(file)
    run_units(ledger, "w1", 2)
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3))], READY, TTL_S)
    ledger.release("w1", [release_of(lease)])
    ledger.close()
    return file


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def test_a_zeroed_page_is_never_clean(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_ledger(str(path), "job", as_json=False) == 0
    whole = path.read_bytes()
    pages = range(len(whole) // PAGE_BYTES)
    codes = {}
    for page in pages:
        before, after = whole[: page * PAGE_BYTES], whole[(page + 1) * PAGE_BYTES :]
        path.write_bytes(before + bytes(PAGE_BYTES) + after)
        capsys.readouterr()
        codes[page] = audit_ledger(str(path), "job", as_json=False)
        assert codes[page] != 2 or len(capsys.readouterr().err.splitlines()) == 1
    assert len(pages) > 20
    assert set(codes.values()) <= {1, 2}


UNREADABLE = {
    "a broken JSON": "UPDATE history SET body = '[{\"a\":' WHERE kind = 'units_put'",
    "a JSON of another shape": "UPDATE history SET body = '7' WHERE kind = 'units_put'",
    "an entry without its facts": "UPDATE history SET body = '[{},[],[[\"g0.0/0\"]]]' WHERE kind = 'leased'",
    "a fence that is none": "UPDATE history SET body = replace(body, '\"1.', '\"x.') WHERE kind = 'leased'",
    "a subject that is none": "UPDATE history SET body = '[{},[],[[{}]]]' WHERE kind = 'group_dropped' OR kind = 'leased'",
    "a JSON without bottom": f"UPDATE history SET body = '{'[' * 100_000}' WHERE kind = 'units_put'",
    "an unknown event": "UPDATE history SET kind = 'leapt' WHERE kind = 'leased'",
    "text that is none": "UPDATE history SET body = CAST(x'fffe' AS TEXT) WHERE kind = 'units_put'",
    "an event of bytes": "UPDATE history SET body = x'fffe' WHERE kind = 'units_put'",
    "a state that is none": "UPDATE units SET state = 99",
    "a state of bytes": "UPDATE units SET state = x'00'",
    "a group's name that is no text": "UPDATE units SET name = CAST(x'ff' AS TEXT)",
    "a job's name that is no text": "UPDATE jobs SET name = CAST(x'ff' AS TEXT)",
    "counters that are gone": "DELETE FROM counters",
    "a row of samples without its parts": "UPDATE samples SET parts = x'0102'",
    "samples that are a number": "UPDATE samples SET body = 7",
    "a table that is gone": "DROP TABLE history",
    "jobs that are gone": "DROP TABLE jobs",
}


@pytest.mark.parametrize("way", UNREADABLE)
def test_what_cannot_be_read_as_a_ledger_is_one_line_and_exit_code_2(
    path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, UNREADABLE[way])
    assert audit_ledger(str(path), "job", as_json=False) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"{path}: ")
    assert told.out == ""


def test_what_only_the_check_of_the_file_can_see_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An index without entries: every table reads well."""
    change(path, "PRAGMA writable_schema = ON", "DELETE FROM sqlite_master WHERE name = 'groups_ready'")
    change(path, "CREATE INDEX groups_ready ON groups (job, ready) WHERE state = 99")
    text = "CREATE INDEX groups_ready ON groups (job, ready) WHERE state = 1"
    change(path, "PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = '{text}' WHERE name = 'groups_ready'")
    assert audit_ledger(str(path), "job", as_json=False) == 2
    assert "SQLite finds the file damaged" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["missing", "another"])
def test_a_large_sample_whose_object_is_not_as_written_is_lost(
    path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = begin(path)
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.commit("w1", [commit_of(lease, tokens=20_000)])
    ledger.close()
    (body,) = path.parent.glob("*.objects/*/*")
    if way == "missing":
        body.unlink()
    else:
        body.write_bytes(body.read_bytes()[:-4] + b"none")
    assert audit_ledger(str(path), "job", as_json=True) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["fault"], finding["subject"]) == ("sample_lost", lease.unit.unit_id)
    assert f"its object is {way}" in finding["message"]


def test_findings_are_printed_as_they_are_whatever_is_in_a_name(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(path, "UPDATE units SET name = '[/red]' || char(27) WHERE state = 3")
    assert audit_ledger(str(path), "job", as_json=False) == 1
    told = capsys.readouterr().out
    assert "[/red]\\x1b" in told
    assert "\x1b[/" not in told
