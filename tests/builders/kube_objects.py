"""What an API server does to objects, by itself: selectors, patches, and which changes count. Pure functions on JSON.

Source: Kubernetes API conventions and concepts (label selectors, field selectors, RFC 7386 and RFC 6902 patches,
strategic merge keys of core/v1).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jsonpatch

from scaler.kube.contract import Invalid, Json

MERGE_KEYS = {"conditions": "type", "containers": "name", "ownerReferences": "uid", "env": "name"}
"""Lists that a strategic merge patch merges by a key; it replaces all others, a node's taints too."""
FIELDS = {
    "pods": {"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"},
    "nodes": {"spec.unschedulable"},
    "events": {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"},
    "secrets": {"type"},
}
"""Fields that a selector may name, beside `metadata.name` and `metadata.namespace`."""

Matches = Callable[[Json], bool]


def clone(body: Json) -> Json:
    """What came over the wire shares nothing with what was sent."""
    return cast("Json", json.loads(json.dumps(body)))


def dig(body: Any, path: str) -> Any:
    """The value at a dotted path; None where it leads nowhere."""
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body


def label_matcher(selector: str) -> Matches:
    """`a=b`, `a!=b`, `a in (x,y)`, `a notin (x)`, `a`, `!a`, joined by commas."""
    terms = [_label_term(term.strip()) for term in re.split(r",(?![^(]*\))", selector) if term.strip()]
    return lambda body: all(term(dig(body, "metadata.labels") or {}) for term in terms)


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if found := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", term):
        key, wanted = found[1], {value.strip() for value in found[3].split(",")}
        inside = found[2] == "in"
        return lambda labels: (labels.get(key) in wanted) is inside
    if found := re.fullmatch(r"([^!=\s]+)\s*(==|=|!=)\s*(\S*)", term):
        key, value, same = found[1], found[3], found[2] != "!="
        return lambda labels: (labels.get(key) == value) is same
    if re.fullmatch(r"![^!=\s]+", term):
        return lambda labels: term[1:] not in labels
    if re.fullmatch(r"[^!=\s]+", term):
        return lambda labels: term in labels
    raise Invalid(f"unable to parse requirement: {term!r}", status=400, reason="BadRequest")


def field_matcher(plural: str, selector: str) -> Matches:
    """`metadata.name=x`, `spec.nodeName!=y`, joined by commas; fields that the server does not index are refused."""
    terms: list[tuple[str, bool, str]] = []
    for term in filter(None, selector.split(",")):
        found = re.fullmatch(r"([^!=]+)(==|=|!=)(.*)", term)
        if found is None or found[1] not in {"metadata.name", "metadata.namespace"} | FIELDS.get(plural, set()):
            raise Invalid(f"field label not supported: {term}", status=400, reason="BadRequest")
        terms.append((found[1], found[2] != "!=", found[3]))
    return lambda body: all((str(dig(body, path) or "") == value) is same for path, same, value in terms)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: lists are replaced, null removes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Json, operations: Sequence[Json]) -> Json:
    """RFC 6902; a failed `test` or a path that is not there is 422."""
    try:
        return cast("Json", jsonpatch.apply_patch(clone(target), list(operations)))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Invalid(str(error), status=422, reason="Invalid") from error


def strategic_patch(target: Any, patch: Any) -> Any:
    """As a merge patch, but lists with a merge key are merged by it; `$patch: delete` removes an entry."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = strategic_patch(merged.get(key), value)
    return merged


def _merge_list(old: Sequence[Json], changes: Sequence[Json], key: str) -> list[Json]:
    entries = {entry.get(key): entry for entry in old}
    for change in changes:
        if change.get("$patch") == "delete":
            entries.pop(change.get(key), None)
        else:
            entries[change.get(key)] = strategic_patch(entries.get(change.get(key)), change)
    return list(entries.values())
