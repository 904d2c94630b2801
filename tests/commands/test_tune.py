"""`headrace tune` from end to end on tiny windows: what it finds, writes and refuses."""

import json
import os
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from policies import marginal_value
from scaler.cli import app
from scaler.commands import processes
from scaler.config.loader import load_fleet
from scaler.simulate import tune as search
from scaler.simulate.jobs import Job
from scaler.simulate.loading import shipped_scenarios
from scaler.simulate.policy_file import load_policy, policy_of
from tests.builders.comparisons import a_trace_file, an_optimum, some_figures
from tests.builders.fleet_yaml import a_fleet, a_pool, a_stage, an_offering
from tests.builders.free_trainer import a_free_trainer


def _tune(folder: Path, *words: str) -> Result:
    plain = ["tune", "--policy", "buffer_band", "--scenarios", "small", "--windows", "2", "--hours", "0.5"]
    where = ["--out", str(folder / "out.yaml"), "--store", str(folder / "store"), "--trials", "4"]
    return CliRunner().invoke(app, [*plain, *where, *words])


def _json(folder: Path, *words: str) -> dict[str, Any]:
    result = _tune(folder, "--json", *words)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_what_is_found_is_written_as_a_policy_that_the_simulator_takes(tmp_path: Path) -> None:
    answer = _json(tmp_path, "--trace", str(a_trace_file(tmp_path)))

    found = load_policy(str(tmp_path / "out.yaml"))
    assert found.sizing.name == "buffer_band"
    shown = {name.partition(".")[2]: value for name, value in answer["params"].items() if name.startswith("policy.")}
    assert {name: getattr(found.sizing.params, name) for name in shown} == pytest.approx(shown, rel=1e-3)
    assert 1.0 <= answer["train_ratio_tuned"] <= answer["train_ratio_start"]
    assert answer["test_ratio_tuned"] >= 1.0
    assert answer["trials"] == 4
    done = "Found" if answer["written"] == "found" else "Searched"
    text = (tmp_path / "out.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# {done} by `headrace tune`: buffer_band on small.")


def test_a_fleet_comes_back_whole_with_the_policy_in_it_and_is_valid(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    stage = a_stage(placement={"type": "cheapest_available"})
    fleet.write_text("# ours\n" + yaml.safe_dump(a_fleet(stages=[stage])), encoding="utf-8")
    _json(tmp_path, "--fleet", str(fleet))

    before, after = (yaml.safe_load(path.read_text()) for path in (fleet, tmp_path / "out.yaml"))
    assert after["spec"]["stages"][0]["policy"]["type"] == "buffer_band"
    for document in (before, after):
        for name in ("policy", "placement"):
            document["spec"]["stages"][0].pop(name, None)
    assert after == before
    assert "\n\n# ours\n" in (tmp_path / "out.yaml").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["validate", str(tmp_path / "out.yaml")]).exit_code == 0


def test_a_tuned_fleet_that_is_tuned_in_place_has_the_newest_heading_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    out.write_text("# ours\n" + yaml.safe_dump(a_fleet()), encoding="utf-8")
    for seed in ("1", "2"):
        _json(tmp_path, "--fleet", str(out), "--seed", seed)

    text = out.read_text(encoding="utf-8")
    assert text.count("by `headrace tune`: buffer_band on small.") == 1
    assert text.partition("\n\n")[2].startswith("# ours\n")


def test_in_another_folder_the_fleet_has_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    fleet = tmp_path / "jobs" / "fleet.yaml"
    fleet.write_text(yaml.safe_dump(a_fleet()), encoding="utf-8")
    _json(tmp_path, "--fleet", str(fleet))

    before, after = load_fleet(fleet), load_fleet(tmp_path / "out.yaml")
    assert after.spec.ledger == before.spec.ledger
    assert after.spec.stages[0].pools == before.spec.stages[0].pools


def test_what_the_policy_leaves_unsaid_and_the_fleet_says_stays(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    stage = a_stage(policy={"type": "marginal_value", "trainerUsdPerH": "50.00"})
    fleet.write_text(yaml.safe_dump(a_fleet(stages=[stage])), encoding="utf-8")
    answer = _json(tmp_path, "--fleet", str(fleet), "--policy", "marginal_value")

    params = policy_of(load_fleet(tmp_path / "out.yaml")).sizing.params
    assert isinstance(params, marginal_value.Params)
    assert params.trainer_usd_per_h == 50.0
    assert answer["unsaid_trainer_usd_per_h"] == []


def test_a_trainers_cost_that_only_the_simulator_knew_is_told(tmp_path: Path) -> None:
    answer = _json(tmp_path, "--policy", "marginal_value", "--trials", "1")

    assert answer["unsaid_trainer_usd_per_h"] == [60.0]
    assert "# The simulated trainer costs 60.00 USD/h; name your" in (tmp_path / "out.yaml").read_text(encoding="utf-8")


def test_numbers_of_the_fleets_own_that_are_not_started_from_are_told(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    stage = a_stage(policy={"type": "buffer_band", "lowMark": 0.7})
    fleet.write_text(yaml.safe_dump(a_fleet(stages=[stage])), encoding="utf-8")

    assert "its own numbers for buffer_band" in _tune(tmp_path, "--fleet", str(fleet), "--trials", "1").stderr
    same = _tune(tmp_path, "--fleet", str(fleet), "--policy", str(fleet), "--trials", "1")
    assert "its own numbers" not in same.stderr


def test_a_fleet_that_is_another_world_than_the_scenario_is_told(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    offerings = [an_offering(priceUsdPerH="37"), an_offering(capacityType="on-demand", priceUsdPerH="31")]
    stage = a_stage(
        guardRails={"floor": 0, "ceiling": 16}, pools=[a_pool(name="p", nodesPerReplica=2, offerings=offerings)]
    )
    job = {"groupSize": 4, "batchGroups": 16, "maxStaleness": 4}
    fleet.write_text(yaml.safe_dump(a_fleet(stages=[stage], job=job, spendCapUsdPerH="900")), encoding="utf-8")
    result = _tune(tmp_path, "--fleet", str(fleet), "--trials", "1")

    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        f"{fleet}: guardRails.ceiling 16, and 8 in the scenario small",
        f"{fleet}: job.maxStaleness 4, and 8 in the scenario small",
        f"{fleet}: pool p: nodesPerReplica 2, and 1 in the scenario small",
        f"{fleet}: spot priceUsdPerH 37.00, and 10.00 in the scenario small",
        "--hours 0.5: that says more of the first and last hours than of a policy; 12 are the least to judge by",
    ]


def test_processes_share_a_search_through_a_storage_of_their_own_and_tell_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.commands.progress.BETWEEN_S", 0.0)
    result = _tune(tmp_path, "--json", "--jobs", "2")

    assert result.exit_code == 0, result.output
    assert 4 <= json.loads(result.stdout)["trials"] <= 5
    assert re.search(r"^trials: 4 of 4 after ", result.stderr, re.MULTILINE)


def test_a_search_in_a_storage_is_not_done_again(tmp_path: Path) -> None:
    once, again = (_json(tmp_path, "--storage", f"journal:{tmp_path / 'study'}") for _ in range(2))

    assert once == again
    assert once["trials"] == 4


def test_people_get_the_parameters_and_what_they_are_worth(tmp_path: Path) -> None:
    result = _tune(tmp_path)

    assert result.exit_code == 0
    assert result.stdout.split()[:3] == ["parameter", "start", "found"]
    assert "policy.lowMark" in result.stdout
    assert "low_mark" not in result.stdout
    assert re.search(r"policy\.settle +\d+m?s? ", result.stdout)
    assert "Cost over the clairvoyant bound" in result.stdout


def test_a_search_that_found_nothing_better_says_so_and_gives_what_it_started_from(tmp_path: Path) -> None:
    answer = _json(tmp_path, "--trials", "1", "--windows", "4")

    assert answer["verdict"] == "unchanged"
    gains = [answer[name] for name in ("train_gain", "test_gain", "test_gain_low", "test_gain_high")]
    assert gains == [0.0, 0.0, 0.0, 0.0]
    assert load_policy(str(tmp_path / "out.yaml")).sizing == load_policy("buffer_band").sizing
    assert "# No gain: the search found nothing better than" in (tmp_path / "out.yaml").read_text(encoding="utf-8")


def _made_up(monkeypatch: pytest.MonkeyPatch, *, seen: float, unseen: list[float]) -> None:
    """Worlds in which any other low mark costs this much less than the usual one, on training windows and on the others."""

    def cost(job: Job, _: Path | None = None) -> dict[str, Any]:
        if job.policy is None:
            return an_optimum(10.0)
        usual = job.policy.sizing == load_policy("buffer_band").sizing
        fell = seen if job.place.window < len(unseen) else unseen[job.place.window - len(unseen)]
        return some_figures(15.0 if usual else 15.0 - 10.0 * fell)

    monkeypatch.setattr(processes, "run_job", cost)
    monkeypatch.setattr(search, "run_job", cost)


@pytest.mark.parametrize(
    ("seen", "unseen", "verdict", "says"),
    [
        (0.1, [0.1, 0.2, 0.1, 0.2], "gain", "A gain on windows that the search did not see"),
        (0.1, [0.1, -0.2, 0.1, 0.1], "within_chance", "those it started from are as good"),
        (0.1, [0.0, 0.0, 0.0, 0.0], "within_chance", "those it started from are as good"),
        (0.1, [-0.1, -0.2, -0.1, -0.2], "loss", "keep the numbers it started from"),
        (0.1, [0.1, 0.2, 0.1], "too_few_windows", "those it started from may be as good"),
        (0.1, [0.1, -0.2, 0.0], "too_few_windows", "those it started from may be as good"),
        (-0.1, [0.5, 0.5, 0.5, 0.5], "unchanged", "found nothing better"),
    ],
)
def test_a_gain_is_one_where_the_search_did_not_look(
    seen: float, unseen: list[float], verdict: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made_up(monkeypatch, seen=seen, unseen=unseen)
    result = _tune(tmp_path, "--windows", str(len(unseen)), "--json")
    answer = json.loads(result.stdout)

    assert answer["verdict"] == verdict
    assert answer["train_gain"] == pytest.approx(max(0.0, seen))
    assert answer["test_gain"] == pytest.approx(fmean(unseen) if seen > 0 else 0.0)
    text = (tmp_path / "out.yaml").read_text(encoding="utf-8")
    assert says in text
    better = verdict == "gain" or (verdict == "too_few_windows" and fmean(unseen) > 0)
    assert answer["written"] == ("found" if better else "start")
    written = load_policy(str(tmp_path / "out.yaml"))
    assert (written.sizing == load_policy("buffer_band").sizing) is not better
    assert ("Found, and left out:" in text) is (not better and verdict != "unchanged")
    assert (answer["params"] != answer["params_start"]) is (verdict != "unchanged")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policy", "guess"], "no policy, preset or file of that name"),
        (["--policy", "rate_match,buffer_band"], "one policy is tuned at a time, not 2"),
        (["--trials", "0"], "0 trials are none"),
        (["--storage", "nonsense:"], "cannot be opened"),
        (["--fleet", "missing.yaml"], "missing.yaml"),
        (["--out", "no/such/folder/out.yaml"], "there is no folder no/such/folder"),
        (["--out", "."], "Is a directory"),
        (["--trace", "missing.csv"], "missing.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_a_line_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    result = _tune(tmp_path, *words)

    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_scenario_in_place_of_a_fleet_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "my-job.yaml"
    file.write_bytes(shipped_scenarios()["small"].read_bytes())
    result = _tune(tmp_path, "--fleet", str(file))

    assert result.exit_code == 2
    assert result.stderr == f"{file}:4: kind: this is a Scenario, not a RolloutFleet (name another file)\n"


def test_a_database_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    result = _tune(tmp_path, "--storage", f"sqlite:///{tmp_path}/nope/a.db")

    assert result.exit_code == 2
    assert "unable to open database file" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "sqlalche.me" not in result.stderr


@pytest.mark.parametrize("words", [["--fleet", "{pipe}"], ["--storage", "journal:{pipe}"]], ids=["fleet", "storage"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, words: list[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = _tune(tmp_path, *(word.format(pipe=pipe) for word in words))

    assert result.exit_code == 2
    assert str(pipe) in result.stderr
    assert "is no regular file" in result.stderr


def test_where_a_sample_may_cost_nothing_it_says_what_to_give(tmp_path: Path) -> None:
    result = _tune(tmp_path, "--scenarios", str(a_free_trainer(tmp_path)), "--hours", "12", "--windows", "1")

    assert result.exit_code == 2, result.output
    assert "--trainer-usd-per-h of headrace record" in result.stderr


def test_a_fleet_that_is_none_is_refused_before_the_work(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("kind: Other\n", encoding="utf-8")
    result = _tune(tmp_path, "--fleet", str(fleet))

    assert result.exit_code == 2
    assert not (tmp_path / "store").exists()
