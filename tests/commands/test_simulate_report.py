"""`headrace simulate --report`: a page of a real run."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.commands.simulate_report import shown_optimum
from scaler.commands.worlds import WorldOptions, world_of
from scaler.simulate.world import simulate as simulate_run


def simulate(*more: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", "--scenario", "small", "--policy", "rate_match", "--json", *more])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], str]:
    """The figures of a run, and its page."""
    path = tmp_path_factory.mktemp("report") / "run.html"
    code, out, _ = simulate("--report", str(path))
    assert code == 0
    return json.loads(out), path.read_text(encoding="utf-8")


def test_the_page_says_what_the_command_says(written: tuple[dict[str, object], str]) -> None:
    figures, text = written
    assert "<h1>rate_match in small, 12 hours</h1>" in text
    assert f"<td>{figures['interruptions']}</td>" in text
    assert f"<td>{figures['samples_trained']:,}<small>" in text


def test_the_optimum_stands_beside_the_run(written: tuple[dict[str, object], str]) -> None:
    assert "above the clairvoyant bound" in written[1]
    assert "<h2>The optimum over time</h2>" in written[1]


def test_the_page_has_all_pictures_of_a_run(written: tuple[dict[str, object], str]) -> None:
    for head in (
        "Fleet by offering",
        "Ready replicas",
        "Buffer depth",
        "Trainer waiting",
        "Tokens wasted",
        "Where the money",
    ):
        assert f"<figcaption><b>{head}" in written[1]


def test_the_page_shows_the_policy_s_set_points_and_the_warm_start(written: tuple[dict[str, object], str]) -> None:
    assert ">target, 64</text>" in written[1]
    assert ">starts warm with 6</text>" in written[1]


def test_no_number_is_longer_than_a_person_reads(written: tuple[dict[str, object], str]) -> None:
    body = written[1][written[1].index("<body>") :]
    shown = "\n".join(re.findall(r"(?:<title|<text|<figcaption|<td|<p|<li|<b|<span)[^>]*>([^<]*)", body))
    assert re.findall(r"\d+\.\d{6,}|\de[-+]?\d", shown) == []


def test_neither_a_run_nor_the_optimum_holds_more_than_it_is_said_to_be_let() -> None:
    scenario = world_of(WorldOptions(scenario="small", policy="marginal_value"))
    optimum, buffered = shown_optimum(scenario), simulate_run(scenario).timeline.buffered_samples
    assert max(buffered) <= scenario.stock_bound_samples
    assert optimum.timeline is not None
    assert optimum.stock_most_samples is not None
    stock = max(optimum.timeline.buffered_samples)
    assert scenario.stock_bound_samples < stock <= optimum.stock_most_samples * (1 + 1e-9)


def test_a_file_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder is needed")
    code, _, err = simulate("--report", str(tmp_path / "taken" / "run.html"))
    assert code == 2
    assert "cannot be written" in err
    assert "Traceback" not in err
