"""The model: what a cache, a padded batch and another dtype must not change."""

import pytest
import torch

from trainer.moe import KVCache, MoEConfig, TinyMoE, dump_weights, load_weights, model_from

CONFIG = MoEConfig(vocab=11, dim=16, layers=2, heads=2, experts=4, top_k=2, hidden=24, max_len=20)


@pytest.fixture
def model() -> TinyMoE:
    return TinyMoE(CONFIG, seed=3).to(torch.float64).eval()


def rows(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(CONFIG.vocab, (length,), generator=generator) for length in lengths]


def whole(model: TinyMoE, row: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(row[None], torch.arange(len(row))[None])
    return logits[0]


def test_later_tokens_do_not_change_earlier_logits(model: TinyMoE) -> None:
    (row,) = rows(9)
    torch.testing.assert_close(whole(model, row)[:5], whole(model, row[:5]))


def test_right_padding_changes_nothing(model: TinyMoE) -> None:
    first, second = rows(9, 4)
    padded = torch.stack([first, torch.cat([second, torch.zeros(5, dtype=torch.int64)])])
    with torch.no_grad():
        together = model(padded, torch.arange(9).expand(2, -1))
    torch.testing.assert_close(together[0], whole(model, first))
    torch.testing.assert_close(together[1, :4], whole(model, second))


def test_rows_join_and_leave_a_cache_at_different_lengths(model: TinyMoE) -> None:
    sequences = rows(12, 7, 10)
    cache = KVCache.allocate(CONFIG, 2, dtype=torch.float64)
    cache.keys.fill_(50.0)  # what a former tenant left behind
    cache.values.fill_(-50.0)
    slots = [0, 1, 0]
    prefilled = [3, 5, 6]

    def prefill(i: int) -> None:
        with torch.no_grad():
            model(
                sequences[i][None, : prefilled[i]], torch.arange(prefilled[i])[None], cache.at(torch.tensor([slots[i]]))
            )

    def step(active: list[int], at: list[int]) -> None:
        tokens = torch.stack([sequences[i][p] for i, p in zip(active, at, strict=True)])[:, None]
        with torch.no_grad():
            logits = model(tokens, torch.tensor(at)[:, None], cache.at(torch.tensor([slots[i] for i in active])))
        for row, (i, p) in enumerate(zip(active, at, strict=True)):
            torch.testing.assert_close(logits[row, 0], whole(model, sequences[i])[p])

    prefill(0)
    prefill(1)
    step([0, 1], [3, 5])
    step([1, 0], [6, 4])
    prefill(2)  # takes the slot of row 0
    step([2], [6])


def test_a_prefill_padded_on_the_right_is_overwritten_before_it_is_seen(model: TinyMoE) -> None:
    long, short = rows(8, 6)
    cache = KVCache.allocate(CONFIG, 2, dtype=torch.float64)
    padded = torch.stack([long, torch.cat([short[:3], torch.full((5,), 9)])])
    with torch.no_grad():
        model(padded, torch.arange(8).expand(2, -1), cache)
        logits = model(short[None, 3:4], torch.tensor([[3]]), cache.at(torch.tensor([1])))
    torch.testing.assert_close(logits[0, 0], whole(model, short)[3])


def test_weights_travel_as_the_same_bytes(model: TinyMoE) -> None:
    data = dump_weights(model)
    assert dump_weights(model_from(CONFIG, data)) == data
    assert dump_weights(TinyMoE(CONFIG, seed=3)) == data
    assert dump_weights(TinyMoE(CONFIG, seed=4)) != data


def test_weights_of_another_shape_are_refused(model: TinyMoE) -> None:
    other = TinyMoE(MoEConfig(vocab=12, dim=16, layers=2, heads=2, hidden=24, max_len=20))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_weights(model, dump_weights(other))


def test_the_architecture_travels_in_a_plain_mapping() -> None:
    assert MoEConfig.from_mapping(CONFIG.to_mapping()) == CONFIG
    with pytest.raises(ValueError, match="heads"):
        MoEConfig.from_mapping({"vocab": 3})


def test_every_expert_and_the_router_learn() -> None:
    model = TinyMoE(CONFIG, seed=1)
    tokens = torch.stack(rows(16, 16, 16))
    model(tokens, torch.arange(16).expand(3, -1)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
