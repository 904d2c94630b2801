"""Samples in the database: those of one group that came in one call share a row.

In a row each, bodies of two KiB take a page of four; eight of them together take five pages, and one statement. A row is
found under the first unit in it, and `parts` says which others are: index in the group and bytes of each, in order. A
record that names an object has a row of its own, so that the row says whose the object is (`objects.forget_bodies`).
"""

from collections.abc import Sequence
from struct import Struct

from scaler.ledger._sqlite.groups import unit_range
from scaler.ledger._sqlite.schema import INDEX_BITS, INDEX_MASK
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.bodies import object_key

_PART = Struct("<II")


SampleRow = tuple[int, bytes, bytes]
"""The columns of `samples`."""


def joined_samples(records: Sequence[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    """`parts` and `body` of a row with all of them; no parts where there is none, for an object or an impossible index."""
    body = b"".join([record for _, record in records])
    if any(index < 0 or object_key(record) for index, record in records):
        return b"", body
    return b"".join([_PART.pack(index, len(record)) for index, record in records]), body


def sample_rows(gid: int, records: Sequence[tuple[int, bytes]]) -> list[SampleRow]:
    """Rows for samples of a group: index of each unit, and its sample as `bodies.pack` made it."""
    together = [one for one in records if object_key(one[1]) is None]
    alone = [(one,) for one in records if object_key(one[1]) is not None] if len(together) < len(records) else ()
    return [_row(gid, members) for members in (together, *alone) if members]


def store_samples(tx: Transaction, rows: Sequence[SampleRow]) -> None:
    """Store the rows of a call."""
    tx.db.executemany("INSERT INTO samples (uid, parts, body) VALUES (?, ?, ?)", rows)


def read_samples(tx: Transaction, gid: int) -> dict[int, bytes]:
    """The records of a group, by unit."""
    rows = tx.db.execute("SELECT uid, parts, body FROM samples WHERE uid >= ? AND uid < ?", unit_range(gid))
    records = {}
    for uid, parts, body in rows:
        at = 0
        for index, size in _PART.iter_unpack(parts):
            records[uid & ~INDEX_MASK | index] = body[at : at + size]
            at += size
    return records


def _row(gid: int, members: Sequence[tuple[int, bytes]]) -> SampleRow:
    parts = b"".join([_PART.pack(index, len(record)) for index, record in members])
    return gid << INDEX_BITS | members[0][0], parts, b"".join([record for _, record in members])
