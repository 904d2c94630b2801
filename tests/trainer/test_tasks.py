"""Tasks: prompts that depend on seed and index alone, rewards worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.supply import PromptSupply
from trainer.tasks import TASKS, Repeat

PAYLOAD = {"digit": "2", "count": "3"}


@pytest.mark.parametrize(
    ("tokens", "reward"),
    [
        pytest.param((2, 2, 2, 0), 1.0, id="right"),
        pytest.param((2, 2, 1, 0), 0.75, id="one wrong"),
        pytest.param((2, 2), 0.5, id="ended by its bound"),
        pytest.param((2, 2, 0), 0.5, id="too short"),
        pytest.param((2, 2, 2, 2, 2, 0), 0.5, id="too long"),
        pytest.param((0,), 0.0, id="ended at once"),
        pytest.param((), 0.0, id="nothing"),
    ],
)
def test_the_reward_of_repeating_is_the_share_of_right_places(tokens: tuple[int, ...], reward: float) -> None:
    assert Repeat().reward(PAYLOAD, tokens) == pytest.approx(reward)


@pytest.mark.parametrize("name", sorted(TASKS))
@given(seed=st.integers(0, 5), index=st.integers(0, 10_000), data=st.data())
def test_prompts_fit_the_model_and_rewards_are_between_0_and_1(
    name: str, seed: int, index: int, data: st.DataObject
) -> None:
    task = TASKS[name]()
    config = task.model()
    prompt = task.prompt(seed, index)
    assert all(0 <= token < config.vocab for token in prompt.tokens)
    assert len(prompt.tokens) + prompt.max_tokens <= config.max_len
    answer = data.draw(st.lists(st.integers(0, config.vocab - 1), max_size=prompt.max_tokens))
    assert 0.0 <= task.reward(prompt.payload, tuple(answer)) <= 1.0


@pytest.mark.parametrize("name", sorted(TASKS))
def test_answers_have_a_tail(name: str) -> None:
    task = TASKS[name]()
    bounds = sorted(task.prompt(0, index).max_tokens for index in range(500))
    assert bounds[250] <= 16
    assert 48 <= bounds[-1] <= 64


def test_a_prompts_units_are_the_same_whenever_they_are_made() -> None:
    supply = PromptSupply(task=Repeat(), seed=5, group_size=4, time_bound_s=60.0)
    assert supply.units(7) == supply.units(7)
    assert [unit.unit_id for unit in supply.units(7)] == [f"g00000007.0/{i}" for i in range(4)]
    assert len({unit.seed for index in range(20) for unit in supply.units(index)}) == 80
    assert len({unit.prompt for unit in supply.units(7)}) == 1


def test_another_seed_asks_other_things() -> None:
    first, second = ([Repeat().prompt(seed, i).tokens for i in range(20)] for seed in (1, 2))
    assert first != second
