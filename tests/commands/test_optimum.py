"""`headrace optimum` as a person or a script meets it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.simulate.optimum import Problem
from tests.builders.free_trainer import a_free_trainer
from tests.builders.problem_file import least_usd_per_1k_samples


def headrace(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["optimum", *words])
    return result.exit_code, result.stdout, result.stderr


def test_it_prints_the_bound_as_json_and_nothing_else() -> None:
    code, out, _ = headrace("--scenario", "small", "--hours", "2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["bound"] == "lower"
    assert found["status"] == "optimal"
    assert found["cost_usd_per_1k_samples"] > 0
    assert found["interruptions"] is None


def test_it_prints_a_table_for_people() -> None:
    code, out, _ = headrace("--scenario", "small", "--hours", "2")
    assert code == 0
    assert "no policy costs less per 1,000 samples than" in out


def test_the_problem_that_it_writes_has_the_answer_that_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    _, out, _ = headrace("--scenario", "small", "--hours", "1", "--seed", "3", "--problem", str(file), "--json")
    document = json.loads(file.read_text())
    assert Problem.from_json(document).hours == 1
    found = json.loads(out)["cost_usd_per_1k_samples"]
    assert abs(least_usd_per_1k_samples(document) / found - 1) < 1e-5


def test_foresight_gives_what_was_achieved_and_no_bound() -> None:
    _, out, _ = headrace("--scenario", "small", "--hours", "2", "--foresight", "0m,all", "--json")
    found = json.loads(out)
    assert [(rung["foresight_s"], rung["bound"]) for rung in found["foresight"]] == [
        (0.0, "none, achieved"),
        (None, "none, achieved"),
    ]
    assert all(rung["cost_usd_per_1k_samples"] >= found["cost_usd_per_1k_samples"] for rung in found["foresight"])
    assert all(rung["interruptions"] is not None for rung in found["foresight"])


def test_where_a_sample_may_cost_nothing_the_bound_is_0_and_no_multiple_of_it_is_told(tmp_path: Path) -> None:
    code, out, _ = headrace("--scenario", str(a_free_trainer(tmp_path)), "--foresight", "0m")
    assert code == 0
    assert "0.00 USD: trainer 0" in out
    assert "of the bound" not in out


def test_foresight_is_a_row_for_people() -> None:
    _, out, _ = headrace("--scenario", "small", "--hours", "1", "--foresight", "30m")
    assert "a planner that foresees 30m reaches" in out


def test_it_is_said_that_more_foresight_need_not_cost_less() -> None:
    words = ("--scenario", "small", "--hours", "1")
    assert "more foresight need not cost less" in headrace(*words, "--foresight", "0m")[1]
    assert "foresight" not in headrace(*words)[1]


def test_a_foresight_that_is_asked_for_twice_is_told_once() -> None:
    _, out, _ = headrace("--scenario", "small", "--hours", "1", "--foresight", "30m, all,1800s,all", "--json")
    assert [rung["foresight_s"] for rung in json.loads(out)["foresight"]] == [1800.0, None]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("soon", "'soon' is no duration"),
        (",,", "'' is no duration"),
        ("0m,", "'' is no duration"),
        (" ", "'' is no duration"),
    ],
)
def test_a_foresight_that_is_no_duration_is_a_line(words: str, wrong: str) -> None:
    code, out, err = headrace("--scenario", "small", "--hours", "1", "--foresight", words)
    assert (code, out) == (2, "")
    assert f"--foresight {words}: {wrong}" in err


def test_a_file_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    code, out, err = headrace("--scenario", "small", "--hours", "1", "--problem", str(tmp_path))
    assert (code, out) == (2, "")
    assert "it cannot be written" in err


def test_a_scenario_that_is_not_there_is_a_line() -> None:
    code, _, err = headrace("--scenario", "smal")
    assert code == 2
    assert "smal" in err
    assert "Traceback" not in err


def test_in_the_mean_it_is_higher_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    words = ("--scenario", "small", "--hours", "2", "--seed", "3")
    always, mean = (json.loads(headrace(*words, *more, "--json")[1]) for more in ((), ("--in-the-mean",)))
    assert mean["bound"] == "lower in the mean"
    assert mean["cost_usd_per_1k_samples"] > always["cost_usd_per_1k_samples"]
    assert set(mean) == set(always)
    _, out, _ = headrace(*words, "--in-the-mean", "--problem", str(file))
    assert "no policy, in the mean over draws, costs less per 1,000 samples than" in out
    assert json.loads(file.read_text())["draws"]["blind_s"] > 0


def test_where_nothing_can_be_trained_the_table_says_so_in_words() -> None:
    code, out, _ = headrace("--scenario", "small", "--hours", "0.001", "--foresight", "0m")
    assert code == 0
    assert "infinite, as no sample is credited; it waits" in out
    assert "1 step, 1 program " in out
    assert "whatever the seed" in out
    assert not re.search(r"\b(inf|nan)\b|nan%", out)
