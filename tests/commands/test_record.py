"""`headrace record`: what a fleet left behind, or says while it runs, becomes a trace and rates that `simulate` replays."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands import record
from scaler.commands.record_folder import kept_in, signs_of
from scaler.commands.record_rates import Meter
from scaler.commands.record_scenario import publication_s, scenario_text
from scaler.commands.record_status import Follower
from scaler.ledger.registry import open_ledger
from scaler.simulate.loading import load_scenario, open_trace
from scaler.simulate.policy_file import load_policy
from scaler.simulate.world import simulate
from scaler.traces.signs import Sign
from scaler.traces.trace import TraceError
from tests.builders.recordings import BATCHES, RECORDS, SPOT_A, SPOT_B, history, write_recording


def ran(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["record", *words])
    return result.exit_code, result.stdout, result.stderr


def a_meter() -> Meter:
    meter = Meter(group_size=2)
    meter.feed(history())
    return meter


# from files


def test_grants_losses_and_refusals_are_read_from_what_the_fleet_left(tmp_path: Path) -> None:
    write_recording(tmp_path)
    assert signs_of(kept_in(tmp_path).changes()) == {
        SPOT_A: [Sign(at_s=90.0, held=1)],
        SPOT_B: [
            Sign(at_s=110.0, held=1),
            Sign(at_s=131.0, held=0, all_there_was=True),
            Sign(at_s=132.0, held=0, all_there_was=True),
        ],
    }


def test_rates_are_measured_from_the_history() -> None:
    rates = a_meter().rates(RECORDS, "here")
    assert (rates.start_s, rates.end_s, rates.updates) == (100.0, 140.0, BATCHES)
    assert rates.unblocked_samples_per_s == pytest.approx(16 / (4 * 4.0))
    assert rates.wait_ratio == pytest.approx(1 - 16 / 40)
    assert rates.acceptance_ratio == pytest.approx(8 / 9)
    assert rates.goodput_per_replica_per_s == pytest.approx(16 / 16.0 * 8 / 9)
    assert (rates.concurrent_units, rates.mean_tokens, rates.sigma) == (4, 20.0, 0.0)
    assert (rates.tokens_per_s, rates.first_token_s) == pytest.approx((5.0, 0.0))
    assert (rates.warm_replicas, rates.rates_known) == (1, False)
    assert (rates.boot.least_s, rates.load.least_s) == (3.0, 2.0)


def test_what_of_a_units_time_does_not_grow_with_its_tokens_is_its_way_to_the_first() -> None:
    """Four leased at once of which two are generated at a time, 10 tokens/s each: half of the time is the queue's."""
    meter = Meter(group_size=2)
    meter.feed(history())
    meter.units = [(tokens, 2.0 + tokens / 10.0) for tokens in (10, 20, 30)]
    rates = meter.rates(RECORDS, "here")
    assert rates.tokens_per_s == pytest.approx(10.0)
    assert rates.first_token_s == pytest.approx(4.0 - 20 / 10.0)


def test_a_history_without_training_has_no_rates() -> None:
    meter = Meter(group_size=2)
    meter.feed(list(history())[:2])
    with pytest.raises(TraceError, match="nothing was trained there"):
        meter.rates(RECORDS, "here")


def test_the_recorded_scenario_loads_with_the_fleets_rules_and_the_measured_rates(tmp_path: Path) -> None:
    write_recording(tmp_path)
    names = {SPOT_A: "zone-a", SPOT_B: "zone-b"}
    file = tmp_path / "recorded.yaml"
    file.write_text(scenario_text(kept_in(tmp_path), a_meter().rates(RECORDS, "here"), names, 100.0))

    spec = load_scenario(str(file)).spec
    assert spec.hours == pytest.approx(40 / 3600)
    assert spec.trainer.node_usd_per_h == 100.0
    assert spec.balance_replicas == pytest.approx(9 / 8)
    assert (spec.guard_rails.floor, spec.guard_rails.ceiling, spec.warm.replicas) == (1, 4, 1)
    assert spec.spot.zone_prices_usd_per_h == {"zone-a": 1.0, "zone-b": 2.0}
    assert (spec.generation.progress_s, spec.generation.lease_ttl_s) == (0.5, 4.0)
    assert spec.generation.first_token_s == 0.0
    assert (spec.notices.lead_s, spec.notices.none_ratio) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("words", "progress_s"),
    [
        ((), 0.5),
        (("--publish-interval-s", "2"), 1.6),
        (("--publish-interval-s", "1", "--publish-tokens", "40"), 1.0),
        (("--no-progress",), 86400.0),
    ],
)
def test_a_worker_publishes_at_its_bound_in_time_or_in_tokens(words: tuple[str, ...], progress_s: float) -> None:
    """8 tokens, where it is not told otherwise, at 5 tokens/s."""
    assert publication_s(words, 5.0) == pytest.approx(progress_s)


def test_a_recording_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recording(tmp_path)
    monkeypatch.setattr(record, "measured", lambda _: a_meter().rates(RECORDS, "here"))
    out, scenario = tmp_path / "t.csv", tmp_path / "s.yaml"
    code, told, _ = ran("--from", str(tmp_path), "--out", str(out), "--scenario", str(scenario), "--json")
    assert code == 0
    figures = json.loads(told)
    assert (figures["policy_updates"], figures["tokens_generated"], figures["tokens_wasted"]) == (BATCHES, 340, 20)

    trace = open_trace(str(out))
    assert list(trace.one("zone-b").changes()) == [(0.0, 1), (31.0, 0)]
    world = load_scenario(str(scenario)).bind(load_policy(str(tmp_path / "fleet.yaml")), trace=trace)
    summary = simulate(world).summary
    assert summary.policy_updates > 0
    assert summary.hours == pytest.approx(40 / 3600)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "fleet.yaml").unlink(), "fleet.yaml: no such file"),
        (
            lambda folder: (folder / ".headrace/fleet/journal.sqlite").unlink(),
            "no journal there: the fleet was never run",
        ),
        (lambda folder: (folder / "t.csv").write_text("mine"), "t.csv: is there already"),
        (lambda _: None, "ledger"),
        (lambda folder: open_ledger(f"sqlite://{folder}/ledger.db", "other").close(), "demo"),
    ],
    ids=["no fleet", "never run", "a file there already", "no ledger", "another job's ledger"],
)
def test_nothing_to_record_is_a_line(tmp_path: Path, change: Any, says: str) -> None:
    write_recording(tmp_path)
    change(tmp_path)
    code, out, err = ran("--from", str(tmp_path), "--out", str(tmp_path / "t.csv"))
    assert (code in (2, 3), out) == (True, "")
    assert says in err
    assert err.count("\n") == 1


# from a controller


def a_replica(name: str, phase: str = "ready", notice: float | None = None, offering: str = SPOT_A) -> dict[str, Any]:
    told = None if notice is None else {"kind": "spot_interruption", "noticed_at_s": notice, "deadline_s": notice + 120}
    return {"replica_id": name, "offering_id": offering, "phase": phase, "notice": told, "launched_at_s": None}


def a_status(now_s: float, *replicas: dict[str, Any], refused_at_s: float | None = None) -> dict[str, Any]:
    commands = [{"kind": "launch", "subject": "t", "offering": SPOT_A}]
    outcome = {
        "kind": "launch",
        "subject": "t",
        "outcome": "refused",
        "message": "insufficient_capacity: x",
        "at_s": refused_at_s,
    }
    decisions = [] if refused_at_s is None else [{"commands": commands, "outcomes": [outcome]}]
    return {"now_s": now_s, "stages": [{"stage": "rollout", "replicas": list(replicas)}], "decisions": decisions}


def followed(*statuses: dict[str, Any]) -> list[Sign]:
    follower = Follower("http://nowhere")
    for status in statuses:
        follower.take(status)
    return follower.signs()[SPOT_A]


def test_a_replica_that_gets_a_notice_is_taken_then_and_not_again_when_it_goes() -> None:
    assert followed(
        a_status(100, a_replica("a"), a_replica("b")),
        a_status(110, a_replica("a"), a_replica("b", notice=108.0)),
        a_status(120, a_replica("a")),
    ) == [Sign(at_s=100, held=1), Sign(at_s=100, held=2), Sign(at_s=108.0, held=1, all_there_was=True)]


@pytest.mark.parametrize(("phase", "taken"), [("ready", True), ("launching", True), ("draining", False)])
def test_a_replica_that_goes_without_notice_was_taken_unless_we_sent_it(phase: str, *, taken: bool) -> None:
    *_, last = followed(a_status(100, a_replica("a", phase)), a_status(110))
    assert last == Sign(at_s=110, held=0, all_there_was=taken)


def test_a_refusal_is_counted_once_and_one_from_before_the_first_look_is_not() -> None:
    assert followed(
        a_status(100, a_replica("a"), refused_at_s=90.0),
        a_status(110, a_replica("a"), refused_at_s=105.0),
        a_status(120, a_replica("a"), refused_at_s=105.0),
    ) == [Sign(at_s=100, held=1), Sign(at_s=105.0, held=1, all_there_was=True)]


def test_what_is_only_asked_for_is_not_held() -> None:
    follower = Follower("http://nowhere")
    follower.take(a_status(100, a_replica("a", "requested")))
    assert follower.signs() == {}


@contextmanager
def a_controller(statuses: list[dict[str, Any]]) -> Iterator[str]:
    """A server that tells one status after the other, the last for ever."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(statuses.pop(0) if len(statuses) > 1 else statuses[0]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_controller_is_followed_for_the_time_asked(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    statuses = [a_status(1000, a_replica("a")), a_status(1060, a_replica("a"), a_replica("b")), a_status(4600)]
    with a_controller(statuses) as url:
        code, _, err = ran("--from", url, "--out", str(out), "--every", "0.001", "--hours", "1")
    assert (code, err) == (0, "")
    trace = open_trace(str(out))
    assert trace.end_s == 3600
    assert list(trace.one("zone-a").changes()) == [(0.0, 2)]


def test_a_controller_that_does_not_answer_is_a_line(tmp_path: Path) -> None:
    code, _, err = ran("--from", "http://127.0.0.1:1", "--out", str(tmp_path / "t.csv"))
    assert code == 3
    assert "no answer" in err
    assert err.count("\n") == 1
