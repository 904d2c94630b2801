"""What a unit asks for, read back: decoded once for the units that share a prompt, which are those of a group."""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from scaler.ledger._sqlite.groups import split_name
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import INDEX_MASK
from scaler.ledger._sqlite.units import RESUMES, runs
from scaler.ledger.bodies import ObjectStore, decode_prompt, object_key, unpack
from scaler.model.work import WorkUnit, unit_id_of


def read_specs(db: sqlite3.Connection, uids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    """Rows of `specs` without their ids, by id. Needs no transaction: they never change, and go only with their group."""
    query = "SELECT * FROM specs WHERE uid BETWEEN ? AND ?"
    return {row[0]: row[1:] for run in runs(uids) for row in db.execute(query, run)}


def unit_of(objects: ObjectStore, uid: int, name: str, resume: int, spec: tuple[Any, ...]) -> WorkUnit:
    """The unit of its row and its spec."""
    size, seed, max_tokens, time_bound_s, record = spec
    group_id, epoch = _split_name(name)
    index = uid & INDEX_MASK
    if object_key(record) is None:
        prompt, payload = _decode_inline(record)
    else:
        owner = unit_id_of(group_id, epoch, index)
        prompt, payload = decode_prompt(unpack(UnitObjects(objects, owner), record))
    return WorkUnit(
        group_id=group_id,
        group_epoch=epoch,
        sample_index=index,
        group_size=size,
        prompt=prompt,
        seed=seed,
        max_tokens=max_tokens,
        time_bound_s=time_bound_s,
        resume=RESUMES[resume],
        payload=payload,
    )


_split_name = lru_cache(maxsize=1024)(split_name)


@lru_cache(maxsize=128)
def _decode_inline(record: bytes) -> tuple[tuple[int, ...], dict[str, str]]:
    return decode_prompt(unpack(None, record))
