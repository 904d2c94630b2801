import json
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.localcloud.player import Player, PlayerSettings, choose_victims, is_noticed
from scaler.localcloud.state import InstanceRecord
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.notice_file import parse_notice
from tests.builders.local import FAMILY, STUBBORN, Site, a_launch, an_end_of, eventually
from tests.builders.traces import a_trace

FALLING = a_trace(zone_a={0: 4, 10: 2, 20: 4, 30: 0})


def a_player(site: Site, *, notice_ratio: float = 0.5, seed: int = 0, repeat: bool = False) -> Player:
    settings = PlayerSettings(
        trace=FALLING,
        offerings={"zone-a": "zone_a"},
        notice_ratio=notice_ratio,
        notice_s=2.0,
        seed=seed,
        repeat=repeat,
    )
    return Player(site.state, settings, site.clock)


def a_record(instance_id: str, offering_id: str = "zone-a", terminating_at_s: float | None = None) -> InstanceRecord:
    return InstanceRecord(
        instance_id=instance_id,
        replica_id=instance_id,
        worker=instance_id,
        pool="spot",
        offering_id=offering_id,
        launch_token=instance_id,
        launched_at_s=0.0,
        pid=1,
        start_ticks=1,
        terminating_at_s=terminating_at_s,
    )


def living(records: list[InstanceRecord]) -> int:
    return sum(record.alive for record in records)


async def test_capacity_follows_the_trace_and_stays_at_its_last_value(site: Site) -> None:
    player = a_player(site)
    seen = []
    for at_s in (0, 9.9, 10, 20, 30, 1000):
        site.clock.at_s = 1_000_000.0 + at_s
        player.step()
        seen.append(site.state.read_capacity()["zone-a"])
    assert seen == [4, 4, 2, 4, 0, 0]


async def test_a_repeated_trace_starts_again_at_its_end(site: Site) -> None:
    player = a_player(site, repeat=True)
    site.clock.at_s += 100.0 + 10.0
    player.step()
    assert site.state.read_capacity() == {"zone-a": 2}


async def test_while_there_is_room_nothing_is_taken(site: Site) -> None:
    records = await site.running(site.pool(), "t-1", "t-2")
    player = a_player(site)
    for _ in range(3):
        site.clock.at_s += 6.0
        player.step()
    assert living(records) == 2
    assert site.state.read_interruptions() == ()


async def test_of_the_excess_one_goes_at_once_and_one_has_until_its_deadline(site: Site) -> None:
    records = await site.running(site.pool(STUBBORN), "t-1", "t-2", "t-3", "t-4")
    player = a_player(site)
    site.clock.at_s += 10.0
    player.step()
    unnoticed, noticed = site.state.read_interruptions()
    assert (unnoticed.noticed, unnoticed.deadline_s, noticed.noticed) == (False, None, True)
    assert noticed.deadline_s == noticed.at_s + 2.0
    await eventually(lambda: living(records) == 3)
    notice = parse_notice(site.state.notice_file(noticed.instance_id).read_text())
    assert notice == InterruptionNotice(
        instance_id=noticed.instance_id,
        kind=NoticeKind.SPOT_INTERRUPTION,
        noticed_at_s=noticed.at_s,
        deadline_s=noticed.deadline_s,
    )
    site.clock.at_s += 1.9
    player.step()
    assert living(records) == 3, "no more are taken while one is on its way out"
    site.clock.at_s += 0.2
    player.step()
    await eventually(lambda: living(records) == 2)
    assert len(site.state.read_interruptions()) == 2


async def test_a_kill_takes_the_whole_group(site: Site) -> None:
    await site.running(site.pool(FAMILY), "t-1", "t-2", "t-3")
    await eventually(lambda: len(site.processes()) == 6)
    player = a_player(site, notice_ratio=0.0)
    site.clock.at_s += 30.0
    player.step()
    await eventually(lambda: not site.processes())


async def test_a_noticed_instance_that_leaves_early_is_done_with(site: Site) -> None:
    pool = site.pool()
    records = await site.running(pool, "t-1", "t-2", "t-3")
    player = a_player(site, notice_ratio=1.0)
    site.clock.at_s += 10.0
    player.step()
    (gone,) = site.state.read_interruptions()
    os.kill(site.record(gone.instance_id).pid, signal.SIGTERM)
    await eventually(lambda: living(records) == 2)
    await pool.observe()
    site.clock.at_s += 5.0
    player.step()
    assert living(records) == 2
    assert len(site.state.read_interruptions()) == 1


async def test_one_that_was_told_to_end_is_not_taken_as_well(site: Site) -> None:
    pool = site.pool(STUBBORN)
    records = await site.running(pool, "t-1", "t-2", "t-3")
    await pool.terminate(an_end_of(records[0]))
    player = a_player(site)
    site.clock.at_s += 10.0
    player.step()
    assert site.state.read_interruptions() == ()


@pytest.mark.parametrize("killed_before", ["the kill", "the notice"])
async def test_a_new_player_finishes_what_the_log_says_was_begun(site: Site, killed_before: str) -> None:
    records = await site.running(site.pool(STUBBORN), "t-1", "t-2", "t-3")
    ratio = 0.0 if killed_before == "the kill" else 1.0
    player = a_player(site, notice_ratio=ratio)
    player._carry_out = lambda *_: None  # type: ignore[method-assign] # killed after logging, before doing
    site.clock.at_s += 10.0
    player.step()
    assert living(records) == 3
    assert not list(site.state.notices.iterdir())
    a_player(site, notice_ratio=ratio).step()
    (begun,) = site.state.read_interruptions()
    if killed_before == "the notice":
        assert site.state.notice_file(begun.instance_id).exists()
        site.clock.at_s += 2.0
        a_player(site, notice_ratio=ratio).step()
    await eventually(lambda: living(records) == 2)
    assert len(site.state.read_interruptions()) == 1


async def test_a_new_player_goes_on_where_the_trace_was(site: Site) -> None:
    a_player(site).step()
    site.clock.at_s += 12.0
    a_player(site).step()
    assert site.state.read_capacity() == {"zone-a": 2}


@pytest.mark.parametrize("text", ["", '{"trace": "another", "started_at_s": 0.0}', '{"started_at_s": 1}', "[]"])
async def test_another_trace_or_garbage_starts_at_the_beginning(site: Site, text: str) -> None:
    (site.state.root / "player.json").write_text(text)
    a_player(site).step()
    assert site.state.read_capacity() == {"zone-a": 4}
    assert json.loads((site.state.root / "player.json").read_text())["started_at_s"] == site.clock.at_s


async def test_a_launch_that_slipped_in_before_a_fall_is_taken_back(site: Site) -> None:
    pool, player = site.pool(), a_player(site, notice_ratio=0.0)
    player.step()
    records = await site.running(pool, "t-1", "t-2", "t-3")
    site.clock.at_s += 10.0
    player.step()
    await eventually(lambda: living(records) == 2)
    await pool.observe()
    assert (await pool.launch(a_launch("t-4"))).message == "zone-a can hold 2 and does"


@given(number=st.integers(1, 500), ratio=st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.7, 1.0]))
def test_the_share_with_notice_is_right_for_every_number(number: int, ratio: float) -> None:
    noticed = sum(is_noticed(each, ratio) for each in range(1, number + 1))
    assert number * ratio - 1 < noticed <= number * ratio + 1e-6


def test_half_means_in_turns() -> None:
    assert [is_noticed(number, 0.5) for number in range(1, 7)] == [False, True] * 3


@given(
    there=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.sampled_from(["zone-a", "zone-b"]), max_size=12),
    capacity=st.dictionaries(st.sampled_from(["zone-a", "zone-b"]), st.integers(0, 6)),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_victims_are_the_excess_and_the_same_for_the_same_live_set(
    there: dict[str, str], capacity: dict[str, int], seed: int, data: st.DataObject
) -> None:
    records = tuple(a_record(instance_id, offering) for instance_id, offering in there.items())
    shuffled = tuple(data.draw(st.permutations(records)))
    leaving = frozenset(data.draw(st.sets(st.sampled_from(sorted(there))))) if there else frozenset[str]()
    victims = list(choose_victims(capacity, records, leaving, seed))
    again = list(choose_victims(capacity, shuffled, leaving, seed))
    assert {victim.instance_id for victim in victims} == {victim.instance_id for victim in again}
    assert not {victim.instance_id for victim in victims} & leaving
    for offering in ("zone-a", "zone-b"):
        staying = sum(r.offering_id == offering and r.instance_id not in leaving for r in records)
        taken = sum(victim.offering_id == offering for victim in victims)
        assert taken == max(0, staying - capacity.get(offering, staying))


def test_another_seed_takes_others() -> None:
    records = tuple(a_record(f"i-{number}") for number in range(8))
    chosen = {
        tuple(victim.instance_id for victim in choose_victims({"zone-a": 4}, records, frozenset(), seed))
        for seed in range(8)
    }
    assert len(chosen) > 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"notice_ratio": 1.5}, "ratio of 1.5 is not between 0 and 1"),
        ({"notice_ratio": float("nan")}, "not between 0 and 1"),
        ({"notice_s": -1.0}, "negative"),
        ({"offerings": {"x": "zone_z"}}, "no series 'zone_z'; the trace has zone_a"),
    ],
)
def test_settings_that_cannot_be_played_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlayerSettings(trace=FALLING, **wrong)  # type: ignore[arg-type]
