"""The CustomResourceDefinition of a RolloutFleet, made from the one schema.

Invariants: structural; what passes the models passes the API server (but for an explicit null), and what the API server can
refuse by itself it does, with a path; names, required fields and rules cannot drift apart from the models, since they are
made of them. The annotation `headrace.dev/schema-hash` tells a controller whether the API server keeps every field that
it knows: an older definition drops what it does not know in silence. Texts for people are not in the hash.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from scaler.config.crd_rules import RULES
from scaler.config.crd_status import STATUS
from scaler.config.json_schema import fleet_json_schema
from scaler.config.schema import KIND
from scaler.config.structural import Inliner
from scaler.kube.contract import DEFINITIONS, ROLLOUT_FLEETS, Json

HASH_ANNOTATION = "headrace.dev/schema-hash"
NAME = f"{ROLLOUT_FLEETS.plural}.{ROLLOUT_FLEETS.group}"
"""The definition's name."""
_COLUMNS = (
    ("Desired", "integer", ".status.desired"),
    ("Requested", "integer", ".status.requested"),
    ("Observed", "integer", ".status.observed"),
    ("Ready", "integer", ".status.ready"),
    ("Reason", "string", ".status.reason"),
    ("Paused", "boolean", ".status.paused"),
    ("DryRun", "boolean", ".status.dryRun"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


@cache
def _schema() -> Json:
    return structural(fleet_json_schema())


def structural(whole: Json) -> Json:
    """The structural schema of a fleet whose YAML has this JSON Schema."""
    inliner = Inliner(whole, RULES)
    fleet = inliner.node({**whole, "properties": {"spec": whole["properties"]["spec"]}}, KIND)
    fleet["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **fleet["properties"],
        "status": STATUS,
    }
    fleet["required"] = ["spec"]
    return fleet


@cache
def schema_hash() -> str:
    """Tells the forms of a fleet's spec and status that this controller knows from others."""
    return hash_of(_schema())


def hash_of(schema: Json) -> str:
    """The hash of a structural schema: of its form, not of texts for people."""
    return hashlib.sha256(json.dumps(_without_texts(schema), sort_keys=True).encode()).hexdigest()[:16]


def definition() -> Json:
    """The definition, as it is applied."""
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": NAME, "annotations": {HASH_ANNOTATION: schema_hash()}},
        "spec": {
            "group": ROLLOUT_FLEETS.group,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": ROLLOUT_FLEETS.plural,
                "singular": KIND.lower(),
                "shortNames": ["rfleet"],
                "categories": ["headrace"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Json:
    return {
        "name": ROLLOUT_FLEETS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS],
        "schema": {"openAPIV3Schema": _schema()},
    }


def installed_hash(found: Mapping[str, Any]) -> str:
    """The schema hash that an installed definition says it has; empty where it says none."""
    return str((found.get("metadata", {}).get("annotations") or {}).get(HASH_ANNOTATION, ""))


def definition_text() -> str:
    """The definition as it is printed, and kept in `deploy/crd`."""
    head = "# Made by `headrace schema --crd`; do not edit.\n"
    return head + yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=120)


class _Plain(yaml.SafeDumper):
    """Without anchors: whoever reads it need not look elsewhere."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _without_texts(node: Any) -> Any:
    """Without what is there for people: descriptions, and messages of rules."""
    if isinstance(node, Mapping):
        rule = "rule" in node
        texts = ("message", "messageExpression") if rule else ("description",)
        return {
            word: _without_texts(part)
            for word, part in node.items()
            if not (word in texts and (rule or isinstance(part, str)))
        }
    return [_without_texts(part) for part in node] if isinstance(node, list) else node
