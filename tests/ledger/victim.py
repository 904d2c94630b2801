"""A client that is killed at a chosen instant of a fixed story, and what must be true of the ledger afterwards."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from types import FrameType

from scaler.ledger.audit import audit
from scaler.ledger.contract import Ledger, UnitState
from scaler.model.work import ReleaseReason
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    identity,
    lease_all,
    release_of,
    settings,
    states,
    version,
)
from tests.ledger.factories import LedgerFactory

Opener = Callable[[], Ledger]


def prepare(factory: LedgerFactory) -> Ledger:
    """The store that the story begins with: two groups of two, nobody at work."""
    watcher = factory.open()
    watcher.configure(settings())
    watcher.put_units(groups(2))
    return watcher


def live_and_die(opener: Opener, pipe: int, at_event: int) -> None:
    """Tell the story, writing a line to `pipe` after each call that returned; killed at the n-th entry or exit of a C
    function, which is before and after each that talks to the store. Ends by writing how many there were."""
    events = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal events
        if event.startswith("c_"):
            events += 1
            if events == at_event:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    for name in tell(opener):
        os.write(pipe, f"{name}\n".encode())
    sys.setprofile(None)
    os.write(pipe, f"{events}\n".encode())


def live_on(opener: Opener, pipe: int, first_group: int) -> None:
    """Work without an end, a line a round, for someone else to kill."""
    ledger = opener()
    ledger.register(identity("w1"))
    epoch = ledger.attach_trainer("t")
    for number in range(first_group, first_group + 100_000, 2):
        ledger.put_units(groups(2, first=number))
        leases = lease_all(ledger, "w1", 4)
        ledger.heartbeat("w1", [beat_of(lease, delta(len(lease.progress.tokens), 3)) for lease in leases], READY, TTL_S)
        ledger.commit("w1", [commit_of(lease) for lease in leases])
        batch = ledger.take_batch(epoch, 1, 0, 1)
        if batch is not None:
            ledger.ack_batch(epoch, [batch.batch_id])
        os.write(pipe, b"round\n")


def tell(opener: Opener) -> Iterator[str]:
    """The story: yields the name of each call that returned."""
    ledger = opener()
    return chain(_work(ledger), _train(ledger))


def _work(ledger: Ledger) -> Iterator[str]:
    ledger.register(identity("w1"))
    yield "register"
    one, two, three, four = lease_all(ledger, "w1", 4)
    yield "lease"
    ledger.heartbeat("w1", [beat_of(one, delta(0, 3)), beat_of(two, delta(0, 3))], READY, TTL_S)
    yield "heartbeat"
    ledger.commit("w1", [commit_of(one)])
    yield "commit one"
    ledger.release("w1", [release_of(two, ReleaseReason.DRAIN, delta(3, 2))])
    yield "release two"
    ledger.commit("w1", [commit_of(three), commit_of(four)])
    yield "commit three and four"
    ledger.put_units(groups(1, first=10))
    yield "put"
    (again,) = lease_all(ledger, "w1", 1)
    ledger.commit("w1", [commit_of(again, tokens=9)])
    yield "commit two"


def _train(ledger: Ledger) -> Iterator[str]:
    epoch = ledger.attach_trainer("t")
    yield "attach"
    batch = ledger.take_batch(epoch, 2, 0, 1)
    assert batch is not None
    yield "take"
    ledger.take_more(epoch, batch.batch_id, ["g0"])
    yield "reject"
    ledger.ack_batch(epoch, [batch.batch_id])
    yield "acknowledge"
    ledger.publish(epoch, version(1))
    yield "publish"
    ledger.drain("w1", 2_000_000.0, "spot", 1)
    ledger.release_worker("w1", ReleaseReason.WORKER_LOST, 1)
    yield "leave"
    ledger.compact()
    yield "compact"


def check_after_death(factory: LedgerFactory, watcher: Ledger, done: list[str]) -> None:
    """Nothing acknowledged is missing, nothing is half done, and everything goes on."""
    check_acknowledged({entry.unit_id: entry.state for entry in watcher.census()}, set(done))
    check_consistent(watcher)
    running = watcher.stats().running
    factory.now_s += TTL_S + 1
    assert watcher.expire() == running
    check_journal(watcher, set(done))
    finish(watcher)
    check_consistent(watcher)
    assert not {UnitState.PENDING, UnitState.LEASED, UnitState.COMMITTED} & states(watcher).keys()


def check_acknowledged(units: dict[str, UnitState], done: set[str]) -> None:
    over = {UnitState.COMMITTED, UnitState.CONSUMED, UnitState.DROPPED}
    for unit_id, call in (
        ("g0.0/0", "commit one"),
        ("g0.0/1", "commit two"),
        ("g1.0/0", "commit three and four"),
        ("g1.0/1", "commit three and four"),
    ):
        assert call not in done or units[unit_id] in over
    assert "put" not in done or "g10.0/0" in units
    assert "reject" not in done or units["g0.0/0"] is UnitState.DROPPED
    assert "acknowledge" not in done or units["g1.0/0"] is UnitState.CONSUMED


def check_consistent(ledger: Ledger) -> None:
    stats, counts = ledger.stats(), states(ledger)
    assert stats.pending == counts.get(UnitState.PENDING, 0)
    assert stats.running == counts.get(UnitState.LEASED, 0)
    assert stats.buffered == counts.get(UnitState.COMMITTED, 0)
    assert stats.accepted == counts.get(UnitState.CONSUMED, 0)
    assert audit(ledger).findings == ()


def check_journal(ledger: Ledger, done: set[str]) -> None:
    """The unit that was handed back, if it is still to be done, has what was published, and no more than was said."""
    ledger.register(identity("w2"))
    found = {lease.unit.unit_id: lease for lease in lease_all(ledger, "w2", 100)}
    if "g0.0/1" in found:
        least = 5 if "release two" in done else 3 if "heartbeat" in done else 0
        tokens = found["g0.0/1"].progress.tokens
        assert tokens == tuple(range(len(tokens)))
        assert least <= len(tokens) <= 5
    ledger.commit("w2", [commit_of(lease) for lease in found.values()])


def finish(ledger: Ledger) -> None:
    """Do all that is left, and train on it."""
    epoch = ledger.attach_trainer("after")
    ledger.configure(settings(max_staleness=100))
    while True:
        leases = lease_all(ledger, "w2", 100)
        ledger.commit("w2", [commit_of(lease) for lease in leases])
        batch = ledger.take_batch(epoch, 1, 0, 100)
        if batch is None:
            if not leases:
                return
            continue
        ledger.ack_batch(epoch, [batch.batch_id])
