"""Look at a running demo from outside, as an operator would: the ledger, the cloud's files, the controller's status."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaler.demo.moments import Interruption, Moment, Update
from scaler.demo.world import World
from scaler.ledger.contract import Ledger, LedgerRefused, LedgerUnavailable
from scaler.localcloud.state import InstanceRecord
from scaler.model.job import LedgerStats, WorkerRecord


@dataclass(slots=True)
class Watch:
    """Takes moments. `started_at_s` is wall time: what the trainer's and the cloud's records are stamped with."""

    world: World
    ledger: Ledger
    started_at_s: float
    moments: list[Moment] = field(default_factory=list)

    def look(self, now_s: float) -> Moment:
        """One moment; what cannot be seen is None."""
        updates = self.updates()
        status = read_status(self.world.status_url)
        stats, workers = self._read_ledger()
        ready, draining, starting = self._fleet(workers)
        losses = self.interruptions()
        moment = Moment(
            at_s=round(now_s - self.started_at_s, 2),
            desired=status.desired,
            ready=ready,
            starting=starting,
            draining=draining,
            capacity=self._capacity(),
            buffered_samples=None if stats is None else stats.buffer_depth,
            batch_samples=None if stats is None else stats.settings.batch_samples,
            updates=len(updates),
            reward=updates[-1].reward if updates else None,
            wait_ratio=stats.trainer.wait_ratio if stats and stats.trainer else None,
            noticed=sum(loss.noticed for loss in losses),
            unnoticed=sum(not loss.noticed for loss in losses),
            salvaged_tokens=0 if stats is None else stats.tokens.salvaged,
            decision=status.decision,
        )
        self.moments.append(moment)
        return moment

    def updates(self) -> list[Update]:
        """The trainer's record; a step that was taken again after a crash counts once, as it ended."""
        steps: dict[int, Update] = {}
        for raw in read_lines(self.world.metrics_file):
            steps[int(raw["step"])] = Update(
                at_s=float(raw["at_s"]) - self.started_at_s,
                step=int(raw["step"]),
                reward=float(raw["reward_mean"]),
                phase_s={str(name): float(value) for name, value in raw.get("phase_s", {}).items()},
            )
        return [steps[step] for step in sorted(steps)]

    def interruptions(self) -> list[Interruption]:
        """The cloud's record."""
        return [
            Interruption(at_s=loss.at_s - self.started_at_s, noticed=loss.noticed)
            for loss in self.world.state.read_interruptions()
        ]

    def _read_ledger(self) -> tuple[LedgerStats | None, tuple[WorkerRecord, ...]]:
        try:
            return self.ledger.stats(), self.ledger.workers()
        except (LedgerUnavailable, LedgerRefused):  # refused: nobody has configured the job yet
            return None, ()

    def _fleet(self, workers: tuple[WorkerRecord, ...]) -> tuple[int, int, int]:
        known = {worker.identity.instance_id: worker for worker in workers}
        live = self.world.state.live_instances()
        leaving = {record.instance_id for record in live if self._is_leaving(record, known.get(record.instance_id))}
        ready = {
            record.instance_id
            for record in live
            if record.instance_id in known
            and record.instance_id not in leaving
            and known[record.instance_id].status.ready
        }
        return len(ready), len(leaving), len(live) - len(ready) - len(leaving)

    def _is_leaving(self, record: InstanceRecord, worker: WorkerRecord | None) -> bool:
        """Told to go by the cloud or by the controller, or has said goodbye and is about to end."""
        told = record.terminating_at_s is not None or self.world.state.notice_file(record.instance_id).exists()
        return told or (worker is not None and (worker.gone or worker.drain is not None))

    def _capacity(self) -> int | None:
        try:
            offered = self.world.state.read_capacity()
        except ValueError:
            return None
        return sum(offered.values()) if offered else None


@dataclass(frozen=True, slots=True)
class Status:
    """The part of the controller's own account that the demo shows."""

    desired: int | None = None
    decision: str = ""


def read_status(url: str) -> Status:
    """The controller's account, empty while it is not up."""
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=0.5) as reply:  # noqa: S310 - our own loopback address
            raw = json.loads(reply.read())
    except (OSError, urllib.error.URLError, ValueError):
        return Status()
    stages = raw.get("stages") or [{}]
    reason = stages[0].get("reason") or {}
    return Status(desired=stages[0].get("desired"), decision=str(reason.get("message", "")))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines; the last one may be half written, and is left out then."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    parsed = []
    for line in lines:
        try:
            parsed.append(json.loads(line))
        except ValueError:
            continue
    return parsed
