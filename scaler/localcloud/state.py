"""The files by which capacity on this machine is shared between controller, workers and whoever plays the cloud.

In the state folder:

* `instances/<instance_id>.json`: one `InstanceRecord`; written by the pool's actor only;
* `launches/<instance_id>.json`, `.stat`: a launch under way (see `scaler.localcloud.launching`);
* `ended/<instance_id>.json`: the record of an instance that is gone, so that its launch token never launches again;
* `notices/<instance_id>.json`: a notice file (see `scaler.model.notice_file`); written by whoever plays the cloud;
* `capacity.json`: offering id -> instances it can hold; absent, file or offering: no bound;
* `interruptions.jsonl`: what the cloud did, one JSON object a line;
* `counters/<instance_id>`: three numbers of 8 bytes, little endian, kept by a shared memory map so that they survive kill -9:
  tokens that its worker has generated; looks at it while it held units; its unpublished tokens, summed over the looks;
* `logs/<instance_id>.log`: what the instance printed. Logs and counters stay when the instance is gone.

Every JSON file is replaced atomically. Nothing is synced to disk: the files describe processes, which no more outlive
the machine than they do. Processes outlive the controller: a new one adopts what it finds.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from scaler.localcloud.processes import is_alive
from scaler.model.interruption import InterruptionNotice
from scaler.model.notice_file import dump_notice

COUNTER_BYTES = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """An instance: the process group that `pid` leads, known again by the leader's start time.

    `start_ticks` is field 22 of /proc/<pid>/stat. Times are the controller's wall clock.
    """

    instance_id: str
    replica_id: str
    worker: str
    """The name its worker registers under."""
    pool: str
    offering_id: str
    launch_token: str
    launched_at_s: float
    pid: int
    start_ticks: int
    terminating_at_s: float | None = None
    """When we first told it to end."""

    @property
    def alive(self) -> bool:
        """Whether its leader still runs, looked up now."""
        return is_alive(self.pid, self.start_ticks)

    def terminating(self, at_s: float) -> "InstanceRecord":
        """The record once it has been told to end."""
        return replace(self, terminating_at_s=at_s)

    @staticmethod
    def of_json(raw: Mapping[str, Any]) -> "InstanceRecord":
        """The record in its JSON; `KeyError`, `TypeError` or `ValueError` where it is none."""
        terminating_at_s = raw["terminating_at_s"]
        return InstanceRecord(
            instance_id=str(raw["instance_id"]),
            replica_id=str(raw["replica_id"]),
            worker=str(raw["worker"]),
            pool=str(raw["pool"]),
            offering_id=str(raw["offering_id"]),
            launch_token=str(raw["launch_token"]),
            launched_at_s=float(raw["launched_at_s"]),
            pid=int(raw["pid"]),
            start_ticks=int(raw["start_ticks"]),
            terminating_at_s=None if terminating_at_s is None else float(terminating_at_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One act of the cloud. It is logged before it is done, so that a restart finishes what was begun.

    `deadline_s` is set where notice was given; without notice the instance is killed at `at_s`.
    """

    at_s: float
    instance_id: str
    replica_id: str
    offering_id: str
    noticed: bool
    deadline_s: float | None

    @staticmethod
    def of_json(raw: Mapping[str, Any]) -> "Interruption":
        """The interruption in its JSON; `KeyError`, `TypeError` or `ValueError` where it is none."""
        deadline_s = raw["deadline_s"]
        return Interruption(
            at_s=float(raw["at_s"]),
            instance_id=str(raw["instance_id"]),
            replica_id=str(raw["replica_id"]),
            offering_id=str(raw["offering_id"]),
            noticed=bool(raw["noticed"]),
            deadline_s=None if deadline_s is None else float(deadline_s),
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """The records of a folder, ordered by instance id, and how many files in it were none."""

    records: tuple[InstanceRecord, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class StateDir:
    """The state folder. Reading never creates anything; `OSError` passes through where the disk fails."""

    root: Path

    @property
    def instances(self) -> Path:
        """Folder of the records of instances."""
        return self.root / "instances"

    @property
    def launches(self) -> Path:
        """Folder of launches under way."""
        return self.root / "launches"

    @property
    def ended(self) -> Path:
        """Folder of the records of instances that are gone."""
        return self.root / "ended"

    @property
    def notices(self) -> Path:
        """Folder of the notice files."""
        return self.root / "notices"

    @property
    def logs(self) -> Path:
        """Folder of what instances printed."""
        return self.root / "logs"

    @property
    def capacity_file(self) -> Path:
        """The offerings' bounds."""
        return self.root / "capacity.json"

    @property
    def interruptions_file(self) -> Path:
        """The log of what the cloud did."""
        return self.root / "interruptions.jsonl"

    def notice_file(self, instance_id: str) -> Path:
        """The instance's notice file."""
        return self.notices / f"{instance_id}.json"

    def counter_file(self, instance_id: str) -> Path:
        """The instance's token counter."""
        return self.root / "counters" / instance_id

    def log_file(self, instance_id: str) -> Path:
        """What the instance printed."""
        return self.logs / f"{instance_id}.log"

    def create(self) -> None:
        """Make the folders that are not there yet."""
        for name in ("instances", "launches", "ended", "notices", "counters", "logs"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def write_record(self, record: InstanceRecord) -> None:
        """Write or replace an instance's record."""
        write_json(self.instances / f"{record.instance_id}.json", asdict(record))

    def list_instances(self) -> Listing:
        """The records of the living, and of the dead until they are put away in `ended`."""
        return list_records(self.instances)

    def live_instances(self) -> tuple[InstanceRecord, ...]:
        """The records of instances that run now."""
        return tuple(record for record in self.list_instances().records if record.alive)

    def write_notice(self, notice: InterruptionNotice) -> None:
        """Give an instance notice."""
        write_text(self.notice_file(notice.instance_id), dump_notice(notice))

    def write_capacity(self, capacity: Mapping[str, int]) -> None:
        """Say how many instances each offering can hold."""
        write_json(self.capacity_file, dict(capacity))

    def read_capacity(self) -> Mapping[str, int]:
        """How many instances each offering can hold; an offering that is not in it has no bound.

        Raises:
            ValueError: the file is there and does not say it.
        """
        try:
            text = self.capacity_file.read_text()
        except FileNotFoundError:
            return {}
        try:
            return {str(offering): int(count) for offering, count in json.loads(text).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{self.capacity_file}: not a JSON object of offering id -> count: {error}") from error

    def log_interruption(self, interruption: Interruption) -> None:
        """Append one line."""
        with self.interruptions_file.open("a") as log:
            log.write(json.dumps(asdict(interruption)) + "\n")

    def read_interruptions(self) -> tuple[Interruption, ...]:
        """Everything logged, in order; a line that is not whole is left out."""
        try:
            lines = self.interruptions_file.read_text(errors="replace").split("\n")
        except FileNotFoundError:
            return ()
        parsed = (parse_json(line, Interruption.of_json) for line in lines if line)
        return tuple(interruption for interruption in parsed if interruption is not None)

    def read_at_risk(self, instance_id: str) -> tuple[int, int]:
        """(looks at the instance's worker while it held units, unpublished tokens summed over them)."""
        try:
            numbers = self.counter_file(instance_id).read_bytes()[COUNTER_BYTES : 3 * COUNTER_BYTES]
        except FileNotFoundError:
            return 0, 0
        return int.from_bytes(numbers[:COUNTER_BYTES], "little"), int.from_bytes(numbers[COUNTER_BYTES:], "little")

    def read_counter(self, instance_id: str) -> int:
        """Tokens that the instance's worker says it generated; 0 before it said anything."""
        try:
            return int.from_bytes(self.counter_file(instance_id).read_bytes()[:COUNTER_BYTES], "little")
        except FileNotFoundError:
            return 0


def list_records(folder: Path) -> Listing:
    """The records in a folder; half-written files and garbage are skipped and counted."""
    records, skipped = [], 0
    for path in sorted(folder.glob("*.json")):
        record = read_json(path, InstanceRecord.of_json)
        if record is not None and record.instance_id == path.stem:
            records.append(record)
        elif path.exists():  # else it went while we read, which is no fault
            skipped += 1
    return Listing(tuple(records), skipped)


def read_json(path: Path, of_json: Callable[[Mapping[str, Any]], T]) -> T | None:
    """What `of_json` makes of the file; None where there is no file, or it holds something else."""
    try:
        return parse_json(path.read_text(errors="replace"), of_json)
    except FileNotFoundError:
        return None


def parse_json(text: str, of_json: Callable[[Mapping[str, Any]], T]) -> T | None:
    """What `of_json` makes of the text; None where it is not what it should be."""
    try:
        return of_json(json.loads(text))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(value))


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically: readers see the old text or the new, whatever is killed when."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text)
    scratch.replace(path)
