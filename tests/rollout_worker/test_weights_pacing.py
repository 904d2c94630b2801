"""Loads of one version by many workers are spread, each within bounds, and nobody waits for ever."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_worker.weights import Pacing, WeightsFolder
from scaler.model.weights import WEIGHTS_FILE
from tests.builders.clock import FakeClock
from tests.builders.worker import publish_weights

SPREAD_S = 10.0


def a_folder(root: Path, clock: FakeClock, worker: str = "w") -> WeightsFolder:
    return WeightsFolder(root, Pacing(worker=worker, spread_s=SPREAD_S, clock=clock))


@given(worker=st.text(max_size=20), version=st.text(max_size=20), spread_s=st.floats(0.0, 3600.0))
def test_a_slot_is_always_within_the_spread(worker: str, version: str, spread_s: float) -> None:
    slot_s = Pacing(worker=worker, spread_s=spread_s, clock=FakeClock()).slot_s(version)
    assert 0.0 <= slot_s <= spread_s


def test_a_hundred_workers_load_at_a_hundred_times() -> None:
    slots = sorted(
        Pacing(worker=f"worker-{number}", spread_s=SPREAD_S, clock=FakeClock()).slot_s("v1") for number in range(100)
    )
    for second in range(int(SPREAD_S)):
        assert 2 <= sum(second <= slot < second + 1 for slot in slots) <= 25


def test_nothing_of_a_version_is_read_before_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    folder = a_folder(tmp_path, clock)
    version = publish_weights(tmp_path, 1, body=b"one").name
    opened: list[Path] = []
    plain_open = Path.open

    def noted(path: Path, *args: str, **more: str) -> object:
        opened.append(path)
        return plain_open(path, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", noted)
    assert folder.newest() is None
    clock.pass_time(Pacing(worker="w", spread_s=SPREAD_S, clock=clock).slot_s(version) - 0.001)
    assert folder.newest() is None
    assert [path for path in opened if path.name == WEIGHTS_FILE] == []
    clock.pass_time(0.002)
    found = folder.newest()
    assert found is not None
    assert found.manifest.version.step == 1


def test_versions_that_follow_each_other_faster_than_the_spread_are_loaded_all_the_same(tmp_path: Path) -> None:
    clock = FakeClock()
    folder = a_folder(tmp_path, clock)
    waited_s = 0.0
    for step in range(1, 100):
        publish_weights(tmp_path, step, body=b"w%d" % step)
        found = folder.newest()
        if found is not None:
            assert found.manifest.version.step == step, "always the newest"
            break
        clock.pass_time(1.0)
        waited_s += 1.0
    assert waited_s <= SPREAD_S


def test_each_version_has_a_slot_of_its_own(tmp_path: Path) -> None:
    clock = FakeClock()
    folder = a_folder(tmp_path, clock)
    in_use = None
    for step in range(1, 4):
        publish_weights(tmp_path, step, body=b"w%d" % step)
        waited_s = 0.0
        while (found := folder.newest(in_use)) is None:
            clock.pass_time(0.5)
            waited_s += 0.5
        assert waited_s <= SPREAD_S + 0.5
        in_use = found.manifest.version
    assert in_use is not None
    assert in_use.step == 3
