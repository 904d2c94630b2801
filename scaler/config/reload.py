"""Hot reload: looks at the file from time to time, and keeps the last good configuration whatever happens to it.

`check` is level-based: while the file on disk is not acceptable every call says so, with the same faults; a file that is
acceptable and new is reported as changed once. What a running controller cannot change is refused with the remedy to restart.

How a change is seen: by modification time, size and file number after following links (a rename over the file, and the
swapped links of a ConfigMap, change the file number), and every `reread_s` by digest, since a clock that stepped, or two
writes within one tick of the file system's clock, leave all three as they were. A file may be seen half written, and half a
file may be valid YAML: a change counts only once it has stood still for `settle_s`, from before the reading until after it.

Non-goals: applying the change; telling people (the caller logs, and sets its condition).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from scaler.config.diff import Change, changes
from scaler.config.faults import ConfigError, Fault
from scaler.config.loader import parse_fleets
from scaler.config.schema import RolloutFleet
from scaler.config.yaml_text import read_bytes
from scaler.model.clock import Clock


@dataclass(frozen=True, slots=True)
class Stamp:
    """How a file's version is told apart without reading it."""

    modified_ns: int
    size_bytes: int
    file_number: int


class FileReader(Protocol):
    """The file system, as far as the watcher needs it."""

    def stamp(self, path: Path) -> Stamp | None:
        """The stamp of the file behind all links; None where there is none."""
        ...

    def read(self, path: Path) -> bytes:
        """The file's bytes; `ConfigError` where it cannot be read."""
        ...


class DiskReader:
    """The real file system."""

    def stamp(self, path: Path) -> Stamp | None:
        """See `FileReader`."""
        try:
            found = path.stat()
        except OSError:
            return None
        return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    def read(self, path: Path) -> bytes:
        """See `FileReader`."""
        return read_bytes(path)


class Outcome(StrEnum):
    """What a look at the file gave."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadResult:
    """The outcome, and the fleets to run by: the new ones if changed, else the last good ones."""

    outcome: Outcome
    fleets: tuple[RolloutFleet, ...]
    text: str = ""
    """The YAML accepted, for `save_last_good`; only where changed."""
    changes: tuple[Change, ...] = ()
    """What is different, where changed or where rejected for needing a restart."""
    faults: tuple[Fault, ...] = ()
    """Why rejected."""

    @property
    def fleet(self) -> RolloutFleet:
        """The first fleet: the only one where a controller runs one."""
        return self.fleets[0]


class ConfigWatcher:
    """Watches one file for a running controller that was started with `fleets`, read from `data`."""

    def __init__(
        self,
        path: Path,
        fleets: Sequence[RolloutFleet],
        data: bytes,
        *,
        clock: Clock,
        reader: FileReader | None = None,
        settle_s: float = 1.0,
        reread_s: float = 60.0,
    ) -> None:
        self._path = path
        self._fleets = tuple(fleets)
        self._good_digest = self._judged_digest = _digest(data)
        self._clock = clock
        self._reader: FileReader = reader or DiskReader()
        self._settle_s, self._reread_s = settle_s, reread_s
        self._stamp = self._reader.stamp(path)
        self._stamp_since_s = clock.monotonic_s()
        self._read_at_s: float | None = None
        self._refusal: ReloadResult | None = None

    def check(self) -> ReloadResult:
        """Look once. Never raises for what is in the file."""
        now_s = self._clock.monotonic_s()
        moved = self._moved(now_s)
        if moved or now_s - self._stamp_since_s < self._settle_s or not self._due(now_s):
            return self._standing()
        self._read_at_s = now_s
        return self._judge(now_s)

    def _moved(self, now_s: float) -> bool:
        """Whether the stamp is another than at the last look; remembers it, and since when."""
        before, self._stamp = self._stamp, self._reader.stamp(self._path)
        if self._stamp == before:
            return False
        self._stamp_since_s, self._read_at_s = now_s, None
        return True

    def _due(self, now_s: float) -> bool:
        return self._read_at_s is None or now_s - self._read_at_s >= self._reread_s

    def _standing(self) -> ReloadResult:
        return self._refusal or ReloadResult(outcome=Outcome.UNCHANGED, fleets=self._fleets)

    def _judge(self, now_s: float) -> ReloadResult:
        try:
            data = self._reader.read(self._path)
        except ConfigError as error:
            self._judged_digest = b""
            return self._refuse(error.faults)
        if self._moved(now_s):
            return self._standing()
        digest = _digest(data)
        if digest == self._judged_digest:
            return self._standing()
        self._judged_digest = digest
        if digest == self._good_digest:
            self._refusal = None
            return self._standing()
        return self._judge_new(data, digest)

    def _judge_new(self, data: bytes, digest: bytes) -> ReloadResult:
        try:
            fleets = tuple(parse_fleets(data, self._path))
        except ConfigError as error:
            return self._refuse(error.faults)
        found = _changes(self._fleets, fleets)
        unsafe = restart_faults(found, str(self._path))
        if unsafe:
            return self._refuse(unsafe, found)
        self._refusal, self._fleets, self._good_digest = None, fleets, digest
        if not found:
            return self._standing()
        return ReloadResult(outcome=Outcome.CHANGED, fleets=fleets, text=data.decode("utf-8-sig"), changes=found)

    def _refuse(self, faults: tuple[Fault, ...], found: tuple[Change, ...] = ()) -> ReloadResult:
        self._refusal = ReloadResult(outcome=Outcome.REJECTED, fleets=self._fleets, changes=found, faults=faults)
        return self._refusal


def restart_faults(found: Sequence[Change], source: str) -> tuple[Fault, ...]:
    """What of these changes a running controller refuses."""
    return tuple(
        Fault(
            file=source,
            path=change.path,
            message="cannot change while the controller runs",
            remedy="restart the controller, or take the change back",
        )
        for change in found
        if change.restart
    )


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _changes(old: tuple[RolloutFleet, ...], new: tuple[RolloutFleet, ...]) -> tuple[Change, ...]:
    """Changes of each fleet by name; of one fleet by itself, so that a new name is a change and not another fleet."""
    if len(old) == len(new) == 1:
        return changes(old[0], new[0])
    before = {fleet.metadata.name: fleet for fleet in old}
    after = {fleet.metadata.name: fleet for fleet in new}
    found = [Change(f"fleet {name}", restart=True) for name in before.keys() ^ after.keys()]
    for name in before.keys() & after.keys():
        inner = changes(before[name], after[name])
        found += [Change(f"fleet {name}: {change.path}", change.restart) for change in inner]
    return tuple(sorted(found, key=lambda change: change.path))
