"""The controller's own settings: what is wrong is one line that names the place and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands.validate import controller_schema_text
from scaler.config.controller import Controller, load_controller
from scaler.config.json_schema import json_schema_of
from tests.builders.fleet_yaml import GONE, a_fleet, changed, text_of, without

DEPLOY = Path(__file__).parents[2] / "deploy"
QUEUE = "https://sqs.us-west-2.amazonaws.com/123456789012/notices"


def a_controller(**spec: Any) -> dict[str, Any]:
    whole = {
        "aws": {"region": "us-west-2"},
        "notices": {"queue": {"url": QUEUE}},
        "namespaces": ["rl"],
        "election": {"name": "headrace"},
        "api": {"burst": 100},
    }
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "Controller",
        "metadata": {"name": "headrace"},
        "spec": whole | spec,
    }


def lines_of(tmp_path: Path, *documents: object) -> list[str]:
    """What `headrace validate` says on stderr, without the file's name."""
    path = tmp_path / "controller.yaml"
    path.write_bytes(text_of(*documents))
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == (2 if result.stderr else 0), result.output
    return [line.removeprefix(f"{path}:") for line in result.stderr.splitlines()]


WRONG: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("another version", ("apiVersion",), "headrace.dev/v1", "apiVersion: 'headrace.dev/v1' is not known here"),
    ("no name", ("metadata", "name"), GONE, "metadata.name: is missing"),
    ("a key with a slip", ("spec", "notice"), {}, "spec.notice: unknown key (did you mean notices?)"),
    ("a key out of the blue", ("spec", "aws", "zzz"), 1, "spec.aws.zzz: unknown key"),
    ("no region", ("spec", "aws", "region"), GONE, "spec.aws.region: is missing"),
    ("a queue without AWS", ("spec", "aws"), GONE, "spec.notices.queue: a queue cannot be read without AWS"),
    ("a queue's name for its URL", ("spec", "notices", "queue", "url"), "notices",
     "spec.notices.queue.url: 'notices' is no URL (write it whole"),
    ("a queue's ARN for its URL", ("spec", "notices", "queue", "url"), "arn:aws:sqs:us-west-2:123456789012:notices",
     "spec.notices.queue.url: 'arn:aws:sqs:us-west-2:123456789012:notices' is no URL"),
    ("a port that is none", ("spec", "aws", "endpointUrl"), "http://127.0.0.1:x", "spec.aws.endpointUrl: "),
    ("dead letters to the queue itself", ("spec", "notices", "queue", "deadLetterUrl"), QUEUE,
     "spec.notices.queue.deadLetterUrl: is the queue itself (name another queue"),
    ("a flag in quotes", ("spec", "notices", "nodes"), "yes", "spec.notices.nodes: 'yes' is neither true nor false"),
    ("a namespace twice", ("spec", "namespaces"), ["rl", "rl"], "spec.namespaces[1]: rl is there twice"),
    ("a worker namespace twice", ("spec", "workerNamespaces"), ["w", "w"], "spec.workerNamespaces[1]: w is there twice"),
    ("a namespace that is no name", ("spec", "namespaces"), ["RL"], "spec.namespaces[0]: 'RL' is no name"),
    ("one namespace for a list", ("spec", "namespaces"), "rl", "spec.namespaces: 'rl' is no list"),
    ("no requests at all", ("spec", "api", "requestsPerS"), 0, "spec.api.requestsPerS: 0 is out of bounds"),
    ("an address without a port", ("spec", "listen"), "0.0.0.0", "spec.listen: "),
    ("a lease without a name", ("spec", "election", "name"), "", "spec.election.name: "),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "line"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_wrong_is_one_line(path: tuple[str | int, ...], value: Any, line: str, tmp_path: Path) -> None:
    right = a_controller()
    wrong = without(right, *path) if value is GONE else changed(right, *path, to=value)
    (told,) = lines_of(tmp_path, wrong)
    assert f": {line}" in f" {told}"


def test_workers_are_not_looked_for_in_fewer_namespaces_than_fleets(tmp_path: Path) -> None:
    wrong = without(a_controller(workerNamespaces=["w"]), "spec", "namespaces")
    (told,) = lines_of(tmp_path, wrong)
    assert "spec.workerNamespaces: fleets may be anywhere" in told


def test_several_faults_are_several_lines_and_several_documents_are_one(tmp_path: Path) -> None:
    two = lines_of(tmp_path, a_controller(listen="x", zzz=1))
    assert len(two) == 2
    (mixed,) = lines_of(tmp_path, a_controller(), a_fleet())
    assert "holds 2 documents, and one of kind Controller is wanted" in mixed


def test_the_least_that_is_needed_is_right_and_means_the_defaults(tmp_path: Path) -> None:
    least = {"apiVersion": "headrace.dev/v1alpha1", "kind": "Controller", "metadata": {"name": "x"}}
    assert lines_of(tmp_path, least) == []
    spec = load_controller(tmp_path / "controller.yaml").spec
    assert (spec.namespaces, spec.aws, spec.api.requests_per_s, spec.notices.nodes) == ((), None, 200, True)


def test_validate_says_in_a_line_what_the_settings_mean(tmp_path: Path) -> None:
    path = tmp_path / "controller.yaml"
    path.write_bytes(text_of(a_controller()))
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ok: controller headrace: fleets in rl, AWS in us-west-2, notices from a queue, nodes, instance status, "
        "lease headrace-system/headrace, listens on 0.0.0.0:9090\n"
    )


def test_a_file_of_neither_kind_is_told_as_a_fleet(tmp_path: Path) -> None:
    told = lines_of(tmp_path, {"kind": "Controler"})
    assert any("kind: 'Controler' is not known here" in line for line in told)


def test_the_committed_schema_is_the_one_that_is_printed() -> None:
    printed = CliRunner().invoke(app, ["schema", "--controller"]).stdout
    assert printed == controller_schema_text()
    assert (DEPLOY / "schema" / "controller.schema.json").read_text() == printed, "make schemas"


def test_every_default_gives_its_reason() -> None:
    schema = json_schema_of(Controller)
    for name, part in [("Controller", schema), *schema["$defs"].items()]:
        for key, field in part.get("properties", {}).items():
            assert "default" not in field or "Default" in field["description"] or key == "namespace", f"{name}.{key}"


def test_the_example_is_valid_and_shows_every_setting() -> None:
    path = DEPLOY / "examples" / "controller.yaml"
    load_controller(path)
    shown = yaml.safe_load(path.read_text())["spec"]
    definitions = json_schema_of(Controller)["$defs"]
    assert definitions["ControllerSpec"]["properties"].keys() == shown.keys()
    assert definitions["Notices"]["properties"].keys() == shown["notices"].keys()
    assert definitions["Queue"]["properties"].keys() == shown["notices"]["queue"].keys()
