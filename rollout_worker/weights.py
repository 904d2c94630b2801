"""Which weights to load: the newest complete version in the folder, proved by its digest (`scaler.model.weights`).

Invariants
* A version without its marker does not exist. One whose digest, size or name does not fit its manifest is never
  loaded: it is refused with a logged reason, once, and the next older one is looked at.
* Versions never go back: what is older than the version in use is not looked at.
* A version may vanish at any moment (its publisher keeps only a few); then the next look finds another.
* With a `Pacing`, nothing of a version is read before this worker's slot, which comes within `spread_s` of the first look
  that found anything new, however many versions follow meanwhile: a publication, or many workers that join during one,
  loads the trainer's storage and links evenly.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rollout_worker import logs
from scaler.model.clock import Clock
from scaler.model.weights import MANIFEST_FILE, MARKER_FILE, WEIGHTS_FILE, WeightManifest, version_folder
from scaler.model.work import PolicyVersion

_FOLDER = re.compile(r"v(\d{8,})-[0-9a-f]{12}")


class WeightsRefused(Exception):
    """This version must not be loaded."""


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """A version that may be loaded."""

    manifest: WeightManifest
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Spreads the loads of one version by many workers over `spread_s` seconds."""

    worker: str
    spread_s: float
    clock: Clock

    def slot_s(self, version: str) -> float:
        """This worker's wait for a version: even over [0, spread_s) between workers, another one for each version."""
        digest = hashlib.sha256(f"{self.worker}/{version}".encode()).digest()
        return self.spread_s * int.from_bytes(digest[:4], "big") / 2**32


@dataclass(slots=True)
class WeightsFolder:
    """Looks for versions under `root`, which need not exist yet. Calls block on the disk: use a thread."""

    root: Path
    pacing: Pacing | None = None
    _refused: dict[str, int] = field(default_factory=dict)
    """Folder name -> time of its marker (ns) when it was refused, so that it is read and reported once."""
    _waits_since_s: float | None = None
    """Monotonic time of the first look that found something new and not loaded yet."""

    def newest(self, in_use: PolicyVersion | None = None) -> FoundWeights | None:
        """The newest good version newer than the one in use, or None."""
        for step, marked_at_ns, folder in sorted(self._complete(), reverse=True):
            if in_use and (step < in_use.step or folder.name == version_folder(in_use)):
                return None
            if self._refused.get(folder.name) == marked_at_ns:
                continue
            if not self._due(folder.name):
                return None
            try:
                found = FoundWeights(_verified(folder), folder)
                self._waits_since_s = None
                return found
            except (OSError, ValueError, WeightsRefused) as error:
                self.refuse(folder, str(error))
        return None

    def refuse(self, folder: Path, reason: str) -> None:
        """Do not offer this version again, unless it is published anew."""
        logs.warning("weights_refused", folder=folder.name, reason=reason)
        marked_at_ns = _marked_at_ns(folder)
        if marked_at_ns is not None:
            self._refused[folder.name] = marked_at_ns

    def _due(self, version: str) -> bool:
        if self.pacing is None:
            return True
        now_s = self.pacing.clock.monotonic_s()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return now_s - self._waits_since_s >= self.pacing.slot_s(version)

    def _complete(self) -> Iterator[tuple[int, int, Path]]:
        """(step, time of the marker, folder) of versions with a marker."""
        for folder in self.root.glob("v*"):
            match = _FOLDER.fullmatch(folder.name)
            marked_at_ns = _marked_at_ns(folder) if match else None
            if match and marked_at_ns is not None:
                yield int(match[1]), marked_at_ns, folder


def _marked_at_ns(folder: Path) -> int | None:
    try:
        return (folder / MARKER_FILE).stat().st_mtime_ns
    except OSError:
        return None


def _verified(folder: Path) -> WeightManifest:
    manifest = WeightManifest.parse((folder / MANIFEST_FILE).read_text())
    if version_folder(manifest.version) != folder.name:
        raise WeightsRefused(f"its manifest is of {version_folder(manifest.version)}")
    with (folder / WEIGHTS_FILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = file.tell()
    if size_bytes != manifest.size_bytes:
        raise WeightsRefused(f"{size_bytes} bytes where its manifest says {manifest.size_bytes}")
    if digest != manifest.version.digest:
        raise WeightsRefused(f"sha256 is {digest} where its manifest says {manifest.version.digest}")
    return manifest
