"""The Valkey engine and its server: what is refused, what survives, what happens while it is away."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from scaler.ledger._valkey import link
from scaler.ledger._valkey.address import Address, check_server, parse_url
from scaler.ledger._valkey.link import library
from scaler.ledger._valkey.runs import fence_bytes
from scaler.ledger.audit import audit
from scaler.ledger.contract import CommitOutcome, LedgerRefused, LedgerUnavailable, UnitState
from scaler.ledger.registry import open_ledger
from scaler.model.work import Batch, FencingToken
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    identity,
    ids,
    lease_all,
    release_of,
    run_units,
    settings,
    version,
)
from tests.builders.valkey_server import ValkeyServer, free_port, ready, valkey_server


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"appendonly": "no"}, "set appendonly yes"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "set it to noeviction"),
    ],
    ids=["no append-only file", "keys may be evicted"],
)
def test_a_server_that_may_lose_work_is_refused_with_the_remedy(options: dict[str, str], remedy: str) -> None:
    with valkey_server(options) as careless, pytest.raises(LedgerRefused, match=remedy):
        open_ledger(careless.url, "job")


def test_an_operator_may_declare_a_store_durable() -> None:
    with valkey_server({"appendonly": "no"}) as declared:
        ledger = ready(declared.url + "?durability=declared")
        assert ledger.put_units(groups(1)) == 2


SOUND = {"redis_version": "7.2.4", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": "1"}


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"redis_version": "7.0.15"}, "use Valkey 7.2 or newer"),
        ({"redis_version": "6.2.1"}, "use Valkey 7.2 or newer"),
        ({"role": "slave"}, "give the address of the primary"),
        ({"aof_enabled": "0"}, "set appendonly yes"),
    ],
    ids=str,
)
def test_what_a_server_says_of_itself_decides(change: dict[str, str], remedy: str) -> None:
    check_server(SOUND, declared_durable=False)
    with pytest.raises(LedgerRefused, match=remedy):
        check_server(SOUND | change, declared_durable=False)


def test_a_server_that_loads_its_log_tells_it_as_off_and_is_waited_for() -> None:
    with pytest.raises(LedgerUnavailable, match="loading"):
        check_server(SOUND | {"loading": "1", "aof_enabled": "0"}, declared_durable=False)


def test_a_declared_store_still_needs_functions_and_a_primary() -> None:
    check_server(SOUND | {"redis_version": "7.0.15", "aof_enabled": "0"}, declared_durable=True)
    for change in ({"redis_version": "6.2.1"}, {"role": "slave"}, {"maxmemory_policy": "volatile-lru"}):
        with pytest.raises(LedgerRefused):
            check_server(SOUND | change, declared_durable=True)


@pytest.mark.parametrize(
    "url",
    [
        "valkey://h:1/x",
        "valkey://h:1/0?durability=hoped",
        "valkey://h:1/0?colour=red",
        "valkey://h:99999/0",
        "valkey://h:1/0?timeout_s=soon",
        "valkey://h:1/0?timeout_s=0",
        "valkey://h:1/\u0663",
        "valkey://h:1/0?timeout_s=\u0663",
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(LedgerRefused, match="ledger URL"):
        parse_url(url)


def test_a_url_says_where_and_how() -> None:
    assert parse_url("valkeys://w%40x:p%2Fq@store.example:6380/3?ca=/ca.pem&objects=/big&timeout_s=2") == Address(
        host="store.example",
        port=6380,
        db=3,
        username="w@x",
        password="p/q",
        tls=True,
        ca="/ca.pem",
        objects=Path("/big"),
        timeout_s=2.0,
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def test_units_are_refused_when_memory_is_nearly_full_and_commits_are_not(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(2))
    leases = lease_all(ledger, "w1", 4)
    with server.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used / 0.85))

    with pytest.raises(LedgerRefused, match="80 %"):
        ledger.put_units(groups(1, first=9))
    assert ledger.commit("w1", [commit_of(lease) for lease in leases]) == (CommitOutcome.COMMITTED,) * 4


def test_a_full_store_still_takes_what_frees_it(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(3))
    run_units(ledger, "w1", 4)
    (held,) = lease_all(ledger, "w1", 1)
    epoch = ledger.attach_trainer("t")
    with server.client() as client:
        client.config_set("maxmemory", 1)

    with pytest.raises(LedgerUnavailable):
        ledger.commit("w1", [commit_of(held)])
    batch = ledger.take_batch(epoch, 2, 0, 1)
    assert batch is not None
    assert ledger.ack_batch(epoch, [batch.batch_id]) == 1
    assert ledger.release("w1", [release_of(held)]) == (True,)


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_voids_every_lease_and_loses_nothing_acknowledged(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(3))
    done = run_units(ledger, "w1", 2)
    (held,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(held, delta(0, 3))], READY, TTL_S)
    epoch = ledger.attach_trainer("t")
    taken = ledger.take_batch(epoch, 1, 0, 1)
    assert taken is not None

    server.kill()
    with pytest.raises(LedgerUnavailable):
        ledger.stats()
    server.start()

    assert (ledger.stats().store_epoch, ledger.stats().running) == (2, 0)
    assert {entry.unit_id for entry in ledger.census() if entry.state is UnitState.COMMITTED} == set(done)
    again = ledger.take_batch(epoch, 1, 0, 1)
    assert again == replace(taken, redelivered=True)
    assert ledger.commit("w1", [commit_of(held)]) == (CommitOutcome.REFUSED,)
    (lease,) = lease_all(ledger, "w1", 1)
    assert lease.unit == held.unit
    assert lease.progress.tokens == (0, 1, 2)
    assert FencingToken(2, 0) < lease.fencing_token
    assert audit(ledger).findings == ()


def test_a_job_from_before_samples_lay_in_runs_goes_on(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(2))
    done = [unit_id for _ in range(2) for unit_id in run_units(ledger, "w1", 1)]
    with server.client() as client:
        (name,) = client.keys("headrace:{*}:m")
        client.set(name, client.get(name).removeprefix(b"\xc1"))

    done += run_units(ledger, "w1", 2)

    batch = ledger.take_batch(ledger.attach_trainer("t"), 2, 0, 1)
    assert batch is not None
    assert [one.unit_id for group in batch.groups for one in group.samples] == done
    assert audit(ledger).findings == ()


def test_who_does_not_know_runs_of_samples_cannot_read_the_counters(server: ValkeyServer) -> None:
    """A library of then opens a job by this very call: it fails there, and has written nothing."""
    ready(server.url).put_units(groups(1))
    with server.client() as client:
        (name,) = client.keys("headrace:{*}:m")
        with pytest.raises(ResponseError):
            client.eval("return #cmsgpack.unpack(server.call('GET', KEYS[1]))", 1, name)


def test_a_restart_raises_the_epoch_once_however_many_clients_see_it(server: ValkeyServer) -> None:
    clients = [ready(server.url) for _ in range(3)]
    server.kill()
    server.start()

    for client in clients:
        with pytest.raises(LedgerUnavailable):
            client.stats()
    assert [client.stats().store_epoch for client in clients] == [2, 2, 2]


def test_numbers_given_away_before_a_restore_are_never_given_again(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(4))
    run_units(ledger, "w1", 2)
    with server.client() as client:
        client.bgrewriteaof()
        _until_rewritten(server)
    copy = server.folder.with_name(server.folder.name + "-copy")
    shutil.copytree(server.folder, copy)
    try:
        run_units(ledger, "w1", 2)
        epoch = ledger.attach_trainer("t")
        lost = ledger.take_batch(epoch, 1, 0, 1)
        assert lost is not None
        server.kill()
        shutil.rmtree(server.folder)
        copy.rename(server.folder)
        server.start()
    finally:
        shutil.rmtree(copy, ignore_errors=True)

    restored = open_ledger(server.url, "job")
    epoch = restored.attach_trainer("t")
    new = restored.take_batch(epoch, 1, 0, 1)
    assert new is not None
    assert new.batch_id > lost.batch_id + 1


def test_no_journal_outlives_its_unit(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(1, size=3))
    leases = lease_all(ledger, "w1", 3)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3)) for lease in leases], READY, TTL_S)
    ledger.commit("w1", [commit_of(lease) for lease in leases])

    with server.client() as client:
        assert client.keys("headrace:{job}:j:*") == []


def test_counters_that_are_put_back_hold_at_once(server: ValkeyServer) -> None:
    """The library keeps the counters it wrote last; the store's own decide, here after somebody restored a copy."""
    ledger = ready(server.url)
    ledger.put_units(groups(4))
    with server.client() as client:
        copy = {name: client.dump(name) for name in client.keys("*")}
        done = run_units(ledger, "w1", 4)
        client.flushall()
        for name, value in copy.items():
            client.restore(name, 0, value)

    assert (ledger.stats().pending, ledger.stats().buffered) == (8, 0)
    assert run_units(ledger, "w1", 4) == done
    assert audit(ledger).findings == ()


def test_a_call_that_fails_leaves_the_counters_as_the_store_has_them(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(1))
    one, two = lease_all(ledger, "w1", 2)
    words = [(lease.unit.unit_id, fence_bytes(lease.fencing_token), "drain") for lease in (one, two)]
    with server.client() as client, pytest.raises(ResponseError):
        client.fcall(
            f"{library()[1]}release", 1, "headrace:{job}:", "", "w1",
            *words[0], -1, 0, -1, "", "",
            *words[1], "no number", 0, -1, "", "",
        )  # fmt: skip

    assert (ledger.stats().pending, ledger.stats().running) == (0, 2)


def test_versions_of_the_library_work_on_a_job_side_by_side(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, prefix = library()
    one = ready(server.url)
    monkeypatch.setattr(link, "library", lambda: (text.replace(prefix, "headrace_another_"), "headrace_another_"))
    two = ready(server.url)
    one.put_units(groups(4))

    done = [unit_id for client in (one, two, one, two) for unit_id in run_units(client, "w1", 2)]

    assert sorted(done) == sorted(unit.unit_id for unit in groups(4))
    assert one.stats().buffered == two.stats().buffered == 8
    assert audit(one).findings == audit(two).findings == ()


def _until_rewritten(server: ValkeyServer) -> None:
    with server.client() as client:
        while (
            client.info("persistence")["aof_rewrite_in_progress"] or client.info("persistence")["aof_rewrite_scheduled"]
        ):
            pass


def test_functions_that_were_flushed_are_loaded_again(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    with server.client() as client:
        client.function_flush()
    assert ledger.put_units(groups(1)) == 2


# --- a server that is away --------------------------------------------------------------------------------------------


def test_a_server_that_hangs_is_unavailable_within_the_bound_and_serves_again_afterwards(server: ValkeyServer) -> None:
    ledger = ready(server.url + "?timeout_s=0.3")
    ledger.put_units(groups(1))
    server.pause()
    with pytest.raises(LedgerUnavailable):
        ledger.lease("w1", 1, TTL_S)
    with pytest.raises(LedgerUnavailable):
        ledger.lease("w1", 1, TTL_S)
    server.resume()

    # What the hanging server had been sent may have happened: a lease that nobody heard of runs out.
    assert ledger.stats().store_epoch == 1
    assert ledger.stats().pending + ledger.stats().running == 2


def test_what_is_not_on_disk_in_time_is_not_acknowledged(server: ValkeyServer) -> None:
    ledger = ready(server.url + "?timeout_s=0.3")
    with server.client() as client:
        client.config_set("appendfsync", "no")
    with pytest.raises(LedgerUnavailable, match="in time"):
        ledger.put_units(groups(1))


@pytest.mark.parametrize("what", ["put_units", "commit", "take_batch", "ack_batch", "publish", "drain", "configure"])
def test_what_is_repeated_on_a_new_connection_is_not_acknowledged_before_it_is_on_disk(
    server: ValkeyServer, what: str
) -> None:
    """The first call has been carried out, so that the second finds nothing to do: all the same it has to wait."""
    ledger = ready(server.url + "?timeout_s=0.3")
    ledger.put_units(groups(4))
    commits = [commit_of(lease) for lease in lease_all(ledger, "w1", 8)]
    epoch = ledger.attach_trainer("t")
    batch: Batch | None = None
    if what != "commit":
        ledger.commit("w1", commits)
    if what == "ack_batch":
        batch = ledger.take_batch(epoch, 2, 0, 1)
    calls: dict[str, Callable[[], object]] = {
        "put_units": lambda: ledger.put_units(groups(1, first=9)),
        "commit": lambda: ledger.commit("w1", commits),
        "take_batch": lambda: ledger.take_batch(epoch, 2, 0, 1),
        "ack_batch": lambda: ledger.ack_batch(epoch, [batch.batch_id if batch else 0]),
        "publish": lambda: ledger.publish(epoch, version(1)),
        "drain": lambda: ledger.drain("w1", 5e9, "why", 1),
        "configure": lambda: ledger.configure(settings(max_staleness=3)),
    }
    with server.client() as client:
        client.config_set("appendfsync", "no")
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="in time"):
                calls[what]()
            ledger.close()
        client.config_set("appendfsync", "everysec")
    calls[what]()


def test_units_of_groups_that_a_call_left_halfway_are_shown_as_their_own(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(3, 4))
    ledger.register(identity("w2"))
    with server.client() as client:
        client.rename("headrace:{job}:x", "kept{job}")
        client.set("headrace:{job}:x", "of another type: nothing can be added to the history")
        with pytest.raises(LedgerRefused):
            ledger.lease("w1", 2, TTL_S)
        client.rename("kept{job}", "headrace:{job}:x")
        ledger.lease("w1", 2, TTL_S)
        shown = ids(ledger.lease("w2", 2, TTL_S).leases)
        held = client.hkeys("headrace:{job}:h:w2")
    assert sorted(shown) == sorted(name.decode() for name in held)


def test_no_server_is_unavailable() -> None:
    with pytest.raises(LedgerUnavailable):
        open_ledger(f"valkey://127.0.0.1:{free_port()}/0", "job")


def test_a_lease_is_not_waited_for_and_a_commit_is(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(1))

    def waits() -> int:
        with server.client() as client:
            return int(client.info("commandstats")["cmdstat_waitaof"]["calls"])

    before = waits()
    (lease,) = lease_all(ledger, "w1", 1)
    assert waits() == before
    ledger.commit("w1", [commit_of(lease)])
    assert waits() == before + 1
