"""Reads fleets from a file: all faults at once, each one line, or the fleets.

Relative paths in the YAML start from the folder of the file, as it was named (symbolic links not followed: a ConfigMap's
change their target with every update).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from scaler.config.faults import ConfigError, Fault
from scaler.config.json_schema import fleet_json_schema
from scaler.config.schema import RolloutFleet
from scaler.config.translate import problems_of
from scaler.config.yaml_model import Problem
from scaler.config.yaml_text import Document, path_text, read_bytes, read_documents

MAX_FAULTS = 100
"""Faults that are told; a file with more has one cause that the first hundred show."""


def load_fleets(path: Path) -> list[RolloutFleet]:
    """All fleets in a file, one a document, in their order. `ConfigError` tells every fault."""
    return parse_fleets(read_bytes(path), path)


def load_fleet(path: Path) -> RolloutFleet:
    """The one fleet in a file. `ConfigError` also where there are several."""
    return only_fleet(load_fleets(path), path)


def only_fleet(fleets: list[RolloutFleet], source: Path) -> RolloutFleet:
    """The one fleet of these. `ConfigError` where there are several."""
    if len(fleets) != 1:
        fault = Fault(
            file=str(source),
            message=f"holds {len(fleets)} fleets, and one is wanted",
            remedy="give each a file of its own",
        )
        raise ConfigError([fault])
    return fleets[0]


def parse_fleets(data: bytes, source: Path) -> list[RolloutFleet]:
    """All fleets in a file's bytes. `source` names the file in faults, and its folder is where relative paths start."""
    documents = read_documents(data, source)
    fleets: list[RolloutFleet] = []
    faults: list[Fault] = []
    for document in documents:
        try:
            fleets.append(_fleet(document, source))
        except ConfigError as error:
            faults += error.faults
    if not faults:
        faults += _faults(_clashes(fleets, documents), source)
    if faults:
        raise ConfigError(_bounded(faults, source))
    return fleets


def _fleet(document: Document, source: Path) -> RolloutFleet:
    problems = list(document.problems)
    try:
        fleet = RolloutFleet.model_validate(document.value, context={"folder": source.absolute().parent})
    except ValidationError as error:
        # A part that could not be read at all was told already; what pydantic says of the hole is noise.
        told = {problem.location for problem in problems}
        problems += [found for found in problems_of(error, fleet_json_schema()) if found.location not in told]
    if problems:
        raise ConfigError(_faults(((document, problem) for problem in problems), source))
    return fleet


def _faults(found: Iterable[tuple[Document, Problem]], source: Path) -> Iterator[Fault]:
    for document, problem in found:
        yield Fault(
            file=str(source),
            line=document.line_of(problem.location),
            path=path_text(problem.location) or "document",
            message=problem.message,
            remedy=problem.remedy,
        )


def _clashes(fleets: list[RolloutFleet], documents: list[Document]) -> Iterator[tuple[Document, Problem]]:
    """What several fleets of one file may not share."""
    names: set[str] = set()
    jobs: set[tuple[str, str]] = set()
    pools: set[tuple[str, str]] = set()
    for fleet, document in zip(fleets, documents, strict=True):
        if fleet.metadata.name in names:
            message = f"fleet {fleet.metadata.name} is there twice"
            yield document, Problem(("metadata", "name"), message, "give each fleet a name of its own")
        names.add(fleet.metadata.name)
        job = (fleet.spec.ledger.model_dump_json(), fleet.job_name)
        if job in jobs:
            message = f"another fleet serves job {fleet.job_name} in this ledger already"
            yield document, Problem(("spec", "job"), message, "set spec.job.name, or leave one fleet out")
        jobs.add(job)
        own = {(pool.provider.place, pool.name) for stage in fleet.spec.stages for pool in stage.pools}
        for place, name in sorted(own & pools):
            message = f"another fleet has a pool {name} in {place} already"
            yield document, Problem(("spec", "stages"), message, "choose another stateDir or name")
        pools |= own


def _bounded(faults: list[Fault], source: Path) -> list[Fault]:
    ordered = list(ConfigError(faults).faults)
    if len(ordered) <= MAX_FAULTS:
        return ordered
    more = f"{len(ordered) - MAX_FAULTS} more faults"
    last = Fault(file=str(source), line=ordered[-1].line, message=more, remedy="mend the first ones")
    return [*ordered[:MAX_FAULTS], last]
