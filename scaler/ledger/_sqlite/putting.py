"""New units: validated and encoded before the store is touched."""

from collections.abc import Sequence

from scaler.ledger._sqlite.groups import SpecRow, insert_groups, known_names
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import MAX_GROUP_SIZE
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import RESUMES
from scaler.ledger.bodies import ObjectStore, encode_prompt, pack
from scaler.model.work import WorkUnit


def group_up(units: Sequence[WorkUnit]) -> dict[str, list[WorkUnit]]:
    """Units by the name of their group, in order of their index.

    Raises:
        ValueError: a group is not whole, or its units disagree.
    """
    groups: dict[str, list[WorkUnit]] = {}
    for unit in units:
        groups.setdefault(f"{unit.group_id}.{unit.group_epoch}", []).append(unit)
    for name, members in groups.items():
        members.sort(key=lambda unit: unit.sample_index)
        _check_group(name, members)
    return groups


def _check_group(name: str, members: Sequence[WorkUnit]) -> None:
    size = members[0].group_size
    if not 1 <= size <= MAX_GROUP_SIZE:
        raise ValueError(f"group {name}: its size is {size}")
    if any(unit.group_size != size for unit in members):
        raise ValueError(f"group {name}: its units do not agree on its size")
    if [unit.sample_index for unit in members] != list(range(size)):
        raise ValueError(f"group {name}: all {size} units of a group come in one call, each once")


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
