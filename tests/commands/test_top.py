"""`headrace top`: the text of a frame, of one fleet and of many, at a controller, on a terminal, where nobody answers."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands.top_frame import of_fleet, of_fleets
from scaler.interruptions.base import SourceHealth
from scaler.model.capacity import ReplicaPhase
from scaler.model.job import LedgerStats, Phase, TokenCounts, TrainerReport
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView
from scaler.runtime.decisions import decision_json
from scaler.runtime.status import status_json
from scaler.telemetry.readout import Readout
from tests.builders.daemon import ROOT, Place, a_place, eventually
from tests.builders.fleet_status import a_readout
from tests.builders.ledger import settings
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_notice,
    a_pool_view,
    a_replica,
    a_victim,
    a_world_of,
    an_offering,
    rate_matched,
    some_replicas,
    some_signals,
)
from tests.builders.valkey_server import free_port
from tests.builders.web import answering

SCARCE = an_offering("b", price=2.5)


def text_of(frame: RenderableType, width: int = 140) -> str:
    out = StringIO()
    Console(file=out, width=width).print(frame)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def a_status(readout: Readout, **over: Any) -> dict[str, Any]:
    plan = readout.plan
    assert plan is not None
    decision = decision_json(plan, "digest", 7) | {
        "seq": 3,
        "at_s": NOW_S,
        "until_s": NOW_S,
        "ticks": 1,
        "outcomes": [],
    }
    config = {"digest": "d", "ok": True, "faults": []}
    return status_json(readout, now_s=NOW_S + 2.0, address="", config=config, decisions=[decision]) | over


def stats(**over: Any) -> LedgerStats:
    report = TrainerReport(step=41, unblocked_samples_per_s=3.0, phase=Phase.TRAIN, wait_ratio=0.125)
    plain: dict[str, Any] = {
        "at_s": NOW_S,
        "store_epoch": 1,
        "pending": 90,
        "backing_off": 0,
        "running": 12,
        "buffered": 6,
        "ready_groups": 3,
        "admissible": 0,
        "consumed": 0,
        "accepted": 777,
        "dead_lettered": 2,
        "dropped": {},
        "tokens": TokenCounts(),
        "interruptions_salvaged": 0,
        "oldest_ready_age_s": 5.0,
        "version": 41,
        "trainer_epoch": 1,
        "trainer": report,
        "trainer_at_s": NOW_S,
        "settings": settings(),
    }
    return LedgerStats(**(plain | over))


def a_busy_readout() -> Readout:
    """Three ready, one launching, one noticed and one leaving by our choice; an offering that refuses; a stale signal."""
    replicas = (
        *some_replicas(3, version=41),
        a_replica("new", ReplicaPhase.LAUNCHING),
        a_replica(
            "doomed", ReplicaPhase.DRAINING, notice=a_notice("i-doomed", deadline_s=NOW_S + 62.0), running_units=4
        ),
        a_victim("spare", unpublished_tokens=130),
    )
    scarce = OfferingView(offering=SCARCE, refusals=3, refused_at_s=NOW_S, refused_because="no capacity in b")
    world = a_world_of(
        replicas,
        pools=(a_pool_view("pool", OfferingView(offering=an_offering()), scarce),),
        signals=some_signals(acceptance_ratio=Reading(0.75, NOW_S - 300.0)),
    )
    spec = a_fleet_spec(rate_matched(), max_replicas=30, fleet_spend=100.0, dry_run=True)
    notices = {"sqs": SourceHealth(answered_at_s=NOW_S - 3.0, received=7, queue_age_s=12.0)}
    return a_readout(world, spec, stats=stats(), notices=notices)


def test_a_frame_shows_all_that_a_person_asks_about() -> None:
    text = text_of(of_fleet("rl.demo", a_status(a_busy_readout())))
    lines = text.splitlines()
    assert lines[0] == "headrace top  rl.demo  leads, epoch 7, decided 2.0 s ago  DRY RUN"

    def line(start: str) -> str:
        return next(each for each in lines if each.startswith(start))

    ready = line("pool  g/a/spot").split()
    assert ready == ["pool", "g/a/spot", "1.00", "1", "3", "2"], "one launching, three ready, two leaving"
    assert line("pool  g/b/spot").endswith("refused 3 times in a row: no capacity in b")
    assert "aim " in line("buffer")
    assert "at most 8 with what is in flight" in line("buffer")
    assert "waited 12% of its time, step 41, train" in line("trainer")
    assert "75% (stale, 302 s) of samples accepted" in line("goodput")
    assert line("units").endswith("90 pending, 12 running, 777 trained on, 2 failed for good")
    assert line("version").endswith("workers: 3 at 41")
    assert "1 of 6 drains of our own choice in rollout" in line("leaving")
    assert line("doomed").split()[3:] == ["draining", "spot_interruption", "+60", "s", "4", "0"]
    assert line("spare").split()[3:] == ["draining", "size_down", "+58", "s", "0", "130"]
    assert lines.index(line("spare")) < lines.index(line("doomed")), "the nearest deadline first"
    assert "#3 " in line("decision")
    assert line("notices sqs").endswith("answered 5 s ago, 7 received, oldest message 12 s")


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    missing = {name: Reading() for name in ("buffered_samples", "unblocked_rate_per_s", "queue_age_s")}
    readout = a_readout(a_world_of(some_replicas(1), signals=some_signals(**missing)), stats=None)
    text = text_of(of_fleet("demo", a_status(readout)))
    assert "takes - samples/s if it never waits" in text
    assert "- samples, " in text
    assert "units" not in text.split()


def test_a_controller_that_has_decided_nothing_yet_has_a_frame() -> None:
    status = status_json(Readout(ledger_error="no answer"), now_s=NOW_S, address="", config={}, decisions=[])
    text = text_of(of_fleet("", status))
    assert text.startswith(
        "headrace top  (no fleet yet)  stands by: another controller leads, epoch 0, no decision yet"
    )
    assert "away: no answer" in text


def test_troubles_are_told() -> None:
    world = a_world_of(some_replicas(1), pools=(a_pool_view("spot", refused="another owner: [bold]HPA[/bold]"),))
    sick = {"sqs": SourceHealth(answered_at_s=None, error="receive: AccessDenied")}
    status = a_status(
        a_readout(world, ledger_ok=False, ledger_error="gone", pools_away={"spot": 4}, notices=sick),
        config={"ok": False, "faults": ["spec.interval: bad"]},
    )
    text = text_of(of_fleet("demo", status))
    for words in (
        "refused: another owner: [bold]HPA[/bold]",
        "away: gone",
        "not listed 4 times in a row",
        "receive: AccessDenied",
        "configuration refused: spec.interval: bad",
    ):
        assert words in text


def test_a_ledger_that_refuses_is_not_told_as_away() -> None:
    readout = a_readout(a_world_of(some_replicas(1)), ledger_ok=False, ledger_refuses=True, ledger_error="NOPERM")
    text = text_of(of_fleet("demo", a_status(readout)))
    assert "refuses: NOPERM" in text
    assert "away" not in text


def test_hundreds_of_notices_are_counted() -> None:
    noticed = [a_replica(f"r{n}", notice=a_notice(f"i-r{n}")) for n in range(500)]
    status = a_status(a_readout(a_world_of(noticed), a_fleet_spec(3)))
    text = text_of(of_fleet("demo", status))
    assert "500 replicas" in text
    assert "... and 480 more" in text
    assert "more: headrace explain" in text
    assert len(text.splitlines()) < 60


def test_what_was_done_last_is_told_where_the_last_decision_did_nothing() -> None:
    status = a_status(a_readout(a_world_of(some_replicas(1)), a_fleet_spec(2)))
    (acted,) = status["decisions"]
    assert acted["commands"]
    steady = acted | {"seq": 9, "commands": []}
    text = text_of(of_fleet("demo", status | {"decisions": [steady, acted]}))
    assert next(line for line in text.splitlines() if line.startswith("decision")).split()[1] == "#9"
    assert next(line for line in text.splitlines() if line.startswith("acted")).split()[1] == "#3"


def test_all_fleets_of_a_cluster_are_a_line_each() -> None:
    idle = status_json(Readout(leading=True), now_s=NOW_S, address="", config={}, decisions=[])
    fleets = {"rl.b": a_status(a_busy_readout()), "rl.a": idle}
    status = {"leading": True, "identity": "headrace-0", "leader_epoch": 7, "fleets": fleets}
    lines = text_of(of_fleets(status, fleets)).splitlines()
    assert lines[0] == "headrace top  headrace-0 leads, epoch 7"
    assert [line.split()[0] for line in lines[1:]] == ["fleet", "rl.a", "rl.b"]
    assert "NOT SYNCED" in lines[2]
    assert "DRY RUN" in lines[3]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as place:
        place.write(listen=f"127.0.0.1:{free_port()}")
        yield place


def test_a_frame_of_a_real_controller_found_by_its_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    process = place.start()
    process.wait_for_ready(2)
    eventually(lambda: process.status()["stages"][0]["reason"]["code"] == "steady")
    result = CliRunner().invoke(app, ["top", "-f", str(place.file), "--once"])
    assert result.exit_code == 0, result.stderr
    assert "headrace top  fleet  leads" in result.stdout
    assert "steady: a fixed fleet of 2 [static]" in result.stdout
    assert "0 to 5   2.00   100.00  static" in result.stdout


def test_on_a_terminal_it_goes_on_until_q(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    with _terminal("--url", process.url) as (top, terminal):
        _read_until(terminal, b"headrace top")
        process.kill()
        _read_until(terminal, b"what follows is old")
        os.write(terminal, b"q")
        _read_until(terminal, None)
        assert top.wait(20) == 0


def test_ctrl_c_ends_it(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    with _terminal("--url", process.url) as (top, terminal):
        _read_until(terminal, b"headrace top")
        top.send_signal(signal.SIGINT)
        _read_until(terminal, None)
        assert top.wait(20) == 0


_HEARING = (
    "import signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})\n"
    "from scaler.cli import main\n"
    "main()\n"
)
"""The command in a process that hears Ctrl-C, whatever whoever runs these tests has it do."""


@contextmanager
def _terminal(*words: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`headrace top` on a terminal of its own, and the other end of that."""
    master, slave = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-c", _HEARING, "top", *words, "--every", "0.1"]
    top = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    try:
        yield top, master
    finally:
        top.kill()
        top.wait()
        os.close(master)


def _read_until(terminal: int, words: bytes | None, patience_s: float = 30.0) -> None:
    """Until the words were drawn, or, without any, nothing comes any more because it has ended."""
    seen = b""
    while words is None or words not in seen:
        ready, _, _ = select.select([terminal], [], [], patience_s)
        assert ready, f"never drawn: {words!r} in {seen[-2000:]!r}"
        try:
            more = os.read(terminal, 65536)
        except OSError:
            more = b""
        if not more:
            assert words is None, seen
            return
        seen += more


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--url", "ftp://x"], 2, "is no address of a controller"),
        (["--url", "http://127.0.0.1:1"], 3, "nobody answers at"),
        (["-f", "no-such-file.yaml"], 2, "no-such-file.yaml"),
    ],
)
def test_where_nobody_is_it_says_so(words: list[str], code: int, why: str) -> None:
    result = CliRunner().invoke(app, ["top", "--once", *words])
    assert (result.exit_code, result.stdout) == (code, "")
    assert why in result.stderr


def test_a_file_that_asks_for_any_port_names_no_address(place: Place) -> None:
    place.write()
    result = CliRunner().invoke(app, ["top", "-f", str(place.file), "--once"])
    assert result.exit_code == 2
    assert "name the address (--url)" in result.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>", "no controller of Headrace"),
        ('{"leading": true, "leader_epoch": 1, "sources": {}}', "is another version's"),
    ],
)
def test_what_is_not_ours_is_not_shown(text: str, why: str) -> None:
    with answering(200, text) as address:
        result = CliRunner().invoke(app, ["top", "--once", "--url", f"http://{address}"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert why in result.stderr


def test_of_a_clusters_controller_one_fleet_is_shown_by_name() -> None:
    fleets = {"rl.b": a_status(a_busy_readout()), "rl.a": a_status(a_busy_readout())}
    body = json.dumps({"leading": True, "identity": "x", "leader_epoch": 7, "fleets": fleets})
    with answering(200, body) as address:
        words = ["top", "--once", "--url", f"http://{address}"]
        both = CliRunner().invoke(app, words)
        one = CliRunner().invoke(app, [*words, "--fleet", "rl.a"])
        none = CliRunner().invoke(app, [*words, "--fleet", "rl.c"])
    assert [line.split()[0] for line in both.stdout.splitlines()[2:]] == ["rl.a", "rl.b"]
    assert one.stdout.startswith("headrace top  rl.a  leads")
    assert (none.exit_code, none.stdout) == (2, "")
    assert "the controller has rl.a, rl.b" in none.stderr
