"""`headrace doctor -f`: one machine, with and without a controller, whole and broken in one place each."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner, Result

from scaler.cli import app
from scaler.commands.doctor_checks.base import Level
from scaler.commands.doctor_checks.http_probes import Heard
from scaler.commands.doctor_checks.local_controller import controller
from scaler.commands.doctor_checks.local_world import LocalWorld
from scaler.commands.explain import explain_decisions
from scaler.config.last_good import load_at_start, save_last_good
from scaler.ledger.registry import open_ledger
from scaler.ledger.sqlite import open_path
from scaler.model.work import ReleaseReason
from scaler.runtime.daemon import state_files
from scaler.runtime.status import status_json
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.daemon import Place, a_place, eventually
from tests.builders.fleet_yaml import a_cluster_fleet, text_of
from tests.builders.ledger import groups, identity, lease_all, release_of, settings
from tests.builders.valkey_server import free_port, valkey_server
from tests.builders.web import answering


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as place:
        place.write(listen=f"127.0.0.1:{free_port()}")
        yield place


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """The command is a process of its own elsewhere."""
    yield
    structlog.reset_defaults()


def doctor(place: Place, *words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", "-f", str(place.file), *words])


def lines(result: Result) -> dict[str, tuple[str, str, str]]:
    """By what was looked at: level, what was found, and the remedy."""
    return {
        each["about"]: (each["level"], each["found"], each["remedy"]) for each in json.loads(result.stdout)["lines"]
    }


def level(found: dict[str, tuple[str, str, str]], about: str) -> str:
    return next(line[0] for key, line in found.items() if key.startswith(about))


def said(found: dict[str, tuple[str, str, str]], about: str) -> str:
    return next(line[1] for key, line in found.items() if key.startswith(about))


def changed(place: Place, **spec: Any) -> None:
    body = yaml.safe_load(place.file.read_text())
    body["spec"] |= spec
    place.write_text(yaml.safe_dump(body))


def test_before_anything_runs_nothing_fails_and_nothing_is_made(place: Place) -> None:
    before = sorted(place.folder.rglob("*"))
    result = doctor(place)
    assert result.exit_code == 0, result.stdout
    assert sorted(place.folder.rglob("*")) == before
    told = [line.split("  ")[0] for line in result.stdout.splitlines() if line]
    assert set(told[:-1]) <= {"ok", "warn", "not looked"}
    assert f"none runs -> headrace run -f {place.file}" in result.stdout


def test_a_fleet_at_work_is_well_and_the_controllers_word_is_told(place: Place) -> None:
    process = place.start()
    process.wait_for_ready(2)
    found = lines(doctor(place, "--json"))
    assert {line[0] for line in found.values()} <= {"ok", "warn"}
    assert said(found, "controller") == f"process {process.popen.pid} leads"
    assert said(found, "decision of stage rollout").startswith("desired 2, requested 2, observed 2, ready 2")
    assert said(found, "workers").startswith("2 at work, 2 ready")
    assert said(found, "pool pool").startswith("can be listed: 2 running")
    assert level(found, "trainer's rate") == "warn", "a fleet of a fixed size needs no trainer's word"


def test_a_controller_of_another_fleet_at_the_same_address(place: Place, tmp_path: Path) -> None:
    place.start().wait_for_ready(2)
    body = yaml.safe_load(place.file.read_text())
    body["metadata"]["name"] = "other"
    other = Place(tmp_path / "other")
    other.folder.mkdir()
    other.write_text(yaml.safe_dump(body))
    result = doctor(other, "--json")
    assert result.exit_code == 1
    assert "the controller there is of fleet fleet, not of other" in result.stdout


def test_a_controller_of_this_fleet_from_another_file_is_told(place: Place) -> None:
    place.start().wait_for_ready(2)
    copy = Place(place.folder / "tuned")
    copy.folder.mkdir()
    copy.write_text(place.file.read_text())
    found = lines(doctor(copy, "--json"))
    assert said(found, "controller (") == "none runs"
    assert any("started with another file" in line[1] for line in found.values())
    assert not any("started with another file" in line[1] for line in lines(doctor(place, "--json")).values())


@pytest.mark.parametrize(
    ("code", "text"),
    [(200, "<html>hello</html>"), (404, "none"), (200, '{"leading": true}'), (200, "[]"), (200, '{"fleets": 3}')],
)
def test_what_answers_and_is_not_ours_fails(place: Place, code: int, text: str) -> None:
    with answering(code, text) as address:
        changed(place, http={"listen": address})
        result = doctor(place, "--json")
    assert result.exit_code == 1
    assert level(lines(result), "HTTP of the controller") == "fail"
    assert "no controller of Headrace" in said(lines(result), "HTTP of the controller")


def test_a_malformed_file_is_faulted_as_validate_does_with_exit_code_2(place: Place) -> None:
    place.write_text("spec: [")
    result = doctor(place, "--json")
    validated = CliRunner().invoke(app, ["validate", str(place.file)])
    assert (result.exit_code, validated.exit_code) == (2, 2)
    assert [line[1] for line in lines(result).values()] == validated.stderr.splitlines()


def test_beside_the_configuration_accepted_last_the_rest_is_looked_at(place: Place) -> None:
    save_last_good(state_files(place.file).last_good, place.file.read_text())
    changed(place, interval="5 parsecs")
    result = doctor(place, "--json")
    assert result.exit_code == 2
    assert "spec.interval" in said(lines(result), "configuration")
    assert level(lines(result), "pool pool") == "ok"


def test_a_fleet_that_only_decides_is_warned_of(place: Place) -> None:
    changed(place, dryRun=True, paused=True)
    found = lines(doctor(place, "--json"))
    assert found["dryRun"] == ("warn", "it decides and carries nothing out", "set spec.dryRun: false")
    assert level(found, "paused") == "warn"


def test_a_ledger_without_its_folder_and_one_that_is_something_else(place: Place) -> None:
    changed(place, ledger={"type": "sqlite", "path": "nowhere/ledger.db"})
    result = doctor(place, "--json")
    assert result.exit_code == 1
    assert next(line[2] for key, line in lines(result).items() if key.startswith("ledger's store")).startswith(
        "mkdir -p"
    )
    changed(place, ledger={"type": "sqlite", "path": "fleet.yaml"})
    result = doctor(place, "--json")
    assert result.exit_code == 1
    assert level(lines(result), "job fleet in") == "fail"


@pytest.mark.parametrize(("state_dir", "told"), [("new/cloud", "warn"), ("new", "warn"), ("newer", "fail")])
def test_a_folder_that_a_local_pool_makes_need_not_be_there(place: Place, state_dir: str, told: str) -> None:
    body = yaml.safe_load(place.file.read_text())
    body["spec"]["ledger"] = {"type": "sqlite", "path": "new/ledger.db"}
    body["spec"]["stages"][0]["pools"][0]["provider"]["stateDir"] = state_dir
    place.write_text(yaml.safe_dump(body))
    assert level(lines(doctor(place, "--json")), "ledger's store") == told


def test_units_that_failed_for_good_are_told(place: Place) -> None:
    ledger = open_ledger(f"sqlite://{place.folder}/ledger.db", "fleet")
    ledger.configure(settings(unit_failure_limit=1))
    ledger.register(identity("w1"))
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(lease, ReleaseReason.UNIT_FAILURE, error="boom")])
    ledger.close()
    found = lines(doctor(place, "--json"))
    assert level(found, "dead letters") == "warn"
    assert "boom" in said(found, "dead letters")


def test_workers_that_never_came_that_fell_silent_and_that_ended_are_told_apart(place: Place) -> None:
    now_s = [time.time() - 3 * 3600.0]
    ledger = open_path(place.folder / "ledger.db", "fleet", now_s=lambda: now_s[0])
    ledger.configure(settings())
    ledger.put_units(groups(1))
    told = [lines(doctor(place, "--json"))["workers"]]
    ledger.register(identity("w1"))
    ledger.register(identity("w2"))
    told.append(lines(doctor(place, "--json"))["workers"])
    for worker in ("w1", "w2"):
        ledger.release_worker(worker, ReleaseReason.DRAIN)
    told.append(lines(doctor(place, "--json"))["workers"])
    now_s[0] = time.time() - 1800.0
    ledger.register(identity("w3"))
    ledger.release_worker("w3", ReleaseReason.DRAIN)
    told.append(lines(doctor(place, "--json"))["workers"])
    ledger.close()

    assert [line[0] for line in told] == ["warn"] * 4
    assert [line[1] for line in told] == [
        "none has registered with the ledger",
        "none is heard: 2 silent, the last for 3h",
        "none is left: all ended more than an hour ago",
        "none is left: 1 ended within the last hour, the last 30m ago",
    ]


def test_on_valkey_too_workers_that_ended_were_there(place: Place) -> None:
    with valkey_server() as server:
        changed(place, ledger={"type": "valkey", "url": server.url})
        ledger = open_ledger(server.url, "fleet")
        ledger.configure(settings())
        never = said(lines(doctor(place, "--json")), "workers")
        ledger.register(identity("w1"))
        ledger.release_worker("w1", ReleaseReason.DRAIN)
        ended = said(lines(doctor(place, "--json")), "workers")
        ledger.close()
    assert never == "none has registered with the ledger"
    assert ended.startswith("none is left: 1 ended within the last hour, the last ")


def test_a_job_that_nobody_opened_is_no_fault(place: Place) -> None:
    open_ledger(f"sqlite://{place.folder}/ledger.db", "another").close()
    found = lines(doctor(place, "--json"))
    assert level(found, "job fleet in") == "warn"


def test_a_job_that_nobody_configured_is_sent_to_the_trainers_option(place: Place) -> None:
    """As every dry run begins."""
    open_ledger(f"sqlite://{place.folder}/ledger.db", "fleet").close()
    worst, found, remedy = lines(doctor(place, "--json"))["job fleet"]
    assert (worst, found) == ("fail", "nobody has set the job's rules, so nothing is decided")
    assert "--configure" in remedy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "set it to noeviction"),
        ({"appendonly": "no"}, "set appendonly yes"),
    ],
)
def test_a_store_that_could_lose_what_it_acknowledged_is_refused(
    place: Place, options: dict[str, str], words: str
) -> None:
    with valkey_server(options) as server:
        changed(place, ledger={"type": "valkey", "url": server.url})
        result = doctor(place, "--json")
    assert result.exit_code == 1
    assert words in said(lines(result), "ledger's store")


def test_on_valkey_a_job_that_nobody_opened_is_no_fault_and_is_not_opened(place: Place) -> None:
    with valkey_server() as server:
        changed(place, ledger={"type": "valkey", "url": server.url})
        found = lines(doctor(place, "--json"))
        assert server.client().dbsize() == 0
    assert level(found, "ledger's store") == "ok"
    assert level(found, "job fleet in") == "warn"


def test_a_password_is_never_shown(place: Place) -> None:
    secret = place.folder / "url"
    secret.write_text("valkey://headrace:hunter2@127.0.0.1:1/0?nonsense=1")
    changed(place, ledger={"type": "valkey", "urlFile": str(secret)})
    result = doctor(place)
    assert result.exit_code == 1
    assert "hunter2" not in result.stdout
    secret.write_text("hunter2")
    assert "hunter2" not in doctor(place).stdout


def test_a_worker_that_is_not_installed_and_records_that_cannot_be_read(place: Place) -> None:
    body = yaml.safe_load(place.file.read_text())
    body["spec"]["stages"][0]["pools"][0]["provider"]["command"] = ["no-such-worker"]
    place.write_text(yaml.safe_dump(body))
    place.state.create()
    (place.state.instances / "x.json").write_text("{")
    result = doctor(place)
    assert result.exit_code == 1
    assert "its command 'no-such-worker' is no program that can be run" in result.stdout
    assert "1 records cannot be read" in result.stdout


def test_workers_that_die_at_once_are_refusals_that_explain_and_doctor_tell_of(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    body = yaml.safe_load(place.file.read_text())
    pool = body["spec"]["stages"][0]["pools"][0]
    pool["provider"]["command"] = ["/bin/sh", "-c", "echo no GPU here; exit 1"]
    place.write_text(yaml.safe_dump(body))
    process = place.start()
    offering = eventually(lambda: _refused(process.status()))
    assert offering["refused_because"].endswith("replicas in a row went before they were ready")
    launched = list(place.logs.iterdir())
    found = lines(doctor(place, "--json"))
    level, told, remedy = found["pool pool"]
    assert (level, told.partition(": ")[2]) == ("warn", offering["refused_because"])
    assert remedy.endswith(f"{place.logs}")
    assert offering["refused_because"] in said(found, "decision of stage rollout")
    assert explain_decisions(process.url, 50, as_json=False) == 0
    assert "went before" in capsys.readouterr().out
    assert len(launched) < 10
    assert {each.read_text() for each in launched} == {"no GPU here\n"}


@pytest.mark.parametrize("written", [True, False])
async def test_a_journal_that_cannot_be_written_fails(place: Place, written: bool) -> None:
    files = state_files(place.file)
    told = status_json(Readout(leading=True, journal_ok=written), now_s=0.0, address="", config={}, decisions=())
    world = LocalWorld(
        path=place.file,
        start=load_at_start(place.file, files.last_good),
        files=files,
        leader="1",
        heard=Heard(url="http://here", status=told),
        clock=FakeClock(),
    )
    failed = [line.about for line in await controller(world) if line.level is Level.FAIL]
    assert failed == ([] if written else [f"journal {files.journal}"])


def _refused(status: Any) -> Any:
    stages = status.get("stages") or ()
    offerings = [each for stage in stages for pool in stage["pools"] for each in pool["offerings"]]
    return next((each for each in offerings if each["refusals"]), None)


def test_notice_files_that_are_none_are_told(place: Place) -> None:
    place.state.create()
    (place.state.notices / "x.json").write_text("{")
    assert level(lines(doctor(place, "--json")), "notices local") == "warn"


def test_pools_of_a_cluster_are_sent_there(place: Place) -> None:
    place.file.write_bytes(text_of(a_cluster_fleet()))
    result = doctor(place, "--json")
    assert result.exit_code == 1
    assert "headrace run --cluster" in said(lines(result), "pools")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name the fleet's file"),
        (["-f", "fleet.yaml", "--region", "us-west-2"], "for a fleet of a cluster"),
    ],
)
def test_arguments_that_name_nothing_are_exit_code_2(words: list[str], why: str) -> None:
    result = CliRunner().invoke(app, ["doctor", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    words = ["doctor", "demo", "-n", "rl", "--kubeconfig", str(tmp_path / "none")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert result.stdout.startswith("fail        API server: no usable Kubernetes configuration")


def test_settings_of_the_controller_that_are_none_are_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("kind: Controller\n")
    result = CliRunner().invoke(app, ["doctor", "demo", "-f", str(file), "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "controller.yaml" in result.stdout
