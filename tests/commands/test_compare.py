"""`headrace compare` from end to end on tiny windows: what it prints, writes, refuses and goes on with."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from scaler.cli import app
from scaler.simulate import jobs
from scaler.simulate.loading import shipped_scenarios
from scaler.simulate.scenario import Scenario
from tests.builders.comparisons import a_trace_file
from tests.builders.free_trainer import a_free_trainer
from tests.builders.traces import measured

POLICIES = "rate_match,buffer_band"
ROW_KEYS = {
    "policy", "scenario", "trace", "window", "start_h", "regime", "seeds", "cost_usd_per_1k_samples",
    "bound_usd_per_1k_samples", "ratio", "trainer_wait_ratio", "bound_wait_ratio", "least_wait_ratio", "cost_usd",
    "samples_trained",
}  # fmt: skip
ESTIMATES = (
    "cost_usd_per_1k_samples", "ratio", "ratio_before_refunds", "trainer_wait_ratio", "gap_share", "gap_share_before_refunds",
)  # fmt: skip


def _compare(store: Path, *words: str) -> Result:
    plain = ["compare", "--policies", POLICIES, "--scenarios", "small", "--windows", "2", "--hours", "0.5"]
    return CliRunner().invoke(app, [*plain, "--store", str(store), *words])


def _json(store: Path, *words: str) -> dict[str, Any]:
    result = _compare(store, "--json", *words)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_there_is_a_row_for_every_policy_window_and_trace_and_the_optimum_beside_them(tmp_path: Path) -> None:
    file = a_trace_file(tmp_path)
    answer = _json(tmp_path / "store", "--trace", str(file), "--trace", f"{file}#b", "--seeds", "2")

    rows = answer["rows"]
    assert len(rows) == 2 * 2 * 3
    assert {(row["policy"], row["seeds"]) for row in rows} == {("rate_match", 2), ("buffer_band", 2), ("optimum", 1)}
    assert {row["trace"] for row in rows} == {str(file), f"{file}#b"}
    assert [row["start_h"] for row in rows[::3]] == pytest.approx([0.0, 9.66, 0.0, 9.66], abs=0.1)
    assert all(row.keys() >= ROW_KEYS for row in rows)
    assert all(row["ratio"] >= 1.0 - 1e-9 for row in rows)


def test_groups_have_estimates_and_a_baseline(tmp_path: Path) -> None:
    answer = _json(tmp_path, "--windows", "4")

    assert answer["settings"]["windows"] == 4
    assert answer["baseline"] in POLICIES.split(",")
    groups = {group["policy"]: group for group in answer["groups"] if group["regime"] == "all"}
    assert set(groups) == {*POLICIES.split(","), "optimum"}
    assert all(
        f"{name}{end}" in group for group in groups.values() for name in ESTIMATES for end in ("", "_low", "_high")
    )
    assert groups[answer["baseline"]]["gap_share"] == 0.0
    assert all(group["ratio_low"] <= group["ratio"] <= group["ratio_high"] for group in groups.values())


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    one, two = _json(tmp_path / "one"), _json(tmp_path / "two", "--jobs", "2")

    assert [_timeless(row) for row in one["rows"]] == [_timeless(row) for row in two["rows"]]
    assert one["groups"] == two["groups"]


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("wall_s", "solver_s")}


def test_a_comparison_that_was_killed_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    words = ["--policies", POLICIES, "--scenarios", "small", "--windows", "2", "--hours", "0.5", "--store", str(store)]
    killed = subprocess.run([sys.executable, "-c", _KILLED_AT_THE_FOURTH, "compare", *words], timeout=60, check=False)
    done = len(list(store.glob("*.json")))
    assert (killed.returncode, done) == (-signal.SIGKILL, 3)

    computed = _count(monkeypatch)
    answer = _json(store)

    assert len(computed) == 2 * 3 - done
    assert [_timeless(row) for row in answer["rows"]] == [_timeless(row) for row in _json(tmp_path / "anew")["rows"]]


_KILLED_AT_THE_FOURTH = """
import os, signal
from scaler.cli import app
from scaler.simulate import jobs
from scaler.simulate.scenario import Scenario

compute, count = jobs._compute, iter(range(9))
def until_the_fourth(*args):
    if next(count) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(*args)

jobs._compute = until_the_fourth
app()
"""


def _count(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    computed: list[object] = []
    compute = jobs._compute

    def counted(job: jobs.Job, scenario: Scenario) -> dict[str, Any]:
        computed.append(job)
        return compute(job, scenario)

    monkeypatch.setattr(jobs, "_compute", counted)
    return computed


def test_people_get_a_line_a_row_and_a_line_a_group(tmp_path: Path) -> None:
    result = _compare(tmp_path)

    rows, groups, baseline, last = result.stdout.strip().split("\n\n")
    assert len(rows.splitlines()) == 1 + 2 * 3
    assert groups.splitlines()[0].split()[:4] == ["scenario", "regime", "windows", "policy"]
    assert baseline.startswith("baseline ")
    assert last.startswith("small: ")
    assert "has the lowest mean cost" in last
    assert last.endswith("cannot be said: it takes 4 windows or more.")


def test_rows_go_to_csv_and_the_page_is_written(tmp_path: Path) -> None:
    table, page = tmp_path / "rows.csv", tmp_path / "page.html"
    answer = _json(tmp_path / "store", "--csv", str(table), "--report", str(page))

    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == [row["policy"] for row in answer["rows"]]
    assert float(rows[0]["cost_usd"]) == answer["rows"][0]["cost_usd"]
    assert all(name in page.read_text(encoding="utf-8") for name in (*POLICIES.split(","), "small"))


def test_a_policy_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    file.write_text("policy: {type: buffer_band, settle: 5m}\n", encoding="utf-8")
    answer = _json(tmp_path / "store", "--policies", f"{file},rate_match", "--baseline", "quick")

    assert answer["baseline"] == "quick"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policies", "guess"], "no policy, preset or file of that name"),
        (["--policies", "rate_match,rate_match"], "policies need names of their own: rate_match"),
        (["--policies", ","], "policies need names of their own: none is given"),
        (["--scenarios", "nowhere"], "no scenario or file of that name"),
        (["--scenarios", ""], "no scenario is named (--scenarios)"),
        (["--scenarios", "small,small"], "scenarios need names of their own: small is small and small"),
        (["--seeds", "0"], "--seeds 0: write 1 to 10000"),
        (["--seeds", "10001"], "--seeds 10001: write 1 to 10000"),
        (["--windows", "0"], "--windows 0: write 1 to 10000"),
        (["--windows", "10001"], "--windows 10001: write 1 to 10000"),
        (["--hours", "0"], "--hours 0: a window is longer than 0 h"),
        (["--hours", "-1"], "--hours -1: a window is longer than 0 h"),
        (["--hours", "nan"], "--hours nan: a window is longer than 0 h"),
        (["--hours", "inf"], "and at most 87660 h"),
        (["--baseline", "static"], "the baseline 'static' is none of the policies rate_match, buffer_band"),
        (["--trace", "missing.csv"], "missing.csv"),
        (["--jobs", "0"], "--jobs 0: at least 1 process"),
        (["--csv", "no/such/folder/rows.csv"], "there is no folder no/such/folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_a_line_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    result = _compare(tmp_path, *words)

    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_where_a_sample_may_cost_nothing_it_says_what_to_give(tmp_path: Path) -> None:
    result = _compare(tmp_path, "--scenarios", str(a_free_trainer(tmp_path)), "--hours", "12", "--windows", "1")

    assert result.exit_code == 2, result.output
    assert "--trainer-usd-per-h of headrace record" in result.stderr
    assert "Traceback" not in result.output


def test_a_trace_that_is_too_short_is_one_window_and_says_so(tmp_path: Path) -> None:
    words = ["--trace", str(a_trace_file(tmp_path, hours=3)), "--hours", "2", "--split", "test", "--json"]
    result = _compare(tmp_path / "store", *words)

    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["rows"]) == 3
    assert "its part for test lasts 1.27 h" in result.stderr


def test_windows_that_hardly_differ_are_not_run_and_are_told(tmp_path: Path) -> None:
    words = ["--trace", str(a_trace_file(tmp_path, hours=3)), "--hours", "2.5", "--windows", "1000", "--json"]
    result = _compare(tmp_path / "store", *words)

    rows = [row for row in json.loads(result.stdout)["rows"] if row["policy"] == "optimum"]
    assert len(rows) == 6
    assert "it has 6 windows of 2.5 h, not 1000: of more each would share over 95% of its hours" in result.stderr


@pytest.mark.parametrize(("key", "told"), [("trace-b", True), ("b", False)])
def test_a_zones_price_that_no_zone_has_is_told(key: str, told: bool, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = shipped_scenarios()["small"].read_text()
    assert 'spot: {priceUsdPerH: "10"}' in text
    spot = f'spot: {{priceUsdPerH: "10", zonePricesUsdPerH: {{a: "9", {key}: "8"}}}}'
    file.write_text(text.replace('spot: {priceUsdPerH: "10"}', spot), encoding="utf-8")
    trace = a_trace_file(tmp_path)
    result = _compare(tmp_path / "store", "--scenarios", str(file), "--trace", str(trace), "--windows", "1")

    says = (
        f"zonePricesUsdPerH: no zone of {trace} (a, b) starts with trace-b; zones without a price of their own cost 10"
    )
    assert result.exit_code == 0, result.output
    assert (says in result.stderr) is told
    assert ("zonePrices" in result.stderr) is told


def test_a_trace_whose_times_are_hours_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text("time_s,offering,available\n0,a,4\n71,a,3\n72,a,3\n", encoding="utf-8")
    result = _compare(tmp_path / "store", "--trace", str(file), "--hours", "12")

    assert result.exit_code == 2
    assert "hours.csv: it lasts 72 s in all, and a run 12 h; times in a trace are seconds" in result.stderr


def test_two_jobs_of_one_name_are_not_pooled(tmp_path: Path) -> None:
    text = shipped_scenarios()["small"].read_text()
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(text, encoding="utf-8")
    other.write_text(text.replace("unblockedSamplesPerS: 1 ", "unblockedSamplesPerS: 0.9 "), encoding="utf-8")
    result = _compare(tmp_path / "store", "--scenarios", f"{one},{other}")

    assert result.exit_code == 2, result.output
    assert result.stderr == f"scenarios need names of their own: small is {one} and {other}\n"
    assert not (tmp_path / "store").exists()


def test_one_trace_twice_is_refused_however_it_is_written(tmp_path: Path) -> None:
    file = a_trace_file(tmp_path)
    again = tmp_path / "." / "x" / ".." / file.name
    (tmp_path / "x").mkdir()
    result = _compare(tmp_path / "store", "--trace", f"{file}#a", "--trace", f"{again}#a")

    assert result.exit_code == 2, result.output
    assert "traces need names of their own" in result.stderr


def test_traces_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    files = [a_trace_file(tmp_path / name) for name in ("before", "after")]
    result = _compare(tmp_path / "store", *(word for file in files for word in ("--trace", str(file))))

    rows = result.stdout.split("\n\n", maxsplit=1)[0].splitlines()[1:]
    assert {row.split()[1] for row in rows} == {"before/trace.csv", "after/trace.csv"}


def test_an_interrupt_ends_a_comparison_without_a_trace_of_python(tmp_path: Path) -> None:
    code = "import signal\nfrom scaler.simulate import jobs\n" + _INTERRUPTED
    words = ["--policies", POLICIES, "--scenarios", "small", "--hours", "0.5", "--store", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-c", code, "compare", *words], timeout=60, check=False, capture_output=True, text=True
    )

    assert ended.returncode in (1, 130)
    assert "Traceback" not in ended.stderr


_INTERRUPTED = """
from scaler.cli import app

# A shell that runs the tests in the background has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt(*args):
    signal.raise_signal(signal.SIGINT)

jobs._compute = interrupt
app()
"""


def test_measured_capacity_can_be_compared_on(tmp_path: Path) -> None:
    trace = measured("gcp-h100/h100_available_count_10min.csv")
    answer = _json(tmp_path, "--trace", str(trace), "--split", "train", "--windows", "2", "--hours", "1")

    assert len(answer["rows"]) == 6
    assert os.fspath(trace) in {row["trace"] for row in answer["rows"]}


def test_fewer_hours_than_a_scenario_may_have_are_told_once(tmp_path: Path) -> None:
    words = ["--windows", "1"]
    assert _compare(tmp_path, *words, "--hours", "11.5").stderr.count("--hours 11.5: that says more of the first") == 1
    assert _compare(tmp_path, *words, "--hours", "12").stderr == ""
