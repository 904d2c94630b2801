"""Joined samples: each span under its own version, and what a wrong record looks like."""

from dataclasses import replace

import pytest
import torch

from scaler.model.work import Sample, VersionSpan
from tests.builders.rollouts import generate
from tests.builders.samples import unit
from trainer.moe import MoEConfig, TinyMoE
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
    sample = joined_sample()
    agreement = verify_sample(unit(), sample, MODELS)
    assert agreement.versions == (1, 2)
    assert len(sample.tokens) > 3
    assert agreement.max_error < 1e-9


@pytest.mark.parametrize("swapped", [1, 2])
def test_a_span_that_names_the_wrong_version_is_found(swapped: int) -> None:
    sample = joined_sample()
    spans = (VersionSpan(0, len(sample.tokens), swapped),)
    assert verify_sample(unit(), replace(sample, spans=spans), MODELS).max_error > 1e-3


def test_missing_weights_are_an_error() -> None:
    with pytest.raises(KeyError):
        verify_sample(unit(), joined_sample(), {1: MODELS[1]})
