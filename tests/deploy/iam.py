"""The controller's policy, and from operations to the actions that allow them."""

import ast
import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import botocore.session

from tests.deploy.chart import ROOT

POLICY = ROOT / "deploy" / "iam" / "controller-policy.json"
SERVICES = ("autoscaling", "ec2", "eks", "sqs")
_BATCHES = {
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}
"""A batch is allowed by the action of one."""
FILLED_IN = {
    "PARTITION": "aws",
    "REGION": "us-east-1",
    "ACCOUNT": "123456789012",
    "CLUSTER_NAME": "bed",
    "CLUSTER_UID": "0b7c2f5e-5a0e-4d37-b7c4-7f9d0c7d1a11",
    "DEAD_LETTER_QUEUE_ARN": "arn:aws:sqs:us-east-1:123456789012:headrace-dead",
    "QUEUE_ARN": "arn:aws:sqs:us-east-1:123456789012:headrace",
}


def action_of(service: str, operation: str) -> str:
    """The action that allows an operation."""
    return _BATCHES.get(f"{service}:{operation}", f"{service}:{operation}")


def filled_in() -> str:
    """The policy as an operator creates it."""
    text = POLICY.read_text()
    for word, value in FILLED_IN.items():
        text = text.replace(word, value)
    return text


def statements() -> list[dict[str, Any]]:
    """Of the policy, filled in; actions as lists."""
    found: list[dict[str, Any]] = json.loads(filled_in())["Statement"]
    return [{**each, "Action": _listed(each["Action"])} for each in found]


def allowed() -> set[str]:
    """Every action of the policy."""
    return {action for each in statements() for action in each["Action"]}


def named_in_code() -> set[str]:
    """The action of every AWS operation whose name stands in the controller's code.

    Where a call names service and operation side by side, that is the pair. A name that stands alone somewhere (a helper adds
    its service) counts for every service that has it.
    """
    trees = [ast.parse(file.read_text()) for file in sorted((ROOT / "scaler").rglob("*.py")) if not _is_bench(file)]
    pairs = {pair for tree in trees for pair in _pairs(tree)}
    paired = {operation for _, operation in pairs}
    alone = {word for tree in trees for word in _constants(tree)} - paired
    pairs |= {(service, name) for service in SERVICES for name in alone & _operations(service)}
    return {action_of(service, operation) for service, operation in pairs}


def _is_bench(file: Path) -> bool:
    """Benchmarks set a cloud of their own up, as nobody's controller."""
    return file.name.startswith("bench_")


def _pairs(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        words = [arg.value if isinstance(arg, ast.Constant) else None for arg in call.args]
        for service, operation in pairwise(words):
            if service in SERVICES and operation in _operations(str(service)):
                yield str(service), str(operation)


def _constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def _operations(service: str) -> frozenset[str]:
    return frozenset(botocore.session.get_session().get_service_model(service).operation_names)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
