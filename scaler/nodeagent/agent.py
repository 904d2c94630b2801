"""The loop of the node agent: read every document, write the most urgent notice, beat.

Invariants
* A document that cannot be read now leaves what was last read of it: a throttled or forbidden read takes no notice back.
* Times in the files are on this machine's clock, as a worker on it reads them; the cloud's are moved by the Date header's
  difference.
* A notice without a time of its own counts from first sight, also over restarts of the agent.
* The heartbeat moves only when everything was read, so that its age is this source's health.
Non-goals: what a worker does about it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from scaler.model.clock import Clock
from scaler.model.instance_file import InstanceFile
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind, void_at_s
from scaler.nodeagent.documents import DOCUMENTS, Finding
from scaler.nodeagent.files import NodeFolder
from scaler.nodeagent.imds import Imds, MetadataAway

log = structlog.get_logger()

_LONGEST_RETRY_S = 10.0
"""A Spot notice gives two minutes: no back-off may cost much of them."""
_SAME_TIME_S = 2.0
"""Two Date headers differ by less: a time that moved less has not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSettings:
    """Where to write, and how often to look."""

    folder: Path
    interval_s: float = 1.0


class NodeAgent:
    """See the module's docstring."""

    def __init__(self, settings: NodeAgentSettings, imds: Imds, *, clock: Clock, seed: int | None = None) -> None:
        self._settings = settings
        self._imds = imds
        self._clock = clock
        self._random = random.Random(seed)
        self._folder = NodeFolder(settings.folder)
        self._instance: InstanceFile | None = None
        self._standing: dict[NoticeKind, InterruptionNotice] = {}
        self._failures = 0

    async def run(self) -> None:
        """Look again and again, until cancelled; with back-off and jitter while instance metadata is away."""
        while True:
            await self._clock.sleep(await self.look())

    async def look(self) -> float:
        """One look; seconds until the next."""
        try:
            await self._look()
        except (MetadataAway, OSError) as error:
            if not self._failures:
                log.warning("instance_metadata_away", error=str(error))
            self._failures += 1
            return self._back_off_s()
        if self._failures:
            log.info("instance_metadata_back", failures=self._failures)
        self._failures = 0
        return self._settings.interval_s

    def _back_off_s(self) -> float:
        longest_s = min(_LONGEST_RETRY_S, self._settings.interval_s * 2.0 ** min(self._failures, 10))
        return self._random.uniform(longest_s / 2, longest_s)

    async def _look(self) -> None:
        self._folder.make()
        if self._instance is None:
            self._instance = await self._identify()
            self._adopt(self._instance)
        away: MetadataAway | None = None
        for kind, (path, read) in DOCUMENTS.items():
            try:
                finding = await self._read(path, read)
            except MetadataAway as error:
                away = error
            else:
                self._take(self._instance.instance_id, kind, finding)
        self._write(self._instance)
        if away is not None:
            raise away
        self._folder.beat()

    async def _identify(self) -> InstanceFile:
        return InstanceFile(
            instance_id=await self._needed("/latest/meta-data/instance-id"),
            instance_type=await self._needed("/latest/meta-data/instance-type"),
            zone=await self._needed("/latest/meta-data/placement/availability-zone"),
            life_cycle=(await self._imds.get("/latest/meta-data/instance-life-cycle") or "").strip(),
        )

    def _adopt(self, instance: InstanceFile) -> None:
        """What an earlier agent wrote of this instance goes on."""
        earlier = self._folder.read_notice()
        if earlier is not None and earlier.instance_id == instance.instance_id:
            self._standing[earlier.kind] = earlier
        log.info("instance_known", instance=instance.instance_id, life_cycle=instance.life_cycle)

    async def _needed(self, path: str) -> str:
        text = (await self._imds.get(path) or "").strip()
        if not text:
            raise MetadataAway(f"{path}: empty")
        return text

    async def _read(self, path: str, read: Callable[[str, float], Finding | None]) -> Finding | None:
        text = await self._imds.get(path)
        try:
            return None if text is None else read(text, self._clock.now_s() + self._imds.ahead_s)
        except ValueError as error:
            raise MetadataAway(f"{path}: {error}") from error

    def _take(self, instance_id: str, kind: NoticeKind, finding: Finding | None) -> None:
        """A finding as a notice on this machine's clock, as first seen; None takes it back."""
        known = self._standing.pop(kind, None)
        if finding is None:
            return
        first_s = self._clock.now_s() if known is None else known.noticed_at_s
        at_s = first_s if finding.at_s is None else finding.at_s - self._imds.ahead_s
        deadline_s = at_s + finding.grace_s if kind in BINDING else None
        if finding.deadline_s is not None:
            deadline_s = finding.deadline_s - self._imds.ahead_s
        notice = InterruptionNotice(instance_id=instance_id, kind=kind, noticed_at_s=at_s, deadline_s=deadline_s)
        self._standing[kind] = known if known is not None and _same(known, notice) else notice

    def _most_urgent(self) -> InterruptionNotice | None:
        """What binds before what hints, the nearest deadline first."""
        now_s = self._clock.now_s()
        standing = [each for each in self._standing.values() if each.kind in BINDING or now_s < void_at_s(each)]
        return min(standing, key=_urgency, default=None)

    def _write(self, instance: InstanceFile) -> None:
        """Bring the files to what is known, whoever changed them."""
        if not self._folder.instance.exists():
            self._folder.write_instance(instance)
        notice, written = self._most_urgent(), self._folder.read_notice()
        if notice is None:
            self._folder.write_notice(None)
        elif notice != written:
            self._folder.write_notice(notice)
            log.warning("notice", instance=instance.instance_id, kind=notice.kind.value, deadline_s=notice.deadline_s)
        if notice is None and written is not None:
            log.info("notice_withdrawn", instance=written.instance_id, kind=written.kind.value)


def _same(one: InterruptionNotice, other: InterruptionNotice) -> bool:
    """Whether they differ by no more than two readings of a clock do."""
    if replace(one, noticed_at_s=0.0, deadline_s=None) != replace(other, noticed_at_s=0.0, deadline_s=None):
        return False
    times = ((one.noticed_at_s, other.noticed_at_s), (one.deadline_s, other.deadline_s))
    return all(a == b or (a is not None and b is not None and abs(a - b) <= _SAME_TIME_S) for a, b in times)


def _urgency(notice: InterruptionNotice) -> tuple[bool, float]:
    return notice.kind not in BINDING, float("inf") if notice.deadline_s is None else notice.deadline_s
