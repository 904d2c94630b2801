"""Whoever stops a demo early leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest

from scaler.commands import demo
from scaler.demo.world import World


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_processes_even_if_it_comes_twice(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def start(_: World) -> None:
        os.kill(os.getpid(), number)
        steps.append("went on")

    def stop(_: World) -> None:
        os.kill(os.getpid(), number)
        steps.append("stopped")

    monkeypatch.setattr(World, "start", start)
    monkeypatch.setattr(World, "stop", stop)
    options = demo.DemoOptions(
        trace=None, seed=0, summary=None, plot=None, updates=1, progress=True, keep=tmp_path / "kept"
    )
    assert demo.run_demo(options) == 130
    assert steps == ["stopped"]
