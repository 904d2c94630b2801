"""Whoever solves the problem that is written finds the bound that is told."""

import json

import pytest

from scaler.simulate.optimum import Problem, problem_of, solve, without_refunds
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.ratio import least_ratio
from tests.builders.optimum import a_random_world
from tests.builders.problem_file import least_usd_per_1k_samples
from tests.builders.scenarios import a_capacity, a_scenario


@pytest.mark.parametrize("seed", range(10))
def test_a_solver_that_knows_only_the_file_finds_the_same_bound(seed: int) -> None:
    scenario = a_random_world(seed)
    document = json.loads(json.dumps(problem_of(scenario).to_json(), allow_nan=False))
    assert least_usd_per_1k_samples(document) == pytest.approx(solve(scenario).cost_usd_per_1k_samples, rel=1e-5)


@pytest.mark.parametrize("seed", range(20, 23))
def test_the_same_holds_of_cost_before_refunds(seed: int) -> None:
    scenario = a_random_world(seed)
    document = json.loads(json.dumps(without_refunds(problem_of(scenario)).to_json(), allow_nan=False))
    bound = solve(scenario).before_refunds_usd_per_1k_samples
    assert least_usd_per_1k_samples(document) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("seed", [6, 8, 9, 10, 24, 39])
def test_the_same_holds_in_the_mean(seed: int) -> None:
    scenario = a_random_world(seed)
    problem = problem_of(scenario, in_the_mean=True)
    document = json.loads(json.dumps(problem.to_json(), allow_nan=False))
    program, layout = build(problem)
    proven = least_ratio(program, 10.0 * layout.unit_samples).proven / layout.unit_samples * 1000
    assert least_usd_per_1k_samples(document) == pytest.approx(proven, rel=1e-5)
    assert solve(scenario, in_the_mean=True).cost_usd_per_1k_samples >= proven * (1 - 1e-4)


def test_a_problem_comes_back_from_its_file() -> None:
    problem = problem_of(a_scenario(a_capacity("a", (0, 8), (2, 3), refund_s=3600), rails={"max_replicas": 5}))
    assert Problem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
    drawn = problem_of(a_random_world(1), in_the_mean=True)
    assert Problem.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn


def test_another_format_is_refused() -> None:
    document = problem_of(a_scenario(hours=1)).to_json() | {"format": "headrace-optimum/0"}
    with pytest.raises(ValueError, match="headrace-optimum/1"):
        Problem.from_json(document)
