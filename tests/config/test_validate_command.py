"""`headrace validate`, `headrace schema`, the committed schema and the examples."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands.validate import schema_text
from scaler.config.json_schema import fleet_json_schema
from scaler.config.loader import load_fleet
from tests.builders.fleet_yaml import a_fleet, text_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_a_valid_file_is_one_line_a_fleet(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text_of(a_fleet()))
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ok: fleet demo: 1 stage, 1 pool, rollout 1 to 4 replicas by rate_match, at most 10.00 USD/h, "
        "dry run: changes nothing\n"
    )


def test_a_scenario_is_checked_as_well(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = (ROOT / "scaler/simulate/scenarios/small.yaml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ok: scenario small: runs of 12 h, 6.0 replicas in balance of 0 to 8, units of 960 tokens, trainer 60.00 USD/h\n"
    )
    path.write_text(text.replace("hours: 12", "hours: 1"), encoding="utf-8")
    wrong = CliRunner().invoke(app, ["validate", str(path)])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "spec.hours: 1 hours say little of a policy" in wrong.stderr


def test_faults_are_lines_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text_of(a_fleet(interval="5x", colour="red")))
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    lines = path.read_text().splitlines()
    assert first.startswith(f"{path}:{lines.index('  interval: 5x') + 1}: spec.interval: '5x' is no duration (")
    assert second.startswith(f"{path}:{lines.index('  colour: red') + 1}: spec.colour: unknown key (")


@pytest.mark.parametrize("command", [["validate"], ["run", "-f"], ["top", "--once", "-f"], ["demo", "--trace"]])
def test_a_file_that_may_not_be_read_is_one_line_and_exit_code_2(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text_of(a_fleet()))
    forbid(path, monkeypatch)
    result = CliRunner().invoke(app, [*command, str(path)])
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert line.startswith(f"{path}: ")
    assert "cannot be read: Permission denied" in line


def forbid(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for another user after `chmod 000`; root may read it even so."""
    may, open_file = os.access, Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return open_file(self, *args, **kwargs)

    monkeypatch.setattr(os, "access", lambda name, mode: str(name) != str(path) and may(name, mode))
    monkeypatch.setattr(Path, "open", refuse)


def test_the_committed_schema_is_the_one_that_is_printed() -> None:
    printed = CliRunner().invoke(app, ["schema"]).stdout
    assert printed == schema_text()
    assert (DEPLOY / "schema" / "rolloutfleet.schema.json").read_text() == printed, "make schemas"


@pytest.mark.parametrize("target", ["schemas", "chart"])
def test_one_command_makes_all_that_is_committed_of_the_schema(target: str) -> None:
    recipe = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    written = [line for line in recipe.splitlines() if " deploy/" in line]
    for name in (
        "schema/rolloutfleet.schema.json",
        "schema/controller.schema.json",
        "crd/rolloutfleets.headrace.dev.yaml",
    ):
        assert any(line.endswith(f"> deploy/{name}") for line in written), name
    assert any(line.startswith("cp ") and line.endswith(" deploy/helm/headrace/crds/") for line in written)


def test_the_schema_is_of_the_2020_draft_and_forbids_what_it_does_not_know() -> None:
    schema = fleet_json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    objects = [schema, *(part for part in schema["$defs"].values() if part["type"] == "object")]
    assert all(part["additionalProperties"] is False for part in objects)


def test_defaults_in_the_schema_are_written_as_in_the_yaml() -> None:
    definitions = fleet_json_schema()["$defs"]
    assert definitions["GuardRails"]["properties"]["cooldownDown"]["default"] == "5m"
    assert definitions["GuardRails"]["properties"]["disruptionBudget"]["default"] == "10%"
    assert definitions["RateMatchPolicy"]["properties"]["headroom"]["default"] == "10%"


def test_every_default_gives_its_reason() -> None:
    for name, part in fleet_json_schema()["$defs"].items():
        if name.endswith("Policy"):
            continue
        for key, field in part.get("properties", {}).items():
            assert "default" not in field or "Default" in field["description"], f"{name}.{key}"


def test_what_needs_a_restart_is_marked() -> None:
    definitions = fleet_json_schema()["$defs"]
    marked = {
        f"{name}.{key}"
        for name, part in definitions.items()
        for key, field in part.get("properties", {}).items()
        if field.get("x-reload") == "restart"
    }
    assert marked == {
        "AutoScalingGroupProvider.group", "AutoScalingGroupProvider.type", "DaemonSet.name", "DaemonSet.namespace",
        "DaemonSet.type", "Deployment.name", "Deployment.namespace", "Deployment.type", "EksNodeGroupProvider.cluster",
        "EksNodeGroupProvider.nodeGroup", "EksNodeGroupProvider.type", "KarpenterProvider.nodePool",
        "KarpenterProvider.type", "LeaderWorkerSet.name", "LeaderWorkerSet.namespace", "LeaderWorkerSet.type",
        "Metadata.namespace", "RayCluster.group", "RayCluster.name", "RayCluster.namespace", "RayCluster.type",
        "Job.groupSize", "Job.name", "LedgerSignals.type", "LocalProvider.stateDir", "LocalProvider.type", "Metadata.name",
        "Pool.name", "Spec.http", "Spec.ledger", "Spec.weightsDir", "Stage.name",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["local.yaml", "minimal.yaml"])
def test_the_examples_are_valid(name: str) -> None:
    assert load_fleet(DEPLOY / "examples" / name).metadata.name == name.removesuffix(".yaml")


def test_the_full_example_shows_every_setting() -> None:
    """Of what it uses: its own policy, ledger and provider."""
    text = (DEPLOY / "examples" / "local.yaml").read_text()
    used = {
        "GuardRails",
        "Job",
        "Drain",
        "Pool",
        "Offering",
        "Billing",
        "Stage",
        "Spec",
        "Metadata",
        "LocalProvider",
        "Http",
    }
    definitions = fleet_json_schema()["$defs"]
    missing = {key for name in used for key in definitions[name]["properties"] if f"{key}:" not in text}
    assert missing == {"namespace", "annotations", "trainers"}, "a cluster's"


def test_the_minimal_example_has_only_what_is_required() -> None:
    document = yaml.safe_load((DEPLOY / "examples" / "minimal.yaml").read_text())
    definitions = fleet_json_schema()["$defs"]
    # Our own workers need {weights}; others may not.
    assert set(document["spec"]) == {*definitions["Spec"]["required"], "weightsDir"}
    assert set(document["spec"]["stages"][0]) == set(definitions["Stage"]["required"])


def test_reading_a_fleet_loads_no_client_library() -> None:
    heavy = ["boto3", "botocore", "kubernetes", "rich", "torch", "aiohttp", "numpy", "prometheus_client", "redis"]
    modules = "scaler.config.loader, scaler.config.reload, scaler.config.last_good, scaler.config.convert"
    code = f"import sys, json, {modules}; print(json.dumps([name for name in {heavy!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []
