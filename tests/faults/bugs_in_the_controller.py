"""Bugs planted in the controller: deciding, draining, observing, running; and in the worker that is drained."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rollout_worker.held import HeldUnit
from rollout_worker.machine import WorkerMachine
from scaler.act.base import PoolObservation
from scaler.decide import endings, rails, stage, victims
from scaler.decide.world import StageWorld
from scaler.ledger.contract import LedgerError
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Memory, ReasonCode
from scaler.model.reading import Freshness, Reading
from scaler.model.snapshot import ReplicaView
from scaler.observe import assemble as assembling
from scaler.observe.assemble import Facts
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.replicas import Join
from scaler.runtime import drainer as draining
from scaler.runtime.drainer import Drainer
from scaler.runtime.journal import Journal
from scaler.runtime.launcher import Launcher
from scaler.runtime.loop import Controller
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.pool_watch import PoolWatch
from tests.faults.planting import Bugs

BUGS_IN_THE_CONTROLLER = Bugs()


# --- decide -----------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_CONTROLLER.planted("decide")
def a_cool_down_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rails, "_cooling", lambda situation, cooldown_s: False)


@BUGS_IN_THE_CONTROLLER.planted("decide")
def a_cool_down_does_not_survive_a_lowering(patch: pytest.MonkeyPatch) -> None:
    remember = stage._remember
    patch.setattr(stage, "_remember", lambda *args: replace(remember(*args), last_down_at_s=None))


@BUGS_IN_THE_CONTROLLER.planted("decide")
def a_stale_signal_is_taken_for_what_it_was(patch: pytest.MonkeyPatch) -> None:
    judge = Reading.freshness

    def wrong(self: Reading, now_s: float, max_age_s: float) -> Freshness:
        found = judge(self, now_s, max_age_s)
        return Freshness.FRESH if found is Freshness.STALE else found

    patch.setattr(Reading, "freshness", wrong)


@BUGS_IN_THE_CONTROLLER.planted("decide")
def lowering_does_not_wait_for_fresh_signals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rails, "fresh_long_enough", lambda situation: True)


@BUGS_IN_THE_CONTROLLER.planted("decide")
def the_disruption_budget_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(victims, "disruption_budget", lambda world: 1_000)


@BUGS_IN_THE_CONTROLLER.planted("decide")
def a_noticed_replica_is_ended_as_soon_as_it_is_drained(patch: pytest.MonkeyPatch) -> None:
    def wrong(world: StageWorld, replica: ReplicaView, deadline_s: float) -> Any:
        return endings.terminate(world, replica, endings._because(ReasonCode.DRAINED, "drained"))

    patch.setattr(endings, "_reap", wrong)


@BUGS_IN_THE_CONTROLLER.planted("decide")
def a_noticed_replica_still_counts(patch: pytest.MonkeyPatch) -> None:
    counting = StageWorld.counting.func

    def wrong(self: StageWorld) -> tuple[ReplicaView, ...]:
        noticed = tuple(each for each in self.replicas if each.notice is not None and each.phase is ReplicaPhase.READY)
        return tuple({each.replica_id: each for each in (*counting(self), *noticed)}.values())

    patch.setattr(StageWorld, "counting", property(wrong))


@BUGS_IN_THE_CONTROLLER.planted("decide")
def refusals_never_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("scaler.decide.world.backoff_ends_at_s", lambda pool, view, around_s: float("-inf"))


# --- drain ------------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_CONTROLLER.planted("drain")
def deadlines_are_told_on_the_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    drain_call = Drainer._drain_call
    patch.setattr(
        Drainer, "_drain_call", lambda self, order, worker, store_ahead_s: drain_call(self, order, worker, 0.0)
    )


@BUGS_IN_THE_CONTROLLER.planted("drain")
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


@BUGS_IN_THE_CONTROLLER.planted("drain")
def a_worker_works_on_past_its_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerMachine, "_leave", lambda self, at_s: self._exit_when_done(at_s))


@BUGS_IN_THE_CONTROLLER.planted("drain")
def a_worker_that_leaves_keeps_its_unfinished_units(patch: pytest.MonkeyPatch) -> None:
    """It says goodbye without releasing them."""
    patch.setattr(WorkerMachine, "_releases", lambda self, at_s: None)


@BUGS_IN_THE_CONTROLLER.planted("drain")
def what_was_published_is_published_again_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """And counted once more: positions shift."""
    acknowledge = HeldUnit.acknowledge
    patch.setattr(HeldUnit, "acknowledge", lambda self, published, at_s: acknowledge(self, published + 1, at_s))


# --- observe ----------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_CONTROLLER.planted("observe")
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


@BUGS_IN_THE_CONTROLLER.planted("observe")
def a_pool_that_does_not_answer_is_taken_for_empty(patch: pytest.MonkeyPatch) -> None:
    failed = PoolWatch._failed

    def wrong(self: PoolWatch, name: str, error: str) -> None:
        failed(self, name, error)
        before = self.observations.get(name)
        if before is not None:
            self.observations[name] = PoolObservation(listed_at_s=before.listed_at_s + 10.0, instances=())

    patch.setattr(PoolWatch, "_failed", wrong)


@BUGS_IN_THE_CONTROLLER.planted("observe")
def a_store_that_does_not_answer_refreshes_the_last_reading(patch: pytest.MonkeyPatch) -> None:
    poll = LedgerWatch.poll

    async def wrong(self: LedgerWatch) -> bool:
        answered = await poll(self)
        if not answered and self.reading is not None:
            self.reading = replace(self.reading, read_at_s=self._clock.now_s())
        return answered

    patch.setattr(LedgerWatch, "poll", wrong)


@BUGS_IN_THE_CONTROLLER.planted("observe")
def a_launch_under_way_does_not_count(patch: pytest.MonkeyPatch) -> None:
    build = assembling.assemble
    patch.setattr(
        "scaler.runtime.loop.assemble",
        lambda spec, facts, offerings: build(spec, replace(facts, intents=()), offerings),
    )


@BUGS_IN_THE_CONTROLLER.planted("observe")
def a_duplicate_notice_hides_the_earlier_deadline(patch: pytest.MonkeyPatch) -> None:
    """The last word wins, wherever it came from."""

    def wrong(self: NoticeWatch) -> Any:
        told = sorted((n for each in self._told.values() for n in each), key=lambda n: -(n.deadline_s or 0.0))
        return tuple({(n.instance_id, n.kind): n for n in reversed(told)}.values())

    patch.setattr(NoticeWatch, "current", wrong)


# --- runtime ----------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def launches_are_not_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    write = Journal.write
    patch.setattr(Journal, "write", lambda self, turn: write(self, replace(turn, intents=())))


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def plans_are_carried_out_before_they_are_persisted(patch: pytest.MonkeyPatch) -> None:
    """The journal is written with the next turn."""
    persist, observe = Controller._persist, Controller._observe
    late: dict[Controller, tuple[Any, ...]] = {}

    async def remember(self: Controller, *args: Any) -> bool:
        self._memory, late[self] = args[0].memory, args
        return True

    async def write(self: Controller, beside: asyncio.TaskGroup) -> Any:
        if self in late:
            await persist(self, *late.pop(self))
        return await observe(self, beside)

    patch.setattr(Controller, "_persist", remember)
    patch.setattr(Controller, "_observe", write)


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def memory_does_not_survive_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "memory", lambda self: Memory())


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def the_epoch_is_not_raised(patch: pytest.MonkeyPatch) -> None:
    raise_epoch = Journal.raise_epoch

    def wrong(self: Journal, now_s: float) -> int:
        known = self._fact("epoch")
        return int(known) if known else raise_epoch(self, now_s)

    patch.setattr(Journal, "raise_epoch", wrong)


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def a_launch_without_an_answer_gets_a_new_token(patch: pytest.MonkeyPatch) -> None:
    """It is taken for refused."""
    launch = Launcher._launch

    async def wrong(self: Launcher, intent: Any, actor: Any, seq: int) -> None:
        await launch(self, intent, actor, seq)
        kept = self._intents.get(intent.token)
        if kept is not None and kept.answered_at_s is None:
            self.forget(intent.token)

    patch.setattr(Launcher, "_launch", wrong)


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def it_decides_before_it_has_rebuilt_its_state(patch: pytest.MonkeyPatch) -> None:
    built = Controller.__init__

    def wrong(self: Controller, parts: Any) -> None:
        built(self, parts)
        self._synced = True

    patch.setattr(Controller, "__init__", wrong)


@BUGS_IN_THE_CONTROLLER.planted("runtime")
def a_new_controller_trusts_the_freshness_of_the_old_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("scaler.runtime.loop._without_freshness", lambda memory: memory)
