"""Reads fleets from a file: all faults at once, each one line, or the fleets.

Relative paths in the YAML start from the folder of the file, as it was named (symbolic links not followed: a ConfigMap's
change their target with every update).
"""

from collections.abc import Iterator
from pathlib import Path

from scaler.config.documents import bounded, faults_at, refuse_other_kind, validated
from scaler.config.faults import ConfigError, Fault
from scaler.config.json_schema import fleet_json_schema
from scaler.config.schema import KIND, RolloutFleet
from scaler.config.yaml_model import Problem
from scaler.config.yaml_text import Document, read_bytes, read_documents


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
            refuse_other_kind(document, source, KIND)
            fleets.append(validated(document, source, RolloutFleet, fleet_json_schema))
        except ConfigError as error:
            faults += error.faults
    if not faults:
        faults += faults_at(_clashes(fleets, documents), source)
    if faults:
        raise ConfigError(bounded(faults, source))
    return fleets


def _clashes(fleets: list[RolloutFleet], documents: list[Document]) -> Iterator[tuple[Document, Problem]]:
    """What several fleets of one file may not share."""
    names: set[tuple[str | None, str]] = set()
    jobs: set[tuple[str, str]] = set()
    pools: set[tuple[str, str]] = set()
    for fleet, document in zip(fleets, documents, strict=True):
        name = (fleet.metadata.namespace, fleet.metadata.name)
        if name in names:
            message = f"fleet {fleet.metadata.name} is there twice"
            yield document, Problem(("metadata", "name"), message, "give each fleet a name of its own")
        names.add(name)
        job = (fleet.spec.ledger.model_dump_json(), fleet.job_name)
        if job in jobs:
            message = f"another fleet serves job {fleet.job_name} in this ledger already"
            yield document, Problem(("spec", "job"), message, "set spec.job.name, or leave one fleet out")
        jobs.add(job)
        own = {
            (pool.provider.place, pool.name)
            for stage in fleet.spec.stages
            for pool in stage.pools
            if pool.provider.one_machine  # those of a cluster may be shared
        }
        for place, pool_name in sorted(own & pools):
            message = f"another fleet has a pool {pool_name} in {place} already"
            yield document, Problem(("spec", "stages"), message, "choose another stateDir or name")
        pools |= own
