"""What a unit asks for, read back: decoded once for all units of a call that share a prompt."""

from collections.abc import Mapping
from typing import Any

from scaler.ledger._sqlite.groups import split_name
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import INDEX_MASK
from scaler.ledger._sqlite.units import RESUMES
from scaler.ledger.bodies import ObjectStore, decode_prompt, unpack
from scaler.model.work import WorkUnit

SPEC_COLUMNS = "u.uid, g.name, g.size, u.resume, s.seed, s.max_tokens, s.time_bound_s, s.body"
SPEC_TABLES = "units u JOIN groups g ON g.gid = u.uid >> 20 JOIN specs s ON s.uid = u.uid"


class SpecDecoder:
    """Makes units of `SPEC_COLUMNS`."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._prompts: dict[bytes, tuple[tuple[int, ...], Mapping[str, str]]] = {}

    def unit(self, row: tuple[Any, ...]) -> WorkUnit:
        """The unit of a row."""
        uid, name, size, resume, seed, max_tokens, time_bound_s, record = row
        group_id, epoch = split_name(name)
        index = uid & INDEX_MASK
        prompt, payload = self._prompt(record, f"{name}/{index}")
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

    def _prompt(self, record: bytes, unit_id: str) -> tuple[tuple[int, ...], Mapping[str, str]]:
        if record not in self._prompts:
            self._prompts[record] = decode_prompt(unpack(UnitObjects(self._objects, unit_id), record))
        return self._prompts[record]
