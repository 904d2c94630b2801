"""Bodies (prompts, progress, samples) as safetensors bytes, and where large ones lie.

Tokens are int32, log-probabilities float32, spans int64 of shape [n, 3] (start, end, version), masks uint8. A body of up
to 64 KiB is stored in the ledger's own record, a larger one in the object store with its key in the record: one byte of
tag says which. Never pickle: bodies cross trust boundaries.

Errors: `ValueError` for bytes that are no body.
"""

import hashlib
import json
import math
import os
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any, Protocol, cast

from safetensors import SafetensorError, deserialize

from scaler.ledger.contract import LedgerRefused, legible
from scaler.model.work import FinishReason, Progress, Sample, VersionSpan

INLINE_BYTES = 64 * 1024
_INLINE, _OBJECT = b"\x00", b"\x01"
_CODES = {"int32": "i", "float32": "f", "int64": "q", "uint8": "B", "I32": "i", "F32": "f", "I64": "q", "U8": "B"}
_LITTLE_ENDIAN = "@" if sys.byteorder == "little" else "<"
"""The machine's own order is packed a good deal faster; of one type only, it has no gaps."""


class ObjectStore(Protocol):
    """Where large bodies lie. A key is written once; writing it again with the same bytes is harmless."""

    def put(self, key: str, body: bytes) -> None:
        """Store durably."""
        ...

    def get(self, key: str) -> bytes:
        """Read back; `KeyError` if it is not there."""
        ...

    def delete(self, key: str) -> None:
        """Forget; unknown keys are ignored."""
        ...


class FolderStore:
    """An object store in a folder: atomic, durable writes; keys are file names."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, body: bytes) -> None:
        """Store durably."""
        self._root.mkdir(parents=True, exist_ok=True)
        path, scratch = self._root / key, self._root / f".{key}.{os.getpid()}"
        with scratch.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        folder = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, key: str) -> bytes:
        """Read back; `KeyError` if it is not there."""
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError as error:
            raise KeyError(key) from error

    def delete(self, key: str) -> None:
        """Forget; unknown keys are ignored."""
        (self._root / key).unlink(missing_ok=True)


def pack(store: ObjectStore | None, body: bytes) -> bytes:
    """The record for a body: itself, or the key of the object it was put into (its sha256).

    Raises:
        ValueError: the body is large and there is no object store.
    """
    if len(body) <= INLINE_BYTES:
        return _INLINE + body
    if store is None:
        raise ValueError(f"a body of {len(body)} bytes needs an object store, and none is configured")
    key = hashlib.sha256(body).hexdigest()
    store.put(key, body)
    return _OBJECT + key.encode()


def object_key(record: bytes) -> str | None:
    """The object's key in a record, None where the body is inline."""
    return record[1:].decode() if record[:1] == _OBJECT else None


def unpack(store: ObjectStore | None, record: bytes) -> bytes:
    """The body of a record."""
    key = object_key(record)
    if key is None:
        return record[1:]
    if store is None:
        raise ValueError(f"body {key} lies in an object store, and none is configured")
    return store.get(key)


def encode_prompt(prompt: Sequence[int], payload: Mapping[str, str]) -> bytes:
    """A unit's prompt and payload."""
    fields, pack_tokens = _prompt_shape(len(prompt))
    facts = f'"payload":{json.dumps(json.dumps(dict(payload)))}'
    return _header(fields, facts) + pack_tokens.pack(*prompt)


def decode_prompt(body: bytes) -> tuple[tuple[int, ...], dict[str, str]]:
    """Prompt and payload."""
    tensors, _ = _deserialize(body)
    return tuple(tensors["prompt"]), dict(json.loads(_metadata(body)["payload"]))


def encode_progress(progress: Progress) -> bytes:
    """A journal."""
    return _encode_journal(progress.tokens, progress.logprobs, progress.spans, None, "")


def decode_progress(body: bytes) -> Progress:
    """The journal in `body`."""
    tensors, _ = _deserialize(body)
    return Progress(
        tokens=tuple(tensors["tokens"]), logprobs=tuple(tensors["logprobs"]), spans=_spans(tensors.get("spans", ()))
    )


def encode_sample(sample: Sample) -> bytes:
    """A sample; its unit id is the record's key and is not in it."""
    facts = '"finish_reason":"' + sample.finish_reason + '"'
    if sample.reward is not None:
        facts += f',"reward":"{float(sample.reward)!r}"'
    if sample.generation_s is not None:
        facts += f',"generation_s":"{float(sample.generation_s)!r}"'
    return _encode_journal(sample.tokens, sample.logprobs, sample.spans, sample.mask, facts)


def decode_sample(unit_id: str, body: bytes) -> Sample:
    """The sample in `body`."""
    tensors, masked = _deserialize(body)
    facts = _metadata(body)
    return Sample(
        unit_id=unit_id,
        tokens=tuple(tensors["tokens"]),
        logprobs=tuple(tensors["logprobs"]),
        spans=_spans(tensors.get("spans", ())),
        finish_reason=FinishReason(facts["finish_reason"]),
        mask=tuple(tensors["mask"]) if masked else None,
        reward=float(facts["reward"]) if "reward" in facts else None,
        generation_s=float(facts["generation_s"]) if "generation_s" in facts else None,
    )


def sample_fault(store: ObjectStore | None, unit_id: str, record: bytes) -> str:
    """Why the sample in a record cannot be read; empty where it can. Numbers that changed inside it do not show."""
    try:
        body = unpack(store, record)
        key = object_key(record)
        if key is not None and hashlib.sha256(body).hexdigest() != key:
            return "its object is another than was written"
        with legible("it"):
            decode_sample(unit_id, body)
    except KeyError:
        return "its object is missing"
    except (ValueError, OSError, LedgerRefused) as error:
        return str(error)
    return ""


def _encode_journal(
    tokens: Sequence[int],
    logprobs: Sequence[float],
    spans: Sequence[VersionSpan],
    mask: Sequence[int] | None,
    facts: str,
) -> bytes:
    flat = [number for span in spans for number in (span.start, span.end, span.version)]
    shape = _journal_shape(len(spans), len(tokens), len(logprobs), None if mask is None else len(mask))
    fields, pack_spans, pack_tokens, pack_logprobs, pack_mask = shape
    parts = (_header(fields, facts), pack_spans.pack(*flat), pack_tokens.pack(*tokens), pack_logprobs.pack(*logprobs))
    return b"".join(parts) if mask is None else b"".join((*parts, pack_mask.pack(*mask)))


@lru_cache(maxsize=1024)
def _prompt_shape(tokens: int) -> tuple[str, Struct]:
    return _fields(("prompt", "I32", 4, [tokens])), Struct(f"{_LITTLE_ENDIAN}{tokens}i")


@lru_cache(maxsize=4096)
def _journal_shape(
    spans: int, tokens: int, logprobs: int, mask: int | None
) -> tuple[str, Struct, Struct, Struct, Struct]:
    """The fields of a journal's header, and how its tensors are packed. Wider ones come first, so that all are aligned."""
    tensors: list[_Tensor] = [
        ("spans", "I64", 8, [spans, 3]),
        ("tokens", "I32", 4, [tokens]),
        ("logprobs", "F32", 4, [logprobs]),
    ]
    if mask is not None:
        tensors.append(("mask", "U8", 1, [mask]))
    layouts = (f"{3 * spans}q", f"{tokens}i", f"{logprobs}f", f"{mask or 0}B")
    pack_spans, pack_tokens, pack_logprobs, pack_mask = (Struct(_LITTLE_ENDIAN + layout) for layout in layouts)
    return _fields(*tensors), pack_spans, pack_tokens, pack_logprobs, pack_mask


_Tensor = tuple[str, str, int, list[int]]
"""Name, type, bytes of a value, shape."""


def _fields(*tensors: _Tensor) -> str:
    fields, at = [], 0
    for name, dtype, width, shape in tensors:
        end = at + width * math.prod(shape)
        fields.append(f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{end}]}}')
        at = end
    return ",".join(fields)


def _header(fields: str, facts: str) -> bytes:
    """Eight bytes of header length, then the header's JSON. `facts` is what is inside an object, '' where nothing is.

    Written here because this is most of what a commit costs its worker, and the library takes several times as long.
    """
    text = f'{{{fields},"__metadata__":{{{facts}}}}}' if facts else f"{{{fields}}}"
    header = text.encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _deserialize(body: bytes) -> "tuple[dict[str, array[Any]], bool]":
    try:
        raw = dict(cast("list[tuple[str, dict[str, Any]]]", deserialize(body)))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"no safetensors body: {error}") from error
    tensors = {name: _values(tensor) for name, tensor in raw.items()}
    return tensors, "mask" in tensors


def _values(tensor: Mapping[str, Any]) -> "array[Any]":
    values: array[Any] = array(_CODES[tensor["dtype"]])
    values.frombytes(bytes(tensor["data"]))
    return values


def _metadata(body: bytes) -> dict[str, str]:
    """The free-form header of the format: 8 bytes of header length, then the header's JSON."""
    length = int.from_bytes(body[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(body[8 : 8 + length])
    return header.get("__metadata__", {})


def _spans(flat: Sequence[int]) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(*flat[i : i + 3]) for i in range(0, len(flat), 3))
