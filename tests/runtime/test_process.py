"""`headrace run` as a process: it adopts, it stops in order, it stands by, and it says what is wrong with its input."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scaler.commands.explain import explain_decisions
from scaler.localcloud.processes import signal_group
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.runtime.clock import SystemClock
from tests.builders.daemon import ROOT, Place, Process, a_place, eventually


def _done(process: Process) -> set[str]:
    decisions = process.status()["decisions"]
    outcomes = [outcome for decision in decisions for outcome in decision["outcomes"]]
    return {outcome["kind"] for outcome in outcomes if outcome["outcome"] == "done"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as place:
        yield place


def _pids(place: Place) -> dict[str, int]:
    return {record.replica_id: record.pid for record in place.state.live_instances()}


def test_bug_057_a_killed_controllers_workers_live_on_and_are_adopted_and_nothing_is_launched_twice(
    place: Place,
) -> None:
    first = place.start()
    replicas = first.wait_for_ready(2)
    pids, epoch = _pids(place), first.status()["leader_epoch"]
    first.kill()
    assert _pids(place) == pids
    second = place.start()
    assert second.wait_for_ready(2) == replicas
    seen = second.status()
    eventually(lambda: second.status()["decided_at_s"] > seen["decided_at_s"])
    assert seen["leader_epoch"] > epoch
    assert _pids(place) == pids
    assert len(list(place.logs.iterdir())) == 2, "one log for each instance that ever was"


def test_a_controller_killed_between_intent_and_answer_launches_once(place: Place) -> None:
    """Killed at once, over and over, wherever it is by then; the last one finds exactly the fleet that is wanted."""
    for _ in range(4):
        process = place.start()
        process.wait_for("controller_started")
        process.kill()
    place.start().wait_for_ready(2)
    assert len(list(place.logs.iterdir())) == 2


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_controller_and_no_worker(place: Place, by: int) -> None:
    process = place.start()
    process.wait_for_ready(2)
    pids = _pids(place)
    assert process.stop(by) == 0
    assert _pids(place) == pids
    assert process.events("controller_stopped")


def test_the_second_controller_stands_by_and_takes_over_when_the_first_dies(place: Place) -> None:
    first = place.start()
    replicas = first.wait_for_ready(2)
    second = place.start()
    second.wait_for("standby")
    assert second.get("/healthz")[0] == 200
    assert second.get("/readyz") == (503, "standby: another controller acts\n")
    assert not second.events("controller_started")
    first.kill()
    eventually(lambda: second.get("/readyz")[0] == 200)
    assert second.wait_for_ready(2) == replicas


def test_a_change_of_the_file_applies_and_a_bad_one_is_refused_also_over_a_restart(place: Place) -> None:
    first = place.start()
    first.wait_for_ready(2)
    place.write(replicas=3)
    first.wait_for_ready(3)
    digest = first.status()["config"]["digest"]
    place.write_text("spec: {}\n")
    refused = eventually(lambda: config if not (config := first.status()["config"])["ok"] else None)
    assert refused["digest"] == digest
    assert any("fleet.yaml" in fault for fault in refused["faults"])
    first.kill()
    second = place.start()
    second.wait_for_ready(3)
    assert second.status()["config"] == refused
    assert second.events("config_rejected")
    assert 'headrace_config_reloads_total{result="rejected"} 1.0' in second.get("/metrics")[1]


def test_bug_058_a_lower_size_drains_and_ends_a_replica(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    place.write(replicas=1)
    left = process.wait_for_ready(1)
    eventually(lambda: set(_pids(place)) == left)
    eventually(lambda: {"launch", "drain", "terminate"} <= _done(process))


def test_a_noticed_replica_is_drained_replaced_and_left_to_the_cloud(place: Place) -> None:
    process = place.start()
    replicas = process.wait_for_ready(2)
    victim = place.state.live_instances()[0]
    now_s = SystemClock().now_s()
    notice = InterruptionNotice(
        instance_id=victim.instance_id, kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=now_s, deadline_s=now_s + 120
    )
    place.state.write_notice(notice)
    left = eventually(
        lambda: now if len(now := process.ready_replicas()) == 2 and victim.replica_id not in now else None
    )
    assert len(left & replicas) == 1
    assert victim.replica_id in _pids(place), "its first hour may still be refunded"
    assert "headrace_notice_drain_mark_seconds_count 1.0" in process.get("/metrics")[1]
    assert not process.status()["sources"]["pools_away"]


def test_a_worker_killed_without_a_word_is_replaced(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    victim = place.state.live_instances()[0]
    signal_group(victim.pid, victim.start_ticks, signal.SIGKILL)
    eventually(lambda: len(list(place.logs.iterdir())) == 3)
    process.wait_for_ready(2)
    assert len(list(place.logs.iterdir())) == 3


def test_the_api_answers_and_changes_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    process = place.start()
    process.wait_for_ready(2)
    for path in ("/status", "/healthz", "/readyz", "/metrics"):
        assert process.get(path)[0] == 200
        assert process.get(path, "HEAD") == (200, "")
        assert process.get(path, "POST")[0] == 405
    assert process.get("/status?last=-1")[0] == 400
    status = process.status()
    assert status["address"] == process.url
    stage = status["stages"][0]
    assert (stage["desired"], stage["ready"], stage["reason"]["message"]) == (2, 2, "a fixed fleet of 2")
    assert stage["signals"]["buffered_samples"]["freshness"] == "fresh"
    assert stage["signals"]["unblocked_rate_per_s"]["freshness"] == "missing"
    assert "headrace_fleet_ready_replicas" in process.get("/metrics")[1]
    assert explain_decisions(process.url, 50, as_json=False) == 0
    said = capsys.readouterr().out
    assert "size_up: a fixed fleet of 2" in said
    assert "-> done i-" in said
    assert explain_decisions(process.url, 1, as_json=True) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_the_controller_is_small_and_starts_without_the_libraries_it_does_not_need(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    assert psutil.Process(process.popen.pid).memory_info().rss < 120 * 2**20
    code = (
        "import sys, scaler.cli, scaler.commands.run, scaler.commands.explain, scaler.runtime.daemon, scaler.ledger.sqlite\n"
        "print(sorted({'torch', 'boto3', 'botocore', 'kubernetes', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_bad_file_is_one_line_a_fault_and_exit_code_2(place: Place) -> None:
    place.write_text(
        place.file.read_text().replace("ceiling: 5", "ceiling: -5").replace("interval: 200ms", "interval: soon")
    )
    process = place.start()
    assert process.popen.wait(30) == 2
    lines = process.log.splitlines()
    assert len(lines) == 2
    assert all("fleet.yaml" in line for line in lines)


def test_a_port_in_use_is_one_line_and_exit_code_2(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place.write(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        process = place.start()
        assert process.popen.wait(30) == 2
    assert len(process.log.splitlines()) == 1
    assert "cannot listen on 127.0.0.1:" in process.events("cannot_start")[0]["error"]


def test_a_standby_on_the_same_port_takes_it_over_with_the_lead(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    place.write(listen=f"127.0.0.1:{port}")
    first = place.start()
    first.wait_for_ready(2)
    second = place.start()
    second.wait_for("standby")
    first.kill()
    second.wait_for_ready(2)


def test_a_ledger_that_is_away_is_waited_for_and_said_so(place: Place) -> None:
    ledger = place.folder / "ledger.db"
    ledger.mkdir()
    process = place.start()
    eventually(lambda: len(process.events("waiting_for_first_answers")) >= 2)
    status, why = process.get("/readyz")
    assert status == 503
    assert "ledger" in why
    assert process.get("/healthz")[0] == 200
    ledger.rmdir()
    process.wait_for_ready(2)


def test_nobody_to_explain_is_exit_code_3_and_no_address_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_decisions("http://127.0.0.1:1", 1, as_json=False) == 3
    assert explain_decisions("file:///etc/passwd", 1, as_json=False) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
