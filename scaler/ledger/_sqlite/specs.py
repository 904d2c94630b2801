"""What units ask for: those of a group that lie side by side and share a prompt share a row, and its decoding.

A row is found under the first unit in it. A prompt that lies in an object is not shared: each unit owns its objects.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from struct import Struct

from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import INDEX_MASK
from scaler.ledger._sqlite.transaction import split_name, unit_id
from scaler.ledger._sqlite.units import RESUMES
from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, decode_prompt, encode_prompt, object_key, pack, unpack
from scaler.model.work import WorkUnit

SpecRow = tuple[int, int, bytes, bytes]
"""First unit (its row id, or its index before it has one), size of the group, facts of each unit in order, prompt."""
_FACTS = Struct("<qqd")
"""Seed, max_tokens, time_bound_s."""
_MOST_UNITS = 64
"""In a row: whoever needs one of them reads all of it."""
_REDRAW_SEED_STEP = 1_000_003
"""A new draw must not repeat the old one's random numbers; it only has to be odd and large."""
_SEED_MASK = (1 << 63) - 1


def spec_rows(objects: ObjectStore, members: Sequence[WorkUnit]) -> list[SpecRow]:
    """The rows of a new group."""
    rows: list[SpecRow] = []
    for _, alike in groupby(members, key=lambda unit: (unit.prompt, unit.payload)):
        units = list(alike)
        body = encode_prompt(units[0].prompt, units[0].payload)
        most = _MOST_UNITS if len(body) <= INLINE_BYTES else 1
        rows += [_row(objects, units[at : at + most], body) for at in range(0, len(units), most)]
    return rows


def redrawn(objects: ObjectStore, rows: Iterable[SpecRow], old_name: str, name: str) -> list[SpecRow]:
    """The rows of a group's next draw: the same prompts, other seeds."""
    copies = []
    for first, size, facts, record in rows:
        index = first & INDEX_MASK
        body = _copy_body(objects, record, f"{old_name}/{index}", f"{name}/{index}")
        copies.append((index, size, b"".join(map(_reseeded, _FACTS.iter_unpack(facts))), body))
    return copies


def read_specs(db: sqlite3.Connection, uids: Iterable[int]) -> list[SpecRow]:
    """For each unit the row that it is in. Needs no transaction: they never change, and go only with their group."""
    rows: list[SpecRow] = []
    end = 0
    for uid in uids:
        if not rows or not rows[-1][0] <= uid < end:
            query = "SELECT uid, size, facts, body FROM specs WHERE uid <= ? ORDER BY uid DESC LIMIT 1"
            row: SpecRow = db.execute(query, (uid,)).fetchone()
            end = row[0] + len(row[2]) // _FACTS.size
        rows.append(row)
    return rows


Prompt = tuple[tuple[int, ...], dict[str, str]]
"""Prompt and payload."""


def prompt_of(objects: ObjectStore, name: str, row: SpecRow) -> Prompt:
    """What the units of a row share; the row is of the group `name`."""
    first, _, _, record = row
    if object_key(record) is None:
        return _decode_inline(record)
    return decode_prompt(unpack(UnitObjects(objects, unit_id(name, first)), record))


def unit_of(uid: int, name: str, resume: int, row: SpecRow, prompt: Prompt) -> WorkUnit:
    """A unit of the group `name`, and of the row that it is in."""
    first, size, facts, _ = row
    seed, max_tokens, time_bound_s = _FACTS.unpack_from(facts, (uid - first) * _FACTS.size)
    group_id, epoch = _split_name(name)
    tokens, payload = prompt
    return WorkUnit(
        group_id=group_id,
        group_epoch=epoch,
        sample_index=uid & INDEX_MASK,
        group_size=size,
        prompt=tokens,
        seed=seed,
        max_tokens=max_tokens,
        time_bound_s=time_bound_s,
        resume=RESUMES[resume],
        payload=payload,
    )


_split_name = lru_cache(maxsize=1024)(split_name)


@lru_cache(maxsize=128)
def _decode_inline(record: bytes) -> Prompt:
    return decode_prompt(unpack(None, record))


def _row(objects: ObjectStore, units: Sequence[WorkUnit], body: bytes) -> SpecRow:
    facts = b"".join([_FACTS.pack(unit.seed, unit.max_tokens, unit.time_bound_s) for unit in units])
    record = pack(UnitObjects(objects, units[0].unit_id), body)
    return units[0].sample_index, units[0].group_size, facts, record


def _reseeded(facts: tuple[int, int, float]) -> bytes:
    seed, *others = facts
    return _FACTS.pack((seed + _REDRAW_SEED_STEP) & _SEED_MASK, *others)


def _copy_body(objects: ObjectStore, record: bytes, old_id: str, new_id: str) -> bytes:
    """Each unit owns its objects, so that the end of one never takes another's."""
    if object_key(record) is None:
        return record
    return pack(UnitObjects(objects, new_id), unpack(UnitObjects(objects, old_id), record))
