"""The task is learnt from nothing, though samples are stale and joined."""

from tests.builders.learning import curve


def test_the_reward_rises_clearly_within_25_updates() -> None:
    rewards = curve("repeat", 0, 25, staleness=2, joined_ratio=0.05)
    assert sum(rewards[:5]) / 5 < 0.12
    assert sum(rewards[-5:]) / 5 > 0.24
