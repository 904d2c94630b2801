"""Hot reload keeps the last good configuration, whatever happens to the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaler.config.faults import ConfigError, Fault
from scaler.config.loader import parse_fleets
from scaler.config.reload import ConfigWatcher, Outcome, ReloadResult, Stamp
from tests.builders.fleet_yaml import a_fleet, a_pool, a_stage, changed, text_of

PATH = Path("/etc/headrace/fleet.yaml")
RAILS = ("spec", "stages", 0, "guardRails")
POOL = ("spec", "stages", 0, "pools", 0)


class HandClock:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class OneFile:
    """A file system of one file; `reads` counts how often its bytes were asked for."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes | None = data
        self.number, self.modified_ns, self.reads = 1, 1, 0
        self.while_read: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        """In place: the file keeps its number."""
        self.data = data
        self.modified_ns += 1

    def replace(self, data: bytes) -> None:
        """By rename: another file under the same name."""
        self.write(data)
        self.number += 1

    def stamp(self, path: Path) -> Stamp | None:
        assert path == PATH
        return None if self.data is None else Stamp(self.modified_ns, len(self.data), self.number)

    def read(self, path: Path) -> bytes:
        self.reads += 1
        data = self.data
        if self.while_read is not None:
            self.while_read()
        if data is None:
            raise ConfigError([Fault(file=str(path), message="no such file", remedy="check the name")])
        return data


class World:
    """A controller's view of its file."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.clock = HandClock()
        data = text_of(*(documents or (a_fleet(),)))
        self.file = OneFile(data)
        fleets = parse_fleets(data, PATH)
        self.watcher = ConfigWatcher(PATH, fleets, data, clock=self.clock, reader=self.file)

    def check(self, after_s: float = 5.0) -> ReloadResult:
        self.clock.at_s += after_s
        return self.watcher.check()

    def after(self, *documents: dict[str, Any]) -> ReloadResult:
        """What is said once the file holds these documents."""
        self.file.replace(text_of(*documents))
        return self.settled()

    def settled(self) -> ReloadResult:
        """What is said once the file has been seen to stand still."""
        self.check()
        return self.check()


HIGHER = changed(a_fleet(), *RAILS, "ceiling", to=9)


def test_a_file_that_stays_is_unchanged_and_not_read_again() -> None:
    world = World()
    assert {world.check().outcome for _ in range(10)} == {Outcome.UNCHANGED}
    assert world.file.reads == 1


def test_a_new_ceiling_is_taken_and_told_once() -> None:
    world = World()
    result = world.after(HIGHER)
    assert result.outcome is Outcome.CHANGED
    assert [change.path for change in result.changes] == ["spec.stages[rollout].guardRails.ceiling"]
    assert result.fleet.spec.stages[0].guard_rails.ceiling == 9
    assert result.text.encode() == text_of(HIGHER)
    again = world.check()
    assert (again.outcome, again.fleet) == (Outcome.UNCHANGED, result.fleet)


def test_another_layout_of_the_same_values_is_no_change() -> None:
    world = World()
    world.file.replace(b"# a comment\n" + text_of(a_fleet()))
    assert world.settled().outcome is Outcome.UNCHANGED
    assert world.file.reads == 1


def test_a_bad_file_is_rejected_as_long_as_it_stands() -> None:
    world = World()
    world.file.replace(b"a: [")
    first, second = world.settled(), world.settled()
    assert first.outcome is Outcome.REJECTED
    assert first.fleet.metadata.name == "demo"
    assert "is no YAML" in str(first.faults[0])
    assert second == first
    assert world.file.reads == 1


def test_after_a_bad_file_the_old_one_is_unchanged_and_a_better_one_taken() -> None:
    world = World()
    assert world.after({"kind": "x"}).outcome is Outcome.REJECTED
    assert world.after(a_fleet()).outcome is Outcome.UNCHANGED
    assert world.after({"kind": "x"}).outcome is Outcome.REJECTED
    assert world.after(HIGHER).outcome is Outcome.CHANGED


def test_the_same_bad_file_is_rejected_again_when_it_comes_back() -> None:
    world = World()
    for _ in range(2):
        assert world.after({"kind": "x"}).outcome is Outcome.REJECTED
        assert world.after(a_fleet()).outcome is Outcome.UNCHANGED


def test_a_file_that_is_gone_is_rejected_and_taken_up_again() -> None:
    world = World()
    kept, world.file.data = world.file.data, None
    assert world.settled().faults[0].message == "no such file"
    world.file.data = kept
    assert world.settled().outcome is Outcome.UNCHANGED


def test_a_file_that_is_being_written_counts_only_once_it_stands_still() -> None:
    world = World()
    world.check()
    world.file.write(text_of(HIGHER)[:-30])
    assert world.check(after_s=5.0).outcome is Outcome.UNCHANGED
    world.file.write(text_of(HIGHER))
    assert world.check(after_s=5.0).outcome is Outcome.UNCHANGED
    assert world.check(after_s=0.9).outcome is Outcome.UNCHANGED
    assert world.file.reads == 1
    assert world.check(after_s=0.1).outcome is Outcome.CHANGED


def test_a_file_that_changes_while_it_is_read_is_read_again() -> None:
    world = World()
    world.file.write(text_of(a_fleet()).replace(b"ceiling: 4", b"ceiling: 1"))
    world.check()
    world.file.while_read = lambda: world.file.write(text_of(HIGHER))
    assert world.check().outcome is Outcome.UNCHANGED
    world.file.while_read = None
    assert world.settled().fleet.spec.stages[0].guard_rails.ceiling == 9


def test_a_change_that_leaves_no_trace_in_the_stamp_is_seen_by_its_digest() -> None:
    world = World()
    world.check()
    world.file.data = text_of(HIGHER)
    assert len(text_of(HIGHER)) == len(text_of(a_fleet()))
    assert world.check(after_s=30.0).outcome is Outcome.UNCHANGED
    assert world.check(after_s=31.0).outcome is Outcome.CHANGED


VALKEY = {"type": "valkey", "url": "valkey://store"}
NEEDS_RESTART = [
    ("the fleet's name", changed(a_fleet(), "metadata", "name", to="other"), "metadata.name"),
    ("another ledger", a_fleet(ledger=VALKEY), "spec.ledger.type"),
    ("the ledger's path", changed(a_fleet(), "spec", "ledger", "path", to="other.db"), "spec.ledger.path"),
    ("the group size", changed(a_fleet(), "spec", "job", "groupSize", to=4), "spec.job.groupSize"),
    ("the job's name", changed(a_fleet(), "spec", "job", "name", to="other"), "spec.job.name"),
    ("the address", a_fleet(http={"listen": "127.0.0.1:1"}), "spec.http.listen"),
    ("a pool's folder", changed(a_fleet(), *POOL, "provider", "stateDir", to="b"),
     "spec.stages[rollout].pools[spot].provider.stateDir"),
    ("a pool's name", changed(a_fleet(), *POOL, "name", to="other"), "spec.stages[rollout].pools[other]"),
    ("one pool more", a_fleet(stages=[a_stage(pools=[a_pool(), a_pool(name="b")])]), "spec.stages[rollout].pools[b]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "path"), [row[1:] for row in NEEDS_RESTART], ids=[row[0] for row in NEEDS_RESTART]
)
def test_what_a_running_controller_cannot_change_is_rejected(document: dict[str, Any], path: str) -> None:
    world = World()
    result = world.after(changed(document, *RAILS, "ceiling", to=9))
    assert result.outcome is Outcome.REJECTED
    assert path in {fault.path for fault in result.faults}
    assert {fault.remedy for fault in result.faults} == {"restart the controller, or take the change back"}
    assert "spec.stages[rollout].guardRails.ceiling" in {change.path for change in result.changes}
    assert result.fleet.spec.stages[0].guard_rails.ceiling == 4, "nothing of a rejected file is taken"


TAKEN = [
    ("paused", a_fleet(paused=True), ["spec.paused"]),
    ("another policy", changed(a_fleet(), "spec", "stages", 0, "policy", to={"type": "static", "replicas": 1}),
     ["spec.stages[rollout].policy.type"]),
    ("a parameter", changed(a_fleet(), "spec", "stages", 0, "policy", "headroom", to="20%"),
     ["spec.stages[rollout].policy.headroom"]),
    ("a price", changed(a_fleet(), *POOL, "offerings", 0, "priceUsdPerH", to="2"),
     ["spec.stages[rollout].pools[spot].offerings"]),
    ("a command", changed(a_fleet(), *POOL, "provider", "command", to=["other"]),
     ["spec.stages[rollout].pools[spot].provider.command"]),
    ("caps", changed(a_fleet(spendCapUsdPerH="9"), *RAILS, "spendCapUsdPerH", to="8"),
     ["spec.spendCapUsdPerH", "spec.stages[rollout].guardRails.spendCapUsdPerH"]),
    ("staleness", changed(a_fleet(), "spec", "job", "maxStaleness", to=3), ["spec.job.maxStaleness"]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "paths"), [row[1:] for row in TAKEN], ids=[row[0] for row in TAKEN])
def test_what_a_running_controller_can_change_is_taken(document: dict[str, Any], paths: list[str]) -> None:
    result = World().after(document)
    assert (result.outcome, [change.path for change in result.changes]) == (Outcome.CHANGED, paths)


def test_pools_in_another_order_are_no_change() -> None:
    first, second = a_pool(name="a"), a_pool(name="b")
    world = World(a_fleet(stages=[a_stage(pools=[first, second])]))
    assert world.after(a_fleet(stages=[a_stage(pools=[second, first])])).changes == ()


def other(name: str = "other") -> dict[str, Any]:
    return changed(a_fleet(name), *POOL, "provider", "stateDir", to="cloud2")


def test_of_several_fleets_each_is_compared_with_itself() -> None:
    world = World(a_fleet(), other())
    result = world.after(changed(other(), *RAILS, "ceiling", to=9), a_fleet())
    assert [change.path for change in result.changes] == ["fleet other: spec.stages[rollout].guardRails.ceiling"]


def test_one_fleet_less_needs_a_restart() -> None:
    result = World(a_fleet(), other()).after(a_fleet())
    assert result.outcome is Outcome.REJECTED
    assert [fault.path for fault in result.faults] == ["fleet other"]


class Mounted:
    """A real folder as a ConfigMap is mounted: the file is a link through `..data`, which is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turn = 0

    def put(self, data: bytes) -> Path:
        self.turn += 1
        version = self.folder / f"..{self.turn}"
        version.mkdir()
        (version / "fleet.yaml").write_bytes(data)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        path = self.folder / "fleet.yaml"
        if not path.is_symlink():
            path.symlink_to("..data/fleet.yaml")
        return path


def test_a_config_map_that_is_swapped_is_seen_and_keeps_its_folder(tmp_path: Path) -> None:
    mounted, clock = Mounted(tmp_path), HandClock()
    path = mounted.put(text_of(a_fleet()))
    data = path.read_bytes()
    watcher = ConfigWatcher(path, parse_fleets(data, path), data, clock=clock)

    def settled() -> ReloadResult:
        watcher.check()
        clock.at_s += 1.0
        return watcher.check()

    assert settled().outcome is Outcome.UNCHANGED
    mounted.put(text_of(HIGHER))
    assert [change.path for change in settled().changes] == ["spec.stages[rollout].guardRails.ceiling"]
    (tmp_path / "..data").unlink()
    assert settled().faults[0].message == "no such file"
