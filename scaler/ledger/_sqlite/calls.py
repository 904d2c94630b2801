"""Calls that one client may do for another: what is asked and answered, as bytes.

A frame is the length of its head, the head, and the bodies that it speaks of. The head is plain tuples, numbers and text
as `marshal` writes them: in a call of one unit, JSON would take longer than the database. Bodies are packed records and
stay closed here; large ones lie in the object store already, and only their keys travel.
"""

import marshal
import struct
from collections.abc import Sequence
from typing import Any

from scaler.ledger._sqlite import granting, leasing
from scaler.ledger._sqlite.schema import INDEX_BITS
from scaler.ledger._sqlite.specs import read_specs, unit_of
from scaler.ledger._sqlite.transaction import ClientCache, Transaction, unit_id
from scaler.ledger._sqlite.units import decode_journal, read_journal
from scaler.ledger.bodies import ObjectStore
from scaler.ledger.contract import Commit, CommitOutcome, Control, LeaseReply
from scaler.model.work import FencingToken, Lease, Progress

_NOTHING = Progress()
_SIZE = struct.Struct("<I")
_MARSHAL_VERSION = 4
_OUTCOMES = {outcome[0]: outcome for outcome in CommitOutcome}


def lease_request(worker: str, n: int, ttl_s: float) -> bytes:
    """A call of `lease`."""
    return _frame(("lease", worker, n, ttl_s))


def commit_request(objects: ObjectStore, cache: ClientCache, worker: str, commits: Sequence[Commit]) -> bytes:
    """A call of `commit`; its bodies are encoded here, where no lock is held.

    Raises:
        ValueError: a sample is of another unit.
    """
    packed = [leasing.pack_commit(objects, cache, commit) for commit in commits]
    told = [(*one[:-1], len(one.record)) for one in packed]
    return _frame(("commit", worker, told), [one.record for one in packed])


def answer(tx: Transaction, request: bytes) -> bytes:
    """Do a call in a transaction."""
    (name, *arguments), at = _head(request)
    if name == "lease":
        return _lease(tx, *arguments)
    worker, told = arguments
    return _commit(tx, worker, told, request, at)


def lease_reply(objects: ObjectStore, cache: ClientCache, worker: str, reply: bytes) -> LeaseReply:
    """The leases that a call of `lease` has got."""
    (token, deadline_s, orders, units), at = _head(reply)
    fencing_token, leases, body = FencingToken(*token), [], b""
    for uid, name, resume, attempt, asked, size, parts in units:
        if size:
            body = reply[at : at + size]
            at += size
        journal = []
        for start, part_bytes in parts:
            journal.append((start, reply[at : at + part_bytes]))
            at += part_bytes
        # Whoever leases will name this group again, in heartbeats and in the commit.
        cache.note_gid(name, uid >> INDEX_BITS)
        lease = Lease(
            unit=unit_of(objects, uid, name, resume, (*asked, body)),
            owner=worker,
            fencing_token=fencing_token,
            attempt=attempt,
            deadline_s=deadline_s,
            progress=decode_journal(objects, unit_id(name, uid), journal) if journal else _NOTHING,
        )
        leases.append(lease)
    return LeaseReply(leases=tuple(leases), control=_control(*orders))


def commit_reply(reply: bytes) -> tuple[CommitOutcome, ...]:
    """What became of the commits of a call."""
    return tuple([_OUTCOMES[letter] for letter in reply.decode()])


def _lease(tx: Transaction, worker: str, n: int, ttl_s: float) -> bytes:
    grant = granting.grant(tx, worker, n, ttl_s)
    specs = read_specs(tx.db, [unit.uid for unit in grant.units])
    units: list[tuple[Any, ...]] = []
    bodies: list[bytes] = []
    last = b""
    for unit in grant.units:
        *asked, body = specs[unit.uid]
        journal = read_journal(tx, unit.uid) if unit.published else ()
        # The units of a group mostly share their prompt.
        size = 0 if body == last else len(body)
        parts = [(start, len(part)) for start, part in journal]
        units.append((unit.uid, unit.name, unit.resume, unit.attempt, asked, size, parts))
        if size:
            bodies.append(body)
        bodies += [part for _, part in journal]
        last = body
    control = grant.control
    orders = (control.store_now_s, control.drain_deadline_s, control.drain_reason, control.abandon, control.version)
    return _frame(((tx.counters.store_epoch, tx.counters.fence), grant.deadline_s, orders, units), bodies)


def _control(
    now_s: float, drain_deadline_s: float | None, drain_reason: str | None, abandon: Sequence[str], version: int | None
) -> Control:
    return Control(
        store_now_s=now_s,
        drain_deadline_s=drain_deadline_s,
        drain_reason=drain_reason,
        abandon=tuple(abandon),
        version=version,
    )


def _commit(tx: Transaction, worker: str, told: Sequence[Sequence[Any]], request: bytes, at: int) -> bytes:
    commits = []
    for *facts, size in told:
        commits.append(leasing.PackedCommit._make((*facts, request[at : at + size])))
        at += size
    return "".join([outcome[0] for outcome in leasing.commit(tx, worker, commits)]).encode()


def _frame(head: tuple[Any, ...], bodies: Sequence[bytes] = ()) -> bytes:
    text = marshal.dumps(head, _MARSHAL_VERSION)
    return b"".join((_SIZE.pack(len(text)), text, *bodies))


def _head(frame: bytes) -> tuple[Any, int]:
    (size,) = _SIZE.unpack_from(frame)
    # Whoever can write to the desk can write to the database beside it.
    return marshal.loads(memoryview(frame)[_SIZE.size : _SIZE.size + size]), _SIZE.size + size  # noqa: S302
