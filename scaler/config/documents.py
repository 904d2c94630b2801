"""From one document of a file to its model, whatever its kind: every fault with its line, in our words."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from scaler.config.faults import ConfigError, Fault
from scaler.config.translate import problems_of
from scaler.config.yaml_model import Problem, YamlModel
from scaler.config.yaml_text import Document, path_text

Model = TypeVar("Model", bound=YamlModel)

MAX_FAULTS = 100
"""Faults that are told; a file with more has one cause that the first hundred show."""


def validated(
    document: Document, source: Path, model: type[Model], schema_of: Callable[[], Mapping[str, Any]]
) -> Model:
    """The document as `model`, whose JSON Schema `schema_of` gives. `ConfigError` tells every fault.

    Relative paths in it start from the folder of `source`.
    """
    problems = list(document.problems)
    try:
        found = model.model_validate(document.value, context={"folder": source.absolute().parent})
    except ValidationError as error:
        # A part that could not be read at all was told already; what pydantic says of the hole is noise.
        told, schema = {problem.location for problem in problems}, schema_of()
        problems += [problem for problem in problems_of(error, schema) if problem.location not in told]
    if problems:
        raise ConfigError(faults_at(((document, problem) for problem in problems), source))
    return found


SCENARIO = "Scenario"
KINDS = ("RolloutFleet", "Controller", SCENARIO)
"""Of all documents of ours; a policy on its own has none."""


def refuse_other_kind(document: Document, source: Path, wanted: str) -> None:
    """`ConfigError` of one line where the document is of another of our kinds: its keys are no faults then.

    `wanted` is a kind, or what a document without a kind is.
    """
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    if kind in KINDS and kind != wanted:
        problem = Problem(("kind",), f"this is a {kind}, not a {wanted}", "name another file")
        raise ConfigError(faults_at([(document, problem)], source))


def faults_at(found: Iterable[tuple[Document, Problem]], source: Path) -> Iterator[Fault]:
    """Problems with the lines of their documents."""
    for document, problem in found:
        yield Fault(
            file=str(source),
            line=document.line_of(problem.location),
            path=path_text(problem.location) or "document",
            message=problem.message,
            remedy=problem.remedy,
        )


def bounded(faults: list[Fault], source: Path) -> list[Fault]:
    """The first `MAX_FAULTS` in order, and one that counts the others."""
    ordered = list(ConfigError(faults).faults)
    if len(ordered) <= MAX_FAULTS:
        return ordered
    more = f"{len(ordered) - MAX_FAULTS} more faults"
    last = Fault(file=str(source), line=ordered[-1].line, message=more, remedy="mend the first ones")
    return [*ordered[:MAX_FAULTS], last]
