"""From the bytes of a file to plain values, with the line of each: nothing a file holds may hurt the reader.

A first pass over the parser's events keeps nothing but counts: depth, and the number of nodes that the document would have
with its aliases expanded. Only what stays within `MAX_NODES` and `MAX_DEPTH` is built, so a YAML bomb costs no memory. Mappings
keep their first key of a name and report every further one; merge keys and tags beyond plain YAML are refused; dates and `1:30`
stay text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from scaler.config.faults import ConfigError, Fault, shown
from scaler.config.yaml_model import Location, Problem
from scaler.files import NoRegularFile, TooLarge, read_regular

MAX_BYTES = 1 << 20
"""A megabyte: a thousand times a usual file."""
MAX_NODES = 20_000
"""Values of a file with its aliases expanded: about two hundred fleets."""
MAX_DEPTH = 24
"""The schema needs ten levels."""

_CONSTRUCTOR = SafeConstructor()
_SCALARS = {
    "null": _CONSTRUCTOR.construct_yaml_null,
    "bool": _CONSTRUCTOR.construct_yaml_bool,
    "int": _CONSTRUCTOR.construct_yaml_int,
    "float": _CONSTRUCTOR.construct_yaml_float,
}
_TEXT = frozenset({"str", "timestamp", "value"})
_LONGEST_NUMBER = 100
"""Characters; all the schema's numbers are shorter."""
_FLEET = "a RolloutFleet; deploy/examples/local.yaml is one"
_CORE = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Document:
    """One document: its value, the line of every part of it, and what is wrong with it as YAML."""

    value: Any = None
    line: int = 1
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, location: Location) -> int:
        """The line of this part, or of the nearest that is there and holds it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, self.line)


def read_bytes(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """The file's bytes. `ConfigError` where there is no such file, or it is none, or too large."""
    try:
        return read_regular(path, most_bytes)
    except OSError as error:
        raise _file_error(path, *_unreadable(error)) from None


def _unreadable(error: OSError) -> tuple[str, str]:
    """What is wrong with a file, and what to do about it."""
    match error:
        case FileNotFoundError():
            return "no such file", "check the name"
        case IsADirectoryError():
            return "is a folder", "name a YAML file"
        case NoRegularFile():
            return "is no regular file", "name a YAML file"
        case TooLarge():
            return "is larger than 1 MiB", "a usual one has a few KiB; split the file, or name another"
    return f"cannot be read: {error.strerror or error}", "check name and permissions"


def _file_error(path: Path, message: str, remedy: str) -> ConfigError:
    return ConfigError([Fault(file=str(path), message=message, remedy=remedy)])


def read_documents(data: bytes, source: Path, example: str = _FLEET) -> list[Document]:
    """The documents in a file's bytes, empty ones left out. `ConfigError` where it is no YAML, or would grow too large.

    `example` says what to write into an empty one.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _line_error(source, line, f"byte {error.start} is no UTF-8", "save the file as UTF-8") from None
    try:
        _check_size(text, source)
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) if node is not None]
    except yaml.YAMLError as error:
        line, message = _yaml_message(text, error)
        raise _line_error(source, line, f"is no YAML: {message}", "mend the line, or the one above it") from None
    documents = [_document(node) for node in nodes]
    found = [document for document in documents if document.value is not None or document.problems]
    if not found:
        raise _file_error(source, "is empty", f"write {example}")
    return found


def _line(mark: Any) -> int:
    return int(mark.line) + 1


def _line_error(source: Path, line: int, message: str, remedy: str) -> ConfigError:
    return ConfigError([Fault(file=str(source), line=line, message=message, remedy=remedy)])


def _yaml_message(text: str, error: yaml.YAMLError) -> tuple[int, str]:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    if mark is not None:
        return mark.line + 1, f"{problem}, column {mark.column + 1}"
    before = text.encode()[: getattr(error, "position", 0) or 0]
    column = len(before) - before.rfind(b"\n")
    return before.count(b"\n") + 1, f"{problem}, column {column}"


@dataclass(slots=True)
class _Open:
    """A collection whose end is not seen yet: expanded nodes, height above its deepest node, anchor."""

    anchor: str | None
    nodes: int = 1
    height: int = 1


def _check_size(text: str, source: Path) -> None:
    """Refuse what is too deep or, with aliases expanded, too large; nothing is kept but the sizes of anchors."""
    anchors: dict[str, tuple[int, int]] = {}
    stack = [_Open(None)]
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = _line(event.start_mark)
        match event:
            case yaml.DocumentStartEvent():
                anchors.clear()
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                stack.append(_Open(event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = stack.pop()
                _add(stack[-1], ended.anchor, ended.nodes, ended.height, anchors)
            case yaml.ScalarEvent():
                _add(stack[-1], event.anchor, 1, 1, anchors)
            case yaml.AliasEvent():
                _add(stack[-1], None, *_alias_size(str(event.anchor), anchors, stack), anchors)
        if sum(level.nodes for level in stack) > MAX_NODES:
            raise _line_error(
                source, line, f"holds more than {MAX_NODES} values", "write less, and no aliases in aliases"
            )
        if len(stack) + stack[-1].height - 1 > MAX_DEPTH + 1:
            raise _line_error(source, line, f"is nested deeper than {MAX_DEPTH} levels", "a fleet needs about ten")


def _alias_size(name: str, anchors: dict[str, tuple[int, int]], stack: list[_Open]) -> tuple[int, int]:
    """Nodes and height; past all bounds for a collection inside itself. One that is nowhere is the parser's to refuse."""
    if any(level.anchor == name for level in stack):
        return MAX_NODES, MAX_DEPTH
    return anchors.get(name, (1, 1))


def _add(holder: _Open, anchor: str | None, nodes: int, height: int, anchors: dict[str, tuple[int, int]]) -> None:
    holder.nodes += nodes
    holder.height = max(holder.height, height + 1)
    if anchor is not None:
        anchors[anchor] = (nodes, height)


def _document(node: yaml.Node) -> Document:
    document = Document(line=_line(node.start_mark))
    document.value = _value(node, (), document)
    return document


def _value(node: yaml.Node, here: Location, document: Document) -> Any:
    document.lines.setdefault(here, _line(node.start_mark))
    kind = node.tag.removeprefix(_CORE)
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return {key: _value(value, (*here, key), document) for key, value in _entries(node, here, document)}
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_value(item, (*here, index), document) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and (kind in _TEXT or kind in _SCALARS):
        return _scalar(node, kind, here, document)
    document.problems.append(Problem(here, f"tag {shown(node.tag)} is not allowed", "leave the tag out"))
    return None


def _scalar(node: yaml.ScalarNode, kind: str, here: Location, document: Document) -> Any:
    # YAML 1.1 reads 1:30 as ninety, in time that grows with the square of its length: nobody means it.
    if kind in _TEXT or ":" in node.value:
        return node.value
    try:
        if len(node.value) > _LONGEST_NUMBER:
            raise ValueError
        return _SCALARS[kind](node)
    except (ValueError, KeyError, OverflowError):
        problem = Problem(here, f"{shown(node.value)} is no {kind}", "put text in quotes")
        document.problems.append(problem)
        return None


def _entries(node: yaml.MappingNode, here: Location, document: Document) -> Iterator[tuple[str, yaml.Node]]:
    """Key and value of every entry whose key can be used."""
    first_lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = _line(key_node.start_mark)
        key = key_node.value
        if key_node.tag == f"{_CORE}merge":
            document.problems.append(Problem(here, "merge keys (<<) are not supported", "write the keys out"))
        elif not isinstance(key_node, yaml.ScalarNode) or key_node.tag.removeprefix(_CORE) not in _TEXT:
            what = shown(key) if isinstance(key_node, yaml.ScalarNode) else "a collection"
            document.problems.append(Problem(here, f"{what} cannot be a key", "put the key in quotes"))
        elif key in first_lines:
            problem = Problem((*here, key), f"key is there twice, first in line {first_lines[key]}", "keep one of them")
            document.problems.append(problem)
            document.lines[(*here, key)] = line
        else:
            first_lines[key] = line
            document.lines[(*here, key)] = line
            yield key, value_node


def path_text(location: Location) -> str:
    """A location as a person writes it: `spec.stages[0].guardRails`."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{shown(step)}]"
    return text
