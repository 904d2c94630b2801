"""`headrace simulate` and `headrace scenarios` as a person runs them; wrong input is a line and exit code 2."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.simulate.loading import shipped_scenarios
from scaler.traces.offering_events import dump
from tests.builders.traces import a_trace

SMALL = ("simulate", "--scenario", "small", "--policy", "rate_match")
KEYS = {
    "cost_usd",
    "samples_trained",
    "cost_usd_per_1k_samples",
    "trainer_wait_ratio",
    "interruptions",
    "tokens_generated",
    "tokens_salvaged",
    "tokens_wasted",
    "replicas_mean",
    "wall_s",
}


def ran(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def day(folder: Path, **series: dict[float, int]) -> str:
    file = folder / "day.csv"
    file.write_text(dump(a_trace(86400.0, 1.0, **series)))
    return str(file)


def test_the_command_prints_every_figure_and_nothing_else() -> None:
    command = [sys.executable, "-m", "scaler.cli", *SMALL, "--hours", "12", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    assert figures.keys() >= KEYS
    assert figures["hours"] == 12
    assert done.stderr == ""


def test_people_get_a_table_that_says_where_the_capacity_came_from() -> None:
    code, out, _ = ran(*SMALL)
    assert code == 0
    assert "cost per 1,000 samples" in out
    assert "capacity: seed 0, here-a, here-b, from hour 0" in out


def test_the_table_says_what_is_wasted_and_beside_it_what_is_too_stale() -> None:
    out = ran(*SMALL)[1]
    assert re.search(r"tokens wasted, never in a finished sample\W+[\d,]+, \d+\.\d%", out)
    assert re.search(r"tokens of samples dropped, too stale\W+0, 0\.0%", out)


def test_launches_are_told_as_asked_for_and_refused(tmp_path: Path) -> None:
    words = (*SMALL, "--trace", day(tmp_path, a={0.0: 0}), "--hours", "2")
    found = json.loads(ran(*words, "--json")[1])
    assert found["launches"] > found["refusals"] > 0
    told = f"{found['launches']:,}, {found['refusals']:,}"
    page = tmp_path / "page.html"
    assert re.search(rf"launches asked for, of them refused\W+{told}\W", ran(*words, "--report", str(page))[1])
    assert f"<td>launches asked for</td><td>\u2013</td><td>{found['launches']:,}</td>" in page.read_text()
    assert f"<td>of them refused</td><td>\u2013</td><td>{found['refusals']:,}</td>" in page.read_text()


def test_where_nothing_is_held_or_trained_the_table_says_so_in_words(tmp_path: Path) -> None:
    policy = tmp_path / "idle.yaml"
    policy.write_text("policy: {type: static, replicas: 0}\n")
    words = ("--trace", day(tmp_path, a={0.0: 0}), "--hours", "2")
    code, out, _ = ran("simulate", "--scenario", "small", "--policy", str(policy), *words)
    assert code == 0
    assert "│ infinite, as no sample is credited │" in out
    assert re.search(r"120\.00 USD: trainer 120 +│", out)
    assert "64 in 1 policy update " in out


@pytest.mark.parametrize(("hours", "said"), [("12", "12 hours"), ("0.5", "30 minutes"), ("0.000277778", "1 second")])
def test_the_length_of_a_run_is_told_in_the_unit_that_fits(hours: str, said: str) -> None:
    assert f"rate_match in small, {said}, seed 0" in ran(*SMALL, "--hours", hours)[1]


def test_where_many_samples_are_too_stale_a_line_says_what_to_do_and_the_page_too(tmp_path: Path) -> None:
    small, stale, page = shipped_scenarios()["small"], tmp_path / "stale.yaml", tmp_path / "page.html"
    stale.write_text(
        small.read_text()
        .replace("maxStaleness: 8", "maxStaleness: 3")
        .replace("concurrentUnits: 8", "concurrentUnits: 20")
    )
    words = ("simulate", "--scenario", str(stale), "--policy", "buffer_band", "--json")
    code, out, err = ran(*words)
    figures = json.loads(out)
    share = figures["samples_dropped"] / (figures["samples_dropped"] + figures["samples_trained"])
    assert code == 0
    assert share > 0.03
    assert f"{100 * share:.1f} % of the samples were too stale to train on, so that the n* of 6" in err
    assert "raise job.maxStaleness" in err
    assert err.count("\n") == 1
    ran(*words, "--report", str(page))
    assert err.strip() in page.read_text().replace("\u00a0", " ")


def test_the_same_seed_gives_the_same_figures_and_another_does_not() -> None:
    def figures(seed: int) -> dict[str, object]:
        found: dict[str, object] = json.loads(ran(*SMALL, "--seed", str(seed), "--json")[1])
        del found["wall_s"], found["seed"]
        return found

    assert figures(1) == figures(1) != figures(2)


def test_a_trace_is_played_from_an_hour_on_with_the_zones_asked_for(tmp_path: Path) -> None:
    file = day(tmp_path, a={0.0: 0, 43200.0: 8}, b={0.0: 0})
    code, out, err = ran(*SMALL, "--trace", f"{file}#a", "--start", "11", "--hours", "12", "--json")
    assert (code, err) == (0, "")
    figures = json.loads(out)
    assert figures["capacity"] == {"trace": file, "format": "offering events", "zones": "a", "start_h": "11"}
    assert figures["cost_by_capacity_usd"]["spot"] > 0


def test_a_run_that_the_trace_cuts_short_says_so(tmp_path: Path) -> None:
    code, out, err = ran(*SMALL, "--trace", day(tmp_path, a={0.0: 8}), "--start", "20", "--json")
    assert code == 0
    assert "the run is 4.00 h, all that the trace has from there on" in err
    assert json.loads(out)["hours"] == 4


def test_fewer_hours_than_a_scenario_may_have_are_told() -> None:
    says = "--hours 11.5: that says more of the first and last hours than of a policy; 12 are the least to judge by\n"
    assert ran(*SMALL, "--hours", "11.5")[2] == says
    assert ran("optimum", "--scenario", "small", "--hours", "11.5")[2] == says
    assert ran(*SMALL, "--hours", "12")[2] == ""


def test_a_trace_whose_times_are_hours_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text("time_s,offering,available\n0,a,8\n72,a,4\n")
    code, out, err = ran(*SMALL, "--trace", str(file), "--json")
    assert (code, out) == (2, "")
    assert "and a run 12 h; times in a trace are seconds: multiply hours by 3600" in err


def test_where_nothing_is_trained_the_cost_per_sample_is_null(tmp_path: Path) -> None:
    policy = tmp_path / "none.yaml"
    policy.write_text("policy: {type: static, replicas: 0}\n")
    nothing = day(tmp_path, a={0.0: 0})
    _, out, _ = ran(
        "simulate", "--scenario", "small", "--policy", str(policy), "--trace", nothing, "--start", "12", "--json"
    )
    assert json.loads(out)["cost_usd_per_1k_samples"] is None


COUNTS = "time_utc,a,b\n2025-10-04T00:00:00Z,4,4\n2025-10-04T00:10:00Z,4,4\n"
FAULTY_TRACES = {
    "unsorted rows": (COUNTS + "2025-10-04T00:05:00Z,4,4\n", ":4: its time is not after that of line 3"),
    "a negative count": (COUNTS + "2025-10-04T00:20:00Z,4,-1\n", ":4: -1 for b is negative"),
    "no header": ("4,4\n4,4\n", ":1: no known format starts with '4,4'"),
    "a wrong header": ("time_s,zone,count\n0,a,1\n", ":1: the header is 'time_s,zone,count'; it must be"),
    "a count of thousands of millions": (
        COUNTS + "2025-10-04T00:20:00Z,4,999999999999\n",
        ":4: '999999999999' for b is too large; 9 digits at most",
    ),
    "an empty cell": (COUNTS + "2025-10-04T00:20:00Z,4,\n", ":4: no value for b"),
    "nothing": ("", ": it is empty"),
}


@pytest.mark.parametrize("fault", FAULTY_TRACES)
def test_a_faulty_trace_is_a_line(tmp_path: Path, fault: str) -> None:
    content, says = FAULTY_TRACES[fault]
    file = tmp_path / "t.csv"
    file.write_text(content)
    code, out, err = ran(*SMALL, "--trace", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}{says}")
    assert err.count("\n") == 1


def test_windows_line_ends_are_fine_and_a_gap_is_held_and_told(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes((COUNTS + "2025-10-04T00:20:00Z,4,4\n2025-10-04T12:30:00Z,4,4\n").replace("\n", "\r\n").encode())
    code, _, err = ran(*SMALL, "--trace", str(file))
    assert code == 0
    assert f"{file}:5: 43800 s without rows before it; the last value holds" in err


def test_a_gap_is_told_to_whom_it_concerns(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = [f"2025-10-0{4 + hour // 24}T{hour % 24:02}:{tick}0:00Z,4,4\n" for hour in range(29) for tick in range(6)]
    file.write_text(COUNTS.splitlines()[0] + "\n" + "".join(row for i, row in enumerate(rows) if not 150 <= i < 160))
    told = f"{file}:152: 6600 s without rows before it; the last value holds\n"
    assert ran(*SMALL, "--trace", str(file), "--start", "12", "--hours", "12")[2] == ""
    assert ran(*SMALL, "--trace", str(file), "--start", "14", "--hours", "12")[2] == told
    across = (
        "compare",
        "--policies",
        "rate_match",
        "--scenarios",
        "small,case-a",
        "--trace",
        str(file),
        "--hours",
        "12",
    )
    assert ran(*across, "--windows", "1", "--store", str(tmp_path))[2] == ""
    assert ran(*across, "--windows", "2", "--store", str(tmp_path))[2] == told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--scenario", "nowhere", "--policy", "rate_match"), "nowhere: no scenario or file of that name"),
        (("--scenario", "./no.yaml", "--policy", "rate_match"), "no.yaml: no such file"),
        (("--scenario", "small", "--policy", "nobody"), "nobody: no policy, preset or file of that name"),
        (
            ("--scenario", "small", "--policy", "static"),
            "is missing, and has no default (name a YAML file that holds policy: {type: static, replicas: ...})",
        ),
        ((*SMALL[1:], "--trace", "no.csv"), "no.csv: it cannot be read"),
        ((*SMALL[1:], "--hours", "-1"), "small: no stretch of -1 h at hour 0"),
        ((*SMALL[1:], "--hours", "2e-7"), "small: no stretch of 2e-07 h at hour 0"),
    ],
)
def test_wrong_input_is_a_line(words: tuple[str, ...], says: str) -> None:
    code, out, err = ran("simulate", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_scenario_in_place_of_a_policy_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "my-job.yaml"
    file.write_bytes(shipped_scenarios()["small"].read_bytes())
    code, _, err = ran("simulate", "--scenario", "small", "--policy", str(file))
    assert (code, err) == (2, f"{file}:4: kind: this is a Scenario, not a policy (name another file)\n")


def test_the_form_of_a_scenario_is_printed() -> None:
    assert json.loads(ran("schema", "--scenario")[1])["title"] == "ScenarioDocument"


def test_the_shipped_scenarios_are_a_line_each() -> None:
    code, out, _ = ran("scenarios")
    assert code == 0
    assert len(out.splitlines()) == 6
    assert "small: one trainer node" in out
    (small,) = [row for row in json.loads(ran("scenarios", "--json")[1]) if row["name"] == "small"]
    assert small["balance_replicas"] == pytest.approx(6)
