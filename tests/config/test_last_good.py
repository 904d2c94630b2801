"""The last accepted configuration outlives a restart, and a file that went bad meanwhile."""

from pathlib import Path

import pytest

from scaler.config.convert import local_providers
from scaler.config.faults import ConfigError
from scaler.config.last_good import load_at_start, load_last_good, save_last_good
from tests.builders.fleet_yaml import a_fleet, text_of

GOOD = text_of(a_fleet()).decode()


def test_what_was_kept_is_what_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "last-good.yaml"
    save_last_good(path, "first\n")
    save_last_good(path, "zwei: é\r\nohne Ende")
    assert load_last_good(path) == "zwei: é\r\nohne Ende"
    assert [entry.name for entry in path.parent.iterdir()] == ["last-good.yaml"]


def test_nothing_was_kept(tmp_path: Path) -> None:
    assert load_last_good(tmp_path / "none") is None


@pytest.mark.parametrize("damage", ["", "# headrace", "words", GOOD])
def test_a_damaged_one_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "last-good.yaml"
    path.write_text(damage)
    with pytest.raises(ConfigError, match="does not match its digest"):
        load_last_good(path)


def test_one_changed_letter_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "last-good.yaml"
    save_last_good(path, GOOD)
    path.write_text(path.read_text().replace("demo", "dem0"))
    with pytest.raises(ConfigError, match="does not match its digest"):
        load_last_good(path)


def test_a_save_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last-good.yaml"
    save_last_good(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_last_good(path, "new")
    assert load_last_good(path) == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["last-good.yaml"]


def test_a_good_file_is_started_with(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD)
    start = load_at_start(path, tmp_path / "none")
    assert (start.fleet.metadata.name, start.text, start.faults) == ("demo", GOOD, ())


@pytest.mark.parametrize("bad", ["a: [", None], ids=["not YAML", "missing"])
def test_a_bad_file_starts_with_the_last_good_and_says_why(tmp_path: Path, bad: str | None) -> None:
    path, kept = tmp_path / "fleet.yaml", tmp_path / "state" / "last-good.yaml"
    save_last_good(kept, GOOD)
    if bad is not None:
        path.write_text(bad)
    start = load_at_start(path, kept)
    assert start.text == GOOD
    (provider,) = local_providers(start.fleet).values()
    assert provider.state_dir == str(tmp_path / "cloud")
    assert [fault.file for fault in start.faults] == [str(path)]


def test_a_bad_file_with_nothing_kept_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match="is no YAML"):
        load_at_start(path, tmp_path / "none")
