"""What a fleet on this machine left behind, as signs of capacity: its instances' records, and its journal.

Granted: an instance's record. Gone by our own choice: the time at which its record says so. Taken: the log of what the
cloud did. Refused: the outcome of a launch in the controller's journal, which keeps the last thousand decisions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaler.config.convert import local_providers, to_spec
from scaler.config.loader import load_fleet
from scaler.config.schema import RolloutFleet
from scaler.localcloud.state import InstanceRecord, Interruption, StateDir, list_records
from scaler.model.spec import FleetSpec
from scaler.runtime.daemon import state_files
from scaler.runtime.journal import Journal, JournalError
from scaler.runtime.outcomes import CommandKind, Outcome
from scaler.traces.signs import Sign
from scaler.traces.trace import TraceError

FLEET_FILE = "fleet.yaml"
NO_CAPACITY = "insufficient_capacity"
_DECISIONS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """At `at_s` the instances of an offering became more or fewer, or a launch was refused (0)."""

    at_s: float
    offering_id: str
    by: int
    all_there_was: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A fleet's file and what lies beside it."""

    file: Path
    fleet: RolloutFleet
    instances: tuple[InstanceRecord, ...]
    interruptions: tuple[Interruption, ...]
    refusals: tuple[Change, ...] = ()
    generated: Mapping[str, int] = field(default_factory=dict)
    """Tokens by worker, killed ones too, as their counters say."""
    tokens_at_risk: float | None = None
    """Unpublished tokens of a worker at work, the mean of all looks: what a kill without notice loses. None: no look."""

    @property
    def spec(self) -> FleetSpec:
        """The fleet as plain facts."""
        return to_spec(self.fleet)

    def changes(self) -> list[Change]:
        """All that happened to capacity, in order."""
        taken = {loss.instance_id: loss for loss in self.interruptions}
        found = [*self.refusals]
        for record in self.instances:
            found.append(Change(at_s=record.launched_at_s, offering_id=record.offering_id, by=1))
            loss, ended_at_s = taken.get(record.instance_id), record.terminating_at_s
            if loss is not None and (ended_at_s is None or loss.at_s <= ended_at_s):
                found.append(Change(at_s=loss.at_s, offering_id=record.offering_id, by=-1, all_there_was=True))
            elif ended_at_s is not None:
                found.append(Change(at_s=ended_at_s, offering_id=record.offering_id, by=-1))
        return sorted(found, key=lambda change: change.at_s)


def kept_in(place: Path) -> Kept:
    """What lies in a folder with a `fleet.yaml`, or beside a fleet's file.

    Raises:
        ConfigError: there is no fleet, or a faulty one.
        TraceError: it was never run here.
    """
    file = place / FLEET_FILE if place.is_dir() else place
    fleet = load_fleet(file)
    places = {StateDir(Path(provider.state_dir)) for provider in local_providers(fleet).values()}
    records = {
        record.instance_id: record
        for state in places
        for folder in (state.ended, state.instances)
        for record in list_records(folder).records
    }
    return Kept(
        file=file,
        fleet=fleet,
        instances=tuple(records.values()),
        interruptions=tuple(loss for state in places for loss in state.read_interruptions()),
        refusals=tuple(_refusals(state_files(file).journal)),
        generated={record.worker: sum(s.read_counter(name) for s in places) for name, record in records.items()},
        tokens_at_risk=_at_risk([state.read_at_risk(name) for state in places for name in records]),
    )


def _at_risk(looks: list[tuple[int, int]]) -> float | None:
    count = sum(count for count, _ in looks)
    return sum(tokens for _, tokens in looks) / count if count else None


def _refusals(file: Path) -> Iterator[Change]:
    if not file.is_file():
        raise TraceError(file, None, "no journal there: the fleet was never run here")
    try:
        journal = Journal(file)
        decisions = journal.decisions(_DECISIONS)
        journal.close()
    except JournalError as error:
        raise TraceError(file, None, str(error)) from error
    for decision in decisions:
        yield from refusals_in(decision)


def refusals_in(decision: Mapping[str, Any]) -> Iterator[Change]:
    """The launches of a decision, as journal and status show it, that were refused for want of capacity."""
    offerings = {command["subject"]: command.get("offering") for command in decision["commands"]}
    for outcome in decision["outcomes"]:
        refused = outcome["kind"] == CommandKind.LAUNCH and outcome["outcome"] == Outcome.REFUSED
        if refused and outcome["message"].startswith(NO_CAPACITY):
            offering_id = str(offerings[outcome["subject"]])
            yield Change(at_s=float(outcome["at_s"]), offering_id=offering_id, by=0, all_there_was=True)


def signs_of(changes: list[Change]) -> dict[str, list[Sign]]:
    """By offering, how many were held from each change on."""
    held: dict[str, int] = {}
    signs: dict[str, list[Sign]] = {}
    for change in changes:
        held[change.offering_id] = max(0, held.get(change.offering_id, 0) + change.by)
        sign = Sign(at_s=change.at_s, held=held[change.offering_id], all_there_was=change.all_there_was)
        signs.setdefault(change.offering_id, []).append(sign)
    return signs
