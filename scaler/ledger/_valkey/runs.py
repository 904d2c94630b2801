"""Runs: samples of units side by side in one group that a call commits under one token. They travel and lie as one body.

A run is 2, how many samples there are, the bytes of each, then the records. A sample alone is its record, and so is one
that lies in the object store, so that the store finds the object's name without looking into others.
"""

import struct
from collections.abc import Iterator, Sequence

from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, object_key, pack
from scaler.ledger.contract import Commit, LedgerRefused
from scaler.ledger.rules import place_in_group
from scaler.model.work import FencingToken

_FENCE = struct.Struct("<Id")
_RUN = 2
_HEAD = struct.Struct("<BH")


def packed(store: ObjectStore | None, body: bytes) -> bytes:
    """The record for a body.

    Raises:
        LedgerRefused: the body is large and there is no object store.
    """
    if store is None and len(body) > INLINE_BYTES:
        raise LedgerRefused(
            f"a body of {len(body)} bytes needs an object store: add ?objects=/folder to the ledger's URL"
        )
    return pack(store, body)


def commit_words(store: ObjectStore | None, commits: Sequence[Commit]) -> list[str | bytes]:
    """A call's commits as the function takes them, three words a run: first unit, facts, samples.

    Raises:
        ValueError: a sample is of another unit.
        LedgerRefused: one is large and there is no object store.
    """
    records = [_record(store, commit) for commit in commits]
    words: list[str | bytes] = []
    start = 0
    while start < len(commits):
        end = _end_of_run(commits, records, start)
        run = commits[start:end]
        words += (run[0].unit_id, _facts(run), _joined(records[start:end]))
        start = end
    return words


def _end_of_run(commits: Sequence[Commit], records: Sequence[bytes], start: int) -> int:
    """Where the units end that lie side by side from `start` on, under one fence, each with its own body."""
    token = commits[start].fencing_token
    if start + 1 == len(commits) or object_key(records[start]) is not None:
        return start + 1
    name, _, index = commits[start].unit_id.rpartition("/")
    place = place_in_group(index)
    if place < 0:
        return start + 1
    shift = place - start
    for at in range(start + 1, len(commits)):
        commit = commits[at]
        # Mostly one object: what a call leases shares it.
        fenced = commit.fencing_token is token or commit.fencing_token == token
        if not fenced or commit.unit_id != f"{name}/{at + shift}" or object_key(records[at]) is not None:
            return at
    return len(commits)


def _facts(run: Sequence[Commit]) -> bytes:
    """The fence, then of each unit: tokens of its sample, oldest version in it."""
    ends = [number for commit in run for number in (len(commit.sample.tokens), commit.sample.oldest_version)]
    return fence_bytes(run[0].fencing_token) + struct.pack(f"<{len(ends)}i", *ends)


def fence_bytes(token: FencingToken) -> bytes:
    """A fencing token as a unit's record has it."""
    return _FENCE.pack(token.store_epoch, token.counter)


def records_of(text: bytes) -> Iterator[bytes]:
    """The records in a run, or the one that stands alone."""
    if text[0] != _RUN:
        yield text
        return
    _, count = _HEAD.unpack_from(text)
    at = _HEAD.size + 4 * count
    for length in struct.unpack_from(f"<{count}I", text, _HEAD.size):
        yield text[at : at + length]
        at += length


def run_of(first: str, text: bytes) -> Iterator[tuple[str, bytes]]:
    """Units and their records in what lies under the unit `first`."""
    name, _, index = first.rpartition("/")
    for place, record in enumerate(records_of(text), int(index)):
        yield f"{name}/{place}", record


def _record(store: ObjectStore | None, commit: Commit) -> bytes:
    if commit.sample.unit_id != commit.unit_id:
        raise ValueError(f"a commit of {commit.unit_id} with a sample of {commit.sample.unit_id}")
    return packed(store, encode_sample(commit.sample))


def _joined(records: Sequence[bytes]) -> bytes:
    if len(records) == 1:
        return records[0]
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    return b"".join((_HEAD.pack(_RUN, len(records)), lengths, *records))
