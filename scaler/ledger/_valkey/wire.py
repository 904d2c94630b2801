"""What goes over the wire, and back: what units ask for, journals, leases, samples, orders.

What a group's units ask for is one body: how many units and prompts there are, the numbers of each unit with the place
of its prompt, the lengths of the prompts, then the prompts, each once. A journal has twelve bytes a token: id,
log-probability, policy version (int32, float32, int32), so that it only ever grows at its end. Layouts of the packed
words are those of `1_core.lua` and `4_work.lua`.
"""

import json
import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from scaler.ledger._valkey.runs import packed, records_of
from scaler.ledger.bodies import (
    INLINE_BYTES,
    ObjectStore,
    decode_prompt,
    decode_sample,
    encode_prompt,
    unpack,
)
from scaler.ledger.contract import Control, LeaseReply
from scaler.ledger.flat import flat
from scaler.model.job import WorkerIdentity, WorkerStatus
from scaler.model.work import (
    Batch,
    FencingToken,
    GroupSamples,
    Lease,
    Progress,
    ProgressDelta,
    Resume,
    VersionSpan,
    WorkUnit,
)

TOKEN_BYTES = 12
_REDRAW_SEED_STEP = 1_000_003
"""A new draw must not repeat the random numbers of the one before."""
_SEED_MASK = (1 << 63) - 1
_NO_PROGRESS = (-1, 0, -1, b"")
_NOTHING = Progress()


_GRANT = struct.Struct("<IddHH")
_GROUP = struct.Struct("<HI")
_LEASED = struct.Struct("<IIHH")
_DRAWS = struct.Struct("<I")
_COUNTS = struct.Struct("<HH")
_ASKED = struct.Struct("<qqdBH")
"""Of a unit: seed, token bound, time bound (s), place of its resume, place of its prompt."""
_PROMPT_BYTES = struct.Struct("<I")
_RESUMES = (Resume.TOKEN, Resume.TURN, Resume.RESTART)


def group_words(store: ObjectStore | None, name: str, units: Sequence[WorkUnit]) -> tuple[str, str, bytes]:
    """A group as `put_units` takes it.

    Raises:
        LedgerRefused: a prompt is large and there is no object store.
    """
    prompts: dict[bytes, int] = {}
    numbers = []
    for unit in units:
        place = prompts.setdefault(encode_prompt(unit.prompt, unit.payload), len(prompts))
        resume = _RESUMES.index(unit.resume)
        numbers.append(_ASKED.pack(unit.seed, unit.max_tokens, unit.time_bound_s, resume, place))
    lengths = [_PROMPT_BYTES.pack(len(prompt)) for prompt in prompts]
    body = b"".join((_COUNTS.pack(len(units), len(prompts)), *numbers, *lengths, *prompts))
    # Many small prompts are not a large one.
    record = b"\0" + body if max(map(len, prompts)) <= INLINE_BYTES else packed(store, body)
    return name, "".join("1" if unit.resume is Resume.RESTART else "0" for unit in units), record


class AskedUnits:
    """The units of a group, each made of the bytes when it is asked for: a lease of one unit wants no other."""

    def __init__(self, name: str, draws: int, body: bytes) -> None:
        self._group_id, _, epoch = name.rpartition(".")
        self._group_epoch = int(epoch)
        self._shift = draws * _REDRAW_SEED_STEP
        self._body = body
        self.size, prompts = _COUNTS.unpack_from(body)
        self._lengths_at = _COUNTS.size + self.size * _ASKED.size
        self._prompts_at = self._lengths_at + prompts * _PROMPT_BYTES.size
        self._prompts: dict[int, tuple[tuple[int, ...], dict[str, str]]] = {}
        self._units: dict[int, WorkUnit] = {}

    def unit(self, index: int) -> WorkUnit:
        """The unit of this place in the group."""
        found = self._units.get(index)
        if found is None:
            found = self._units[index] = self._make(index)
        return found

    def all(self) -> tuple[WorkUnit, ...]:
        """All of them, in order."""
        return tuple(map(self.unit, range(self.size)))

    def _make(self, index: int) -> WorkUnit:
        asked = _ASKED.unpack_from(self._body, _COUNTS.size + index * _ASKED.size)
        seed, max_tokens, time_bound_s, resume, place = asked
        prompt, payload = self._prompts.get(place) or self._prompt(place)
        return WorkUnit(
            group_id=self._group_id,
            group_epoch=self._group_epoch,
            sample_index=index,
            group_size=self.size,
            prompt=prompt,
            seed=(seed + self._shift) & _SEED_MASK if self._shift else seed,
            max_tokens=max_tokens,
            time_bound_s=time_bound_s,
            resume=_RESUMES[resume],
            payload=payload,
        )

    def _prompt(self, place: int) -> tuple[tuple[int, ...], dict[str, str]]:
        lengths_text = self._body[self._lengths_at : self._prompts_at]
        lengths = [length for (length,) in _PROMPT_BYTES.iter_unpack(lengths_text)]
        at = self._prompts_at + sum(lengths[:place])
        found = self._prompts[place] = _decode_prompt(self._body[at : at + lengths[place]])
        return found


_decode_prompt = lru_cache(maxsize=128)(decode_prompt)
"""Units of a group mostly share their prompt."""
_asked_units = lru_cache(maxsize=128)(AskedUnits)


def units_of(store: ObjectStore | None, name: str, record: bytes) -> AskedUnits:
    """The units of a group of this name, from how often it was drawn before and what its units ask for."""
    (draws,) = _DRAWS.unpack_from(record)
    return _asked_units(name, draws, unpack(store, record[_DRAWS.size :]))


def delta_words(progress: ProgressDelta | None) -> tuple[int, int, int, bytes]:
    """Start, length, oldest version and bytes of a delta.

    Raises:
        ValueError: the delta's parts do not cover the same tokens.
    """
    if progress is None:
        return _NO_PROGRESS
    count = len(progress.tokens)
    versions = [span.version for span in progress.spans for _ in range(span.start, span.end)]
    if not len(progress.logprobs) == len(versions) == count:
        raise ValueError("a delta has one log-probability and one policy version a token")
    journal = array("i", bytes(TOKEN_BYTES * count))
    journal[0::3] = array("i", progress.tokens)
    journal[1::3] = array("i", array("f", progress.logprobs).tobytes())
    journal[2::3] = array("i", versions)
    return progress.start, count, min(versions, default=-1), journal.tobytes()


def progress_of(journal: bytes) -> Progress:
    """The progress in a journal."""
    words = array("i", journal)
    return Progress(
        tokens=tuple(words[0::3]),
        logprobs=tuple(array("f", words[1::3].tobytes())),
        spans=_spans(words[2::3]),
    )


def _spans(versions: Sequence[int]) -> tuple[VersionSpan, ...]:
    spans, start = [], 0
    for at in range(1, len(versions) + 1):
        if at == len(versions) or versions[at] != versions[start]:
            spans.append(VersionSpan(start, at, versions[start]))
            start = at
    return tuple(spans)


def control_of(text: bytes) -> Control:
    """The orders in a reply: time, version, and JSON where there is more."""
    now, version_text, more = text.split(b" ", 2)
    now_s, version = float(now), None if version_text == b"-1" else int(version_text)
    if not more:
        return Control(store_now_s=now_s, version=version)
    raw = json.loads(more)
    deadline = raw.get("deadline")
    return Control(
        store_now_s=now_s,
        drain_deadline_s=None if deadline is None else float(deadline),
        drain_reason=raw.get("reason"),
        abandon=tuple(sorted(raw.get("abandon", ()))),
        lost=tuple(raw.get("lost", ())),
        version=version,
    )


def lease_reply_of(store: ObjectStore | None, worker: str, reply: bytes) -> LeaseReply:
    """A lease call's reply: orders, and what was granted."""
    orders, _, granted = reply.partition(b"\n")
    leases = _leases_of(store, worker, granted) if granted else ()
    return LeaseReply(leases=tuple(leases), control=control_of(orders))


def _leases_of(store: ObjectStore | None, worker: str, granted: bytes) -> Iterator[Lease]:
    store_epoch, counter, deadline_s, group_count, count = _GRANT.unpack_from(granted)
    token, at, groups = FencingToken(store_epoch, int(counter)), _GRANT.size, []
    for _ in range(group_count):
        name_bytes, record_bytes = _GROUP.unpack_from(granted, at)
        name_at = at + _GROUP.size
        record_at = name_at + name_bytes
        at = record_at + record_bytes
        groups.append(units_of(store, granted[name_at:record_at].decode(), granted[record_at:at]))
    journal_at = at + count * _LEASED.size
    for attempt, published, group, index in _LEASED.iter_unpack(granted[at:journal_at]):
        end = journal_at + TOKEN_BYTES * published
        yield Lease(
            unit=groups[group].unit(index),
            owner=worker,
            fencing_token=token,
            attempt=attempt,
            deadline_s=deadline_s,
            progress=progress_of(granted[journal_at:end]) if published else _NOTHING,
        )
        journal_at = end


def batch_of(store: ObjectStore | None, reply: Sequence[bytes]) -> Batch:
    """The batch in a reply: a header, then the bodies that it points to."""
    raw = json.loads(reply[0])
    groups = tuple(_group_of(store, group, reply) for group in raw["groups"] or ())
    return Batch(batch_id=int(raw["batch"]), groups=groups, redelivered=raw["redelivered"])


def _group_of(store: ObjectStore | None, told: Sequence[Any], reply: Sequence[bytes]) -> GroupSamples:
    name, asked, attempts, shown = told
    units = units_of(store, name, reply[asked]).all()
    records = [record for place in shown for record in records_of(reply[place])]
    return GroupSamples(
        group_id=units[0].group_id,
        group_epoch=units[0].group_epoch,
        units=units,
        samples=tuple(
            decode_sample(unit.unit_id, unpack(store, record)) for unit, record in zip(units, records, strict=True)
        ),
        attempts=tuple(attempts),
    )


def status_text(status: WorkerStatus) -> str:
    """A worker's word of itself, as JSON."""
    return json.dumps(flat(status), separators=(",", ":"))


def identity_text(identity: WorkerIdentity) -> str:
    """Who a worker is, as JSON."""
    return json.dumps(flat(identity), separators=(",", ":"))
