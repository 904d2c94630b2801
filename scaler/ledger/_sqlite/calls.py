"""Calls that one client may do for another: what is asked and answered.

They are plain tuples, numbers, texts and bytes, so that `marshal` can write those that travel: in a call of one unit, JSON
would take longer than the database. Bodies are packed records and stay closed here; large ones lie in the object store
already, and only their keys travel. What belongs to one group travels together, so that little is said, and looked for,
once a unit.
"""

import marshal
from collections.abc import Sequence
from typing import Any

from scaler.ledger._sqlite import committing, granting
from scaler.ledger._sqlite.fleet import control_of
from scaler.ledger._sqlite.schema import INDEX_BITS
from scaler.ledger._sqlite.specs import SpecRow, prompt_of, read_specs, unit_of
from scaler.ledger._sqlite.transaction import ClientCache, Transaction, unit_id
from scaler.ledger._sqlite.units import JournalRows, decode_journal, read_journal
from scaler.ledger.bodies import ObjectStore
from scaler.ledger.contract import Commit, CommitOutcome, LeaseReply
from scaler.model.work import FencingToken, Lease, Progress

_NOTHING = Progress()
_MARSHAL_VERSION = 4
_OUTCOMES = {outcome[0]: outcome for outcome in CommitOutcome}


Told = tuple[Any, ...]
"""A call, or the answer to one."""


def lease_request(worker: str, n: int, ttl_s: float) -> Told:
    """A call of `lease`."""
    return "lease", worker, n, ttl_s


def commit_request(objects: ObjectStore, cache: ClientCache, worker: str, commits: Sequence[Commit]) -> Told:
    """A call of `commit`; its bodies are encoded here, where no lock is held.

    Raises:
        ValueError: a sample is of another unit.
    """
    groups = committing.group_commits(objects, cache.gids, commits)
    return "commit", worker, len(commits), [tuple(group) for group in groups]


def packed(told: Told) -> bytes:
    """As it travels."""
    return marshal.dumps(told, _MARSHAL_VERSION)


def unpacked(text: bytes) -> Told:
    """What has travelled."""
    # Whoever can write to the desk can write to the database beside it.
    told: Told = marshal.loads(text)  # noqa: S302
    return told


def answer(tx: Transaction, request: Told) -> Told:
    """Do a call in a transaction."""
    name, *arguments = request
    return _lease(tx, *arguments) if name == "lease" else _commit(tx, *arguments)


def lease_reply(objects: ObjectStore, cache: ClientCache, worker: str, reply: Told) -> LeaseReply:
    """The leases that a call of `lease` has got."""
    token, deadline_s, orders, told = reply
    fencing_token, leases = FencingToken(*token), []
    for spec, name, members in told:
        # Whoever leases will name this group again, in heartbeats and in the commit.
        cache.note_gid(name, spec[0] >> INDEX_BITS)
        prompt = prompt_of(objects, name, spec)
        for uid, resume, attempt, journal in members:
            lease = Lease(
                unit=unit_of(uid, name, resume, spec, prompt),
                owner=worker,
                fencing_token=fencing_token,
                attempt=attempt,
                deadline_s=deadline_s,
                progress=decode_journal(objects, unit_id(name, uid), journal) if journal else _NOTHING,
            )
            leases.append(lease)
    return LeaseReply(leases=tuple(leases), control=control_of(orders))


def commit_reply(reply: Told) -> tuple[CommitOutcome, ...]:
    """What became of the commits of a call."""
    return tuple([_OUTCOMES[letter] for letter in reply])


def _lease(tx: Transaction, worker: str, n: int, ttl_s: float) -> Told:
    grant = granting.grant(tx, worker, n, ttl_s)
    told: list[tuple[SpecRow, str, list[tuple[int, int, int, JournalRows]]]] = []
    last = None
    for (uid, _, attempts, published, name, resume), spec in zip(
        grant.units, read_specs(tx.db, [unit[0] for unit in grant.units]), strict=True
    ):
        if spec is not last:
            members: list[tuple[int, int, int, JournalRows]] = []
            told.append((spec, name, members))
            last = spec
        members.append((uid, resume, attempts + 1, read_journal(tx, uid) if published else ()))
    return (tx.counters.store_epoch, tx.counters.fence), grant.deadline_s, grant.orders, told


def _commit(tx: Transaction, worker: str, count: int, told: Sequence[Told]) -> Told:
    groups = [committing.GroupCommits._make(group) for group in told]
    return tuple([outcome[0] for outcome in committing.commit(tx, worker, count, groups)])
