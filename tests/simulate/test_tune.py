"""The search itself, on worlds whose answer is known: a run's cost is a made-up function of one parameter."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from policies import rate_match
from scaler.simulate import tune
from scaler.simulate.jobs import Job
from scaler.simulate.policy_file import load_policy
from scaler.simulate.tune import Found, Search, enqueue_start, found_in, new_study, open_storage, optimize
from tests.builders.comparisons import a_place, some_figures

BEST_HEADROOM = 0.3
MEAN_HARDNESS = 2.5
PLACES = {a_place(window): 10.0 * (window + 1) for window in range(4)}


def _bowl(job: Job, _: Path | None) -> Mapping[str, Any]:
    """The cost is least where the headroom is best; each window is harder than the one before, so that means only rise."""
    assert job.policy is not None
    params = job.policy.sizing.params
    assert isinstance(params, rate_match.Params)
    hard = 1.0 + [place for place, _ in _search().order].index(job.place)
    return some_figures(PLACES[job.place] * hard * (1 + (params.headroom_ratio - BEST_HEADROOM) ** 2))


@pytest.fixture(autouse=True)
def _made_up_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "run_job", _bowl)


def _search(**facts: Any) -> Search:
    return Search(policy=load_policy("rate_match"), bounds=PLACES, **({"trials": 30} | facts))


def _run(search: Search, storage: str | None = None) -> Found:
    study = new_study(search, open_storage(storage))
    enqueue_start(study, search)
    optimize(study, search, None)
    return found_in(study, search)


def _headroom(found: Found) -> float:
    params = found.policy.sizing.params
    assert isinstance(params, rate_match.Params)
    return params.headroom_ratio


def test_a_search_finds_the_bottom_of_a_bowl_and_gives_up_bad_trials_early() -> None:
    found = _run(_search())

    assert _headroom(found) == pytest.approx(BEST_HEADROOM, abs=0.05)
    assert found.ratio == pytest.approx(MEAN_HARDNESS, abs=0.01)
    assert found.trials == 30
    assert found.pruned > 10


def test_the_start_is_the_first_trial_so_nothing_worse_is_found() -> None:
    found = _run(_search(trials=1))

    assert found.policy == load_policy("rate_match")
    assert found.ratio == pytest.approx(MEAN_HARDNESS * (1 + (0.1 - BEST_HEADROOM) ** 2))


def test_a_seed_fixes_the_search() -> None:
    assert _run(_search(seed=3, trials=12)) == _run(_search(seed=3, trials=12))


@pytest.mark.parametrize("form", ["journal:{}/study", "sqlite:///{}/study.db"])
def test_a_search_goes_on_where_its_storage_was_left(form: str, tmp_path: Path) -> None:
    url = form.format(tmp_path)
    search = _search(trials=8)
    study = new_study(search, open_storage(url))
    enqueue_start(study, search)
    for _ in range(3):
        study.optimize(lambda trial: tune.value_of(trial, search, None), n_trials=1)
    ended: list[int] = []
    optimize(new_study(search, open_storage(url)), search, None, lambda: ended.append(1))

    assert len(ended) == 5
    assert _run(search, url).trials == 8


def test_other_windows_and_other_seeds_are_other_studies() -> None:
    names = {
        _search().name,
        _search(seeds=2).name,
        _search(seed=1).name,
        Search(policy=load_policy("buffer_band"), bounds=PLACES).name,
        Search(policy=load_policy("rate_match"), bounds={a_place(9): 1.0}).name,
    }

    assert len(names) == 5


def test_every_trial_meets_the_same_windows_and_seeds_in_the_same_order() -> None:
    order = _search(seeds=3).order

    assert sorted(order, key=repr) == sorted(((place, seed) for place in PLACES for seed in range(3)), key=repr)
    assert order == _search(seeds=3, trials=5).order


def test_a_policy_that_trains_nothing_is_bad_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "run_job", lambda *_: some_figures(float("inf")))

    assert _run(_search(trials=3)).ratio == tune.WORST_RATIO


def test_a_storage_that_cannot_be_opened_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match="storage 'nonsense:' cannot be opened"):
        open_storage("nonsense:")
