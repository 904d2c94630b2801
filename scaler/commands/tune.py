"""`headrace tune`: search a policy's parameters on training windows, judge them on the others, write them as YAML."""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna import Study

from scaler.commands.compare import Grid, places_of
from scaler.commands.outputs import OutputError, check_writable, write_text
from scaler.commands.processes import Workers, bar, workers
from scaler.commands.tables import table_of
from scaler.commands.worlds import WRONG_INPUT, line_of
from scaler.config.faults import ConfigError
from scaler.config.yaml_text import read_bytes
from scaler.simulate.compare import NO_BOUND, judges
from scaler.simulate.fleet_file import fleet_with
from scaler.simulate.jobs import Job, Place
from scaler.simulate.policy_file import PolicyChoice, dump_policy, load_policy
from scaler.simulate.search_space import knobs_of
from scaler.simulate.tune import (
    ENDED,
    Found,
    Search,
    enqueue_start,
    found_in,
    new_study,
    open_storage,
    optimize,
    ratio_of,
)
from scaler.simulate.windows import Split
from scaler.traces.trace import TraceError

_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """What is tuned and where the answer goes. The grid names one policy; its split is not looked at."""

    grid: Grid
    trials: int
    out: Path
    fleet: Path | None = None
    storage: str | None = None
    jobs: int = 1
    seed: int = 0
    store: Path | None = None
    as_json: bool = False


def run_tune(options: TuneOptions) -> int:
    """Search, print, write.

    0: done; 2: a policy, scenario, trace, window, fleet or storage that is none, or a file that cannot be written.
    """
    try:
        check_writable(options.out)
        policies = options.grid.policies
        if len(policies) != 1:
            raise ValueError(f"one policy is tuned at a time, not {len(policies)}")
        text = None if options.fleet is None else read_bytes(options.fleet).decode()
        policy = load_policy(policies[0])
        if text is not None:
            fleet_with(policy, text, options.fleet)  # before hours of work, not after
        open_storage(options.storage)
        answer, found = _tuned(options, policy)
        written = dump_policy(found.policy) if text is None else fleet_with(found.policy, text, options.fleet)
        write_text(options.out, _heading(answer) + written)
    except (ConfigError, TraceError, OutputError, ValueError, OSError) as error:
        print(line_of(error), file=sys.stderr)
        return WRONG_INPUT
    print(json.dumps(answer, indent=1, allow_nan=False) if options.as_json else _for_people(answer))
    return 0


def _tuned(options: TuneOptions, policy: PolicyChoice) -> tuple[dict[str, Any], Found]:
    if not knobs_of(policy):
        raise ValueError(f"{policy.name} has no parameter to search")
    if options.trials < 1:
        raise ValueError(f"{options.trials} trials are none")
    training = places_of(replace(options.grid, split=Split.TRAIN))
    testing = _testing(options.grid)
    with workers(options.jobs) as at_work:
        optima = at_work.run([Job(place=place) for place in (*training, *testing)], options.store, "bounds")
        costs = {job.place: figures["cost_usd_per_1k_samples"] for job, figures in optima.items()}
        bounds = {place: cost for place, cost in costs.items() if judges(cost)}
        if bounds.keys().isdisjoint(training) or bounds.keys().isdisjoint(testing):
            raise ValueError(f"for training or for testing {NO_BOUND}")
        search = Search(
            policy=policy,
            bounds={place: bounds[place] for place in training if place in bounds},
            seeds=options.grid.seeds,
            trials=options.trials,
            seed=options.seed,
        )
        found = _search(search, options, at_work)
        judged = _judged({"start": policy, "tuned": found.policy}, bounds, options, at_work)
    ratios = {
        split: {who: _mean(judged[who], places) for who in judged}
        for split, places in (("train", training), ("test", testing))
    }
    return _answer(options, search, found, ratios), found


def _testing(grid: Grid) -> tuple[Place, ...]:
    """The windows to judge on; of generated capacity, seeds that training never saw."""
    if grid.traces:
        return places_of(replace(grid, split=Split.TEST))
    return tuple(place for place in places_of(replace(grid, windows=2 * grid.windows)) if place.window >= grid.windows)


def _judged(
    policies: Mapping[str, PolicyChoice], bounds: Mapping[Place, float], options: TuneOptions, at_work: Workers
) -> dict[str, dict[Place, float]]:
    """Of each policy the mean ratio to the bound over the seeds, by place."""
    seeds = range(options.grid.seeds)
    jobs = {
        (who, place): [Job(place=place, policy=policy, seed=seed) for seed in seeds]
        for who, policy in policies.items()
        for place in bounds
    }
    found = at_work.run([job for of_seeds in jobs.values() for job in of_seeds], options.store, "judging")
    ratios: dict[str, dict[Place, float]] = {who: {} for who in policies}
    for (who, place), of_seeds in jobs.items():
        ratios[who][place] = fmean(ratio_of(found[job], bounds[place]) for job in of_seeds)
    return ratios


def _mean(ratios: Mapping[Place, float], places: Sequence[Place]) -> float:
    return fmean(ratios[place] for place in places if place in ratios)


def _search(search: Search, options: TuneOptions, at_work: Workers) -> Found:
    with tempfile.TemporaryDirectory(prefix="headrace-tune-") as folder, bar("trials", search.trials) as advance:
        url = options.storage
        if url is None and at_work.pool is not None:
            url = f"journal:{folder}/study"
        study = new_study(search, open_storage(url))
        enqueue_start(study, search)
        if url is None or at_work.pool is None:
            optimize(study, search, options.store, advance)
        else:
            futures = {
                at_work.pool.submit(_work, search, url, worker, options.store)
                for worker in range(1, at_work.processes + 1)
            }
            _watch(futures, study, advance)
        return found_in(study, search)


def _watch(left: set[Future[None]], study: Study, advance: Callable[[], None]) -> None:
    """Show what processes that share a study have done, until they are done."""
    shown = 0
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        ended = sum(trial.state in ENDED for trial in study.get_trials(deepcopy=False))
        for _ in range(shown, ended):
            advance()
        shown = max(shown, ended)
        for future in done:
            future.result()


def _work(search: Search, url: str, worker: int, store: Path | None) -> None:
    optimize(new_study(search, open_storage(url), worker), search, store)


def _answer(options: TuneOptions, search: Search, found: Found, ratios: dict[str, dict[str, float]]) -> dict[str, Any]:
    grid = options.grid
    values = {knob.name: _value_of(found.policy, knob.part, knob.field) for knob in knobs_of(found.policy)}
    return {
        "policy": search.policy.name,
        "scenarios": list(grid.scenarios),
        "traces": list(grid.traces),
        "windows": grid.windows,
        "hours": grid.hours,
        "seeds": grid.seeds,
        "trials": found.trials,
        "pruned": found.pruned,
        "train_ratio_start": ratios["train"]["start"],
        "train_ratio_tuned": ratios["train"]["tuned"],
        "test_ratio_start": ratios["test"]["start"],
        "test_ratio_tuned": ratios["test"]["tuned"],
        "params": values,
        "out": str(options.out),
    }


def _value_of(policy: PolicyChoice, part: str, field: str) -> Any:
    spec = policy.sizing if part == "policy" else policy.placement
    return getattr(spec.params, field)


def _heading(answer: Mapping[str, Any]) -> str:
    """What a reader of the file wants to know, as YAML comments."""
    lines = (
        f"Found by `headrace tune`: {answer['policy']} on {', '.join(answer['scenarios'])}.",
        f"Capacity: {', '.join(answer['traces']) or 'generated'}.",
        f"{answer['trials']} trials of {answer['windows']} windows a trace, {answer['seeds']} seeds.",
        f"Cost over the clairvoyant bound, mean: training {_shown(answer, 'train')}, other windows {_shown(answer, 'test')}.",
    )
    return "".join(f"# {line}\n" for line in lines)


def _shown(answer: Mapping[str, Any], split: str) -> str:
    before, after = answer[f"{split}_ratio_start"], answer[f"{split}_ratio_tuned"]
    return f"{before:.4f} before, {after:.4f} after"


def _for_people(answer: Mapping[str, Any]) -> str:
    params = [{"parameter": name, "value": value} for name, value in answer["params"].items()]
    lines = (table_of(params), "", _heading(answer).replace("# ", "").rstrip(), answer["out"])
    return "\n".join(lines)
