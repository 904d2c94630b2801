"""Bugs planted in production code, one at a time, by replacing a function with one that is wrong in one way.

Each is a mistake that somebody could make: a check forgotten, a step in the wrong place, an old value taken for a new
one. The schedules must find every one of them; what finds which is theirs to say.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rollout_worker.held import HeldUnit
from rollout_worker.machine import WorkerMachine
from scaler.act.base import PoolObservation
from scaler.decide import endings, growing, rails, stage, victims
from scaler.decide.world import StageWorld
from scaler.ledger._sqlite import batches, fleet, granting, returning
from scaler.ledger._sqlite.fleet import WorkerRow
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import UnitRow
from scaler.ledger.contract import LedgerError
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Memory, Plan, ReasonCode
from scaler.model.reading import Freshness, Reading
from scaler.observe import assemble as assembling
from scaler.observe.assemble import Facts
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.replicas import Join
from scaler.runtime import drainer as draining
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.journal import Journal, Turn
from scaler.runtime.launcher import Launcher
from scaler.runtime.loop import Controller
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.pool_watch import PoolWatch
from scaler.model.snapshot import ReplicaView
from tests.faults.trainer_process import TrainerProcess
from trainer.checkpoint import TrainerState
from trainer.intake import Intake
from trainer.loop import Trainer

Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: "dict[str, PlantedBug]" = {}


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A mistake, in the words of who would have made it."""

    area: str
    name: str
    plant: Plant


def planted(area: str) -> Callable[[Plant], Plant]:
    """Register a bug by its function's name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", " ")
        BUGS[name] = PlantedBug(area, name, plant)
        return plant

    return register


# --- ledger ---------------------------------------------------------------------------------------------------------


@planted("ledger")
def a_fence_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitRow, "held_under", lambda self, token: self.attempt > 0)


@planted("ledger")
def a_lease_that_ran_out_keeps_its_fence(patch: pytest.MonkeyPatch) -> None:
    """The next holder is given the token of the one before."""
    take = granting._take

    def wrong(tx: Transaction, *args: Any) -> Any:
        tx.counters.fence = max(0, tx.counters.fence - 1)
        return take(tx, *args)

    patch.setattr(granting, "_take", wrong)


@planted("ledger")
def a_draining_worker_is_given_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerRow, "may_lease", property(lambda self: not self.gone))


@planted("ledger")
def a_decrement_is_lost_when_a_worker_is_released(patch: pytest.MonkeyPatch) -> None:
    give_back_all = returning.give_back_all

    def wrong(tx: Transaction, *args: Any) -> int:
        released = give_back_all(tx, *args)
        tx.counters.running += bool(released)
        return released

    patch.setattr(fleet, "give_back_all", wrong)


@planted("ledger")
def progress_is_lost_when_a_lease_runs_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(returning, "kept_tokens", lambda resume, published: 0)


@planted("ledger")
def a_rejected_batch_is_not_handed_out_again(patch: pytest.MonkeyPatch) -> None:
    """An attaching trainer starts with a clean table."""
    attach = batches.attach

    def wrong(tx: Transaction, owner: str) -> int:
        tx.db.execute("UPDATE batches SET acked = 1 WHERE job = ?", (tx.job,))
        return attach(tx, owner)

    patch.setattr(batches, "attach", wrong)


@planted("ledger")
def an_old_trainer_is_not_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "check_trainer", lambda self, trainer_epoch: None)


@planted("ledger")
def an_old_leader_is_not_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "check_controller", lambda self, epoch: None)


@planted("ledger")
def admission_forgets_what_is_buffered(patch: pytest.MonkeyPatch) -> None:
    admissible = granting.admissible
    patch.setattr(granting, "admissible", lambda settings, running, buffered: admissible(settings, running, 0))


@planted("ledger")
def stale_groups_are_handed_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "_drop_stale_ready", lambda tx, oldest_usable: None)


@planted("ledger")
def a_late_deadline_replaces_an_earlier_one(patch: pytest.MonkeyPatch) -> None:
    def wrong(tx: Transaction, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        tx.check_controller(epoch)
        row = fleet.find_worker(tx, worker)
        if row is None or row.gone:
            return False
        fleet._mark(tx, row, deadline_s, reason, epoch)
        return True

    patch.setattr(fleet, "drain", wrong)


# --- decide ---------------------------------------------------------------------------------------------------------


@planted("decide")
def a_cool_down_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rails, "_cooling", lambda situation, cooldown_s: False)


@planted("decide")
def a_cool_down_does_not_survive_a_lowering(patch: pytest.MonkeyPatch) -> None:
    remember = stage._remember
    patch.setattr(stage, "_remember", lambda *args: replace(remember(*args), last_down_at_s=None))


@planted("decide")
def a_stale_signal_is_taken_for_what_it_was(patch: pytest.MonkeyPatch) -> None:
    judge = Reading.freshness

    def wrong(self: Reading, now_s: float, max_age_s: float) -> Freshness:
        found = judge(self, now_s, max_age_s)
        return Freshness.FRESH if found is Freshness.STALE else found

    patch.setattr(Reading, "freshness", wrong)


@planted("decide")
def lowering_does_not_wait_for_fresh_signals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rails, "fresh_long_enough", lambda situation: True)


@planted("decide")
def the_disruption_budget_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(victims, "disruption_budget", lambda world: 1_000)


@planted("decide")
def a_noticed_replica_is_ended_as_soon_as_it_is_drained(patch: pytest.MonkeyPatch) -> None:
    def wrong(world: StageWorld, replica: ReplicaView, deadline_s: float) -> Any:
        return endings.terminate(world, replica, endings._because(ReasonCode.DRAINED, "drained"))

    patch.setattr(endings, "_reap", wrong)


@planted("decide")
def a_noticed_replica_still_counts(patch: pytest.MonkeyPatch) -> None:
    counting = StageWorld.counting.func  # type: ignore[attr-defined]  # a cached property

    def wrong(self: StageWorld) -> tuple[ReplicaView, ...]:
        noticed = tuple(each for each in self.replicas if each.notice is not None and each.phase is ReplicaPhase.READY)
        return tuple({each.replica_id: each for each in (*counting(self), *noticed)}.values())

    patch.setattr(StageWorld, "counting", property(wrong))


@planted("decide")
def refusals_never_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(growing, "backing_off", lambda pool, view, now_s: False)


# --- drain ----------------------------------------------------------------------------------------------------------


@planted("drain")
def deadlines_are_told_on_the_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    drain_call = Drainer._drain_call
    patch.setattr(
        Drainer, "_drain_call", lambda self, order, worker, store_ahead_s: drain_call(self, order, worker, 0.0)
    )


@planted("drain")
def a_newer_leader_is_taken_for_an_absent_store(patch: pytest.MonkeyPatch) -> None:
    def wrong(ledger: Any, calls: Sequence[Callable[[Any], int]]) -> list[int | LedgerError]:
        results: list[int | LedgerError] = []
        for call in calls:
            try:
                results.append(call(ledger))
            except LedgerError as error:
                results.append(error)
        return results

    patch.setattr(draining, "_each", wrong)


@planted("drain")
def a_worker_works_on_past_its_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerMachine, "_leave", lambda self, at_s: self._exit_when_done(at_s))


@planted("drain")
def a_worker_that_leaves_keeps_its_unfinished_units(patch: pytest.MonkeyPatch) -> None:
    """It says goodbye without releasing them."""
    patch.setattr(WorkerMachine, "_releases", lambda self, at_s: None)


@planted("drain")
def what_was_published_is_published_again_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """And counted once more: positions shift."""
    acknowledge = HeldUnit.acknowledge
    patch.setattr(HeldUnit, "acknowledge", lambda self, published, at_s: acknowledge(self, published + 1, at_s))


@planted("drain")
def an_end_goes_through_while_the_store_is_away(patch: pytest.MonkeyPatch) -> None:
    """Nobody knows what the worker holds by then."""
    start = Ender.start

    async def wrong(self: Ender, *args: Any) -> None:
        calls = self._calls

        class Hopeful:
            async def call(self, job: Any, time_out_s: float | None = None) -> Any:
                try:
                    return await calls.call(job, time_out_s)
                except LedgerError:
                    return ()

        self._calls = Hopeful()
        await start(self, *args)
        self._calls = calls

    patch.setattr(Ender, "start", wrong)


# --- observe --------------------------------------------------------------------------------------------------------


@planted("observe")
def a_trainer_is_taken_for_a_replica(patch: pytest.MonkeyPatch) -> None:
    """Workers whose instance nobody lists are adopted; so a trainer's node becomes a victim."""
    replicas = assembling._replicas

    def wrong(pool: str, facts: Facts, join: Join) -> list[ReplicaView]:
        views = replicas(pool, facts, join)
        shown = {view.worker for view in views}
        strangers = [worker for worker in facts.workers if worker.identity.worker not in shown and not worker.gone]
        if pool != "spot":
            return views
        return views + [
            ReplicaView(
                replica_id=worker.identity.replica_id,
                pool=pool,
                offering_id="g/z1/spot",
                phase=ReplicaPhase.READY,
                instance_ids=(worker.identity.instance_id,),
                worker=worker.identity.worker,
            )
            for worker in strangers
        ]

    patch.setattr(assembling, "_replicas", wrong)


@planted("observe")
def a_pool_that_does_not_answer_is_taken_for_empty(patch: pytest.MonkeyPatch) -> None:
    failed = PoolWatch._failed

    def wrong(self: PoolWatch, name: str, error: str) -> None:
        failed(self, name, error)
        before = self.observations.get(name)
        if before is not None:
            self.observations[name] = PoolObservation(listed_at_s=before.listed_at_s + 10.0, instances=())

    patch.setattr(PoolWatch, "_failed", wrong)


@planted("observe")
def a_store_that_does_not_answer_refreshes_the_last_reading(patch: pytest.MonkeyPatch) -> None:
    poll = LedgerWatch.poll

    async def wrong(self: LedgerWatch) -> bool:
        answered = await poll(self)
        if not answered and self.reading is not None:
            self.reading = replace(self.reading, read_at_s=self._clock.now_s())
        return answered

    patch.setattr(LedgerWatch, "poll", wrong)


@planted("observe")
def a_launch_under_way_does_not_count(patch: pytest.MonkeyPatch) -> None:
    build = assembling.assemble
    patch.setattr(
        "scaler.runtime.loop.assemble",
        lambda spec, facts, offerings: build(spec, replace(facts, intents=()), offerings),
    )


@planted("observe")
def a_duplicate_notice_hides_the_earlier_deadline(patch: pytest.MonkeyPatch) -> None:
    """The last word wins, wherever it came from."""

    def wrong(self: NoticeWatch) -> Any:
        told = sorted((n for each in self._told.values() for n in each), key=lambda n: -(n.deadline_s or 0.0))
        return tuple({(n.instance_id, n.kind): n for n in reversed(told)}.values())

    patch.setattr(NoticeWatch, "current", wrong)


# --- runtime --------------------------------------------------------------------------------------------------------


@planted("runtime")
def commands_are_carried_out_before_they_are_persisted(patch: pytest.MonkeyPatch) -> None:
    """The journal is written a turn late."""
    write = Journal.write

    def wrong(self: Journal, turn: Turn) -> int:
        return write(self, dataclasses.replace(turn, intents=()))

    patch.setattr(Journal, "write", wrong)


@planted("runtime")
def memory_does_not_survive_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "memory", lambda self: Memory())


@planted("runtime")
def the_epoch_is_not_raised(patch: pytest.MonkeyPatch) -> None:
    raise_epoch = Journal.raise_epoch

    def wrong(self: Journal, now_s: float) -> int:
        known = self._fact("epoch")
        return int(known) if known else raise_epoch(self, now_s)

    patch.setattr(Journal, "raise_epoch", wrong)


@planted("runtime")
def a_launch_without_an_answer_gets_a_new_token(patch: pytest.MonkeyPatch) -> None:
    """It is taken for refused."""
    launch = Launcher._launch

    async def wrong(self: Launcher, intent: Any, actor: Any, seq: int) -> None:
        await launch(self, intent, actor, seq)
        kept = self._intents.get(intent.token)
        if kept is not None and kept.answered_at_s is None:
            self.forget(intent.token)

    patch.setattr(Launcher, "_launch", wrong)


@planted("runtime")
def it_decides_before_it_has_rebuilt_its_state(patch: pytest.MonkeyPatch) -> None:
    built = Controller.__init__

    def wrong(self: Controller, parts: Any) -> None:
        built(self, parts)
        self._synced = True

    patch.setattr(Controller, "__init__", wrong)


@planted("runtime")
def a_new_controller_trusts_the_freshness_of_the_old_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("scaler.runtime.loop._without_freshness", lambda memory: memory)


# --- trainer --------------------------------------------------------------------------------------------------------


@planted("trainer")
def a_batch_is_acknowledged_before_its_checkpoint(patch: pytest.MonkeyPatch) -> None:
    train = TrainerProcess._train

    def wrong(self: TrainerProcess, taken: Any) -> Any:
        self._calls.call(lambda ledger: ledger.ack_batch(ledger.stats().trainer_epoch, (taken.batch.batch_id,)))
        return train(self, taken)

    patch.setattr(TrainerProcess, "_train", wrong)


@planted("trainer")
def a_restarted_trainer_does_not_acknowledge_what_it_has_trained(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> int:
        epoch: int = self._calls.call(lambda ledger: ledger.attach_trainer(self._settings.owner))
        self._publish(epoch)
        return epoch

    patch.setattr(Trainer, "_attach", wrong)


@planted("trainer")
def a_checkpoint_forgets_its_batches(patch: pytest.MonkeyPatch) -> None:
    consumed = TrainerState.consumed
    patch.setattr(
        TrainerState,
        "consumed",
        lambda self, batch_id, next_prompt: replace(consumed(self, batch_id, next_prompt), recent_batches=()),
    )


@planted("trainer")
def weights_are_published_before_their_checkpoint(patch: pytest.MonkeyPatch) -> None:
    own = TrainerProcess._train

    def wrong(self: Any, taken: Any) -> Any:
        parts = own(self, taken)
        state, self._state = self._state, replace(self._state, step=self._state.step + 1)
        self._publish(self._calls.call(lambda ledger: ledger.stats().trainer_epoch))
        self._state = state
        return parts

    patch.setattr(TrainerProcess, "_train", wrong)


@planted("trainer")
def a_batch_that_comes_again_is_filtered_again(patch: pytest.MonkeyPatch) -> None:
    take = Intake._take
    patch.setattr(Intake, "_take", lambda self, *args: replace(take(self, *args), redelivered=False))
