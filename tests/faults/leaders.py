"""The controllers of a world, one after the other; who starts the next one, and what the dead ones left in the network."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from scaler.ledger.contract import LedgerUnavailable, StaleEpoch
from scaler.model.job import JobSettings
from scaler.model.spec import FleetSpec
from scaler.model.work import ReleaseReason
from tests.faults.call_rules import ControllerCallRules
from tests.faults.cloud import Cloud
from tests.faults.controller_process import ControllerProcess, Plug
from tests.faults.ledger_rules import LedgerRules
from tests.faults.plan_rules import PlanRules
from tests.faults.store import Store
from tests.faults.trainer_process import Killed
from tests.faults.virtual_loop import HostClock
from tests.faults.watch import Watch


class Leaders:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        folder: Path,
        clock: HostClock,
        cloud: Cloud,
        store: Store,
        job: JobSettings,
        spec: Callable[[], FleetSpec],
        plug: Plug,
        rules: LedgerRules,
        plans: PlanRules,
        watch: Watch,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._cloud = cloud
        self._store = store
        self._job = job
        self._spec = spec
        self._plug = plug
        self._rules = rules
        self._plans = plans
        self._watch = watch
        self._epochs: list[int] = []
        self.now: ControllerProcess | None = None
        self.away_s = 1.0
        """How long after the next death its successor starts."""
        self._over = False

    @property
    def client(self) -> str:
        """The store's name for the controller in office."""
        return f"controller#{len(self._epochs)}"

    def start(self) -> None:
        """The next process."""
        if self._over or self.now is not None:
            return
        calls = ControllerCallRules(
            self._watch, self._clock, self._cloud, self._rules.tally, self._plans, self._spec, self._store.registered_s
        )
        client = f"controller#{len(self._epochs) + 1}"
        self.now = ControllerProcess(
            folder=self._folder,
            clock=self._clock,
            cloud=self._cloud,
            ledger=self._store.client(client),
            job=self._job,
            spec=self._spec,
            plug=self._plug,
            plans=self._plans,
            calls=calls,
            lost_place=lambda: self._store.dead.add(client),
            died=self._died,
        )
        self._watch.event("controller starts", client, self.now.epoch)
        if self._epochs and self.now.epoch <= self._epochs[-1]:
            self._watch.broke("leader epoch", f"{self.now.epoch} after {self._epochs[-1]}")
        self._epochs.append(self.now.epoch)

    def kill(self) -> None:
        """SIGKILL; the next one comes after `away_s`."""
        if self.now is not None:
            self.now.kill()

    def stop(self) -> None:
        """The end of the world."""
        self._over = True
        self.kill()

    def wake(self) -> None:
        """The configuration has changed."""
        if self.now is not None:
            self.now.controller.wake.set()

    def old_one_speaks(self, random: Random) -> None:
        """A ledger call of one that was succeeded arrives; refused, once the successor has spoken."""
        workers = sorted(name for name, worker in self._rules.tally.workers.items() if name.startswith("w-"))
        if len(self._epochs) < 2 or not workers:
            return
        worker, epoch = random.choice(workers), self._epochs[-2]
        late = random.choice(
            (
                ("drain", worker, self._clock.now_s() + 30.0, "size_down", epoch),
                ("undrain", worker, epoch),
                ("release_worker", worker, ReleaseReason.WORKER_LOST, epoch),
            )
        )
        if epoch < self._rules.leader_epoch:
            with suppress(StaleEpoch, LedgerUnavailable):
                self._store.call("elsewhere", late[0], late[1:])

    def _died(self, process: ControllerProcess, error: BaseException | None) -> None:
        self._watch.event("controller is dead", error or "killed")
        self.now = None
        for each in _leaves(error):
            if not isinstance(each, Killed | StaleEpoch):
                self._watch.broke("controller died", repr(each))
        if not self._over:
            self._cloud.loop.call_later(self.away_s, self.start)


def _leaves(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
