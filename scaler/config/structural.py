"""From a JSON Schema to the structural schema that the API server keeps a custom resource by.

Policy: references are put in line; a union told apart by `type` becomes one object that has every arm's fields, and rules
say which of them belong to which arm; defaults stay out, so that what is stored is what was written, and a default is the
controller's own (its description tells it). Keywords that the API server does not know are dropped.
Invariants: whatever the JSON Schema takes passes here too, but for an explicit `null`, which is written by leaving the key
out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from scaler.config.cel import FORBIDDEN, REQUIRED, Rule, key, seconds
from scaler.config.scalars import DURATION, RATIO, UNITS, USD

Node = dict[str, Any]

_KEPT = frozenset(
    {
        "type",
        "description",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    }
    | {"minimum", "maximum"}
)
_PART = r"(\.[0-9]+)?"
_PATTERNS = {
    # Ten years in each unit, or hardly more: what passes above that, the controller refuses.
    DURATION.form: "^("
    + "|".join(
        f"0*[0-9]{{1,{digits}}}{_PART}{unit}" for unit, digits in (("d", 4), ("h", 5), ("m", 7), ("s", 9), ("ms", 12))
    )
    + ")+$",
    RATIO.form: rf"^0*([0-9]{{1,2}}{_PART}|100(\.0+)?)%$",
    USD.form: rf"^0*([0-9]{{1,9}}{_PART}|10{{9}}(\.0+)?)$",
}
LIST_KEYS: Mapping[str, list[str]] = {
    "Stage": ["name"],
    "Pool": ["name"],
    "Offering": ["instanceType", "zone", "capacityType"],
    "Trainer": ["name"],
}
"""Lists of these are maps: an item is told apart by these of its fields, and is there once."""


class Inliner:
    """One JSON Schema's way to structural schemas, with the rules of each model by its name."""

    def __init__(self, schema: Mapping[str, Any], rules: Mapping[str, tuple[Rule, ...]]) -> None:
        self._models: Mapping[str, Node] = schema.get("$defs", {})
        self._rules = rules

    def node(self, node: Mapping[str, Any], name: str = "") -> Node:
        """The structural schema of a part; `name` is its model's."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return self.node({**self._models[name], **{word: node[word] for word in node if word != "$ref"}}, name)
        if "anyOf" in node:
            (arm,) = (arm for arm in node["anyOf"] if arm.get("type") != "null")
            return self.node({**arm, **{word: node[word] for word in node if word != "anyOf"}}, name)
        if "oneOf" in node:
            return self._union(node)
        if node["type"] == "object":
            return self._object(node, name)
        return self._list(node) if node["type"] == "array" else _scalar(node)

    def _object(self, node: Mapping[str, Any], name: str) -> Node:
        found = _kept(node)
        if "properties" not in node:
            found["additionalProperties"] = self.node(_values(node))
            return found
        found["properties"] = {word: self.node(part) for word, part in node["properties"].items()}
        if node.get("required"):
            found["required"] = list(node["required"])
        return _with_rules(found, self._rules.get(name, ()))

    def _list(self, node: Mapping[str, Any]) -> Node:
        found = {**_kept(node), "items": self.node(node["items"])}
        keys = LIST_KEYS.get(str(node["items"].get("$ref", "")).rpartition("/")[2])
        if keys:
            found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        else:
            found["x-kubernetes-list-type"] = "atomic"
        return found

    def _union(self, node: Mapping[str, Any]) -> Node:
        arms = {
            tag: self._models[target.rpartition("/")[2]] for tag, target in node["discriminator"]["mapping"].items()
        }
        owners = {
            word: [tag for tag in arms if word in arms[tag]["properties"]]
            for arm in arms.values()
            for word in arm["properties"]
        }
        needed = [word for word in owners if all(word in arm.get("required", ()) for arm in arms.values())]
        found: Node = {"type": "object", "properties": {}, "required": needed}
        if "description" in node:
            found["description"] = node["description"]
        for word, tags in owners.items():
            found["properties"][word] = _merged([self.node(arms[tag]["properties"][word]) for tag in tags], tags, word)
        names = {tag: target.rpartition("/")[2] for tag, target in node["discriminator"]["mapping"].items()}
        rules = [rule.only_of(tag) for tag in arms for rule in self._rules.get(names[tag], ())]
        return _with_rules(found, [*_arm_rules(arms, owners), *rules])


def _values(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a mapping's values are; a structural schema cannot say what its keys look like."""
    (values,) = node.get("patternProperties", {"": node.get("additionalProperties")}).values()
    found: Mapping[str, Any] = values
    return found


def _arm_rules(arms: Mapping[str, Node], owners: Mapping[str, list[str]]) -> Iterable[Rule]:
    """Which field belongs to which arms, and which of them need it."""
    for word, tags in owners.items():
        if word == "type":
            continue
        needing = [tag for tag in tags if word in arms[tag].get("required", ())]
        if needing and len(needing) < len(arms):
            yield Rule(
                rule=f"!(self.type in {needing!r}) || has(self.{key(word)})",
                message=f"{word} is needed with type {' or '.join(needing)}",
                reason=REQUIRED,
            )
        if len(tags) < len(arms):
            yield Rule(
                rule=f"!has(self.{key(word)}) || self.type in {tags!r}",
                message=f"{word} belongs to type {' or '.join(tags)} only",
                field=word,
                reason=FORBIDDEN,
            )


def _merged(forms: list[Node], tags: list[str], word: str) -> Node:
    """One form of a field that several arms have: what they agree in."""
    if word == "type":
        return {"type": "string", "enum": [form["enum"][0] for form in forms], "description": forms[0]["description"]}
    if len({form["type"] for form in forms}) != 1:
        raise TypeError(f"{word} has several types in {', '.join(tags)}")
    common = {name: value for name, value in forms[0].items() if all(form.get(name) == value for form in forms)}
    texts = {form.get("description", ""): tag for tag, form in reversed(list(zip(tags, forms, strict=True)))}
    if len(texts) > 1:
        common["description"] = " ".join(f"{tag}: {text}" for text, tag in reversed(texts.items()))
    return common


def _scalar(node: Mapping[str, Any]) -> Node:
    if node.get("format") in UNITS:
        return _amount(node)
    found = _kept(node)
    words = [node["const"]] if "const" in node else node.get("enum")
    if words:
        found["enum"] = list(words)
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in node:
            found |= {limit: node[bound], bound: True}
    return found


def _amount(node: Mapping[str, Any]) -> Node:
    """An amount written as text: its largest value as a pattern, which costs no rule, its least as a rule."""
    unit = UNITS[node["format"]]
    found = {**_kept(node), "pattern": _PATTERNS[unit.form]}
    number, scale = {
        DURATION.form: (seconds("self"), 1.0),
        RATIO.form: ("double(self.replace('%', ''))", 100.0),
        USD.form: ("double(self)", 1.0),
    }[unit.form]
    rules = []
    if "x-more-than" in node:
        above_zero = not unit.parse(node["x-more-than"])
        rule = "self.matches('[1-9]')" if above_zero else f"{number} > {unit.parse(node['x-more-than']) * scale!r}"
        rules.append(Rule(rule=rule, message=f"use more than {node['x-more-than']}"))
    if "x-at-least" in node:
        rules.append(
            Rule(
                rule=f"{number} >= {unit.parse(node['x-at-least']) * scale!r}",
                message=f"use at least {node['x-at-least']}",
            )
        )
    if unit.parse(node["x-at-most"]) < unit.largest:
        rules.append(
            Rule(
                rule=f"{number} <= {unit.parse(node['x-at-most']) * scale!r}",
                message=f"use at most {node['x-at-most']}",
            )
        )
    return _with_rules(found, rules)


def _kept(node: Mapping[str, Any]) -> Node:
    found = {word: part for word, part in node.items() if word in _KEPT}
    if "description" in found:
        found["description"] = " ".join(found["description"].split())
    return found


def _with_rules(node: Node, rules: Iterable[Rule]) -> Node:
    found = [rule.to_json() for rule in rules]
    return {**node, "x-kubernetes-validations": found} if found else node
