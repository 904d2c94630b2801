"""The trainers of a world, one after the other: run outside the event loop, killed at a phase or anywhere they pause."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scaler.ledger.contract import LedgerError
from scaler.model.job import JobSettings
from tests.faults.ledger_rules import LedgerRules
from tests.faults.store import Store
from tests.faults.trainer_process import Killed, PausingClock, TrainerProcess
from tests.faults.training_record import TrainingRecord
from tests.faults.virtual_loop import VirtualLoop
from tests.faults.watch import Watch


class Trainers:
    """See the module's docstring. `advance` moves the world; it may raise to end it."""

    def __init__(
        self,
        *,
        folder: Path,
        loop: VirtualLoop,
        store: Store,
        job: JobSettings,
        record: TrainingRecord,
        rules: LedgerRules,
        watch: Watch,
        advance: Callable[[float], None],
    ) -> None:
        self._folder = folder
        self._loop = loop
        self._store = store
        self._job = job
        self._record = record
        self._rules = rules
        self._watch = watch
        self._advance = advance
        self._started = 0
        self._from_s = 0.0
        self.newest_version: int | None = None
        """Of the weights that workers can read."""
        self.kill_at: str | None = None
        """"now", or the phase at whose beginning the next trainer to enter it dies."""
        self.away_s = 1.0

    def run(self) -> None:
        """Let a trainer run, if one is due, until it dies; else let a second pass."""
        if self._loop.time() < self._from_s:
            self._advance(1.0)
            return
        self._started += 1
        client = f"trainer#{self._started}"
        self._watch.event("trainer starts", client)
        with suppress(Killed):
            TrainerProcess(
                self._store.client(client),
                self._job,
                self._record,
                PausingClock(self._loop, self._pause),
                folder=self._folder,
                published=self._published,
                at_phase=self._at_phase,
            ).run()
        self._store.dead.add(client)
        self._watch.event("trainer is dead", client)
        self._from_s = self._loop.time() + self.away_s

    def old_one_speaks(self) -> None:
        """Calls of a trainer that was succeeded arrive; every one is to be refused."""
        epoch, step = self._rules.tally.trainer_epoch - 1, self._record.durable_step
        calls: tuple[tuple[str, tuple[object, ...]], ...] = (
            ("take_batch", (epoch, 1, step, 1)),
            ("ack_batch", (epoch, tuple(self._rules.tally.taken.values()))),
        )
        for method, args in calls if epoch > 0 else ():
            with suppress(LedgerError):
                self._store.call("elsewhere", method, args)

    def _published(self, step: int) -> None:
        self.newest_version = step

    def _pause(self, seconds: float) -> None:
        self._advance(seconds)
        if self.kill_at == "now":
            self._die()

    def _at_phase(self, step: int, phase: str) -> None:
        self._watch.event("trainer", step, phase)
        if self.kill_at == phase:
            self._die()

    def _die(self) -> None:
        self.kill_at = None
        raise Killed
