"""Which weights are offered, and which never."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout_worker.weights import WeightsFolder
from scaler.model.weights import MANIFEST_FILE, MARKER_FILE, WEIGHTS_FILE
from scaler.model.work import PolicyVersion
from tests.builders.worker import publish_weights


def step_of(folder: WeightsFolder, in_use: PolicyVersion | None = None) -> int | None:
    found = folder.newest(in_use)
    return found.manifest.version.step if found else None


def test_no_folder_is_no_version(tmp_path: Path) -> None:
    assert step_of(WeightsFolder(tmp_path / "not there yet")) is None


def test_the_newest_complete_version_is_offered(tmp_path: Path) -> None:
    for step in (1, 3, 2):
        publish_weights(tmp_path, step, body=b"w%d" % step)
    assert step_of(WeightsFolder(tmp_path)) == 3


def test_the_version_in_use_and_older_ones_are_not_offered(tmp_path: Path) -> None:
    folder = WeightsFolder(tmp_path)
    publish_weights(tmp_path, 1, body=b"one")
    publish_weights(tmp_path, 2, body=b"two")
    found = folder.newest()
    assert found
    assert step_of(folder, found.manifest.version) is None
    publish_weights(tmp_path, 3, body=b"three")
    assert step_of(folder, found.manifest.version) == 3


def test_the_same_step_published_anew_is_offered(tmp_path: Path) -> None:
    folder = WeightsFolder(tmp_path)
    publish_weights(tmp_path, 1, body=b"one")
    found = folder.newest()
    publish_weights(tmp_path, 1, body=b"another run")
    assert found
    again = folder.newest(found.manifest.version)
    assert again
    assert again.manifest.version.digest != found.manifest.version.digest


def _flip_a_bit(folder: Path) -> None:
    body = bytearray((folder / WEIGHTS_FILE).read_bytes())
    body[0] ^= 1
    (folder / WEIGHTS_FILE).write_bytes(body)


def _cut(folder: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes((folder / WEIGHTS_FILE).read_bytes()[:-1])


def _another_step(folder: Path) -> None:
    raw = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(json.dumps(raw | {"step": 99}))


def _half_a_manifest(folder: Path) -> None:
    (folder / MANIFEST_FILE).write_text((folder / MANIFEST_FILE).read_text()[:20])


SPOILT = [
    pytest.param(_flip_a_bit, "sha256", id="one bit is wrong"),
    pytest.param(_cut, "bytes", id="its end is missing"),
    pytest.param(_another_step, "manifest", id="its manifest is of another version"),
    pytest.param(_half_a_manifest, "manifest", id="its manifest is cut"),
    pytest.param(lambda folder: (folder / WEIGHTS_FILE).unlink(), "No such file", id="its weights have vanished"),
    pytest.param(lambda folder: (folder / MANIFEST_FILE).unlink(), "No such file", id="its manifest has vanished"),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILT)
def test_a_spoilt_version_is_skipped_for_the_one_before_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None], reason: str
) -> None:
    publish_weights(tmp_path, 1, body=b"one")
    spoil(publish_weights(tmp_path, 2, body=b"two"))
    folder = WeightsFolder(tmp_path)
    with caplog.at_level(logging.WARNING, "rollout_worker"):
        assert [step_of(folder) for _ in range(3)] == [1, 1, 1]
    (record,) = caplog.records
    assert reason in vars(record)["keys"]["reason"]


def test_a_spoilt_version_published_anew_is_offered(tmp_path: Path) -> None:
    spoilt = publish_weights(tmp_path, 2, body=b"two")
    _cut(spoilt)
    folder = WeightsFolder(tmp_path)
    assert step_of(folder) is None
    shutil.rmtree(spoilt)
    publish_weights(tmp_path, 2, body=b"two")
    assert step_of(folder) == 2


def test_a_version_without_its_marker_does_not_exist(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (publish_weights(tmp_path, 1) / MARKER_FILE).unlink()
    assert step_of(WeightsFolder(tmp_path)) is None
    assert caplog.records == []


def test_other_folders_are_not_versions(tmp_path: Path) -> None:
    (tmp_path / "vacation").mkdir()
    (tmp_path / "vacation" / MARKER_FILE).touch()
    assert step_of(WeightsFolder(tmp_path)) is None
