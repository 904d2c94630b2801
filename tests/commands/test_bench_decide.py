"""The decision bench on tiny settings: every figure is there and is one; wrong input is a line."""

import json

import pytest

from policies.registry import SIZING
from scaler.commands.bench_decide import percentile, run_bench
from scaler.commands.bench_fleets import Question, Situation, questions
from scaler.decide import decide
from scaler.decide.invariants import check_plan
from scaler.model.plan import Command, DrainReplica, LaunchReplica, ReasonCode, TerminateReplica

TIMES = (
    "p50_ms",
    "p99_ms",
    "cpu_p50_ms",
    "cpu_p99_ms",
    "floor_p50_ms",
    "floor_p99_ms",
    "floor_cpu_p50_ms",
    "ratio_p50",
)


def test_a_bench_prints_every_figure_of_every_policy_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench("all", "3x2,8x5", 0.0, as_json=True) == 0

    cases = json.loads(capsys.readouterr().out)["cases"]
    assert {(case["policy"], case["replicas"], case["offerings"]) for case in cases} == {
        (policy, *size) for policy in SIZING for size in ((3, 2), (8, 5))
    }
    assert all(case[name] > 0 for case in cases for name in TIMES)
    assert all(case["calls"] >= 100 and case["p50_ms"] <= case["p99_ms"] for case in cases)


def test_a_bench_for_people_is_a_line_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench("rate_match", "3x2", 0.0, as_json=False) == 0

    head, case = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "policy"
    assert case.split()[:3] == ["rate_match", "3", "2"]


@pytest.mark.parametrize(
    ("policy", "sizes", "says"),
    [
        ("guess", "3x2", "no policy 'guess': all, "),
        ("static", "3", "'3' is no size"),
        ("static", "3x0", "'3x0' is no size"),
        ("static", "3x\u0662", "'3x\u0662' is no size"),
        ("static", "-3x2", "'-3x2' is no size"),
        ("static", "", "'' is no size"),
    ],
)
def test_wrong_input_is_one_line(policy: str, sizes: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench(policy, sizes, 0.0, as_json=True) == 2

    assert says in capsys.readouterr().err


@pytest.mark.parametrize("policy", SIZING)
def test_the_fleets_are_ones_that_the_engine_may_decide_about(policy: str) -> None:
    for question in questions(policy, 40, 15):
        plan = decide(question.snapshot, question.spec, question.memory)
        assert check_plan(question.snapshot, question.spec, plan) == []


def test_the_situations_make_the_engine_launch_lower_and_drain() -> None:
    asked = dict(zip(Situation, questions("rate_match", 40, 15, seeds=1), strict=True))

    assert any(isinstance(command, LaunchReplica) for command in _commands(asked[Situation.STARVED]))
    assert any(isinstance(command, DrainReplica | TerminateReplica) for command in _commands(asked[Situation.FULL]))
    assert ReasonCode.NOTICE in {command.reason.code for command in _commands(asked[Situation.STRUCK])}


def _commands(question: Question) -> tuple[Command, ...]:
    return decide(question.snapshot, question.spec, question.memory).commands


@pytest.mark.parametrize(("ratio", "value"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)])
def test_a_percentile_is_the_nearest_rank(ratio: float, value: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], ratio) == value
