"""How far long commands are: what they print where nobody looks at a terminal."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands.progress import BETWEEN_S, QUIET_S, progress
from tests.builders.clock import FakeClock

Done = tuple[float, float]
"""How much, and by when (seconds)."""


def told(*done: Done, total: float = 100, as_share: bool = False) -> None:
    clock = FakeClock()
    with progress("comparing", total, as_share=as_share, clock=clock) as tell:
        for much, at_s in done:
            clock.pass_time(at_s - clock.monotonic_s())
            tell(much)


def each_tenth(every_s: float) -> Iterable[Done]:
    return ((10 * number, every_s * number) for number in range(1, 11))


def test_a_line_tells_how_many_of_how_many_and_after_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    told((10, 150.0))
    assert capsys.readouterr() == ("", "comparing: 10 of 100 after 2.5 minutes\n")


def test_what_is_no_number_of_things_is_told_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    told((3600.0, 20.0), total=7200.0, as_share=True)
    assert capsys.readouterr().err == "comparing: 50% after 20 seconds\n"


@pytest.mark.parametrize(
    ("done", "lines"),
    [
        pytest.param([(50, 1.0), (100, BETWEEN_S - 0.1)], 0, id="what is short says nothing"),
        pytest.param(each_tenth(BETWEEN_S), 10, id="one at each tenth"),
        pytest.param(each_tenth(BETWEEN_S / 2), 5, id="never sooner after the one before"),
        pytest.param([(10, 10.0), (19, 10.0 + QUIET_S - 0.1)], 1, id="between two tenths none"),
        pytest.param([(10, 10.0), (11, 10.0 + QUIET_S)], 2, id="after a long silence one all the same"),
        pytest.param([(10, 10.0), (10, 10.0 + QUIET_S)], 1, id="but none where nothing more is done"),
        pytest.param([(29, 10.0), (30, 20.0), (31, 30.0)], 2, id="by tenths of all, not since the last line"),
    ],
)
def test_lines_come_now_and_then(done: Iterable[Done], lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    told(*done)
    assert len(capsys.readouterr().err.splitlines()) == lines


GRID = ("--scenarios", "small", "--windows", "1", "--hours", "0.5", "--store", "store")
TUNED = ("tune", "--policy", "buffer_band", "--trials", "2", "--out", "out.yaml", *GRID)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("compare", "--policies", "rate_match", *GRID), {"comparing: 1 of 2", "comparing: 2 of 2"}),
        (TUNED, {"bounds: 2 of 2", "trials: 1 of 2", "trials: 2 of 2"}),
        (
            ("simulate", "--policy", "rate_match", "--scenario", "small", "--hours", "6"),
            {"simulating: 10%", "simulating: 50%"},
        ),
        (("optimum", "--scenario", "small", "--hours", "1", "--foresight", "0h,all"), {"foresight: 2 of 2"}),
    ],
    ids=["compare", "tune", "simulate", "optimum"],
)
def test_every_long_command_tells_and_its_json_stays_json(
    words: tuple[str, ...], lines: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.commands.progress.BETWEEN_S", 0.0)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words, "--json"])

    assert result.exit_code == 0
    json.loads(result.stdout)
    assert {line.partition(" after ")[0] for line in result.stderr.splitlines()} >= lines
