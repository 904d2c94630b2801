import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.act.base import InstanceState, LaunchResult, PoolUnavailable
from scaler.act.local import LocalPool, LocalPoolSettings
from scaler.act.registry import make_actor
from scaler.localcloud import launching
from scaler.localcloud.launching import ENDED_KEPT_S
from scaler.localcloud.processes import signal_group, stat_of
from scaler.localcloud.state import InstanceRecord
from tests.builders.local import FAMILY, STUBBORN, ManualClock, Site, a_launch, an_end_of, eventually, launched


async def ids(pool: LocalPool) -> dict[str, InstanceState]:
    return {instance.instance_id: instance.state for instance in (await pool.observe()).instances}


def kill(record: InstanceRecord) -> None:
    assert signal_group(record.pid, record.start_ticks, signal.SIGKILL)


async def test_a_launch_starts_a_process_group_that_is_listed_with_all_that_is_known(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    (instance,) = (await pool.observe()).instances
    assert (instance.launch_token, instance.offering_id, instance.state) == ("t-1", "zone-a", InstanceState.RUNNING)
    assert instance.launched_at_s == record.launched_at_s == pytest.approx(site.clock.at_s, abs=1)
    stat = stat_of(record.pid)
    assert stat is not None
    assert stat.session == os.getpgid(record.pid) == record.pid


async def test_the_command_is_filled_in_and_what_it_prints_is_kept(site: Site) -> None:
    shown = (
        "{worker}",
        "{replicaId}",
        "{instanceId}",
        "{offering}",
        "{noticeFile}",
        "{tokenCounter}",
        "{job}",
        '{{"a":1}}',
    )
    script = 'printf "%s\\n" "$@" "$HEADRACE_INSTANCE_ID" "$COLOUR"; cat; exec sleep 300'
    settings = LocalPoolSettings(
        state_dir=site.state.root,
        command=("sh", "-c", script, "sh", *shown),
        placeholders={"job": "grpo"},
        env={"COLOUR": "red", "HEADRACE_TEST_DIR": str(site.root)},
    )
    pool = LocalPool(settings, pool="spot", clock=site.clock)
    instance_id = launched(await pool.launch(a_launch("t-1")))
    record, log = site.record(instance_id), site.state.log_file(instance_id)
    await eventually(lambda: "red" in log.read_text())
    assert log.read_text().split("\n") == [
        record.worker, record.replica_id, instance_id, "zone-a", str(site.state.notice_file(instance_id)),
        str(site.state.counter_file(instance_id)), "grpo", '{"a":1}', instance_id, "red", "",
    ]  # fmt: skip


def test_an_unknown_placeholder_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"uses \{color\}; known are .*instanceId"):
        LocalPoolSettings(state_dir=tmp_path, command=("worker", "--paint={color}"))


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        LocalPoolSettings(state_dir=tmp_path, command=())


async def test_a_program_that_is_not_there_is_a_failed_launch_and_nothing_is_listed(site: Site) -> None:
    pool = site.pool(("no-such-program",))
    outcome = await pool.launch(a_launch("t-1"))
    assert (outcome.result, outcome.message) == (LaunchResult.FAILED, "no program 'no-such-program'")
    assert await ids(pool) == {}


async def test_the_same_token_launches_once_even_after_its_instance_is_gone(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    again = await pool.launch(a_launch("t-1"))
    assert (again.result, again.instance_id) == (LaunchResult.ALREADY, record.instance_id)
    kill(record)
    await eventually(lambda: not record.alive)
    assert await ids(pool) == {}
    later = await site.pool().launch(a_launch("t-1"))
    assert (later.result, later.instance_id) == (LaunchResult.ALREADY, record.instance_id)
    assert site.started() == ["t-1"]


async def test_a_token_is_forgotten_a_day_after_its_instance_is_gone(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    kill(record)
    await eventually(lambda: not record.alive)
    await pool.observe()
    tombstones = [len(list(site.state.ended.iterdir()))]
    for later_s in (ENDED_KEPT_S - 60, 120.0):
        site.clock.at_s += later_s
        site.pool()
        tombstones.append(len(list(site.state.ended.iterdir())))
    assert tombstones == [1, 1, 0]


async def test_an_offering_that_is_full_refuses_and_one_without_bound_does_not(site: Site) -> None:
    site.state.write_capacity({"zone-a": 1})
    spot, other = site.pool(), site.pool(name="other")
    (record,) = await site.running(spot, "t-1")
    refused = await other.launch(a_launch("t-2", pool="other"))
    assert (refused.result, refused.message) == (LaunchResult.INSUFFICIENT_CAPACITY, "zone-a can hold 1 and does")
    assert (await spot.launch(a_launch("t-3", "zone-b"))).result is LaunchResult.LAUNCHED
    assert (await spot.observe()).available == {"zone-a": 0}
    kill(record)
    await eventually(lambda: not record.alive)
    assert (await spot.observe()).available == {"zone-a": 1}
    assert (await other.launch(a_launch("t-2", pool="other"))).result is LaunchResult.LAUNCHED


async def test_a_pool_lists_and_ends_only_what_is_its_own(site: Site) -> None:
    spot, other = site.pool(), site.pool(name="other")
    (record,) = await site.running(spot, "t-1")
    assert await ids(other) == {}
    assert await other.terminate(an_end_of(record)) == ()
    assert record.alive


async def test_a_dead_instance_leaves_the_list_and_no_zombie(site: Site) -> None:
    pool = site.pool()
    first, second = await site.running(pool, "t-1", "t-2")
    kill(first)
    await eventually(lambda: not first.alive)
    assert await ids(pool) == {second.instance_id: InstanceState.RUNNING}
    assert stat_of(first.pid) is None, "reaped"
    assert not site.state.notice_file(first.instance_id).exists()


async def test_terminate_ends_the_named_instance_and_its_group_only(site: Site) -> None:
    pool = site.pool(FAMILY)
    named, spared = await site.running(pool, "t-1", "t-2")
    await eventually(lambda: len(site.processes()) == 4)
    assert await pool.terminate(an_end_of(named)) == (named.instance_id,)
    await eventually(lambda: len(site.processes()) == 2)
    assert await ids(pool) == {spared.instance_id: InstanceState.RUNNING}
    assert await pool.terminate(an_end_of(named)) == (), "gone already"


async def test_one_that_does_not_listen_is_shutting_down_and_killed_after_its_grace(site: Site) -> None:
    pool = site.pool(STUBBORN, grace_s=5.0)
    (record,) = await site.running(pool, "t-1")
    assert await pool.terminate(an_end_of(record)) == (record.instance_id,)
    assert await ids(pool) == {record.instance_id: InstanceState.SHUTTING_DOWN}
    site.clock.at_s += 4.9
    assert await ids(pool) == {record.instance_id: InstanceState.SHUTTING_DOWN}
    assert record.alive
    site.clock.at_s += 0.2
    await site.pool(grace_s=5.0).observe()  # a newer controller finishes what the older began
    await eventually(lambda: not record.alive)
    assert await ids(pool) == {}


async def test_telling_again_does_not_prolong_the_grace(site: Site) -> None:
    pool = site.pool(STUBBORN, grace_s=5.0)
    (record,) = await site.running(pool, "t-1")
    for _ in range(3):
        await pool.terminate(an_end_of(record))
        site.clock.at_s += 2.0
    await pool.observe()
    await eventually(lambda: not record.alive)


async def test_a_process_that_took_over_the_pid_is_left_alone(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    gone = replace(record, instance_id="i-0", launch_token="t-0", start_ticks=record.start_ticks - 1)
    site.state.write_record(gone)
    assert await pool.terminate(an_end_of(gone)) == ()
    assert await ids(pool) == {record.instance_id: InstanceState.RUNNING}
    assert record.alive


async def test_an_instance_of_another_replica_is_not_ended(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    assert await pool.terminate(an_end_of(record, replica_id="another")) == ()
    assert record.alive


async def test_a_record_that_was_overwritten_with_garbage_is_found_again(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    (site.state.instances / f"{record.instance_id}.json").write_text('{"instance')
    assert await ids(pool) == {record.instance_id: InstanceState.RUNNING}
    assert site.record(record.instance_id) == record


async def test_capacity_that_cannot_be_read_is_no_answer_rather_than_no_bound(site: Site) -> None:
    pool = site.pool()
    site.state.capacity_file.write_text("[")
    with pytest.raises(PoolUnavailable, match=r"capacity\.json"):
        await pool.launch(a_launch("t-1"))
    with pytest.raises(PoolUnavailable, match=r"capacity\.json"):
        await pool.observe()
    assert site.started() == []


async def test_a_launch_lock_that_is_never_let_go_is_no_answer(site: Site) -> None:
    lock = launching.try_lock(site.state)
    assert lock is not None
    with pytest.raises(PoolUnavailable, match=r"launch\.lock"):
        await site.pool(clock=FastClock()).launch(a_launch("t-1"))
    os.close(lock)


class FastClock(ManualClock):
    async def sleep(self, seconds: float) -> None:
        self.at_s += max(seconds, 1.0)


async def test_closing_leaves_the_instances(site: Site) -> None:
    pool = site.pool()
    (record,) = await site.running(pool, "t-1")
    await pool.close()
    assert record.alive


def test_the_registry_makes_a_local_pool_and_names_what_it_knows(tmp_path: Path) -> None:
    settings = LocalPoolSettings(state_dir=tmp_path, command=("worker",))
    assert isinstance(make_actor("local", settings, pool="spot", clock=ManualClock()), LocalPool)
    with pytest.raises(ValueError, match=r"no provider 'moon'; known are .*local"):
        make_actor("moon", settings, pool="spot", clock=ManualClock())
    with pytest.raises(TypeError, match="LocalPoolSettings"):
        make_actor("local", json, pool="spot", clock=ManualClock())
