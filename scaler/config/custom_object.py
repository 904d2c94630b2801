"""From a RolloutFleet object of the API server to the same model as a file's, and the spec last accepted that it carries.

Policy: what tools and the API server add to an object (status, managed fields, annotations, finalizers) is none of the
fleet's; relative paths are refused, since there is no folder that they could start from, and so is a spec so large that
the API server could not keep it twice.
Invariants: a spec kept in `status.lastAccepted` is used only if its digest is right.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import ValidationError

from scaler.config.faults import ConfigError, Fault
from scaler.config.json_schema import fleet_json_schema
from scaler.config.schema import API_VERSION, KIND, RolloutFleet
from scaler.config.translate import problems_of
from scaler.config.yaml_text import path_text
from scaler.kube.contract import Json

MAX_SPEC_BYTES = 512 * 1024
"""A third of what etcd takes for one object: the spec is there a second time, as the one last accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A spec that was accepted, as it was written."""

    digest: str
    """sha256 of the spec."""
    generation: int
    spec: Mapping[str, Any]

    def to_json(self) -> Json:
        """As `status.lastAccepted` keeps it."""
        return {"digest": self.digest, "generation": self.generation, "spec": dict(self.spec)}


def place_of(body: Json) -> str:
    """How faults name the object."""
    meta = body.get("metadata", {})
    return f"rolloutfleet {meta.get('namespace', '')}/{meta.get('name', '')}"


def read_fleet(body: Json) -> RolloutFleet:
    """The fleet in an object. `ConfigError` tells every fault."""
    meta, source = body.get("metadata", {}), place_of(body)
    if len(_compact(body.get("spec"))) > MAX_SPEC_BYTES:
        message = f"is larger than {MAX_SPEC_BYTES // 1024} KiB, and could not be kept as the one last accepted"
        raise ConfigError([_fault(body, "spec", message, "make several fleets of it")])
    document = {
        "apiVersion": body.get("apiVersion", API_VERSION),
        "kind": body.get("kind", KIND),
        "metadata": {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)},
        "spec": body.get("spec"),
    }
    try:
        return RolloutFleet.model_validate(document, context={"folder": None})
    except ValidationError as error:
        raise ConfigError(
            Fault(file=source, path=path_text(each.location) or "document", message=each.message, remedy=each.remedy)
            for each in problems_of(error, _schema())
        ) from None


def accepted(body: Json) -> Accepted:
    """The object's spec as one that was accepted."""
    spec = body.get("spec") or {}
    return Accepted(digest=spec_digest(spec), generation=int(body["metadata"].get("generation", 0)), spec=spec)


def last_accepted(body: Json) -> tuple[RolloutFleet, Accepted] | None:
    """What the object says was accepted last; None where it says nothing. `ConfigError` where that is damaged or bad now."""
    kept = (body.get("status") or {}).get("lastAccepted")
    if not kept:
        return None
    found = Accepted(
        digest=kept.get("digest", ""), generation=int(kept.get("generation", 0)), spec=kept.get("spec") or {}
    )
    if spec_digest(found.spec) != found.digest:
        remedy = "mend the fleet's own spec"
        raise ConfigError([_fault(body, "status.lastAccepted", "does not match its digest", remedy)])
    try:
        return read_fleet({**body, "spec": found.spec}), found
    except ConfigError as error:
        raise ConfigError(replace(each, path=f"status.lastAccepted: {each.path}") for each in error.faults) from None


def spec_digest(spec: Mapping[str, Any]) -> str:
    """sha256 of a spec, whatever the order of its keys."""
    return hashlib.sha256(_compact(spec)).hexdigest()


def _compact(spec: object) -> bytes:
    return json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()


def _fault(body: Json, path: str, message: str, remedy: str) -> Fault:
    return Fault(file=place_of(body), path=path, message=message, remedy=remedy)


@cache
def _schema() -> Json:
    return fleet_json_schema()
