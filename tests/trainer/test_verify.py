"""Joined samples: each span under its own version, and what a wrong record looks like."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rollout_worker.engines.base import TokenChunk
from scaler.model.weights import WEIGHTS_FILE
from scaler.model.work import Sample, VersionSpan
from tests.builders.engines import (
    a_request,
    collect,
    load,
    logprobs_of,
    model_mapping,
    opened,
    publish_model,
    tokens_of,
)
from tests.builders.rollouts import generate
from tests.builders.samples import sample, unit
from trainer.moe import MoEConfig, TinyMoE, model_from
from trainer.verify import verify_sample

CONFIG = MoEConfig(vocab=9, dim=16, layers=2, heads=2, hidden=24, max_len=16)
MODELS = {version: TinyMoE(CONFIG, seed=version).to(torch.float64).eval() for version in (1, 2)}


def joined_sample() -> Sample:
    """Three tokens of version 1, continued by version 2."""
    generator = torch.Generator().manual_seed(1)
    while True:
        (first,) = generate(MODELS[1], [unit()], generator, version=1, stop_after=3)
        if len(first.tokens) == 3 and first.tokens[-1] != CONFIG.end_token:
            return generate(MODELS[2], [unit()], generator, version=2, resumed=[first])[0]


def test_a_sample_joined_across_versions_has_the_distribution_it_claims() -> None:
    joined = joined_sample()
    agreement = verify_sample(unit(), joined, MODELS)
    assert agreement.versions == (1, 2)
    assert len(joined.tokens) > 3
    assert agreement.max_error < 1e-9


@pytest.mark.parametrize("swapped", [1, 2])
def test_a_span_that_names_the_wrong_version_is_found(swapped: int) -> None:
    joined = joined_sample()
    spans = (VersionSpan(0, len(joined.tokens), swapped),)
    assert verify_sample(unit(), replace(joined, spans=spans), MODELS).max_error > 1e-3


def test_missing_weights_are_an_error() -> None:
    with pytest.raises(KeyError):
        verify_sample(unit(), joined_sample(), {1: MODELS[1]})


async def test_a_unit_that_two_torch_engines_shared_has_the_distribution_it_claims(tmp_path: Path) -> None:
    """Half of it under version 1, the rest by another engine under version 2, as after an interruption."""
    folders = {step: publish_model(tmp_path, step) for step in (1, 2)}
    config = MoEConfig.from_mapping(model_mapping())
    models = {step: model_from(config, folder / WEIGHTS_FILE, dtype=torch.float64) for step, folder in folders.items()}
    chunks: list[TokenChunk] = []
    for step, at_most in ((1, 10), (2, None)):
        async with opened("torch") as engine:
            await load(engine, folders[step])
            chunks += await collect(engine, a_request(prefix=tokens_of(chunks)), at_most=at_most)
    spans = [VersionSpan(i, i + 1, chunk.version) for i, chunk in enumerate(c for c in chunks if c.tokens)]
    joined = replace(sample(tokens_of(chunks), logprobs=logprobs_of(chunks)), spans=tuple(spans))
    agreement = verify_sample(unit(prompt=a_request().prompt), joined, models)
    assert set(agreement.versions) == {1, 2}
    assert len(joined.tokens) == a_request().max_tokens
    assert agreement.max_error < 1e-9
