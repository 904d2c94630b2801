"""Bodies come back as they went, and large ones through the object store."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize

from scaler.ledger import bodies
from scaler.model.work import FinishReason, Progress, Sample, VersionSpan

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=40).map(tuple)
logprob = st.floats(-100, 0, width=32)


@st.composite
def journals(draw: st.DrawFn) -> Progress:
    ids = draw(tokens)
    logprobs = tuple(draw(st.lists(logprob, min_size=len(ids), max_size=len(ids))))
    cut = draw(st.integers(0, len(ids)))
    spans = tuple(s for s in (VersionSpan(0, cut, 3), VersionSpan(cut, len(ids), 4)) if s.end > s.start)
    return Progress(tokens=ids, logprobs=logprobs, spans=spans)


@given(journals())
def test_progress_comes_back_as_it_went(progress: Progress) -> None:
    assert bodies.decode_progress(bodies.encode_progress(progress)) == progress


@given(
    journals(), st.sampled_from(FinishReason), st.none() | st.floats(0, 1), st.booleans(), st.none() | st.floats(0, 1e6)
)
def test_a_sample_comes_back_as_it_went(
    journal: Progress, finish: FinishReason, reward: float | None, masked: bool, seconds: float | None
) -> None:
    mask = tuple(i % 2 for i in range(len(journal.tokens))) if masked else None
    sample = Sample(
        unit_id="g.0/1",
        tokens=journal.tokens,
        logprobs=journal.logprobs,
        spans=journal.spans,
        finish_reason=finish,
        mask=mask,
        reward=reward,
        generation_s=seconds,
    )
    assert bodies.decode_sample("g.0/1", bodies.encode_sample(sample)) == sample


@given(tokens, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_a_prompt_comes_back_as_it_went(prompt: tuple[int, ...], payload: dict[str, str]) -> None:
    assert bodies.decode_prompt(bodies.encode_prompt(prompt, payload)) == (prompt, payload)


@given(journals())
def test_bodies_are_safetensors(journal: Progress) -> None:
    tensors = dict(deserialize(bodies.encode_progress(journal)))  # type: ignore[no-untyped-call]

    assert tensors["tokens"]["dtype"] == "I32"
    assert tensors["tokens"]["shape"] == [len(journal.tokens)]
    assert bytes(tensors["logprobs"]["data"]) == struct.pack(f"<{len(journal.logprobs)}f", *journal.logprobs)
    assert tensors["spans"]["shape"] == [len(journal.spans), 3]


def test_a_small_body_stays_in_its_record() -> None:
    assert bodies.unpack(None, bodies.pack(None, b"small")) == b"small"


def test_a_large_body_goes_to_the_object_store(tmp_path: Path) -> None:
    store = bodies.FolderStore(tmp_path / "objects")
    body = b"x" * (bodies.INLINE_BYTES + 1)
    record = bodies.pack(store, body)
    assert len(record) < 100
    assert bodies.unpack(store, record) == body
    key = bodies.object_key(record)
    assert key is not None
    store.delete(key)
    with pytest.raises(KeyError):
        bodies.unpack(store, record)


def test_a_large_body_without_an_object_store_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an object store"):
        bodies.pack(None, b"x" * (bodies.INLINE_BYTES + 1))


@pytest.mark.parametrize("rubbish", [b"", b"\x00" * 7, struct.pack("<Q", 2**40) + b"{}", b"not a body at all"])
def test_rubbish_is_no_body(rubbish: bytes) -> None:
    with pytest.raises(ValueError, match="safetensors"):
        bodies.decode_progress(rubbish)
