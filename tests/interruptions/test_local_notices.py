import asyncio
from pathlib import Path

import pytest

from scaler.interruptions.local import POLL_S, LocalNoticeSettings, LocalNoticeSource
from scaler.interruptions.registry import make_source
from scaler.model.interruption import HINT_TTL_S, InterruptionNotice, NoticeKind
from tests.builders.local import ManualClock, Site


def a_notice(instance_id: str, deadline_s: float | None = 120.0) -> InterruptionNotice:
    kind = NoticeKind.SPOT_INTERRUPTION if deadline_s is not None else NoticeKind.REBALANCE_RECOMMENDATION
    return InterruptionNotice(
        instance_id=instance_id, kind=kind, noticed_at_s=ManualClock().at_s, deadline_s=deadline_s
    )


def a_source(site: Site) -> LocalNoticeSource:
    return LocalNoticeSource(LocalNoticeSettings(state_dir=site.state.root), clock=site.clock)


@pytest.fixture
def recorded(site: Site) -> Site:
    """A site that knows the instances i-1 to i-3; notices need no processes."""
    for number in (1, 2, 3):
        (site.state.instances / f"i-{number}.json").write_text("{}")
    return site


async def test_notices_stand_by_deadline_with_those_that_have_none_last(recorded: Site) -> None:
    notices = (a_notice("i-3", 50.0), a_notice("i-1", 70.0), a_notice("i-2", None))
    for notice in notices:
        recorded.state.write_notice(notice)
    source = a_source(recorded)
    assert await source.current() == notices
    assert await source.current() == notices, "told every time"
    health = source.health()
    assert (health.received, health.duplicates, health.answered_at_s) == (3, 0, recorded.clock.at_s)


async def test_bug_016_a_rebalance_recommendation_is_forgotten_and_an_interruption_is_not(recorded: Site) -> None:
    recorded.state.write_notice(a_notice("i-1", None))
    recorded.state.write_notice(a_notice("i-2", recorded.clock.at_s + 120.0))
    source = a_source(recorded)
    assert len(await source.current()) == 2
    recorded.clock.at_s += HINT_TTL_S
    assert [each.instance_id for each in await source.current()] == ["i-2"]


async def test_before_there_is_a_folder_there_are_no_notices(tmp_path: Path) -> None:
    clock = ManualClock()
    source = LocalNoticeSource(LocalNoticeSettings(state_dir=tmp_path / "none"), clock=clock)
    assert source.health().answered_at_s is None
    assert await source.current() == ()
    assert source.health().answered_at_s == clock.at_s


async def test_a_notice_falls_with_its_instance_and_is_not_foreign_then(recorded: Site) -> None:
    source = a_source(recorded)
    recorded.state.write_notice(a_notice("i-1"))
    await source.current()
    (recorded.state.instances / "i-1.json").rename(recorded.state.ended / "i-1.json")
    assert await source.current() == ()
    assert source.health().foreign == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[1]", '{"instance_id": "i-1"}', '{"kind": "x"}', "\udcff\0"],
)
async def test_what_is_no_notice_is_counted_once_for_each_writing(recorded: Site, text: str) -> None:
    source = a_source(recorded)
    path = recorded.state.notice_file("i-1")
    path.write_text(text, errors="surrogateescape")
    for _ in range(3):
        assert await source.current() == ()
    assert source.health().malformed == 1
    path.write_text(text + " ", errors="surrogateescape")
    await source.current()
    assert source.health().malformed == 2


async def test_a_half_written_notice_stands_once_it_is_whole(recorded: Site) -> None:
    source = a_source(recorded)
    recorded.state.notice_file("i-1").write_text('{"instance_id": "i')
    assert await source.current() == ()
    recorded.state.write_notice(a_notice("i-1"))
    assert await source.current() == (a_notice("i-1"),)
    assert source.health().malformed == 1


async def test_notices_about_strangers_and_under_a_wrong_name_are_foreign(recorded: Site) -> None:
    source = a_source(recorded)
    recorded.state.write_notice(a_notice("i-99"))
    recorded.state.write_notice(a_notice("i-1"))
    recorded.state.notice_file("i-1").rename(recorded.state.notice_file("i-2"))
    for _ in range(2):
        assert await source.current() == ()
    assert source.health().foreign == 2


async def test_the_same_notice_written_again_is_a_duplicate(recorded: Site) -> None:
    source = a_source(recorded)
    for deadline_s in (120.0, 1210.5):
        recorded.state.write_notice(a_notice("i-1", deadline_s))
        await source.current()
    assert (source.health().received, source.health().duplicates) == (1, 1)


async def test_a_new_notice_wakes_within_one_look_at_the_folder(recorded: Site) -> None:
    source = a_source(recorded)
    await source.current()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(source.changed())
        await recorded.clock.sleep(5 * POLL_S)
        assert not waiting.done()
        recorded.state.write_notice(a_notice("i-1"))
        before_s = recorded.clock.at_s
        await waiting
        assert recorded.clock.at_s - before_s <= POLL_S


async def test_a_notice_between_a_look_and_a_wait_is_not_slept_over_and_wakes_once(recorded: Site) -> None:
    source = a_source(recorded)
    await source.current()
    recorded.state.write_notice(a_notice("i-1"))
    await source.changed()
    async with asyncio.TaskGroup() as group:
        again = group.create_task(source.changed())
        await recorded.clock.sleep(5 * POLL_S)
        assert not again.done(), "the same news does not wake twice"
        again.cancel()


def test_the_registry_makes_a_local_source_and_names_what_it_knows(tmp_path: Path) -> None:
    settings = LocalNoticeSettings(state_dir=tmp_path)
    assert isinstance(make_source("local", settings, clock=ManualClock()), LocalNoticeSource)
    with pytest.raises(ValueError, match="no notice source 'moon'; known are instance_status, local"):
        make_source("moon", settings, clock=ManualClock())
    with pytest.raises(TypeError, match="LocalNoticeSettings"):
        make_source("local", None, clock=ManualClock())
