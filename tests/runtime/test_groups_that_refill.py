"""Two hundred notices at once end exactly at the target: whoever replaces, whatever gets lost, whoever dies meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scaler.decide import endings
from scaler.decide.world import StageWorld
from scaler.model.interruption import NoticeKind
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import Duties
from scaler.observe.replacements import Replacements
from tests.builders.refilling_group import Mill

GROUP = Duties(taints=True, evicts=True, replaces=True, detaches=True)
MANAGED = Duties(taints=True, evicts=True, replaces=False)
SIZE, NOTICED = 240, 200
LONG_S = 400.0


def _all_at_once(mill: Mill, *, in_s: float = 120.0, kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION) -> None:
    mill.tell([mill.group.notice(each, in_s=in_s, kind=kind) for each in list(mill.group.instances)[:NOTICED]])


def _once(mill: Mill, what: Callable[[Mill], None], at_s: float = 30.0) -> Callable[[float], None]:
    done: list[float] = []

    def at(seconds: float) -> None:
        if seconds >= at_s and not done:
            done.append(seconds)
            what(mill)

    return at


def wrong_about(mill: Mill, *, by_us: int) -> list[str]:
    """What speaks against the end, as sentences."""
    group = mill.group
    found = []
    if len(group.instances) != SIZE or group.desired != SIZE:
        found.append(f"{len(group.instances)} instances, a group of {group.desired}, and {SIZE} are wanted")
    if mill.most > SIZE:
        found.append(f"{mill.most} at once")
    if (len(group.tokens), group.came_by_themselves) != (by_us, NOTICED - by_us):
        found.append(f"{len(group.tokens)} launched by us, {group.came_by_themselves} came by themselves")
    if group.ended:
        found.append(f"{len(group.ended)} were ended by us")
    return found


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION_END])
@pytest.mark.parametrize("in_s", [120.0, 9.0], ids=["two minutes ahead", "told late"])
async def test_what_leaves_its_group_in_time_is_replaced_once(tmp_path: Path, kind: NoticeKind, in_s: float) -> None:
    mill = Mill.of(tmp_path, SIZE, GROUP)
    await mill.run(LONG_S, _once(mill, lambda mill: _all_at_once(mill, in_s=in_s, kind=kind)))
    assert wrong_about(mill, by_us=NOTICED) == []


async def test_answers_that_get_lost_change_nothing(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, GROUP, loss=0.3)
    await mill.run(LONG_S, _once(mill, _all_at_once))
    assert wrong_about(mill, by_us=NOTICED) == []


@pytest.mark.parametrize("dies_after_s", [30.1, 41.0, 60.0, 100.0])
async def test_a_controller_that_dies_meanwhile_changes_nothing(tmp_path: Path, dies_after_s: float) -> None:
    mill = Mill.of(tmp_path, SIZE, GROUP, loss=0.1)
    await mill.run(dies_after_s, _once(mill, _all_at_once))
    await mill.run(LONG_S)
    assert wrong_about(mill, by_us=NOTICED) == []


async def test_bug_063_where_aws_replaces_by_itself_we_launch_nothing(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, MANAGED, early=True)
    await mill.run(LONG_S, _once(mill, _all_at_once))
    assert wrong_about(mill, by_us=0) == []


async def test_a_managed_group_that_replaces_only_what_is_gone_is_waited_for(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, MANAGED)
    await mill.run(LONG_S, _once(mill, _all_at_once))
    assert wrong_about(mill, by_us=0) == []


async def test_a_managed_groups_losses_without_notice_are_its_own_to_replace(tmp_path: Path) -> None:
    def vanish(mill: Mill) -> None:
        for each in list(mill.group.instances)[:NOTICED]:
            mill.group.vanish(each)

    mill = Mill.of(tmp_path, SIZE, MANAGED)
    await mill.run(LONG_S, _once(mill, vanish))
    assert wrong_about(mill, by_us=0) == []


async def test_what_we_end_between_two_looks_is_owed_nothing(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, MANAGED, cooldown_down_s=0.0)
    await mill.run(LONG_S, _once(mill, lambda mill: mill.group.raised(5)))
    assert (len(mill.group.instances), mill.group.desired, len(mill.group.ended)) == (SIZE, SIZE, 5)


def _all_recommended(mill: Mill, *, followed: bool = True) -> None:
    chosen = list(mill.group.instances)[:NOTICED]
    mill.tell([mill.group.recommend(each, followed=followed) for each in chosen])


async def test_what_a_managed_group_rebalances_hands_over_and_is_replaced_once_by_it(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, MANAGED, cooldown_down_s=0.0)
    await mill.run(LONG_S, _once(mill, _all_recommended))
    assert wrong_about(mill, by_us=0) == []
    assert mill.group.ended_at_work == []


async def test_a_recommendation_that_nothing_follows_changes_nothing(tmp_path: Path) -> None:
    mill = Mill.of(tmp_path, SIZE, MANAGED, cooldown_down_s=0.0)
    await mill.run(LONG_S, _once(mill, lambda mill: _all_recommended(mill, followed=False)))
    assert mill.group.drained() == 0
    assert (len(mill.group.instances), mill.group.ended, mill.group.came_by_themselves) == (SIZE, [], 0)


def _never_leaves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "leaves_by_us", lambda world, replica: False)


def _leaves_too_late(patch: pytest.MonkeyPatch) -> None:
    def late(world: StageWorld, replica: ReplicaView, deadline_s: float) -> bool:
        return world.now_s >= deadline_s

    patch.setattr(endings, "_is_time_to_leave", late)


def _forgets_what_comes_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replacements, "look", lambda *_: [])


def _forgets_it_once_the_old_one_is_gone(patch: pytest.MonkeyPatch) -> None:
    look = Replacements.look

    def wrong(self: Replacements, pool: object, views: list[ReplicaView], *more: object) -> list[ReplicaView]:
        there = {f"replacement-of:{view.replica_id}" for view in views if view.instance_ids}
        return [each for each in look(self, pool, views, *more) if each.replica_id in there]  # type: ignore[arg-type]

    patch.setattr(Replacements, "look", wrong)


def _counts_what_was_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replacements, "noticed", lambda _self, _pool, views: list(views))


async def test_a_planted_bug_about_recommendations_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _counts_what_was_replaced(monkeypatch)
    mill = Mill.of(tmp_path, SIZE, MANAGED, cooldown_down_s=0.0)
    await mill.run(LONG_S, _once(mill, _all_recommended))
    assert wrong_about(mill, by_us=0) != []


@pytest.mark.parametrize(
    ("bug", "duties", "by_us"),
    [
        pytest.param(_never_leaves, GROUP, NOTICED, id="never detached"),
        pytest.param(_leaves_too_late, GROUP, NOTICED, id="detached when it is gone"),
        pytest.param(_forgets_what_comes_by_itself, MANAGED, 0, id="replaced twice"),
        pytest.param(_forgets_it_once_the_old_one_is_gone, MANAGED, 0, id="forgotten with its replica"),
    ],
)
async def test_planted_bugs_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    duties: Duties,
    by_us: int,
) -> None:
    bug(monkeypatch)
    mill = Mill.of(tmp_path, SIZE, duties)
    await mill.run(LONG_S, _once(mill, _all_at_once))
    assert wrong_about(mill, by_us=by_us) != []
