"""What a unit asks for, read back: decoded once for the units that share a prompt, which are those of a group."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from scaler.ledger._sqlite.groups import split_name
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import INDEX_MASK
from scaler.ledger._sqlite.units import RESUMES
from scaler.ledger.bodies import ObjectStore, decode_prompt, object_key, unpack
from scaler.model.work import WorkUnit

SPEC_COLUMNS = "u.uid, g.name, g.size, u.resume, s.seed, s.max_tokens, s.time_bound_s, s.body"
SPEC_TABLES = "units u JOIN groups g ON g.gid = u.uid >> 20 JOIN specs s ON s.uid = u.uid"


def unit_of(objects: ObjectStore, row: Sequence[Any]) -> WorkUnit:
    """The unit of a row of `SPEC_COLUMNS`."""
    uid, name, size, resume, seed, max_tokens, time_bound_s, record = row
    group_id, epoch = split_name(name)
    index = uid & INDEX_MASK
    if object_key(record) is None:
        prompt, payload = _decode_inline(record)
    else:
        prompt, payload = decode_prompt(unpack(UnitObjects(objects, f"{name}/{index}"), record))
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


@lru_cache(maxsize=128)
def _decode_inline(record: bytes) -> tuple[tuple[int, ...], dict[str, str]]:
    return decode_prompt(unpack(None, record))
