"""Notices on this machine: the notice files that whoever plays the cloud writes into the state folder.

A notice stands while its instance is recorded, a mere hint for its while only. A file that is no notice counts as
malformed; one about an instance that was never launched here, or that lies under another's name, as foreign; one that says
again what is known as a duplicate. Each is counted once for each time that its file was written.
"""

from dataclasses import dataclass, field
from pathlib import Path

from scaler.interruptions.base import SourceHealth, Unacknowledged, by_deadline
from scaler.localcloud.state import StateDir
from scaler.model.clock import Clock
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind, void_at_s
from scaler.model.notice_file import parse_notice

POLL_S = 0.2
"""How often the folder is looked at: a notice here is seconds long, not two minutes."""

Stamp = tuple[int, int]
"""Modification time (ns) and size of a file: what tells one writing of it from the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNoticeSettings:
    """Where the notice files lie: the pools' state folder."""

    state_dir: Path


@dataclass(slots=True)
class _Counts:
    """Counters of `SourceHealth`, growing."""

    received: int = 0
    duplicates: int = 0
    foreign: int = 0
    malformed: int = 0
    known: set[tuple[str, NoticeKind]] = field(default_factory=set)


class LocalNoticeSource(Unacknowledged):
    """A `NoticeSource`; see the module's docstring."""

    def __init__(self, settings: LocalNoticeSettings, *, clock: Clock) -> None:
        self._state = StateDir(settings.state_dir)
        self._clock = clock
        self._seen: dict[Path, Stamp] = {}
        self._woken_for: dict[Path, Stamp] = {}
        self._answered_at_s: float | None = None
        self._counts = _Counts()

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices, ordered by deadline, those without one last. `OSError` where the disk fails."""
        stamps = self._stamps()
        standing = [
            notice for path in stamps if (notice := self._read(path, fresh=stamps[path] != self._seen.get(path)))
        ]
        self._seen = stamps
        self._answered_at_s = self._clock.now_s()
        return tuple(sorted(standing, key=by_deadline))

    async def changed(self) -> None:
        """Return when a notice file came, went or was written since `current` last looked; once for each such change."""
        while (stamps := self._stamps()) in (self._seen, self._woken_for):
            await self._clock.sleep(POLL_S)
        self._woken_for = stamps

    def health(self) -> SourceHealth:
        """Counters since start."""
        return SourceHealth(
            answered_at_s=self._answered_at_s,
            received=self._counts.received,
            duplicates=self._counts.duplicates,
            foreign=self._counts.foreign,
            malformed=self._counts.malformed,
        )

    def _stamps(self) -> dict[Path, Stamp]:
        stamps = {}
        for path in sorted(self._state.notices.glob("*.json")):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            stamps[path] = (stat.st_mtime_ns, stat.st_size)
        return stamps

    def _read(self, path: Path, *, fresh: bool) -> InterruptionNotice | None:
        """The notice, if it stands; counted where this writing of it is new."""
        try:
            notice = parse_notice(path.read_text(errors="replace"))
        except FileNotFoundError:
            return None
        except ValueError:
            self._counts.malformed += fresh
            return None
        if notice.instance_id != path.stem or not self._ours(path.name):
            self._counts.foreign += fresh
            return None
        self._count(notice, fresh=fresh)
        return notice if (self._state.instances / path.name).exists() and not self._forgotten(notice) else None

    def _forgotten(self, notice: InterruptionNotice) -> bool:
        return notice.kind not in BINDING and self._clock.now_s() >= void_at_s(notice)

    def _ours(self, name: str) -> bool:
        folders = (self._state.instances, self._state.launches, self._state.ended)
        return any((folder / name).exists() for folder in folders)

    def _count(self, notice: InterruptionNotice, *, fresh: bool) -> None:
        key = (notice.instance_id, notice.kind)
        self._counts.received += fresh and key not in self._counts.known
        self._counts.duplicates += fresh and key in self._counts.known
        self._counts.known.add(key)


def make(settings: object, *, clock: Clock) -> LocalNoticeSource:
    """The source of local notices; `TypeError` where the settings are another source's."""
    if not isinstance(settings, LocalNoticeSettings):
        raise TypeError(f"local notices take LocalNoticeSettings, not {type(settings).__name__}")
    return LocalNoticeSource(settings, clock=clock)
