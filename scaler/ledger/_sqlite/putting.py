"""New units: encoded before the store is touched."""

from scaler.ledger._sqlite.groups import SpecRow, insert_groups, known_names
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import RESUMES
from scaler.ledger.bodies import ObjectStore, encode_prompt, pack
from scaler.model.work import WorkUnit


def put_groups(tx: Transaction, groups: dict[str, list[WorkUnit]]) -> int:
    """Add those groups that were never known; returns how many units that were."""
    _ = tx.settings
    known = known_names(tx, groups)
    new = {name: members for name, members in groups.items() if name not in known}
    insert_groups(tx, [(name, 0, [_spec(tx.objects, unit) for unit in members]) for name, members in new.items()])
    return sum(map(len, new.values()))


def _spec(objects: ObjectStore, unit: WorkUnit) -> SpecRow:
    body = pack(UnitObjects(objects, unit.unit_id), encode_prompt(unit.prompt, unit.payload))
    return RESUMES.index(unit.resume), unit.seed, unit.max_tokens, unit.time_bound_s, body
