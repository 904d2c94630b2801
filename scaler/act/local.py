"""Pool on this machine: an instance is a process group, a replica is one instance.

* Launch: refused while `capacity.json` says that the offering is full. Otherwise the worker's command is started in a
  session of its own and outlives the controller. A token starts one process, whichever controller repeats it and
  whenever one was killed (`scaler.localcloud.launching`).
* Observe: everything recorded, adopted or being launched in this pool. It is also what moves things on, so it must be
  called again and again: it reaps, puts the dead away, and kills what was told to end and did not within its grace.
* Terminate: SIGTERM to the named instance's group, if it is still the process that was launched; SIGKILL after the grace.

Nothing here knows of ledgers or notices: draining comes before terminate and is the caller's business.
"""

import os
import shutil
import signal
import string
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scaler.act.base import (
    Instance,
    InstanceState,
    LaunchOutcome,
    LaunchResult,
    OfferingFacts,
    PoolObservation,
    PoolUnavailable,
)
from scaler.localcloud import launching
from scaler.localcloud.launching import Launch
from scaler.localcloud.processes import TOKEN_VARIABLE, reap, signal_group
from scaler.localcloud.state import InstanceRecord, StateDir, read_json
from scaler.model.clock import Clock
from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica

OWN_PLACEHOLDERS = frozenset({"worker", "replicaId", "instanceId", "offering", "noticeFile", "tokenCounter"})
"""What the actor fills in by itself, for each instance."""

INSTANCE_VARIABLE = "HEADRACE_INSTANCE_ID"

_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPoolSettings:
    """What a local pool needs to know.

    `command` may use `{worker}`, `{replicaId}`, `{instanceId}`, `{offering}`, `{noticeFile}`, `{tokenCounter}` and every
    name in `placeholders` (the controller puts `ledger` and `job` there). A literal brace is written twice.
    """

    state_dir: Path
    command: tuple[str, ...]
    placeholders: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of the controller's own environment."""
    termination_grace_s: float = 10.0
    """From SIGTERM to SIGKILL."""

    def __post_init__(self) -> None:
        """Refuse a command that could not be filled in; `ValueError`."""
        if not self.command:
            raise ValueError("the command of a local pool is empty; give the worker's command line")
        known = OWN_PLACEHOLDERS | self.placeholders.keys()
        unknown = {name for word in self.command for name in _names(word)} - known
        if unknown:
            raise ValueError(
                f"the command of a local pool uses {{{min(unknown)}}}; known are {', '.join(sorted(known))}"
            )


class LocalPool:
    """A `PoolActor` for provider `local`; see the module's docstring."""

    def __init__(self, settings: LocalPoolSettings, *, pool: str, clock: Clock) -> None:
        self._settings = settings
        self._pool = pool
        self._clock = clock
        self._state = StateDir(settings.state_dir.absolute())
        self._children: set[int] = set()
        self._state.create()
        launching.forget_ended(self._state, clock.now_s())

    async def observe(self) -> PoolObservation:
        """List everything of ours; see the module's docstring for what else it does.

        Raises:
            PoolUnavailable: the state folder cannot be read.
        """
        try:
            return self._observe()
        except (OSError, ValueError) as error:
            raise PoolUnavailable(f"state folder {self._state.root}: {error}") from error

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """Start one instance, once a token.

        Raises:
            PoolUnavailable: the state folder cannot be used, or another launch on it does not end.
        """
        try:
            async with self._lock() as lock:
                return self._launch(command, lock)
        except (OSError, ValueError) as error:
            raise PoolUnavailable(f"state folder {self._state.root}: {error}") from error

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """Tell the named instances of this replica to end; returns those that ran and have been told."""
        try:
            records = self._own_records()
            named = [record for record in records if record.instance_id in command.instance_ids]
            return tuple(
                record.instance_id
                for record in named
                if record.replica_id == command.replica_id and self._tell_to_end(record)
            )
        except OSError as error:
            raise PoolUnavailable(f"state folder {self._state.root}: {error}") from error

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """Nothing: a process group is in no group that would replace it."""
        return ()

    def facts(self) -> Mapping[str, OfferingFacts]:
        """Nothing beyond what `observe` tells."""
        return {}

    async def close(self) -> None:
        """Collect children that have ended; instances stay."""
        reap(self._children)

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[int]:
        give_up_at = self._clock.monotonic_s() + _LOCK_WAIT_S
        while (descriptor := launching.try_lock(self._state)) is None:
            if self._clock.monotonic_s() > give_up_at:
                raise PoolUnavailable(f"{self._state.root}/launch.lock has been held for {_LOCK_WAIT_S:.0f} s")
            await self._clock.sleep(_LOCK_POLL_S)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _observe(self) -> PoolObservation:
        now_s = self._clock.now_s()
        reap(self._children)
        self._adopt_if_free()
        pending = [_pending(launch) for launch in launching.open_launches(self._state) if launch.pool == self._pool]
        for record in self._own_records():
            self._move_on(record, now_s)
        running = [_running(record) for record in self._own_records()]
        return PoolObservation(listed_at_s=now_s, instances=(*running, *pending), available=self._available())

    def _adopt_if_free(self) -> None:
        if not launching.open_launches(self._state):
            return
        lock = launching.try_lock(self._state)
        if lock is not None:
            launching.adopt(self._state)
            os.close(lock)

    def _own_records(self) -> tuple[InstanceRecord, ...]:
        return tuple(record for record in self._state.list_instances().records if record.pool == self._pool)

    def _move_on(self, record: InstanceRecord, now_s: float) -> None:
        if not record.alive:
            launching.end(self._state, record, now_s)
        elif record.terminating_at_s is not None and now_s - record.terminating_at_s >= self._grace_s:
            signal_group(record.pid, record.start_ticks, signal.SIGKILL)

    @property
    def _grace_s(self) -> float:
        return self._settings.termination_grace_s

    def _available(self) -> Mapping[str, int]:
        live = self._live_per_offering()
        return {offering: max(0, count - live[offering]) for offering, count in self._state.read_capacity().items()}

    def _live_per_offering(self) -> Counter[str]:
        """Instances of every pool on this state folder: they share what the offerings can hold."""
        return Counter(record.offering_id for record in self._state.live_instances())

    def _launch(self, command: LaunchReplica, lock: int) -> LaunchOutcome:
        launching.adopt(self._state)
        launch = launching.new_launch(self._pool, command.token, command.offering_id, self._clock.now_s())
        if self._launched_before(launch):
            return LaunchOutcome(result=LaunchResult.ALREADY, instance_id=launch.instance_id)
        bound = self._state.read_capacity().get(command.offering_id)
        if bound is not None and self._live_per_offering()[command.offering_id] >= bound:
            message = f"{command.offering_id} can hold {bound} and does"
            return LaunchOutcome(result=LaunchResult.INSUFFICIENT_CAPACITY, message=message)
        return self._start(launch, lock)

    def _launched_before(self, launch: Launch) -> bool:
        name = f"{launch.instance_id}.json"
        folders = (self._state.instances, self._state.ended)
        return any(read_json(folder / name, InstanceRecord.of_json) is not None for folder in folders)

    def _start(self, launch: Launch, lock: int) -> LaunchOutcome:
        argv = self._argv(launch)
        env = {**os.environ, **self._settings.env}
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            return LaunchOutcome(result=LaunchResult.FAILED, message=f"no program {argv[0]!r}")
        env |= {TOKEN_VARIABLE: launch.launch_token, INSTANCE_VARIABLE: launch.instance_id}
        try:
            record = launching.start(self._state, launch, argv, env, lock)
        except OSError as error:
            return LaunchOutcome(result=LaunchResult.FAILED, message=str(error))
        self._children.add(record.pid)
        return LaunchOutcome(result=LaunchResult.LAUNCHED, instance_id=launch.instance_id)

    def _argv(self, launch: Launch) -> tuple[str, ...]:
        values = {
            **self._settings.placeholders,
            "worker": launch.worker,
            "replicaId": launch.replica_id,
            "instanceId": launch.instance_id,
            "offering": launch.offering_id,
            "noticeFile": str(self._state.notice_file(launch.instance_id)),
            "tokenCounter": str(self._state.counter_file(launch.instance_id)),
        }
        return tuple(word.format_map(values) for word in self._settings.command)

    def _tell_to_end(self, record: InstanceRecord) -> bool:
        if record.terminating_at_s is None:
            # Written first: a SIGTERM that was sent must be followed by its SIGKILL, whoever is killed in between.
            record = record.terminating(self._clock.now_s())
            self._state.write_record(record)
        return signal_group(record.pid, record.start_ticks, signal.SIGTERM)


def make(settings: object, *, pool: str, clock: Clock) -> LocalPool:
    """The actor of a local pool; `TypeError` where the settings are another provider's."""
    if not isinstance(settings, LocalPoolSettings):
        raise TypeError(f"pool {pool}: a local pool takes LocalPoolSettings, not {type(settings).__name__}")
    return LocalPool(settings, pool=pool, clock=clock)


def _names(word: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(word) if name is not None}


def _pending(launch: Launch) -> Instance:
    return _instance(launch, InstanceState.PENDING)


def _running(record: InstanceRecord) -> Instance:
    ending = record.terminating_at_s is not None
    return _instance(record, InstanceState.SHUTTING_DOWN if ending else InstanceState.RUNNING)


def _instance(of: Launch | InstanceRecord, state: InstanceState) -> Instance:
    return Instance(
        instance_id=of.instance_id,
        replica_id=of.replica_id,
        offering_id=of.offering_id,
        state=state,
        launched_at_s=of.launched_at_s,
        launch_token=of.launch_token,
    )
