"""Checkpoints and publications: complete or absent, whatever is cut off where."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
import torch

from scaler.model.weights import MARKER_FILE, WEIGHTS_FILE, WeightManifest
from scaler.model.work import PolicyVersion
from trainer.checkpoint import (
    RECENT_BATCHES,
    Checkpoint,
    CheckpointStore,
    TrainerState,
    optimiser_tensors,
    restore_optimiser,
)
from trainer.moe import MoEConfig, TinyMoE, dump_weights, model_from
from trainer.publication import prune_weights, publish_weights
from trainer.update import UpdateSettings, make_optimiser

CONFIG = MoEConfig(vocab=5, dim=8, layers=1, heads=2, experts=2, top_k=1, hidden=8, max_len=8)


def trained(seed: int = 0, steps: int = 2) -> tuple[TinyMoE, torch.optim.Optimizer]:
    model = TinyMoE(CONFIG, seed=seed)
    optimiser = make_optimiser(model, UpdateSettings())
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model(torch.tensor([[1, 2, 3]]), torch.arange(3)[None]).square().mean()
        torch.autograd.backward(loss)
        optimiser.step()
    return model, optimiser


def checkpoint(step: int = 1, seed: int = 0) -> Checkpoint:
    model, optimiser = trained(seed)
    return Checkpoint(
        state=TrainerState(step=step, next_prompt=40, recent_batches=(3, 4), architecture=CONFIG.to_mapping()),
        model=model.state_dict(),
        optimiser=optimiser_tensors(optimiser),
        generator=torch.Generator().manual_seed(9).get_state(),
    )


def publish(root: Path, model: TinyMoE, step: int, parent_step: int | None) -> PolicyVersion:
    return publish_weights(root, dump_weights(model), model.config.to_mapping(), step, parent_step)


class Crash(BaseException):
    """The process ends here."""


Arm = Callable[[int], None]
P = ParamSpec("P")
R = TypeVar("R")


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """A function that lets n changes to the file system (fsync or rename) through and makes the next one a crash."""

    def arm(n: int) -> None:
        left = iter(range(n))

        def counted(real: Callable[P, R]) -> Callable[P, R]:
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                if next(left, None) is None:
                    raise Crash
                return real(*args, **kwargs)

            return call

        monkeypatch.setattr(os, "fsync", counted(os.fsync))
        monkeypatch.setattr(Path, "replace", counted(Path.replace))

    return arm


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    written = checkpoint()
    CheckpointStore(tmp_path).save(written)
    read = CheckpointStore(tmp_path).load_newest()
    assert read is not None
    assert read.state == written.state
    assert torch.equal(read.generator, written.generator)
    for ours, theirs in ((written.model, read.model), (written.optimiser, read.optimiser)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_restored_optimiser_goes_on_bit_for_bit() -> None:
    model, optimiser = trained(steps=2)
    twin = model_from(CONFIG, dump_weights(model))
    twin_optimiser = make_optimiser(twin, UpdateSettings())
    restore_optimiser(twin_optimiser, optimiser_tensors(optimiser))
    for each, steps in ((model, optimiser), (twin, twin_optimiser)):
        steps.zero_grad()
        torch.autograd.backward(each(torch.tensor([[4, 1]]), torch.arange(2)[None]).sum())
        steps.step()
    assert dump_weights(model) == dump_weights(twin)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one bit flipped"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(step=1))
    newest = store.save(checkpoint(step=2))
    newest.write_bytes(damage(newest.read_bytes()))
    read = store.load_newest()
    assert read is not None
    assert read.state.step == 1


def test_without_any_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "new").load_newest() is None


def test_a_checkpoint_cut_off_anywhere_leaves_the_old_or_the_new_one(
    tmp_path: Path, crash_at: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for n in range(4):
        store = CheckpointStore(tmp_path / str(n))
        store.save(checkpoint(step=1))
        crash_at(n)
        try:
            store.save(checkpoint(step=2))
            seen.append("done")
        except Crash:
            seen.append("crash")
        monkeypatch.undo()
        read = store.load_newest()
        assert read is not None
        assert read.state.step == (1 if n < 2 else 2)
        store.prune(keep=5)
        assert not list((tmp_path / str(n)).glob(".*"))
    assert seen == ["crash", "crash", "crash", "done"]


def test_old_checkpoints_are_removed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for step in range(5):
        store.save(checkpoint(step=step))
    store.prune(keep=2)
    assert [path.name[:12] for path in sorted(tmp_path.iterdir())] == ["step00000003", "step00000004"]


def test_the_ids_of_batches_stay_bounded() -> None:
    state = TrainerState()
    for batch in range(1, RECENT_BATCHES + 11):
        state = state.consumed(batch, next_prompt=batch)
    assert len(state.recent_batches) == RECENT_BATCHES
    assert state.recent_batches[0] == 11
    assert state.batches_through == 10
    assert state.step == RECENT_BATCHES + 10


def test_a_published_version_is_what_its_manifest_says(tmp_path: Path) -> None:
    model, _ = trained()
    version = publish(tmp_path, model, 7, 6)
    (folder,) = tmp_path.iterdir()
    manifest = WeightManifest.parse((folder / "manifest.json").read_text())
    assert manifest.version == version
    assert manifest.parent_step == 6
    assert manifest.size_bytes == (folder / WEIGHTS_FILE).stat().st_size
    rebuilt = model_from(MoEConfig.from_mapping(manifest.model), folder / WEIGHTS_FILE)
    assert dump_weights(rebuilt) == dump_weights(model)


def test_a_publication_cut_off_anywhere_is_absent_or_complete_and_can_be_finished(
    tmp_path: Path, crash_at: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = trained()
    crashes = 0
    for n in range(20):
        root = tmp_path / str(n)
        root.mkdir()
        crash_at(n)
        try:
            publish(root, model, 1, 0)
        except Crash:
            crashes += 1
        monkeypatch.undo()
        for marker in root.glob(f"*/{MARKER_FILE}"):
            assert (marker.parent / WEIGHTS_FILE).read_bytes() == dump_weights(model)
            json.loads((marker.parent / "manifest.json").read_text())
        publish(root, model, 1, 0)
        assert len(list(root.glob(f"*/{MARKER_FILE}"))) == 1
    assert 0 < crashes < 20


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    model, _ = trained()
    first = publish(tmp_path, model, 1, 0)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert publish(tmp_path, model, 1, 0) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


def test_versions_that_a_worker_still_has_are_kept(tmp_path: Path) -> None:
    for step in range(6):
        publish(tmp_path, trained(seed=step)[0], step, None)
    prune_weights(tmp_path, keep=2, in_use={1})
    assert sorted(int(folder.name[1:9]) for folder in tmp_path.iterdir()) == [1, 4, 5]
