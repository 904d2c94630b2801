"""What launches give in the mean, against draws and arithmetic."""

import math

import numpy as np
import pytest

from scaler.simulate.delays import Delay, draw
from scaler.simulate.optimum.launches import Launches
from scaler.simulate.scenario import LaunchModel

USUAL = LaunchModel(
    answer=Delay(),
    boot=Delay(least_s=100.0, median_s=90.0, sigma=0.8, most_s=720.0),
    load=Delay(least_s=60.0, median_s=90.0, sigma=0.6, most_s=360.0),
)
CONSTANT = LaunchModel(answer=Delay(), boot=Delay(least_s=180.0), load=Delay(least_s=60.0, median_s=50.0))
TIMES_S = np.array([USUAL.boot.at(draw(7, "boot", i)) + USUAL.load.at(draw(7, "load", i)) for i in range(20_000)])
EDGES_S = np.array([0.0, 90.0, 160.0, 260.0, 310.0, 400.0, 500.0, 590.0])


def test_no_more_are_ready_by_any_age_than_it_says_and_hardly_fewer() -> None:
    ready_by = Launches(USUAL).ready_by
    drawn = np.array([(age_s >= TIMES_S).mean() for age_s in range(1200)])
    assert (ready_by[:1200] > drawn - 0.015).all()
    assert (ready_by[:1200] < drawn + 0.025).all()


def test_a_launch_that_always_takes_as_long_is_ready_then() -> None:
    launches = Launches(CONSTANT)
    assert launches.blind_s == 180.0
    assert (launches.ready_by[287], launches.ready_by[290]) == (0.0, 1.0)
    assert launches.least_unready_s == pytest.approx(290, abs=3)


def test_who_registers_at_once_is_ready_all_the_same() -> None:
    launches = Launches(LaunchModel(answer=Delay(), boot=Delay(), load=Delay(least_s=20.0, median_s=30.0)))
    assert (launches.blind_s, launches.ready_by[48], launches.ready_by[50], launches.ready_by[3600]) == (
        0.0,
        0.0,
        1.0,
        1.0,
    )
    assert launches.least_unready_s == pytest.approx(50, abs=2)


def test_giving_up_saves_little_where_launches_do_not_linger() -> None:
    least_s = Launches(USUAL).least_unready_s
    assert TIMES_S.mean() - 4 < least_s <= TIMES_S.mean()


def test_giving_up_saves_what_lingers() -> None:
    lingering = LaunchModel(answer=Delay(), boot=Delay(least_s=10.0, median_s=10.0, sigma=3.0), load=Delay())
    assert Launches(lingering).least_unready_s < 60 < 10 + 10 * math.exp(4.5)


def test_launches_that_fail_are_paid_for_by_the_others() -> None:
    failing = LaunchModel(answer=Delay(), boot=Delay(least_s=180.0), load=Delay(least_s=60.0), failure_ratio=0.5)
    # Given up at 180 s, half of them spend 180 s for nothing.
    assert Launches(failing).least_unready_s == pytest.approx(2 * 180 + 60, abs=4)
    assert Launches(failing).ready_by[1000] == 0.5


@pytest.mark.parametrize(("earlier", "step"), [(-1, 3), (0, 4), (1, 5), (2, 6), (4, 5)])
def test_a_grant_is_ready_in_a_step_no_more_than_the_edges_around_it_say(earlier: int, step: int) -> None:
    weights = Launches(USUAL).most_ready(EDGES_S, earlier, step)
    shares = (np.arange(200) + 0.5) / 200
    times_s = EDGES_S[step] + shares * (EDGES_S[step + 1] - EDGES_S[step])
    after_s = EDGES_S[earlier] + shares * (EDGES_S[earlier + 1] - EDGES_S[earlier]) if earlier >= 0 else 0 * shares
    for granted_s in np.linspace(0.0, EDGES_S[step + 1], 97):
        counts = (granted_s >= after_s) & (granted_s <= times_s)
        ready = np.mean(
            [
                (age_s >= TIMES_S[:2000]).mean() if now else 0.0
                for age_s, now in zip(times_s - granted_s, counts, strict=True)
            ]
        )
        said = np.interp(granted_s, EDGES_S, [weights.get(edge, 0.0) for edge in range(len(EDGES_S))])
        assert ready <= said + 0.03
