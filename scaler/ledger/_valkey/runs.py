"""Runs: samples of units side by side in one group that a call commits under one token. They travel and lie as one body.

A run is 2, how many samples there are, the bytes of each, then the records. A sample alone is its record, and so is one
that lies in the object store, so that the store finds the object's name without looking into others.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, object_key, pack
from scaler.ledger.contract import Commit, LedgerRefused
from scaler.model.work import FencingToken, Sample

_FENCE = struct.Struct("<Id")
_RUN = 2
_HEAD = struct.Struct("<BH")
_MOST_DIGITS = 7
"""Of a place in a group."""


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


@dataclass(slots=True)
class _Run:
    first: str
    token: FencingToken
    ends: list[int] = field(default_factory=list)
    """Of each unit: tokens of its sample, oldest version in it."""
    records: list[bytes] = field(default_factory=list)

    def add(self, sample: Sample, record: bytes) -> None:
        self.ends += (len(sample.tokens), sample.oldest_version)
        self.records.append(record)

    def words(self) -> tuple[str, bytes, bytes]:
        ends = struct.pack(f"<{len(self.ends)}i", *self.ends)
        return self.first, fence_bytes(self.token) + ends, _joined(self.records)


def commit_words(store: ObjectStore | None, commits: Sequence[Commit]) -> list[str | bytes]:
    """A call's commits as the function takes them, three words a run: first unit, facts, samples.

    Raises:
        ValueError: a sample is of another unit.
        LedgerRefused: one is large and there is no object store.
    """
    runs: list[_Run] = []
    following = None
    for commit in commits:
        record = _record(store, commit)
        alone = object_key(record) is not None
        if alone or commit.unit_id != following or commit.fencing_token != runs[-1].token:
            runs.append(_Run(commit.unit_id, commit.fencing_token))
        runs[-1].add(commit.sample, record)
        following = None if alone else _next(commit.unit_id)
    return [word for run in runs for word in run.words()]


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


def _next(unit_id: str) -> str | None:
    """The id of the unit that lies beside this one; None where there can be none."""
    name, _, index = unit_id.rpartition("/")
    return f"{name}/{int(index) + 1}" if index.isascii() and index.isdecimal() and len(index) <= _MOST_DIGITS else None
