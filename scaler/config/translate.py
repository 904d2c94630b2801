"""pydantic's errors in our words: where in the YAML, what is wrong, what to do.

The JSON Schema is the map: it tells which steps of an error's location are keys of the YAML and which are tags of a union,
which keys a place knows, and what each of them is for.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scaler.config.faults import shown
from scaler.config.yaml_model import FAULT, Location, Problem

Node = Mapping[str, Any]

_TYPES = {
    "int": ("no whole number", "write digits only, without quotes"),
    "float": ("no number", "write a number, without quotes"),
    "finite_number": ("no finite number", "write a number, without quotes"),
    "bool": ("neither true nor false", "write true or false, without quotes"),
    "string": ("no text", "put it in quotes"),
    "tuple": ("no list", "write a list, each item after a dash"),
    "dict": ("no mapping", "write keys and values"),
    "model": ("no mapping", "write keys and values"),
    "model_attributes": ("no mapping", "write keys and values"),
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def problems_of(error: ValidationError, schema: Node) -> Iterator[Problem]:
    """Every error as a problem whose location counts from the document's root."""
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and detail["input"]:
            continue  # pydantic counts the items that were right; what is wrong with the others is told by itself
        location, node, holder = _place(detail["loc"], schema)
        message, remedy = _words(detail, location, node, holder)
        yield Problem(location, message, remedy)


def _place(loc: Location, schema: Node) -> tuple[Location, Node, Node]:
    """The location without tags, the schema there, and the schema of what holds it."""
    steps: list[str | int] = []
    node = holder = _plain(schema, schema)
    for step in loc:
        mapping = node.get("discriminator", {}).get("mapping", {})
        if step in mapping:
            node = _plain({"$ref": mapping[step]}, schema)
        elif step != "[key]":
            steps.append(step)
            holder, node = node, _plain(_below(node, step), schema)
    return tuple(steps), node, holder


def _below(node: Node, step: str | int) -> Node:
    if isinstance(step, int):
        found = node.get("items", {})
    else:
        found = node.get("properties", {}).get(step) or node.get("additionalProperties") or {}
    return found if isinstance(found, dict) else {}


def _plain(node: Node, schema: Node) -> Node:
    """The schema behind references and `or null`; a description beside a reference stays."""
    for arm in node.get("anyOf", ()):
        if arm.get("type") != "null":
            return _plain({**arm, **{key: node[key] for key in node if key != "anyOf"}}, schema)
    if "$ref" in node:
        target = schema["$defs"][node["$ref"].rpartition("/")[2]]
        return {**target, **{key: node[key] for key in node if key != "$ref"}}
    return node


def _words(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    """Message and remedy."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == FAULT:
        return str(context["message"]), str(context["remedy"])
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{shown(detail['input'])} is out of bounds", f"use {words} {context[key]}"
    speak = _SPEAKERS.get(kind)
    if speak is not None:
        return speak(detail, location, node, holder)
    noun, remedy = _TYPES.get(kind.removesuffix("_type"), ("", ""))
    if not noun:
        return detail["msg"], _about(node)
    return f"{shown(detail['input'])} is {noun}", remedy


def _missing(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del detail, location, holder
    words = f", one of: {', '.join(_allowed(node))}" if _allowed(node) else ""
    return "is missing", f"add it: {_about(node)}{words}"


def _unknown_key(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del detail, node
    known = sorted(holder.get("properties", {}))
    near = difflib.get_close_matches(str(location[-1])[:80], known, n=1, cutoff=0.6)
    return "unknown key", f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _unknown_tag(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del holder
    tag = detail.get("ctx", {}).get("tag")
    return f"unknown {_role(location)} {shown(tag)}", f"known: {', '.join(_tags(node))}"


def _no_tag(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del detail, holder
    return f"{_role(location)} has no type", f"add type, one of: {', '.join(_tags(node))}"


def _unknown_word(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del holder
    words = _allowed(node)
    if location[-1:] == ("type",):
        return f"unknown {_role(location[:-1])} {shown(detail['input'])}", f"known: {', '.join(words)}"
    return f"{shown(detail['input'])} is not known here", f"use {' or '.join(words)}"


def _too_short(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del detail, holder
    return f"there is nothing in {_role(location)}", f"add one: {_about(node)}"


def _too_long(detail: ErrorDetails, location: Location, node: Node, holder: Node) -> tuple[str, str]:
    del holder, node
    return f"there is too much in {_role(location)}", f"at most {detail['ctx']['max_length']}"


_SPEAKERS: Mapping[str, Callable[[ErrorDetails, Location, Node, Node], tuple[str, str]]] = {
    "missing": _missing,
    "extra_forbidden": _unknown_key,
    "union_tag_invalid": _unknown_tag,
    "union_tag_not_found": _no_tag,
    "literal_error": _unknown_word,
    "enum": _unknown_word,
    "too_short": _too_short,
    "too_long": _too_long,
    "string_too_long": _too_long,
    "string_too_short": _too_short,
}


def _role(location: Location) -> str:
    """What the value is, by its key."""
    return next((str(step) for step in reversed(location) if isinstance(step, str)), "document")


def _tags(node: Node) -> list[str]:
    return sorted(node.get("discriminator", {}).get("mapping", {}))


def _allowed(node: Node) -> list[str]:
    """The words that a place allows, where it allows only some."""
    return [str(node["const"])] if "const" in node else [str(word) for word in node.get("enum", ())]


def _about(node: Node) -> str:
    """What belongs here: the first sentence of the field's description."""
    text = " ".join(str(node.get("description", "see headrace schema")).split())
    sentence = text.split(". ")[0].rstrip(".")
    example = next(iter(node.get("examples", ())), None)
    return f'{sentence}, like "{example}"' if example else sentence
