"""Large bodies: each unit owns the objects it names, so that the end of one unit never takes another's body away.

An object is written before the transaction that names it, and deleted after the one that forgets it. A client killed
between, or a large commit that is refused, leaves a file that nobody names; it costs space and nothing else. (It cannot
be deleted on refusal: two holders may have made the very same bytes.)
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import hashlib

from scaler.ledger._sqlite.transaction import Transaction, unit_id
from scaler.ledger.bodies import ObjectStore, object_key


class UnitObjects:
    """A unit's own corner of an object store."""

    def __init__(self, objects: ObjectStore, owner: str) -> None:
        self._objects = objects
        self._owner = owner

    def put(self, key: str, body: bytes) -> None:
        """Store durably."""
        self._objects.put(self._own(key), body)

    def get(self, key: str) -> bytes:
        """Read back; `KeyError` if it is not there."""
        return self._objects.get(self._own(key))

    def delete(self, key: str) -> None:
        """Forget; unknown keys are ignored."""
        self._objects.delete(self._own(key))

    def _own(self, key: str) -> str:
        return f"{hashlib.sha256(self._owner.encode()).hexdigest()[:32]}-{key}"


def delete_object(objects: ObjectStore, owner: str, record: bytes) -> None:
    """Delete the object that a record names, if it names one."""
    key = object_key(record)
    if key is not None:
        UnitObjects(objects, owner).delete(key)


def forget_bodies(tx: Transaction, table: str, name: str, first_uid: int, end_uid: int) -> None:
    """Delete bodies of units of the group `name`; their objects go once the transaction is durable."""
    rows = tx.db.execute(
        f"DELETE FROM {table} WHERE uid >= ? AND uid < ? RETURNING uid, iif(substr(body, 1, 1) = x'01', body, NULL)",
        (first_uid, end_uid),
    ).fetchall()
    tx.garbage.extend((unit_id(name, uid), record) for uid, record in rows if record is not None)
