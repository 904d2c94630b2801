"""Bugs planted where work and training are kept: the ledger and the trainer."""

from dataclasses import replace
from typing import Any

import pytest

from scaler.ledger._sqlite import batches, fleet, granting, returning
from scaler.ledger._sqlite.fleet import WorkerRow
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import UnitRow
from scaler.ledger.rules import admissible
from tests.faults.planting import Bugs
from tests.faults.trainer_process import TrainerProcess
from trainer.checkpoint import TrainerState
from trainer.intake import Intake
from trainer.loop import Trainer

BUGS_IN_THE_WORK = Bugs()


# --- ledger -----------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_WORK.planted("ledger")
def a_fence_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitRow, "held_under", lambda self, token: self.attempt > 0)


@BUGS_IN_THE_WORK.planted("ledger")
def a_lease_that_ran_out_keeps_its_fence(patch: pytest.MonkeyPatch) -> None:
    """The next holder is given the token of the one before."""
    take = granting._take

    def wrong(tx: Transaction, *args: Any) -> Any:
        tx.counters.fence = max(0, tx.counters.fence - 1)
        return take(tx, *args)

    patch.setattr(granting, "_take", wrong)


@BUGS_IN_THE_WORK.planted("ledger")
def a_draining_worker_is_given_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerRow, "may_lease", property(lambda self: not self.gone))


@BUGS_IN_THE_WORK.planted("ledger")
def a_decrement_is_lost_when_a_worker_is_released(patch: pytest.MonkeyPatch) -> None:
    give_back_all = returning.give_back_all

    def wrong(tx: Transaction, *args: Any) -> int:
        released = give_back_all(tx, *args)
        tx.counters.running += bool(released)
        return released

    patch.setattr(fleet, "give_back_all", wrong)


@BUGS_IN_THE_WORK.planted("ledger")
def progress_is_lost_when_a_lease_runs_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(returning, "kept_tokens", lambda resume, published: 0)


@BUGS_IN_THE_WORK.planted("ledger")
def an_open_batch_does_not_come_again(patch: pytest.MonkeyPatch) -> None:
    """An attaching trainer starts with a clean table."""
    attach = batches.attach

    def wrong(tx: Transaction, owner: str) -> int:
        tx.db.execute("UPDATE batches SET acked = 1 WHERE job = ?", (tx.job,))
        return attach(tx, owner)

    patch.setattr(batches, "attach", wrong)


@BUGS_IN_THE_WORK.planted("ledger")
def an_old_trainer_is_not_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "check_trainer", lambda self, trainer_epoch: None)


@BUGS_IN_THE_WORK.planted("ledger")
def an_old_leader_is_not_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "check_controller", lambda self, epoch: None)


@BUGS_IN_THE_WORK.planted("ledger")
def admission_forgets_what_is_buffered(patch: pytest.MonkeyPatch) -> None:
    path = "scaler.ledger._sqlite.granting.admissible"
    patch.setattr(path, lambda settings, running, buffered: admissible(settings, running, 0))


@BUGS_IN_THE_WORK.planted("ledger")
def stale_groups_are_handed_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "_drop_stale_ready", lambda tx, oldest_usable: None)


@BUGS_IN_THE_WORK.planted("ledger")
def a_late_deadline_replaces_an_earlier_one(patch: pytest.MonkeyPatch) -> None:
    def wrong(tx: Transaction, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        tx.check_controller(epoch)
        row = fleet.find_worker(tx, worker)
        if row is None or row.gone:
            return False
        fleet._mark(tx, row, deadline_s, reason, epoch)
        return True

    patch.setattr(fleet, "drain", wrong)


# --- trainer ----------------------------------------------------------------------------------------------------------


@BUGS_IN_THE_WORK.planted("trainer")
def a_batch_is_acknowledged_before_its_checkpoint(patch: pytest.MonkeyPatch) -> None:
    train = TrainerProcess._train

    def wrong(self: TrainerProcess, taken: Any) -> Any:
        self._calls.call(lambda ledger: ledger.ack_batch(ledger.stats().trainer_epoch, (taken.batch.batch_id,)))
        return train(self, taken)

    patch.setattr(TrainerProcess, "_train", wrong)


@BUGS_IN_THE_WORK.planted("trainer")
def a_restarted_trainer_does_not_acknowledge_what_it_has_trained(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> int:
        epoch: int = self._calls.call(lambda ledger: ledger.attach_trainer(self._settings.owner))
        self._publish(epoch)
        return epoch

    patch.setattr(Trainer, "_attach", wrong)


@BUGS_IN_THE_WORK.planted("trainer")
def a_checkpoint_forgets_its_batches(patch: pytest.MonkeyPatch) -> None:
    consumed = TrainerState.consumed
    patch.setattr(
        TrainerState,
        "consumed",
        lambda self, batch_id, next_prompt: replace(consumed(self, batch_id, next_prompt), recent_batches=()),
    )


@BUGS_IN_THE_WORK.planted("trainer")
def weights_are_published_before_their_checkpoint(patch: pytest.MonkeyPatch) -> None:
    own = TrainerProcess._train

    def wrong(self: Any, taken: Any) -> Any:
        parts = own(self, taken)
        state, self._state = self._state, replace(self._state, step=self._state.step + 1)
        self._publish(self._calls.call(lambda ledger: ledger.stats().trainer_epoch))
        self._state = state
        return parts

    patch.setattr(TrainerProcess, "_train", wrong)


@BUGS_IN_THE_WORK.planted("trainer")
def a_batch_that_comes_again_is_filtered_again(patch: pytest.MonkeyPatch) -> None:
    take = Intake._take
    patch.setattr(Intake, "_take", lambda self, *args: replace(take(self, *args), redelivered=False))
