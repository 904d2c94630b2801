"""Jobs: what they give depends on world, seed and code; what was finished is not done again."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.simulate import jobs
from scaler.simulate.jobs import Job, Place, run_job
from scaler.simulate.policy_file import load_policy
from tests.builders.comparisons import a_trace_file

PLACE = Place(scenario="small", trace=None, window=0, start_h=0.0, hours=0.5)
JOB = Job(place=PLACE, policy=load_policy("rate_match"))


def _without_wall_time(figures: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in figures.items() if name != "wall_s"}


def test_a_result_is_the_same_with_and_without_a_store(tmp_path: Path) -> None:
    fresh, written, read = run_job(JOB), run_job(JOB, tmp_path), run_job(JOB, tmp_path)

    assert _without_wall_time(fresh) == _without_wall_time(written)
    assert written == read


def test_what_is_in_the_store_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_job(JOB, tmp_path)
    monkeypatch.setattr(jobs, "simulate", _refuse)

    assert run_job(JOB, tmp_path) == before


def test_a_disk_that_is_full_is_told_with_the_file_of_the_store(tmp_path: Path) -> None:
    run_job(JOB, tmp_path)
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.with_suffix(f".{os.getpid()}").symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left") as told:
        run_job(JOB, tmp_path)

    assert told.value.filename == str(file)


def _refuse(*_: object) -> None:
    raise AssertionError("computed again")


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, seed=1),
        replace(JOB, policy=load_policy("buffer_band")),
        replace(JOB, place=replace(PLACE, window=1)),
        replace(JOB, place=replace(PLACE, hours=0.25)),
        replace(JOB, policy=None),
    ],
    ids=["seed", "policy", "window", "hours", "optimum"],
)
def test_every_other_job_has_a_place_of_its_own_in_the_store(other: Job, tmp_path: Path) -> None:
    run_job(JOB, tmp_path)
    run_job(other, tmp_path)

    assert len(list(tmp_path.iterdir())) == 2


def test_results_of_other_code_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_job(JOB, tmp_path)
    monkeypatch.setattr(jobs, "code_digest", lambda: "other")
    run_job(JOB, tmp_path)

    assert len(list(tmp_path.iterdir())) == 2


def test_a_result_that_was_damaged_is_computed_again(tmp_path: Path) -> None:
    before = run_job(JOB, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps(before)[:40], encoding="utf-8")

    assert _without_wall_time(run_job(JOB, tmp_path)) == _without_wall_time(before)
    assert json.loads(file.read_text(encoding="utf-8"))["scenario"] == "small"


def test_a_place_on_a_trace_is_that_stretch_of_the_zones_named(tmp_path: Path) -> None:
    file = a_trace_file(tmp_path)
    place = Place(scenario="small", trace=f"{file}#b", window=0, start_h=1.5, hours=2.0)
    scenario = place.bind(JOB.policy)

    spot = [model for model in scenario.offerings if model.pool == "spot"]
    assert [model.offering.zone for model in spot] == ["b"]
    assert scenario.end_s == 7200
    assert list(spot[0].capacity.changes()) == [(0.0, 4), (1800.0, 0), (5400.0, 4)]
