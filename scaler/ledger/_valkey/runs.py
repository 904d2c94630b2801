"""Runs: samples of units side by side in one group that a call commits under one token. They travel and lie as one body.

A run is 2, how many samples there are, the bytes of each, then the records. A sample alone is its record, and so is one
that lies in the object store, so that the store finds the object's name without looking into others.
"""

import struct
from collections.abc import Iterator, Sequence

from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, object_key, pack
from scaler.ledger.contract import Commit, LedgerRefused

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


def commit_words(store: ObjectStore | None, commits: Sequence[Commit]) -> list[str | bytes]:
    """A call's commits as the function takes them, three words a run: first unit, facts, samples.

    Raises:
        ValueError: a sample is of another unit.
        LedgerRefused: one is large and there is no object store.
    """
    words: list[str | bytes] = []
    ends: list[int] = []
    records: list[bytes] = []
    token = commits[0].fencing_token
    following = ""

    def close() -> None:
        if records:
            facts = _FENCE.pack(token.store_epoch, token.counter) + struct.pack(f"<{len(ends)}i", *ends)
            words.extend((facts, _joined(records)))

    for commit in commits:
        sample, unit_id = commit.sample, commit.unit_id
        if sample.unit_id != unit_id:
            raise ValueError(f"a commit of {unit_id} with a sample of {sample.unit_id}")
        record = packed(store, encode_sample(sample))
        alone = object_key(record) is not None
        if alone or unit_id != following or commit.fencing_token != token:
            close()
            words.append(unit_id)
            token, ends, records = commit.fencing_token, [], []
        ends += (len(sample.tokens), sample.oldest_version)
        records.append(record)
        following = "" if alone else _next(unit_id)
    close()
    return words


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


def _joined(records: Sequence[bytes]) -> bytes:
    if len(records) == 1:
        return records[0]
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    return b"".join((_HEAD.pack(_RUN, len(records)), lengths, *records))


def _next(unit_id: str) -> str:
    """The id of the unit that lies beside this one; '' where there can be none."""
    name, _, index = unit_id.rpartition("/")
    return f"{name}/{int(index) + 1}" if index.isascii() and index.isdecimal() and len(index) <= _MOST_DIGITS else ""
