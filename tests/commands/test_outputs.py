"""Files that commands write: tried before the work, told in one line, and no folder made on the way."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands import compare, demo, optimum, record, simulate, tune
from scaler.commands.outputs import OutputError, check_writable, write_text

SMALL = ["--policies", "rate_match", "--scenarios", "small"]
COMMANDS = {
    "simulate --report": ["simulate", "--scenario", "small", "--policy", "rate_match", "--report"],
    "compare --report": ["compare", *SMALL, "--report"],
    "compare --csv": ["compare", *SMALL, "--csv"],
    "optimum --problem": ["optimum", "--scenario", "small", "--problem"],
    "tune --out": ["tune", "--policy", "rate_match", "--scenarios", "small", "--out"],
    "demo --summary": ["demo", "--summary"],
    "demo --plot": ["demo", "--plot"],
    "record --out": ["record", "--from", "fleet.yaml", "--out"],
    "record --scenario": ["record", "--from", "fleet.yaml", "--out", "trace.csv", "--scenario"],
}


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty working folder, and commands that fail once they are at work."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("it went to work")

    for module, name in (
        (compare, "load_policies"), (demo, "play_plan"), (optimum, "world_of"), (record, "kept_in"),
        (simulate, "world_of"), (tune, "load_policy"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    return tmp_path


BAD_PLACES: list[tuple[str, str]] = [
    ("missing/folder/x.png", "missing/folder/x.png: it cannot be written: there is no folder missing/folder"),
    ("/proc/x.png", "/proc/x.png: it cannot be written: "),
    ("taken/x.png", "taken/x.png: it cannot be written: there is no folder taken"),
    ("folder.png", "folder.png: it cannot be written: Is a directory"),
]


EACH = [
    pytest.param(command, place, says, id=f"{command} {place}")
    for command in COMMANDS
    for place, says in BAD_PLACES
    if not (command.startswith("record") and place == "folder.png")  # whatever is there already it refuses
]


@pytest.mark.parametrize(("command", "place", "says"), EACH)
def test_a_file_that_cannot_be_written_is_one_line_before_any_work(
    idle: Path, command: str, place: str, says: str
) -> None:
    (idle / "taken").write_text("a file where a folder is needed")
    (idle / "folder.png").mkdir()
    before = sorted(idle.rglob("*"))
    result = CliRunner().invoke(app, [*COMMANDS[command], place])
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert result.stderr.startswith(says)
    assert result.stderr.count("\n") == 1
    assert sorted(idle.rglob("*")) == before


def test_what_is_there_keeps_its_content_and_what_is_not_is_not_made(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("mine")
    link.symlink_to(tmp_path / "made by nobody yet")
    check_writable(there, tmp_path / "not there", link, None)
    assert there.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [link, there]


def test_a_pipe_is_not_opened_before_there_is_something_to_write(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("write", [check_writable, lambda file: write_text(file, "words")], ids=["tried", "written"])
def test_a_name_stays_one_line(tmp_path: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(OutputError, match=r"^[^\n]*two\\nlines/x: it cannot be written: there is no folder [^\n]*$"):
        write(tmp_path / "two\nlines" / "x")
