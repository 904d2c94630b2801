"""The definition as a value: up to date, structural, and a hash that only a change of form changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.config import crd
from scaler.config.crd_rules import RULES
from scaler.config.json_schema import fleet_json_schema
from scaler.config.loader import load_fleet, load_fleets
from scaler.config.structural import Inliner

DEPLOY = Path(__file__).parents[2] / "deploy"
CLUSTER_EXAMPLES = sorted((DEPLOY / "examples").glob("cluster-*.yaml"))
SCHEMA = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
KNOWN = {
    "type", "description", "properties", "required", "items", "additionalProperties", "enum", "pattern", "format", "minLength",
    "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema, by path."""
    yield path, node
    for name, part in node.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in node:
            yield from nodes(node[word], f"{path}[]")


def test_the_committed_definition_is_the_one_that_is_printed() -> None:
    printed = CliRunner().invoke(app, ["schema", "--crd"]).stdout
    assert (DEPLOY / "crd" / f"{crd.NAME}.yaml").read_text() == printed == crd.definition_text(), "make schemas"


def test_the_schema_is_structural_and_bounded() -> None:
    for path, node in nodes(SCHEMA):
        assert set(node) <= KNOWN, path
        assert "type" in node, path
        if path.startswith(".spec"):
            bounded = {"string": "maxLength", "array": "maxItems"}.get(node["type"])
            assert bounded is None or bounded in node or "enum" in node or "maxLength" in node, path
            assert "description" in node or path.endswith("[]") or ".policy." in path or ".placement." in path, path


def test_floor_ceiling_and_spend_cap_are_required() -> None:
    stage = SCHEMA["properties"]["spec"]["properties"]["stages"]["items"]
    assert {"floor", "ceiling"} <= set(stage["properties"]["guardRails"]["required"])
    assert "spendCapUsdPerH" in SCHEMA["properties"]["spec"]["required"]


def test_every_rule_belongs_to_a_model_of_the_schema() -> None:
    assert set(RULES) - {"RolloutFleet"} <= set(fleet_json_schema()["$defs"])


def hash_with(**spec_field: Any) -> str:
    whole = fleet_json_schema()
    whole["$defs"]["Spec"]["properties"] |= spec_field
    return crd.hash_of(crd.structural(whole))


def test_a_new_field_changes_the_hash_and_another_text_does_not() -> None:
    paused = fleet_json_schema()["$defs"]["Spec"]["properties"]["paused"]
    assert hash_with(paused={**paused, "description": "Another text."}) == crd.schema_hash()
    assert hash_with(quiet=paused) != crd.schema_hash()


def test_a_definition_without_annotation_has_no_hash() -> None:
    assert crd.installed_hash({"metadata": {"annotations": None}}) == ""
    assert crd.installed_hash({}) == ""


def test_arms_that_differ_in_type_cannot_be_one_field() -> None:
    tags = {name: {"const": name, "type": "string", "description": "x"} for name in "ab"}
    arms = {
        name: {"type": "object", "properties": {"type": tags[name], "n": {"type": kind}}}
        for name, kind in (("a", "string"), ("b", "integer"))
    }
    union = {"oneOf": [], "discriminator": {"mapping": {name: f"#/$defs/{name}" for name in arms}}}
    with pytest.raises(TypeError, match="n has several types in a, b"):
        Inliner({"$defs": arms}, {}).node(union)


@pytest.mark.parametrize("path", CLUSTER_EXAMPLES, ids=lambda path: path.name)
def test_each_cluster_example_starts_as_a_dry_run_in_its_namespace(path: Path) -> None:
    fleet = load_fleet(path)
    assert fleet.spec.dry_run
    assert fleet.metadata.namespace == "rl"


def test_the_examples_show_every_provider_and_worker_set() -> None:
    pools = [pool for path in CLUSTER_EXAMPLES for stage in load_fleet(path).spec.stages for pool in stage.pools]
    shown = {(pool.provider.type, pool.provider.worker_set.type) for pool in pools if pool.provider.type != "local"}
    assert shown == {
        ("auto_scaling_group", "daemon_set"),
        ("eks_node_group", "deployment"),
        ("karpenter", "leader_worker_set"),
        ("karpenter", "ray_cluster"),
    }


def test_all_cluster_examples_in_one_file_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("\n---\n".join(example.read_text() for example in CLUSTER_EXAMPLES))
    assert len(load_fleets(path)) == len(CLUSTER_EXAMPLES)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(CLUSTER_EXAMPLES)
