"""A policy by name or file, and the file of a policy.

`load_policy` takes a registered policy's name (its defaults), a preset's name (`policies/presets/*.yaml`), or a YAML file:
`policy` and perhaps `placement` as in a stage of a RolloutFleet, or a whole RolloutFleet, of which the rollout stage counts.
`dump_policy` writes the former, so that what `tune` found can be pasted into a fleet; durations to the millisecond.

Errors: `ConfigError`, one line a fault.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from policies.registry import PLACEMENT, SIZING
from scaler.config.convert import to_spec
from scaler.config.documents import refuse_other_kind, validated
from scaler.config.faults import ConfigError, Fault, shown
from scaler.config.json_schema import json_schema_of
from scaler.config.loader import only_fleet, parse_fleets
from scaler.config.policy_models import policy_model
from scaler.config.schema import KIND, RolloutFleet
from scaler.config.stage import DEFAULT_PLACEMENT, PlacementPolicy, SizingPolicy, StageName
from scaler.config.yaml_model import YamlModel
from scaler.config.yaml_text import Document, read_bytes, read_documents
from scaler.model.spec import PolicySpec

PRESETS = resources.files("policies") / "presets"
_EXAMPLE = "policy: {type: rate_match}"


class PolicyDocument(YamlModel):
    """A policy on its own, as in a stage of a RolloutFleet."""

    policy: SizingPolicy
    """How many replicas are wanted."""
    placement: PlacementPolicy = Field(default={"type": DEFAULT_PLACEMENT}, validate_default=True)
    """From which offerings. Default cheapest_available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A sizing and a placement policy with their parameters, under the name that reports show."""

    name: str
    sizing: PolicySpec
    placement: PolicySpec


def load_policy(name_or_path: str) -> PolicyChoice:
    """The policy of that name, or in that file. `ConfigError` where there is none, or it has faults."""
    if is_path(name_or_path):
        path = Path(name_or_path)
        return _in_file(path.stem, read_bytes(path), path)
    if name_or_path in SIZING:
        return _by_name(name_or_path)
    presets = _presets()
    if name_or_path in presets:
        return _in_file(name_or_path, presets[name_or_path].read_bytes(), Path(str(presets[name_or_path])))
    known = ", ".join(sorted({*SIZING, *presets}))
    remedy = f"known: {known}; or name a YAML file"
    raise ConfigError([Fault(file=name_or_path, message="no policy, preset or file of that name", remedy=remedy)])


def _by_name(name: str) -> PolicyChoice:
    """A registered policy with its defaults; one that has none for a parameter needs a file, which the fault shows."""
    try:
        return _choice(name, Document(value={"policy": {"type": name}}), Path(name))
    except ConfigError as error:
        keys = [fault.path.rpartition(".")[2] for fault in error.faults]
        file = f"policy: {{type: {name}, {', '.join(f'{key}: ...' for key in keys)}}}"
        words = f"{', '.join(fault.path for fault in error.faults)}: is missing, and has no default"
        raise ConfigError([Fault(file=name, message=words, remedy=f"name a YAML file that holds {file}")]) from None


def policy_of(fleet: RolloutFleet, name: str = "fleet") -> PolicyChoice:
    """That of the fleet's rollout stage."""
    stage = next(stage for stage in to_spec(fleet).stages if stage.name == StageName.ROLLOUT)
    return PolicyChoice(name=name, sizing=stage.sizing, placement=stage.placement)


def with_unsaid_of(choice: PolicyChoice, other: PolicyChoice) -> PolicyChoice:
    """The choice; what it leaves unsaid (None) the other says, of the sizing or placement policy that both have."""
    return dataclasses.replace(
        choice,
        sizing=_with_unsaid_of(choice.sizing, other.sizing),
        placement=_with_unsaid_of(choice.placement, other.placement),
    )


def _with_unsaid_of(spec: PolicySpec, other: PolicySpec) -> PolicySpec:
    if spec.name != other.name:
        return spec
    params: Any = spec.params
    unsaid = [field.name for field in dataclasses.fields(params) if getattr(params, field.name) is None]
    return PolicySpec(
        name=spec.name, params=dataclasses.replace(params, **{name: getattr(other.params, name) for name in unsaid})
    )


def dump_policy(choice: PolicyChoice) -> str:
    """The YAML that `load_policy` reads as this choice."""
    return yaml.safe_dump(forms_of(choice), sort_keys=False)


def forms_of(choice: PolicyChoice) -> dict[str, dict[str, Any]]:
    """`policy` and `placement` as plain values of the YAML, each parameter written out."""
    return {"policy": _form(choice.sizing), "placement": _form(choice.placement)}


def is_path(text: str) -> bool:
    """Whether a word means a file, not a name: it holds a slash or a YAML ending, or there is a file of that name."""
    return "/" in text or text.endswith((".yaml", ".yml")) or Path(text).is_file()


def _presets() -> dict[str, Traversable]:
    if not PRESETS.is_dir():
        return {}
    return {entry.name.removesuffix(".yaml"): entry for entry in PRESETS.iterdir() if entry.name.endswith(".yaml")}


def _in_file(name: str, data: bytes, source: Path) -> PolicyChoice:
    documents = read_documents(data, source, _EXAMPLE)
    if any(isinstance(found.value, dict) and found.value.get("kind") == KIND for found in documents):
        return policy_of(only_fleet(parse_fleets(data, source), source), name)
    if len(documents) != 1:
        fault = Fault(file=str(source), message=f"holds {len(documents)} documents", remedy="keep one policy a file")
        raise ConfigError([fault])
    refuse_other_kind(documents[0], source, "policy")
    return _choice(name, documents[0], source)


def _choice(name: str, document: Document, source: Path) -> PolicyChoice:
    found = validated(document, source, PolicyDocument, _schema)
    return PolicyChoice(name=name, sizing=found.policy.to_spec(), placement=found.placement.to_spec())


@cache
def _schema() -> dict[str, Any]:
    return json_schema_of(PolicyDocument)


def _form(spec: PolicySpec) -> dict[str, Any]:
    """A policy's mapping in the YAML."""
    registered = {**SIZING, **PLACEMENT}.get(spec.name)
    if registered is None or not isinstance(spec.params, registered.params):
        raise ValueError(f"{shown(spec.name)} with {type(spec.params).__name__} is no registered policy")
    values = {field.name: getattr(spec.params, field.name) for field in dataclasses.fields(registered.params)}
    model = policy_model(spec.name, registered.params).model_construct(type=spec.name, **values)
    return model.model_dump(mode="json", by_alias=True)
