"""What would spoil a demo is refused before it runs, in one line."""

from dataclasses import replace
from pathlib import Path

import pytest

from scaler.commands.demo import DemoOptions, run_demo
from scaler.demo.world import World

FINE = DemoOptions(trace=None, seed=0, summary=None, plot=None, updates=1, progress=True, keep=None)


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def start(_: World) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr(World, "start", start)
    folder = tmp_path / "used"
    folder.mkdir()
    (folder / "ledger.db").touch()
    return folder


def test_wrong_options_are_refused_before_the_run(used: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = used / "ledger.db"
    wrong = [
        replace(FINE, updates=0),
        replace(FINE, plot=used / "run.xyz"),
        replace(FINE, plot=file / "run.png"),
        replace(FINE, summary=used),
        replace(FINE, keep=used),
        replace(FINE, keep=file),
    ]
    for options in wrong:
        assert run_demo(options) == 2
        assert capsys.readouterr().err.count("\n") == 1
