"""A crew learns what one process learns: the same steps, states that fit either, whatever the number of ranks."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.builders.crew import at_every_rank
from trainer.batching import TokenBatch
from trainer.expert_parallel.all_to_all import AllToAll
from trainer.expert_parallel.channel import Channel, Order
from trainer.expert_parallel.crew import Beginning, CrewLearner, Shard, follow
from trainer.expert_parallel.experts import experts_per_rank
from trainer.expert_parallel.mesh import Mesh
from trainer.learner import LocalLearner
from trainer.moe import MoEConfig
from trainer.update import UpdateSettings, draw_minibatches

CONFIG = MoEConfig(vocab=11, dim=16, layers=2, heads=2, experts=4, top_k=2, hidden=24, max_len=20)
SETTINGS = UpdateSettings(minibatches=3, epochs=2)
SEED = 3
State = dict[str, Tensor]

pytestmark = pytest.mark.slow


def a_batch(rows: int = 7, width: int = 9) -> TokenBatch:
    """Rows of several lengths; a number that leaves ranks with fewer rows of a minibatch than others, and with none."""
    random = torch.Generator().manual_seed(5)
    tokens = torch.randint(CONFIG.vocab, (rows, width + 1), generator=random)
    mask = (torch.arange(width) < 2 + torch.arange(rows)[:, None] % width).float()
    return TokenBatch(
        tokens=tokens[:, :-1].contiguous(),
        positions=torch.arange(width).expand(rows, -1).contiguous(),
        targets=tokens[:, 1:].contiguous(),
        behaviour=torch.randn(rows, width, generator=random) * 0.1 - 2.4,
        mask=mask,
        advantages=torch.randn(rows, 1, generator=random),
    )


def minibatches() -> list[Tensor]:
    return draw_minibatches(len(a_batch()), SETTINGS, torch.Generator().manual_seed(8))


def alone(begin_with: tuple[State, State] | None = None) -> tuple[State, State, list[float]]:
    learner = LocalLearner(CONFIG, SEED, SETTINGS)
    if begin_with is not None:
        learner.restore(*begin_with)
    parts = learner.update(a_batch(), minibatches())
    return (
        dict(learner.model_state()),
        dict(learner.optimiser_state()),
        [figure for p in parts for figure in figures(p)],
    )


def figures(parts: Any) -> list[float]:
    return [float(parts.loss.detach()), parts.clipped_ratio, parts.capped_ratio, parts.weight_mean, parts.entropy]


def in_crew(begin_with: tuple[State, State] | None, mesh: Mesh) -> tuple[State, State, list[float]] | None:
    """The lead's states after an update; None at the others."""
    channel = Channel(mesh)
    dispatcher = AllToAll(mesh, experts_per_rank(CONFIG, mesh))
    if mesh.rank:
        follow(channel, lambda b: Shard(b.config, b.seed, b.settings, mesh, dispatcher))
        return None
    beginning = Beginning(config=CONFIG, seed=SEED, settings=SETTINGS)
    channel.tell(Order.BEGIN, beginning.pack())
    learner = CrewLearner(Shard(CONFIG, SEED, SETTINGS, mesh, dispatcher), channel, {})
    if begin_with is not None:
        learner.restore(*begin_with)
    parts = learner.update(a_batch(), minibatches())
    answer = dict(learner.model_state()), dict(learner.optimiser_state()), [f for p in parts for f in figures(p)]
    channel.tell(Order.END)
    return answer


@pytest.mark.parametrize("world", [1, 2, 4])
def test_an_update_by_several_ranks_is_that_of_one_process(world: int) -> None:
    assert sorted({len(rows) for rows in minibatches()}) == [1, 3]
    model, optimiser, parts = at_every_rank(world, partial(in_crew, None))[0]

    expected = alone()
    torch.testing.assert_close(model, expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(optimiser, expected[1], rtol=1e-3, atol=1e-6)
    assert parts == pytest.approx(expected[2], rel=1e-4, abs=1e-6)


def test_states_go_from_one_process_to_a_crew_and_on_to_one_process() -> None:
    first, second = alone(), None
    second = at_every_rank(2, partial(in_crew, first[:2]))[0]
    third = alone(second[:2])

    twice = alone(first[:2])
    torch.testing.assert_close(second[0], twice[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(third[0], alone(twice[:2])[0], rtol=1e-4, atol=1e-5)


def dispatched(mesh: Mesh) -> tuple[Tensor, list[int]]:
    """Rank 1 has no token at all; every token of rank 0 goes to its two experts and comes back."""
    tokens = 5 if mesh.rank == 0 else 0
    x = torch.arange(tokens * 3, dtype=torch.float32).view(tokens, 3).requires_grad_()
    chosen = torch.tensor([[0, 3], [2, 3], [0, 1], [3, 0], [1, 2]])[:tokens]
    dispatcher = AllToAll(mesh, 2)
    received = dispatcher.dispatch(x, chosen, torch.ones(tokens, 2))
    back = dispatcher.combine(received.x, received.handle)
    torch.autograd.backward(back.sum())
    if mesh.rank == 0 and x.grad is not None:
        assert torch.equal(x.grad, torch.tensor([[2.0], [1.0], [1.0], [2.0], [2.0]]).expand(5, 3))
        assert torch.equal(back, x * torch.tensor([[2.0], [1.0], [1.0], [2.0], [2.0]]))
    return received.x.detach(), received.expert.flatten().tolist()


def test_a_token_goes_once_to_each_rank_that_has_an_expert_of_it_and_a_rank_without_tokens_takes_part() -> None:
    (first, its), (second, theirs) = at_every_rank(2, dispatched)

    assert first[:, 0].tolist() == [0.0, 6.0, 9.0, 12.0]
    assert its == [0, -1, 0, 1, -1, 0, 1, -1]
    assert second[:, 0].tolist() == [0.0, 3.0, 9.0, 12.0]
    assert theirs == [-1, 1, 0, 1, 1, -1, -1, 0]
