"""What goes over the wire, and back: units, journals, samples, orders, readings and events.

Constant numbers of a unit are one line, "<own or shared> <draws> <group size> <seed> <max tokens> <time bound> <resume>":
`own` where the unit does not share its group's prompt, `draws` how often the group was drawn before. A journal has
twelve bytes a token: id, log-probability, policy version (int32, float32, int32), so that it only ever grows at its end.
"""

import dataclasses
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from scaler.ledger.bodies import ObjectStore, decode_prompt, decode_sample, encode_prompt, encode_sample, pack, unpack
from scaler.ledger.contract import Commit, Control
from scaler.model.job import WorkerIdentity, WorkerStatus
from scaler.model.work import (
    Batch,
    FencingToken,
    GroupSamples,
    Lease,
    Progress,
    ProgressDelta,
    Resume,
    Sample,
    VersionSpan,
    WorkUnit,
)

TOKEN_BYTES = 12
_REDRAW_SEED_STEP = 1_000_003
"""A new draw must not repeat the random numbers of the one before."""
_SEED_MASK = (1 << 63) - 1
_NO_PROGRESS = (-1, 0, -1, b"")


class Head(NamedTuple):
    """A unit's constant numbers."""

    draws: int
    group_size: int
    seed: int
    max_tokens: int
    time_bound_s: float
    resume: Resume


def fence_text(token: FencingToken) -> str:
    """A fencing token as the store has it."""
    return f"{token.store_epoch}.{token.counter}"


def fence_of(text: str) -> FencingToken:
    """The token in its text."""
    store_epoch, _, counter = text.partition(".")
    return FencingToken(int(store_epoch), int(counter))


def group_words(store: ObjectStore | None, name: str, units: Sequence[WorkUnit]) -> Iterator[str | int | bytes]:
    """A group as `put_units` takes it; the prompt goes once where its units share it."""
    bodies = [encode_prompt(unit.prompt, unit.payload) for unit in units]
    shared = all(body == bodies[0] for body in bodies)
    yield name
    yield len(units)
    yield pack(store, bodies[0]) if shared else b""
    for unit, body in zip(units, bodies, strict=True):
        numbers = (unit.group_size, unit.seed, unit.max_tokens, repr(unit.time_bound_s), unit.resume.value)
        yield " ".join(map(str, ("shared" if shared else "own", 0, *numbers)))
        yield b"" if shared else pack(store, body)


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


def commit_words(store: ObjectStore | None, commit: Commit) -> tuple[str, str, int, int, bytes]:
    """A commit as the function takes it."""
    sample = commit.sample
    if sample.unit_id != commit.unit_id:
        raise ValueError(f"a commit of {commit.unit_id} with a sample of {sample.unit_id}")
    body = pack(store, encode_sample(sample))
    return commit.unit_id, fence_text(commit.fencing_token), len(sample.tokens), sample.oldest_version, body


def control_of(raw: Mapping[str, Any]) -> Control:
    """The orders in a reply."""
    deadline = raw.get("deadline")
    return Control(
        store_now_s=float(raw["now"]),
        drain_deadline_s=None if deadline is None else float(deadline),
        drain_reason=raw.get("reason"),
        abandon=tuple(sorted(raw.get("abandon") or ())),
        lost=tuple(raw.get("lost") or ()),
        version=raw.get("version"),
    )


def leases_of(
    store: ObjectStore | None, worker: str, reply: Sequence[bytes], raw: Mapping[str, Any]
) -> Iterator[Lease]:
    """The leases in a reply: header, journals one after the other, prompts."""
    until_s, journals, at = float(raw["until_s"]), reply[1], 0
    token = fence_of(raw.get("fence", "0.0"))
    for unit_id, attempt, head, prompt, published in raw["leases"] or ():
        end = at + TOKEN_BYTES * published
        yield Lease(
            unit=_unit_of(store, unit_id, head, reply[2 + prompt]),
            owner=worker,
            fencing_token=token,
            attempt=attempt,
            deadline_s=until_s,
            progress=progress_of(journals[at:end]) if published else Progress(),
        )
        at = end


def batch_of(store: ObjectStore | None, reply: Sequence[bytes]) -> Batch:
    """The batch in a reply: header, then prompts and samples that the header points to."""
    raw = json.loads(reply[0])
    groups = tuple(_group_of(store, name, units, reply) for name, units in raw["groups"] or ())
    return Batch(batch_id=int(raw["batch"]), groups=groups, redelivered=raw["redelivered"])


def _group_of(store: ObjectStore | None, name: str, raw: Sequence[Any], reply: Sequence[bytes]) -> GroupSamples:
    units: list[WorkUnit] = []
    samples: list[Sample] = []
    for index, (head, _, prompt, sample) in enumerate(raw):
        unit_id = f"{name}/{index}"
        units.append(_unit_of(store, unit_id, head, reply[prompt]))
        samples.append(decode_sample(unit_id, unpack(store, reply[sample])))
    group_id, _, epoch = name.rpartition(".")
    return GroupSamples(
        group_id=group_id,
        group_epoch=int(epoch),
        units=tuple(units),
        samples=tuple(samples),
        attempts=tuple(attempt for _, attempt, _, _ in raw),
    )


def _unit_of(store: ObjectStore | None, unit_id: str, head_text: str, record: bytes) -> WorkUnit:
    name, _, index = unit_id.rpartition("/")
    group_id, _, epoch = name.rpartition(".")
    head, (prompt, payload) = _head_of(head_text), _prompt_of(unpack(store, record))
    return WorkUnit(
        group_id=group_id,
        group_epoch=int(epoch),
        sample_index=int(index),
        group_size=head.group_size,
        prompt=prompt,
        seed=(head.seed + head.draws * _REDRAW_SEED_STEP) & _SEED_MASK if head.draws else head.seed,
        max_tokens=head.max_tokens,
        time_bound_s=head.time_bound_s,
        resume=head.resume,
        payload=dict(payload),
    )


def _head_of(text: str) -> Head:
    _, draws, group_size, seed, max_tokens, time_bound_s, resume = text.split(" ")
    return Head(int(draws), int(group_size), int(seed), int(max_tokens), float(time_bound_s), Resume(resume))


@lru_cache(maxsize=128)
def _prompt_of(body: bytes) -> tuple[tuple[int, ...], dict[str, str]]:
    """A group's units share their prompt: it is decoded once."""
    return decode_prompt(body)


def status_text(status: WorkerStatus) -> str:
    """A worker's word of itself, as JSON."""
    return json.dumps(dataclasses.asdict(status), separators=(",", ":"))


def identity_text(identity: WorkerIdentity) -> str:
    """Who a worker is, as JSON."""
    return json.dumps(dataclasses.asdict(identity), separators=(",", ":"))
