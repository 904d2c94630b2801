"""New units: encoded before the store is touched."""

from collections.abc import Sequence

from scaler.ledger._sqlite.groups import Draw, insert_groups, known_names
from scaler.ledger._sqlite.specs import spec_rows
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import RESUMES
from scaler.model.work import WorkUnit


def put_groups(tx: Transaction, groups: dict[str, list[WorkUnit]]) -> int:
    """Add those groups that were never known; returns how many units that were."""
    _ = tx.settings
    known = known_names(tx, groups)
    new = {name: members for name, members in groups.items() if name not in known}
    insert_groups(tx, [_draw(tx, name, members) for name, members in new.items()])
    return sum(map(len, new.values()))


def _draw(tx: Transaction, name: str, members: Sequence[WorkUnit]) -> Draw:
    return Draw(name, 0, [RESUMES.index(unit.resume) for unit in members], spec_rows(tx.objects, members))
