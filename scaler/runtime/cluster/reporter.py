"""Tells a fleet's object what the last tick brought: its status, and Events of what changed.

Policy: after every tick, and as often as the configuration or the guard changes it; the writer and the recorder pace
themselves. Nothing here ever holds a tick up or fails it.
"""

from collections.abc import Iterator
from dataclasses import replace

from scaler.guard.watch import GuardWatch
from scaler.model.clock import Clock
from scaler.model.plan import Command
from scaler.model.trainers import Severity
from scaler.runtime.conditions import Surroundings
from scaler.runtime.fleet_events import of_conditions, of_outcome, of_ticks
from scaler.runtime.fleet_status import status_of
from scaler.runtime.kube_config import KubeConfigWatch
from scaler.runtime.outcomes import Outcome
from scaler.runtime.status_writer import StatusWriter
from scaler.telemetry.events import EventRecorder
from scaler.telemetry.readout import Readout

_OWNER_WORDS = "another owner:"
"""How an adapter begins its reason where something else writes our counts."""


class Reporter:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        clock: Clock,
        config: KubeConfigWatch,
        guard: GuardWatch,
        events: EventRecorder,
        writer: StatusWriter,
        identity: str,
    ) -> None:
        self._clock = clock
        self._config = config
        self._guard = guard
        self._events = events
        self._writer = writer
        self._identity = identity
        self._last: Readout | None = None

    async def run(self) -> None:
        """Write; returns when the object is gone."""
        await self._writer.run()

    def tick(self, readout: Readout) -> None:
        """A tick has ended."""
        told = replace(readout, guard=self._guard.findings)
        for note in of_ticks(self._last, told):
            self._events.record(note)
        self._last = told
        before = self._writer.previous
        status = status_of(told, self._config.state, self._around(told), before)
        for note in of_conditions(before, status):
            self._events.record(note)
        self._writer.offer(status)

    def outcome(self, command: Command, outcome: Outcome, message: str) -> None:
        """A command has come to something."""
        note = of_outcome(command, outcome, message)
        if note is not None:
            self._events.record(note)

    def _around(self, readout: Readout) -> Surroundings:
        findings = [each for each in self._guard.findings or () if each.severity is not Severity.WARN]
        return Surroundings(
            now_s=self._clock.now_s(),
            identity=self._identity,
            has_trainers=bool(self._config.spec.trainers),
            trainers_protected=self._guard.protected,
            trainer_findings=[f"{each.trainer}: {each.message}" for each in findings],
            foreign_writers=list(_foreign(readout)),
        )


def _foreign(readout: Readout) -> Iterator[str]:
    for stage in readout.snapshot.stages if readout.snapshot else ():
        for pool in stage.pools:
            if pool.refused_reason and pool.refused_reason.startswith(_OWNER_WORDS):
                yield f"pool {pool.name}: {pool.refused_reason.removeprefix(_OWNER_WORDS).strip()}"
