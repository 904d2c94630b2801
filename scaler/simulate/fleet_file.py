"""A fleet's YAML with another policy in its rollout stage, to be read from another place: all else stays, byte for byte.

Policy
* Only the text of what changes is changed. Of a policy of the same type these are the values that differ; of another type the
  whole mapping, with the comments inside it, which spoke of other parameters. What is not written keeps its default.
* The copy means the same wherever it lies: relative paths start from the folder of the file that holds them, so for another
  folder they are written out. So is the schema that a `yaml-language-server` comment above the fleet names by a relative path.
* The result is read again, and refused unless it is the same fleet with this policy. So is a policy of which an alias stands
  for a part: its text would change in two places.

Errors: `ConfigError`, where the text is no fleet before or after, or cannot be changed in place.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from scaler.config.faults import ConfigError, Fault
from scaler.config.loader import only_fleet, parse_fleets
from scaler.config.schema import RolloutFleet
from scaler.config.stage import StageName
from scaler.config.yaml_model import Location
from scaler.config.yaml_text import path_text
from scaler.simulate.policy_file import PolicyChoice, forms_of, policy_of

_INDENT = 2
_SCHEMA = re.compile(r"^#[ \t]*yaml-language-server[ \t]*:.*?\$schema=(?!/|[A-Za-z][\w+.-]*:)(\S+)", re.MULTILINE)
"""A relative path: neither whole nor a URL. https://github.com/redhat-developer/yaml-language-server#using-inlined-schema"""


def fleet_with(policy: PolicyChoice, data: bytes, source: Path, target: Path) -> str:
    """The YAML of the one fleet in `data`, which `source` holds, with this policy and placement; for `target`, wherever it is."""
    before = only_fleet(parse_fleets(data, source), source)
    sheet = _Sheet(data.decode("utf-8-sig"))
    stage, where = sheet.rollout()
    if sheet.is_shared(where):
        raise _refused(source, where, "stands in several places by an alias")
    edits = list(_policy_edits(sheet, stage, forms_of(policy_of(before)), forms_of(policy)))
    if _folder(source) != _folder(target):
        edits += [*_path_edits(sheet, before, data, source), *_schema_edits(sheet, source)]
    changed = _applied(sheet.text, edits)
    try:
        after = only_fleet(parse_fleets(changed.encode(), target), target)
    except ConfigError as error:
        raise _refused(source, where, f"with the new policy is refused: {error.faults[0].message}") from None
    if forms_of(policy_of(after)) != forms_of(policy) or _apart_from_policy(after) != _apart_from_policy(before):
        raise _refused(source, where, "cannot be changed in place")
    return changed


def _refused(source: Path, where: Location, message: str) -> ConfigError:
    remedy = "write the stage's policy and placement out, a line each key, without anchors and aliases"
    return ConfigError([Fault(file=str(source), path=path_text(where), message=message, remedy=remedy)])


def _folder(file: Path) -> str:
    """Where its relative paths start, as the loader has it."""
    return os.path.normpath(file.absolute().parent)


def _apart_from_policy(fleet: RolloutFleet) -> dict[str, Any]:
    found = fleet.model_dump(by_alias=True)
    for stage in found["spec"]["stages"]:
        if stage["name"] == StageName.ROLLOUT:
            stage.update(policy=None, placement=None)
    return found


@dataclass(frozen=True, slots=True)
class _Edit:
    """Characters from `start` up to `end` give way to `text`."""

    start: int
    end: int
    text: str


def _applied(text: str, edits: Iterable[_Edit]) -> str:
    parts, at = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join((*parts, text[at:]))


class _Sheet:
    """The text of a fleet that was found valid, and where in it everything stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line_end = "\r\n" if "\r\n" in text else "\n"
        nodes = yaml.compose_all(text, Loader=yaml.CSafeLoader)
        self._root = next(node for node in nodes if isinstance(node, yaml.MappingNode))
        self._uses = Counter(map(id, _with_all_below(self._root)))

    @property
    def begin(self) -> int:
        """Where the fleet begins, below the comments above it."""
        return int(self._root.start_mark.index)

    def node(self, location: Location) -> yaml.Node | None:
        """What stands there; None where it is not written."""
        here: yaml.Node | None = self._root
        for step in location:
            here = _below(here, step)
        return here

    def rollout(self) -> tuple[yaml.MappingNode, Location]:
        """The rollout stage, which every valid fleet has."""
        stages = self.node(("spec", "stages"))
        number, stage = next(
            (number, each)
            for number, each in enumerate(stages.value if stages is not None else ())
            if getattr(_below(each, "name"), "value", None) == StageName.ROLLOUT
        )
        return stage, ("spec", "stages", number)

    def is_shared(self, location: Location) -> bool:
        """Whether an alias stands for the node, for one that holds it or, where it is a stage, for its policies."""
        ways = [location[:length] for length in range(1, len(location) + 1)]
        nodes = [self.node(way) for way in (*ways, (*location, "policy"), (*location, "placement"))]
        below = (inner for node in nodes[-2:] if node is not None for inner in _with_all_below(node))
        return any(self._uses[id(node)] > 1 for node in (*nodes, *below) if node is not None)

    def end_of_line(self, at: int) -> int:
        """Where the line that holds this place ends, before its line break."""
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[at:end].endswith("\r") else end

    def lines(self, lines: Iterable[str], column: int) -> str:
        """Lines that start in this column, the first at a place that is there already."""
        return (self.line_end + " " * column).join(lines)


def _with_all_below(node: yaml.Node) -> Iterator[yaml.Node]:
    """Each as often as it is used."""
    yield node
    if isinstance(node, yaml.CollectionNode):
        for entry in node.value:
            for inner in entry if isinstance(entry, tuple) else (entry,):
                yield from _with_all_below(inner)


def _below(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        item: yaml.Node = node.value[step]
        return item
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None


def _policy_edits(
    sheet: _Sheet, stage: yaml.MappingNode, old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]
) -> Iterator[_Edit]:
    for part, form in new.items():
        node = _below(stage, part)
        if old[part] == form:
            continue
        if not isinstance(node, yaml.MappingNode):
            yield _entry_after(sheet, stage, _below(stage, "policy"), part, form)
        elif old[part]["type"] == form["type"]:
            changed = {name: value for name, value in form.items() if value != old[part][name]}
            yield from _value_edits(sheet, node, changed)
        else:
            yield _whole(sheet, node, form)


def _value_edits(sheet: _Sheet, node: yaml.MappingNode, changed: dict[str, Any]) -> Iterator[_Edit]:
    for name, value in changed.items():
        there = _below(node, name)
        if there is None:
            yield _entry_after(sheet, node, node.value[-1][1], name, value)
        else:
            yield _replaced(sheet, there, value)


def _replaced(sheet: _Sheet, node: yaml.Node, value: Any) -> _Edit:
    start, end = node.start_mark.index, _end(node)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):  # ends where the next line starts
        end = start + len(sheet.text[start:end].rstrip())
    gap = " " if start and sheet.text[start - 1] == ":" else ""  # where nothing was written
    return _Edit(start, end, gap + _flow(value))


def _entry_after(
    sheet: _Sheet, holder: yaml.MappingNode, last: yaml.Node | None, name: str, value: dict[str, Any] | Any
) -> _Edit:
    """A further key of a mapping, behind the value `last`."""
    at = _end(last or holder)
    if holder.flow_style:
        return _Edit(at, at, f", {name}: {_flow(value)}")
    at, column = sheet.end_of_line(at), _first(holder).column
    lines = [f"{name}: {_flow(value)}"]
    if isinstance(value, dict):
        lines = [f"{name}:", *(" " * _INDENT + line for line in _block(value))]
    return _Edit(at, at, sheet.lines(("", *lines), column))


def _whole(sheet: _Sheet, node: yaml.MappingNode, form: dict[str, Any]) -> _Edit:
    if node.flow_style:
        return _Edit(node.start_mark.index, _end(node), _flow(form))
    start = _first(node)
    return _Edit(start.index, sheet.end_of_line(_end(node)), sheet.lines(_block(form), start.column))


def _first(node: yaml.MappingNode) -> yaml.Mark:
    """Where the first key starts; what the parser calls a mapping's start may be its anchor."""
    first: yaml.Mark = node.value[0][0].start_mark
    return first


def _end(node: yaml.Node) -> int:
    """Behind the last character of a value: what the parser calls the end of a block is where the next one starts."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _block(form: dict[str, Any]) -> list[str]:
    return yaml.safe_dump(form, sort_keys=False, width=math.inf).splitlines()


def _flow(value: Any) -> str:
    """A value on one line, as it may stand anywhere."""
    return yaml.safe_dump([value], sort_keys=False, width=math.inf, default_flow_style=True).strip()[1:-1]


def _path_edits(sheet: _Sheet, fleet: RolloutFleet, data: bytes, source: Path) -> Iterator[_Edit]:
    """Paths written out that start from the file's folder: those that are others where the file lies elsewhere."""
    elsewhere = source.absolute().parent / "elsewhere" / source.name
    moved = only_fleet(parse_fleets(data, elsewhere), elsewhere)
    for location, path in _differences(fleet.model_dump(by_alias=True), moved.model_dump(by_alias=True), ()):
        node = sheet.node(location)
        if node is None or sheet.is_shared(location):
            raise _refused(source, location, "is a relative path that cannot be written out")
        yield _replaced(sheet, node, path)


def _schema_edits(sheet: _Sheet, source: Path) -> Iterator[_Edit]:
    for found in _SCHEMA.finditer(sheet.text, 0, sheet.begin):
        path = os.path.normpath(source.absolute().parent / found[1])
        whole = "file://" + quote(path, safe="/#") if re.search(r"\s", path) else path
        yield _Edit(*found.span(1), whole)


def _differences(one: Any, other: Any, here: Location) -> Iterator[tuple[Location, Any]]:
    """Where two values of the same form differ, and what the first has there."""
    if isinstance(one, dict):
        for key, value in one.items():
            yield from _differences(value, other[key], (*here, key))
    elif isinstance(one, list | tuple):
        for number, (value, twin) in enumerate(zip(one, other, strict=True)):
            yield from _differences(value, twin, (*here, number))
    elif one != other:
        yield here, one
