"""The demo's view, plot and sums show what happened."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from scaler.demo.moments import Interruption, Moment, Run, Update
from scaler.demo.plot import draw
from scaler.demo.summary import mean_phases, replica_range, tokens_in_progress
from scaler.demo.view import open_view, spark
from tests.builders.history import Story


def moments() -> tuple[Moment, ...]:
    return tuple(
        Moment(
            at_s=float(i), desired=1 + i % 4, ready=i % 4, starting=i % 2, capacity=5, buffered_samples=10 * i,
            batch_samples=64, updates=i, reward=0.1 * (i % 10), noticed=i // 3, decision="because",
        )
        for i in range(12)
    )  # fmt: skip


def a_run() -> Run:
    updates = tuple(
        Update(at_s=float(i), step=i, reward=0.05 * i, phase_s={"train": 0.5, "reward": 0.1}) for i in range(9)
    )
    losses = (Interruption(at_s=3.0, noticed=True), Interruption(at_s=5.0, noticed=False))
    return Run(moments=moments(), updates=updates, interruptions=losses, min_replicas=1, max_replicas=4, title="demo")


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_plot_is_a_picture_of_its_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    file = tmp_path / f"run.{suffix}"
    draw(a_run(), file)
    assert file.read_bytes().startswith(magic)


def test_a_run_without_updates_or_interruptions_can_be_drawn(tmp_path: Path) -> None:
    draw(
        Run(moments=(Moment(at_s=0.0),), updates=(), interruptions=(), min_replicas=1, max_replicas=4),
        tmp_path / "a.png",
    )


def shown(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with open_view(console, updates=12, max_replicas=4) as view:
        for moment in moments():
            view.show(moment)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_are_plain_lines_and_no_escapes() -> None:
    text = shown(terminal=False)
    assert "\x1b" not in text
    assert "update 5/12" in text
    assert "interrupted 1+0" in text


def test_on_a_terminal_the_fleet_is_drawn() -> None:
    text = shown(terminal=True)
    assert "headrace demo" in text
    assert "█" in text
    assert "3 ready, 1 starting" in text


@pytest.mark.parametrize(("values", "line"), [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 0.5, 1.0], "▁▅█")])
def test_sparks_scale_from_zero_to_the_maximum(values: list[float], line: str) -> None:
    assert spark(values) == line


def test_the_replica_range_counts_from_the_first_ready_replica() -> None:
    assert replica_range(moments()) == (0, 4)
    assert replica_range(moments()[:2]) == (2, 2)
    assert replica_range(()) == (0, 0)


def test_phases_are_means_over_the_updates_that_report_them() -> None:
    assert mean_phases(a_run()) == {"reward": 0.1, "train": 0.5}


def test_tokens_in_progress_are_those_of_units_that_nobody_holds_or_finished() -> None:
    story = Story().put("a").put("b").put("c")
    story.lease("a.0/0", "1.1").release("a.0/0", "1.1", progress=7)
    story.lease("a.0/1", "1.2").release("a.0/1", "1.2", progress=5).lease("a.0/1", "1.3", progress=5).commit(
        "a.0/1", "1.3"
    )
    story.lease("b.0/0", "1.4").release("b.0/0", "1.4", progress=3).drop("b.0")
    story.lease("c.0/0", "1.5").release("c.0/0", "1.5", progress=2).lease("c.0/0", "1.6", progress=2)
    assert tokens_in_progress(story.events) == 7
