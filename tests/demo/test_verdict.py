"""The demo's figures and its exit code say what its ledger says, also where that is bad."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from scaler.commands.demo import DemoOptions, run_demo
from scaler.demo.moments import Run
from scaler.demo.processes import Child, start
from scaler.demo.summary import Labels, Summary, summarise, tokens_in_progress
from scaler.demo.world import JOB, PROCESSES, World
from scaler.ledger.audit import audit, events_of
from scaler.ledger.contract import Ledger, LedgerUnavailable
from scaler.ledger.history import EventKind
from scaler.ledger.sqlite import SqliteLedger, open_path
from scaler.localcloud.state import COUNTER_BYTES, StateDir
from scaler.model.work import ReleaseReason
from tests.builders.ledger import commit_of, delta, group, identity, lease_all, release_of, settings, version
from tests.builders.tampering import SqliteTamperer

LOST_BY_A_KILL = 7
GENERATED = 4 + 4 + 3 + 1 + 9 + 3 + LOST_BY_A_KILL
"""Of `live`: a group trained on, a group too stale, a unit salvaged and committed, one given back, and what nobody saw."""
SALVAGED, IN_PROGRESS = "g2.0/0", 3
HONEST = {
    "units_committed": 5,
    "units_lost": 0,
    "samples_doubled": 0,
    "tokens_generated": GENERATED,
    "tokens_committed": GENERATED - IN_PROGRESS - LOST_BY_A_KILL,
    "tokens_in_progress": IN_PROGRESS,
    "tokens_wasted": LOST_BY_A_KILL,
    "tokens_salvaged": 5,
    "salvages": 1,
    "samples_dropped": {"stale": {"4": 1, "1": 1}},
    "audit_ok": True,
}


def live(path: Path) -> None:
    """A ledger's life with something of everything: trained on, dropped by length, salvaged, in progress."""
    now_s = [1_000_000.0]
    ledger = open_path(path, JOB, now_s=lambda: now_s[0])
    ledger.configure(settings(batch_groups=1))
    ledger.register(identity("w1"))
    epoch = ledger.attach_trainer("t")
    commit_group(ledger, "g0", 4, 4)
    batch = ledger.take_batch(epoch, 1, 0, 1)
    assert batch is not None
    ledger.ack_batch(epoch, [batch.batch_id])
    commit_group(ledger, "g1", 3, 1)
    ledger.publish(epoch, version(2))
    assert ledger.take_batch(epoch, 1, 2, 1) is None
    salvage(ledger, now_s)
    ledger.release_worker("w1", ReleaseReason.DRAIN)
    ledger.close()


def commit_group(ledger: Ledger, name: str, *lengths: int) -> None:
    ledger.put_units(group(name))
    leases = lease_all(ledger, "w1", 2)
    ledger.commit("w1", [commit_of(lease, tokens) for lease, tokens in zip(leases, lengths, strict=True)])


def salvage(ledger: Ledger, now_s: list[float]) -> None:
    """One unit is handed on with five tokens and finished; the other waits with three."""
    ledger.put_units(group("g2"))
    one, two = lease_all(ledger, "w1", 2)
    given_back = [release_of(one, progress=delta(0, 5, 2)), release_of(two, progress=delta(0, IN_PROGRESS, 2))]
    assert ledger.release("w1", given_back) == (True, True)
    now_s[0] += 60.0
    (again,) = lease_all(ledger, "w1", 1)
    assert (again.unit.unit_id, len(again.progress.tokens)) == (SALVAGED, 5)
    ledger.commit("w1", [commit_of(again, 9, 2)])


def remove_the_committed_unit(path: Path) -> None:
    SqliteTamperer(path).remove_unit(SALVAGED)


def forget_the_commit(path: Path) -> None:
    SqliteTamperer(path).make_pending(SALVAGED)


def commit_again(path: Path) -> None:
    ledger = open_path(path, JOB)
    history = ledger.history()
    (event,) = [
        event for event in history if event.kind is EventKind.COMMITTED and event.entries[0].subject == SALVAGED
    ]
    SqliteTamperer(path).append_event(replace(event, seq=history[-1].seq + 1))
    ledger.close()


def tear_the_history(path: Path) -> None:
    SqliteTamperer(path).remove_event(3)


WAYS: dict[str, tuple[Callable[[Path], None], dict[str, object]]] = {
    "a committed unit is removed": (remove_the_committed_unit, {"units_lost": 1}),
    "a committed unit is pending again": (forget_the_commit, {"units_lost": 1}),
    "a unit is committed a second time": (commit_again, {"samples_doubled": 1}),
    "an event is removed": (tear_the_history, {}),
}
"""Way -> how a ledger after `live` is broken, and the figures that say so besides `audit_ok`."""


def summed_up(path: Path) -> Summary:
    ledger = open_path(path, JOB)
    run = Run(moments=(), updates=(), interruptions=(), min_replicas=1, max_replicas=4)
    held = tokens_in_progress(list(events_of(ledger)))
    labels = Labels(task="repeat", seed=0, progress_published=True)
    summary = summarise(run, ledger.stats(), audit(ledger), GENERATED, held, labels)
    ledger.close()
    return summary


def part(figures: dict[str, object]) -> dict[str, object]:
    """The figures that `HONEST` is about."""
    return {name: figures[name] for name in HONEST}


def test_every_figure_of_an_honest_ledger_is_its_own(tmp_path: Path) -> None:
    live(tmp_path / "ledger.db")
    summary = summed_up(tmp_path / "ledger.db")
    assert part(summary.as_dict()) == HONEST
    assert summary.ok


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_ledger_is_told_by_its_figures(tmp_path: Path, way: str) -> None:
    break_it, figures = WAYS[way]
    live(tmp_path / "ledger.db")
    break_it(tmp_path / "ledger.db")
    summary = summed_up(tmp_path / "ledger.db")
    told = {name: getattr(summary, name) for name in ("units_lost", "samples_doubled", "audit_ok")}
    assert told == {"units_lost": 0, "samples_doubled": 0, "audit_ok": False, **figures}
    assert not summary.ok


# --- the command's conclusion -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Cast:
    """The demo's processes, played by small ones: a trainer that is done, with a ledger that has lived, and a cloud."""

    folder: Path
    cloud: str = "sleep 60"
    break_it: Callable[[Path], None] = lambda path: None
    children: list[Child] = field(default_factory=list)

    def launch(self, world: World, name: str) -> Child:
        if name == "trainer":
            live(self.folder / "ledger.db")
            self.break_it(self.folder / "ledger.db")
            count_tokens(world.state)
        command = {"trainer": "true", "cloud": self.cloud, "controller": "sleep 60"}[name]
        child = start(name, ["sh", "-c", command], self.folder)
        if "sleep" not in command:
            child.process.wait()
        world.children[name] = child
        self.children.append(child)
        return child

    def play(self) -> int:
        """The demo's exit code; none of its processes is left."""
        summary = self.folder.parent / "summary.json"
        options = DemoOptions(
            trace=None, seed=0, summary=summary, plot=None, updates=1, progress=True, keep=self.folder
        )
        code = run_demo(options)
        assert not any(child.running for child in self.children)
        return code

    def figures(self) -> dict[str, object]:
        """What it wrote."""
        figures: dict[str, object] = json.loads((self.folder.parent / "summary.json").read_text())
        return figures


def count_tokens(state: StateDir) -> None:
    """What two instances say they generated, one of them killed."""
    for name, tokens in (("i-1", GENERATED - LOST_BY_A_KILL), ("i-2", LOST_BY_A_KILL)):
        state.counter_file(name).write_bytes(tokens.to_bytes(COUNTER_BYTES, "little"))


@pytest.fixture
def cast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cast:
    cast = Cast(tmp_path / "kept")

    def launch(world: World, name: str) -> Child:
        return cast.launch(world, name)

    monkeypatch.setattr(World, "launch", launch)
    return cast


DEAD_CLOUD = "echo no capacity file; exit 3"
BAD = "SOMETHING WAS LOST OR DOUBLED"


def test_a_demo_without_fault_exits_with_0_and_its_figures(cast: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    assert cast.play() == 0
    assert part(cast.figures()) == HONEST
    told = capsys.readouterr()
    assert ("nothing lost, nothing doubled" in told.out, told.err) == (True, "")


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_ledger_is_exit_code_1_though_nothing_else_went_wrong(
    cast: Cast, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cast.break_it, figures = WAYS[way]
    assert cast.play() == 1
    assert cast.figures().items() >= {"audit_ok": False, **figures}.items()
    assert BAD in capsys.readouterr().out


def test_a_dead_process_is_exit_code_1_though_the_ledger_is_fine(
    cast: Cast, capsys: pytest.CaptureFixture[str]
) -> None:
    cast.cloud = DEAD_CLOUD
    assert cast.play() == 1
    assert part(cast.figures()) == HONEST
    assert capsys.readouterr().err == "cloud ended with exit code 3:\nno capacity file\n"


def test_both_at_once_are_exit_code_1(cast: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    cast.cloud, cast.break_it = DEAD_CLOUD, forget_the_commit
    assert cast.play() == 1
    assert BAD in capsys.readouterr().out


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_a_ledger_that_can_write_no_more_is_one_line_and_exit_code_1(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def expire(_: SqliteLedger) -> int:
        raise LedgerUnavailable("SQLite: database or disk is full")

    monkeypatch.setattr(SqliteLedger, "expire", expire)
    cast.cloud = DEAD_CLOUD
    assert cast.play() == 1
    words = "the demo failed: SQLite: database or disk is full (before that: cloud ended with exit code 3)"
    assert capsys.readouterr().err == f"{cast.folder}: {words}\n"


@pytest.mark.parametrize("name", PROCESSES)
def test_a_disk_that_is_full_at_the_start_is_one_line_and_leaves_no_process(
    name: str, cast: Cast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(world: World, asked: str) -> Child:
        if asked == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(world.folder / f"{name}.log"))
        return cast.launch(world, asked)

    monkeypatch.setattr(World, "launch", launch)
    assert cast.play() == 1
    assert f"No space left on device: '{cast.folder / name}.log'" in (told := capsys.readouterr().err)
    assert told.count("\n") == 1


def test_figures_that_cannot_be_written_are_still_shown(cast: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    file = cast.folder.parent / "summary.json"

    def put_a_folder_in_its_place(_: Path) -> None:
        file.mkdir()

    cast.break_it = put_a_folder_in_its_place
    assert cast.play() == 1
    told = capsys.readouterr()
    assert ("tokens_wasted" in told.out, told.err.count("\n"), str(file) in told.err) == (True, 1, True)
