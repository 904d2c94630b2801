"""What a job's records on Valkey say, against the counters and lists that the engine keeps beside them (`1_core.lua`).

Every list is worked out anew from the groups' records: what a call forgot to count, or to take off, shows at once.
"""

import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from scaler.ledger._valkey.runs import run_of

_SCHEMA = b"blocks\n"
_HEAD = struct.Struct("<BIIiIdd")
_FACTS = struct.Struct("<Ii")
_ROW = struct.Struct("<IdIIIIdI")
_PENDING, _LEASED, _COMMITTED, _DROPPED, _BACKS_OFF = 1, 2, 3, 5, 8
_FRESH, _OPEN, _COMPLETE, _IN_BATCH = 1, 2, 3, 4
_COUNTERS = {"pending": 10, "running": 11, "buffered": 12, "half done": 13, "backing off": 14, "abandoned": 15}
"""Their places, from 1 on."""


class _Unit(NamedTuple):
    unit_id: str
    group: str
    group_state: int
    state: int
    oldest: int
    published: int
    deadline_s: float
    owner: int


class _Group(NamedTuple):
    state: int
    committed: int
    oldest: int
    order: float
    units: tuple[_Unit, ...]


class Books:
    """Of one job."""

    def __init__(self, client: Any, job: str) -> None:
        """`client`: a plain one, whose types say of a reply what any command may give."""
        self._client = client
        self._keys = f"headrace:{{{job}}}:"
        records: dict[bytes, bytes] = self._client.hgetall(self._keys + "g")
        del records[b""]
        self._groups = {name.decode(): _group(name.decode(), record) for name, record in records.items()}
        self._units = [unit for group in self._groups.values() for unit in group.units]

    def kept(self) -> dict[str, Any]:
        """As the engine keeps them."""
        unpack = f"return cjson.encode(cmsgpack.unpack(server.call('HGET', KEYS[1], ''):sub({len(_SCHEMA) + 1})))"
        counters = json.loads(self._client.eval(unpack, 1, self._keys + "g"))
        return {
            **{name: counters[place - 1] for name, place in _COUNTERS.items()},
            "held": {key: self._hash(f"h:{key}") for key in self._named("h:")},
            "told to stop": self._hash("a"),
            "never leased": set(self._scores("q")),
            "waiting": self._scores("t"),
            "for their back-off": set(self._scores("k")),
            "open": self._scores("o"),
            "complete": set(self._scores("y")),
            "journals": {key: self._client.strlen(f"{self._keys}j:{key}") // 12 for key in self._named("j:")},
            "samples": self._samples(),
            "asked": {name.decode() for name in self._client.hkeys(self._keys + "p")},
            "committed of groups": {name: group.committed for name, group in self._groups.items()},
            "oldest of groups": {name: group.oldest for name, group in self._alive().items()},
            "runs out too late": {},
        }

    def told(self) -> dict[str, Any]:
        """As the records of the units have them."""
        units, alive = self._units, self._alive()
        count = Counter(unit.state for unit in units)
        in_hand = [unit for unit in units if unit.state == _PENDING and unit.group_state == _OPEN]
        held = [unit for unit in units if unit.owner]
        return {
            "pending": count[_PENDING] + count[_BACKS_OFF],
            "running": count[_LEASED],
            "buffered": count[_COMMITTED],
            "half done": len(in_hand),
            "backing off": count[_BACKS_OFF],
            "abandoned": sum(unit.state == _DROPPED for unit in held),
            "held": _counts(held),
            "told to stop": {unit.unit_id: str(unit.owner) for unit in held if unit.state == _DROPPED},
            "never leased": {name for name, group in alive.items() if group.state == _FRESH},
            "waiting": {unit.group: self._groups[unit.group].order for unit in in_hand},
            "for their back-off": {unit.unit_id for unit in units if unit.state == _BACKS_OFF},
            "open": {name: group.order for name, group in alive.items() if group.state == _OPEN},
            "complete": {name for name, group in alive.items() if group.state == _COMPLETE},
            "journals": {unit.unit_id: unit.published for unit in units if unit.published},
            "samples": sorted(unit.unit_id for unit in units if unit.state == _COMMITTED),
            "asked": set(alive),
            "committed of groups": {
                name: sum(unit.state in (3, 4, 6) for unit in group.units) for name, group in self._groups.items()
            },
            "oldest of groups": {name: _oldest(group) for name, group in alive.items()},
            "runs out too late": self._late(held),
        }

    def _alive(self) -> dict[str, _Group]:
        return {name: group for name, group in self._groups.items() if group.state <= _IN_BATCH}

    def _late(self, held: list[_Unit]) -> dict[str, float]:
        """Units that nobody would look at in time."""
        looked_at = self._scores("l")
        return {
            unit.unit_id: unit.deadline_s
            for unit in held
            if str(unit.owner) not in looked_at or looked_at[str(unit.owner)] > unit.deadline_s
        }

    def _samples(self) -> list[str]:
        kept = self._client.hgetall(self._keys + "s").items()
        return sorted(unit_id for first, text in kept for unit_id, _ in run_of(first.decode(), text))

    def _named(self, prefix: str) -> Iterator[str]:
        start = self._keys + prefix
        return (name.decode().removeprefix(start) for name in self._client.scan_iter(start + "*", count=1000))

    def _hash(self, name: str) -> dict[str, str]:
        return {field.decode(): value.decode() for field, value in self._client.hgetall(self._keys + name).items()}

    def _scores(self, name: str) -> dict[str, float]:
        return {one.decode(): score for one, score in self._client.zrange(self._keys + name, 0, -1, withscores=True)}


def _group(name: str, record: bytes) -> _Group:
    state, size, committed, oldest, _, _, order = _HEAD.unpack_from(record)
    assert len(record) == _HEAD.size + (2 + _FACTS.size + _ROW.size) * size
    states = record[_HEAD.size + size : _HEAD.size + 2 * size]
    rows_at = _HEAD.size + (2 + _FACTS.size) * size
    facts = _FACTS.iter_unpack(record[_HEAD.size + 2 * size : rows_at])
    units = [
        _Unit(f"{name}/{place}", name, state, of_unit, of_sample, published, deadline_s, owner)
        for place, (of_unit, (_, of_sample), (_, _, _, published, _, _, deadline_s, owner)) in enumerate(
            zip(states, facts, _ROW.iter_unpack(record[rows_at:]), strict=True)
        )
    ]
    return _Group(state, committed, oldest, order, tuple(units))


def _oldest(group: _Group) -> int:
    return min((unit.oldest for unit in group.units if unit.oldest >= 0), default=-1)


def _counts(held: list[_Unit]) -> Mapping[str, Mapping[str, str]]:
    """By the holder's number and the group."""
    counts = Counter((str(unit.owner), unit.group) for unit in held)
    found: dict[str, dict[str, str]] = {}
    for (owner, group), count in counts.items():
        found.setdefault(owner, {})[group] = str(count)
    return found
