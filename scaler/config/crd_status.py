"""The form of a fleet's status in the cluster: what `scaler.runtime.fleet_status` writes."""

from typing import Any

from scaler.kube.contract import Json

MAX_COMMANDS = 20
"""Commands of the last plan that are kept; the others are counted."""
MAX_TEXT = 1024
"""Characters of a message."""


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _count(description: str) -> Json:
    return {"type": "integer", "description": description}


def _time(description: str) -> Json:
    return {"type": "string", "format": "date-time", "description": description}


def _object(properties: Json, description: str = "", required: tuple[str, ...] = ()) -> Json:
    found: Json = {"type": "object", "properties": properties}
    if description:
        found["description"] = description
    if required:
        found["required"] = list(required)
    return found


def _list(items: Json, description: str, *keys: str) -> Json:
    found = {"type": "array", "items": items, "description": description}
    if keys:
        return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return {**found, "x-kubernetes-list-type": "atomic"}


_SETS: Json = {
    "desired": _count("Replicas wanted, after guard rails."),
    "requested": _count("Replicas asked for that count as capacity."),
    "observed": _count("Replicas that exist."),
    "ready": _count("Replicas that generate."),
    "spendUsdPerH": _text("Rent of what there is, in USD an hour."),
}
_REASON = _object(
    {
        "code": _text("Why, in one word."),
        "message": _text("Why, in a sentence."),
        "clamps": _list(
            _object(
                {
                    "code": _text("Which guard rail."),
                    "wanted": _text("What was wished."),
                    "allowed": _text("What became of it."),
                }
            ),
            "Guard rails that changed the wish.",
        ),
    },
    "Why.",
)
_CONDITION = _object(
    {
        "type": _text("What is judged.", maxLength=316),
        "status": _text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "observedGeneration": {"type": "integer", "format": "int64", "description": "Of the spec it was judged for."},
        "lastTransitionTime": _time("Since when the status is so."),
        "reason": _text("Why, in one word."),
        "message": _text("Why, in a sentence."),
    },
    required=("type", "status", "lastTransitionTime", "reason", "message"),
)
_POOL = _object(
    {
        "name": _text("The pool."),
        "replicas": _count("Replicas of any phase."),
        "refused": _text("Why this pool may not be acted on at all."),
        "failedLists": _count("Lists in a row that failed."),
    },
    required=("name",),
)
_STAGE = _object(
    {
        "name": _text("The stage."),
        **_SETS,
        "policy": _text("The sizing policy."),
        "reason": _REASON,
        "pools": _list(_POOL, "Its pools.", "name"),
    },
    required=("name",),
)
_COMMAND = _object(
    {
        "kind": _text("What is done."),
        "stage": _text("The stage."),
        "pool": _text("The pool."),
        "subject": _text("The replica, or the token of the launch."),
        "reason": _text("Why, in one word."),
        "message": _text("Why, in a sentence."),
    }
)

STATUS: Json = _object(
    {
        "observedGeneration": {"type": "integer", "format": "int64", "description": "Of the spec last looked at."},
        "configDigest": _text("Tells the configuration in use from others, as in `headrace explain`."),
        "paused": {"type": "boolean", "description": "As in use."},
        "dryRun": {"type": "boolean", "description": "As in use."},
        **_SETS,
        "reason": _text("Why stage rollout has this size, in one word."),
        "conditions": _list(_CONDITION, "What holds, what does not, and since when.", "type"),
        "stages": _list(_STAGE, "The last decision, by stage.", "name"),
        "lastPlan": _object(
            {
                "decidedAt": _time("When a decision last asked for something."),
                "commands": _list(_COMMAND, f"What it asked for; the first {MAX_COMMANDS}."),
                "commandsOmitted": _count("Commands that are not shown."),
            },
            "The last decision that asked for something.",
        ),
        "leader": _object(
            {"identity": _text("Who acts."), "epoch": {"type": "integer", "format": "int64"}}, "Who acts."
        ),
        "lastAccepted": _object(
            {
                "digest": _text("sha256 of the spec."),
                "generation": {"type": "integer", "format": "int64", "description": "Of that spec."},
                "spec": {
                    "type": "object",
                    "description": "The spec that was last accepted: what is in use while the one above is bad.",
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
            "What a controller starts with when the spec has gone bad meanwhile.",
        ),
    },
    "What the controller says. Written by the controller that acts.",
)
