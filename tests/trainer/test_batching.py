"""Samples as tensors: what stands where."""

import torch

from scaler.model.work import Sample
from tests.builders.samples import group, sample, unit
from trainer.batching import collate, collate_groups


def test_each_place_predicts_the_next_token_and_only_generated_ones_count() -> None:
    batch = collate(
        [(unit(prompt=(1, 2)), sample([5, 6, 0], logprobs=[-0.1, -0.2, -0.3])), (unit(prompt=(3, 4)), sample([7]))],
        torch.tensor([1.0, -1.0]),
    )
    assert batch.tokens.tolist() == [[1, 2, 5, 6], [3, 4, 0, 0]]
    assert batch.targets.tolist() == [[2, 5, 6, 0], [4, 7, 0, 0]]
    assert batch.mask.tolist() == [[0, 1, 1, 1], [0, 1, 0, 0]]
    torch.testing.assert_close(batch.behaviour, torch.tensor([[0, -0.1, -0.2, -0.3], [0, -1.0, 0, 0]]))
    assert batch.advantages.tolist() == [[1.0], [-1.0]]


def test_a_samples_own_mask_is_kept() -> None:
    made = sample([5, 6, 0])
    masked = Sample(**{name: getattr(made, name) for name in made.__slots__} | {"mask": (1, 0, 1)})
    assert collate([(unit(), masked)], torch.zeros(1)).mask.tolist() == [[0, 1, 0, 1]]


def test_a_sample_without_tokens_counts_nowhere() -> None:
    assert collate([(unit(prompt=(1, 2, 3)), sample([]))], torch.zeros(1)).mask.sum() == 0


def test_advantages_do_not_mix_groups() -> None:
    groups = [group("a", [sample([1]), sample([2])]), group("b", [sample([3]), sample([4])])]
    batch = collate_groups(groups, [(0.0, 1.0), (9.0, 3.0)])
    torch.testing.assert_close(batch.advantages, torch.tensor([[-1.0], [1.0], [1.0], [-1.0]]), atol=1e-4, rtol=0)


def test_chosen_rows_are_whole_rows() -> None:
    batch = collate([(unit(), sample([i, 0])) for i in range(3)], torch.arange(3.0))
    part = batch.rows(torch.tensor([2, 0]))
    assert len(part) == 2
    assert part.targets[:, 1].tolist() == [2, 0]
    assert part.advantages.tolist() == [[2.0], [0.0]]
