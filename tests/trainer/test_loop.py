"""The loop: the order that the promises rest on, and what a kill, a rival or an absent store may not change."""

from pathlib import Path

import pytest

from scaler.ledger.contract import LedgerRefused, LedgerUnavailable, StaleEpoch
from scaler.model.job import Phase
from scaler.model.weights import MARKER_FILE, version_folder
from tests.builders.memory_ledger import MemoryLedger
from tests.builders.training import JOB, Run
from trainer.checkpoint import CheckpointStore
from trainer.timing import ACKNOWLEDGE

PHASES = [
    *(phase.value for phase in (Phase.BUFFER_WAIT, Phase.REWARD, Phase.TRAIN)),
    "checkpoint",
    "publish",
    ACKNOWLEDGE,
]


class Killed(BaseException):
    """The process ends here."""


def run_in(folder: Path, ledger: MemoryLedger, **more: int) -> Run:
    return Run(folder, ledger.as_ledger(), **more)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryLedger, dict[int, str]]:
    """A run of four updates that nothing disturbed."""
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path_factory.mktemp("undisturbed"), ledger)
    run.trainer().run()
    return ledger, run.digests()


def test_a_checkpoint_is_durable_before_its_weights_are_known_and_both_before_the_acknowledgement(
    tmp_path: Path,
) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger)

    def look(call: str) -> None:
        checkpoint = CheckpointStore(run.settings.checkpoints).load_newest()
        assert checkpoint is not None
        if call == "publish":
            newest = max(path.parent.name for path in run.settings.weights.glob(f"*/{MARKER_FILE}"))
            assert int(newest[1:9]) == checkpoint.state.step
        if call == "ack_batch" and ledger.handed_out:
            assert ledger.handed_out[-1].batch_id in checkpoint.state.recent_batches
            assert ledger.versions[-1].step == checkpoint.state.step

    ledger.before = look
    run.trainer().run()
    assert ledger.acked == [1, 2, 3, 4]
    assert [version.step for version in ledger.versions] == [0, 1, 2, 3, 4]
    assert all((run.settings.weights / version_folder(v) / MARKER_FILE).exists() for v in ledger.versions)


def test_on_start_the_checkpoints_batches_are_acknowledged_before_any_is_taken(tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger)
    run.trainer(updates=1).run()
    ledger.calls.clear()
    run.trainer(updates=2).run()
    first = [call for call in ledger.calls if call in {"attach_trainer", "ack_batch", "publish", "take_batch"}]
    assert first[:4] == ["attach_trainer", "ack_batch", "publish", "take_batch"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_kill_at_any_phase_changes_no_weight_of_any_version(
    phase: str, tmp_path: Path, undisturbed: tuple[MemoryLedger, dict[int, str]]
) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger)

    def kill(step: int, entered: str) -> None:
        if (step, entered) == (2, phase):
            raise Killed

    with pytest.raises(Killed):
        run.trainer(kill).run()
    run.trainer().run()
    calm, digests = undisturbed
    assert run.digests() == digests
    assert ledger.acked == calm.acked == [1, 2, 3, 4]
    assert ledger.batches == calm.batches
    both = min(len(ledger.units), len(calm.units))
    assert list(ledger.units)[:both] == list(calm.units)[:both]


@pytest.mark.parametrize("every", [3, 4, 7])
def test_a_store_that_comes_and_goes_changes_nothing(
    every: int, tmp_path: Path, undisturbed: tuple[MemoryLedger, dict[int, str]]
) -> None:
    asked = 0

    def flaky(call: str) -> None:
        nonlocal asked
        asked += call not in {"lease", "commit", "register"}
        if asked % every == 0 and call not in {"lease", "commit", "register"}:
            asked += 1
            raise LedgerUnavailable("away")

    ledger = MemoryLedger(JOB, flaky)
    run = run_in(tmp_path, ledger)
    run.trainer().run()
    assert ledger.acked == [1, 2, 3, 4]
    assert sorted(run.digests()) == [0, 1, 2, 3, 4]
    assert list(ledger.units)[:20] == list(undisturbed[0].units)[:20]


def test_a_trainer_that_was_succeeded_stops_and_acknowledges_nothing_more(tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger)

    def succeed(step: int, phase: str) -> None:
        if (step, phase) == (1, Phase.TRAIN):
            ledger.attach_trainer("rival")

    with pytest.raises(StaleEpoch):
        run.trainer(succeed).run()
    assert ledger.acked == [1]
    assert [version.step for version in ledger.versions] == [0, 1]


@pytest.mark.parametrize(
    ("phase", "steps"),
    [
        pytest.param(Phase.BUFFER_WAIT, 1, id="while waiting: at once"),
        pytest.param(Phase.TRAIN, 2, id="while training: after the acknowledgement"),
        pytest.param(Phase.CHECKPOINT, 2, id="while writing: after the acknowledgement"),
    ],
)
def test_a_stop_request_leaves_nothing_half_done(phase: Phase, steps: int, tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger, units_per_pause=1)

    def stop(step: int, entered: str) -> None:
        if (step, entered) == (1, phase):
            run.stop.set()

    trainer = run.trainer(stop)
    trainer.run()
    assert trainer.step == steps
    assert ledger.acked == list(range(1, steps + 1))
    run.stop.clear()
    run.trainer().run()
    assert ledger.acked == [1, 2, 3, 4]


def test_a_stop_request_ends_the_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    def away(call: str) -> None:
        raise LedgerUnavailable("away")

    run = run_in(tmp_path, MemoryLedger(JOB, away))
    run.clock.during = lambda: run.stop.set() if run.clock.pauses == 3 else None
    run.trainer().run()
    assert run.clock.pauses == 3


def test_prompts_are_neither_put_twice_nor_left_out_over_restarts(tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger)
    for updates in (1, 2, 3):
        run.trainer(updates=updates).run()
    groups = list(dict.fromkeys(unit.group_id for unit in ledger.units.values()))
    assert groups == [f"g{index:08d}" for index in range(len(groups))]
    assert len(ledger.units) == len(groups) * JOB.group_size
    checkpoint = CheckpointStore(run.settings.checkpoints).load_newest()
    assert checkpoint is not None
    assert checkpoint.state.next_prompt == len(groups)


def test_a_full_store_does_not_stop_the_trainer(tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)

    def full(call: str) -> None:
        if call == "put_units" and len(ledger.units) > 40:
            raise LedgerRefused("nearly full")

    ledger.before = full
    run = run_in(tmp_path, ledger)
    run.trainer(updates=1).run()
    assert ledger.acked == [1]


def test_old_versions_and_checkpoints_go(tmp_path: Path) -> None:
    run = run_in(tmp_path, MemoryLedger(JOB))
    run.trainer(keep_versions=2, keep_checkpoints=1).run()
    assert sorted(run.digests()) == [3, 4]
    assert len(list(run.settings.checkpoints.iterdir())) == 1


def test_the_report_leaves_waiting_out_of_the_rate(tmp_path: Path) -> None:
    ledger = MemoryLedger(JOB)
    run = run_in(tmp_path, ledger, units_per_pause=1)

    def work(step: int, phase: str) -> None:
        if phase == Phase.TRAIN:
            run.clock.time_s += 2.0

    run.trainer(work, updates=1).run()
    (report,) = ledger.reports
    assert report.phase_s[Phase.BUFFER_WAIT] > 0
    assert report.unblocked_samples_per_s == pytest.approx(JOB.batch_samples / 2.0)
    assert report.wait_ratio == pytest.approx(
        report.phase_s[Phase.BUFFER_WAIT] / (report.phase_s[Phase.BUFFER_WAIT] + 2.0)
    )
    assert report.step == 1


def test_the_record_says_how_old_the_samples_were(tmp_path: Path) -> None:
    run = run_in(tmp_path, MemoryLedger(JOB), units_per_pause=100)
    run.trainer().run()
    assert [record.step for record in run.records] == [1, 2, 3, 4]
    assert run.records[0].staleness == {0: JOB.batch_samples}
    assert max(age for record in run.records for age in record.staleness) in {1, 2}
    assert all(sum(record.staleness.values()) == record.groups * JOB.group_size for record in run.records)
