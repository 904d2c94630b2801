"""Worker processes on the cloud's instances: started when one is up, killed with it, replaced where faults kill them."""

from collections.abc import Callable
from random import Random

from scaler.model.job import WorkerIdentity
from tests.faults.cloud import Cloud, Machine
from tests.faults.store import Store
from tests.faults.virtual_loop import START_S
from tests.faults.watch import Watch
from tests.faults.workers import EngineTroubles, WorkerProcess

_GRACE_S = 8.0
_HAND_OVER_S = 18.0
"""Two steps of a worker, and its margin."""


def worker_of(machine: Machine) -> str:
    """The name of the worker on an instance."""
    return f"w-{machine.instance_id}"


class WorkerHosts:
    """The cloud's `Hosts`."""

    def __init__(
        self, cloud: Cloud, store: Store, watch: Watch, random: Random, newest_version: Callable[[], int | None]
    ) -> None:
        self._cloud = cloud
        self._store = store
        self._watch = watch
        self._random = random
        self._newest_version = newest_version
        self._started = 0
        self._old: list[WorkerProcess] = []
        self.engines = EngineTroubles()
        self.processes: dict[str, WorkerProcess] = {}
        """By instance id: the newest process on each."""

    def booted(self, machine: Machine) -> None:
        """See `Hosts`."""
        self._started += 1
        identity = WorkerIdentity(
            worker=worker_of(machine), replica_id=machine.replica_id, instance_id=machine.instance_id
        )
        self._watch.event("worker starts", identity.worker)
        self.processes[machine.instance_id] = WorkerProcess(
            identity,
            self._started,
            loop=self._cloud.loop,
            store=self._store,
            random=self._random,
            watch=self._watch,
            newest_version=self._newest_version,
            troubles=self.engines,
            exited=self._exited,
        )

    def told_to_end(self, machine: Machine) -> None:
        """See `Hosts`."""
        process = self.processes.get(machine.instance_id)
        if process is not None:
            process.hear_sigterm(_GRACE_S)

    def gone(self, machine: Machine) -> None:
        """See `Hosts`."""
        process = self.processes.get(machine.instance_id)
        if process is None:
            return
        held = process.failed_to_hand_over(_HAND_OVER_S) if _went_on_time(machine) and process.alive else []
        if held:
            self._watch.broke("hand-over", f"{process.identity.worker} had time to hand over and still holds {held}")
        for each in (process, *self._old):
            if each.identity == process.identity:
                each.kill()

    def restart(self, process: WorkerProcess, *, leave_old: bool) -> None:
        """A new process of the same name; the old one is dead, or goes on beside it until its instance ends."""
        if leave_old:
            self._old.append(process)
        else:
            process.kill()
        self._watch.event("worker process", "doubled" if leave_old else "killed", process.identity.worker)
        machine = self._cloud.machines[process.identity.instance_id]
        self._cloud.loop.call_later(self._random.uniform(1.0, 8.0), self._boot_again, machine)

    def stop(self) -> None:
        """The end of the world."""
        for process in (*self.processes.values(), *self._old):
            process.kill()

    def end_old(self) -> None:
        """Processes that should have been dead are."""
        for process in self._old:
            process.kill()

    def _boot_again(self, machine: Machine) -> None:
        if not machine.gone and machine.told_to_end_s is None:
            self.booted(machine)

    def _exited(self, process: WorkerProcess) -> None:
        """An instance is as long as its process; an old twin's end means nothing."""
        if self.processes.get(process.identity.instance_id) is process:
            self._cloud.end(self._cloud.machines[process.identity.instance_id], "exited")


def _went_on_time(machine: Machine) -> bool:
    """Whether it was taken after a warning that left time to hand over; a notice that said something else does not count."""
    if machine.taken_s is None or machine.told_to_end_s is not None or machine.notice is None:
        return False
    return START_S + machine.taken_s - machine.notice.noticed_at_s >= _HAND_OVER_S
