"""`headrace tune`: search a policy's parameters on training windows, judge them on the others, write them as YAML."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna import Study

from scaler.commands.compare import Grid, places_of
from scaler.commands.outputs import OutputError, check_writable, write_text
from scaler.commands.processes import Workers, workers
from scaler.commands.progress import Tell, progress
from scaler.commands.tables import table_of
from scaler.commands.tune_heading import FOUND, START, heading, value_text, without_heading
from scaler.commands.worlds import WRONG_INPUT, line_of
from scaler.config.faults import ConfigError
from scaler.config.loader import only_fleet, parse_fleets
from scaler.config.schema import RolloutFleet
from scaler.config.yaml_model import yaml_name
from scaler.config.yaml_text import read_bytes
from scaler.simulate.compare import NO_BOUND, judges
from scaler.simulate.fleet_differences import differences
from scaler.simulate.fleet_file import fleet_with
from scaler.simulate.gain import Gain, Verdict, gain_of
from scaler.simulate.jobs import Job, Place
from scaler.simulate.loading import load_scenario
from scaler.simulate.policy_file import PolicyChoice, dump_policy, forms_of, load_policy, policy_of, with_unsaid_of
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
        file = None if options.fleet is None else _fleet_in(options.fleet)
        policy = _start(load_policy(policies[0]), file)
        _written(policy, file, options.out)  # before hours of work, not after
        open_storage(options.storage)
        _tell_differences(file, options.grid.scenarios)
        answer, kept = _tuned(options, policy)
        write_text(options.out, heading(answer) + _written(kept, file, options.out))
    except (ConfigError, TraceError, OutputError, ValueError, OSError) as error:
        print(line_of(error), file=sys.stderr)
        return WRONG_INPUT
    print(json.dumps(answer, indent=1, allow_nan=False) if options.as_json else _for_people(answer))
    return 0


@dataclass(frozen=True, slots=True)
class _FleetFile:
    """The fleet that the answer is for, and its file as it was read."""

    path: Path
    data: bytes
    fleet: RolloutFleet


def _fleet_in(path: Path) -> _FleetFile:
    data = read_bytes(path)
    return _FleetFile(path, data, only_fleet(parse_fleets(data, path), path))


def _written(policy: PolicyChoice, file: _FleetFile | None, out: Path) -> str:
    """The policy, or the fleet with it, under an empty line that keeps its own first comment apart.

    The newest heading replaces those of earlier searches.
    """
    if file is None:
        return dump_policy(policy)
    return "\n" + without_heading(fleet_with(policy, file.data, file.path, out))


def _start(policy: PolicyChoice, file: _FleetFile | None) -> PolicyChoice:
    """The policy to start from; the fleet it is for may know what it leaves unsaid, as the trainer's cost.

    Other numbers of the fleet's own are neither started from nor judged, and a person is told.
    """
    if file is None:
        return policy
    own = policy_of(file.fleet)
    start = with_unsaid_of(policy, own)
    if own.sizing.name == start.sizing.name and (own.sizing, own.placement) != (start.sizing, start.placement):
        what = f"its own numbers for {own.sizing.name} are not those started from"
        print(f"{file.path}: {what} (--policy {file.path} takes them)", file=sys.stderr)
    return start


def _tell_differences(file: _FleetFile | None, scenarios: Sequence[str]) -> None:
    """On stderr, what the fleet has otherwise than the scenarios that its numbers are searched in."""
    if file is None:
        return
    for scenario in scenarios:
        for line in differences(file.fleet, load_scenario(scenario).spec):
            print(f"{file.path}: {line} {scenario}", file=sys.stderr)


def _tuned(options: TuneOptions, policy: PolicyChoice) -> tuple[dict[str, Any], PolicyChoice]:
    """What to say, and the policy to write: what was found where that is better, else what the search started from."""
    if not knobs_of(policy):
        raise ValueError(f"{policy.name} has no parameter to search")
    if options.trials < 1:
        raise ValueError(f"--trials {options.trials}: {options.trials} trials are none; write 1 at least")
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
    if _mean(judged["tuned"], training) >= _mean(judged["start"], training):
        found = replace(found, policy=policy)
        judged["tuned"] = judged["start"]
    ratios = {
        split: {who: _mean(judged[who], places) for who in judged}
        for split, places in (("train", training), ("test", testing))
    }
    gain = gain_of(judged["start"], judged["tuned"], training, testing)
    return _answer(options, search, found, ratios, gain), found.policy if _is_better(gain) else policy


def _is_better(gain: Gain) -> bool:
    """Whether a user is better off with what was found: nobody asks for numbers that did worse where it was not looked.

    With windows too few to tell chance apart, what they do say counts.
    """
    return gain.verdict is Verdict.GAIN or (gain.verdict is Verdict.TOO_FEW and gain.test.value > 0.0)


def _testing(grid: Grid) -> tuple[Place, ...]:
    """The windows to judge on; of generated capacity, seeds that training never saw."""
    if grid.traces:
        return places_of(replace(grid, split=Split.TEST), tell_oddities=False)
    every = places_of(replace(grid, windows=2 * grid.windows), tell_oddities=False)
    return tuple(place for place in every if place.window >= grid.windows)


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
    with tempfile.TemporaryDirectory(prefix="headrace-tune-") as folder, progress("trials", search.trials) as tell:
        url = options.storage
        if url is None and at_work.pool is not None:
            url = f"journal:{folder}/study"
        study = new_study(search, open_storage(url))
        enqueue_start(study, search)
        if url is None or at_work.pool is None:
            optimize(study, search, options.store, lambda: tell(_ended(study, search)))
        else:
            futures = {
                at_work.pool.submit(_work, search, url, worker, options.store)
                for worker in range(1, at_work.processes + 1)
            }
            _watch(futures, study, search, tell)
        return found_in(study, search)


def _watch(left: set[Future[None]], study: Study, search: Search, tell: Tell) -> None:
    """Tell what processes that share a study have done, until they are done."""
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        tell(_ended(study, search))
        for future in done:
            future.result()


def _ended(study: Study, search: Search) -> int:
    """Of the trials asked for; several processes may end one more each."""
    return min(search.trials, sum(trial.state in ENDED for trial in study.get_trials(deepcopy=False)))


def _work(search: Search, url: str, worker: int, store: Path | None) -> None:
    optimize(new_study(search, open_storage(url), worker), search, store)


def _answer(
    options: TuneOptions, search: Search, found: Found, ratios: Mapping[str, Mapping[str, float]], gain: Gain
) -> dict[str, Any]:
    grid = options.grid
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
        "verdict": gain.verdict,
        "train_gain": gain.train,
        **gain.test.to_json("test_gain"),
        "written": FOUND if _is_better(gain) else START,
        "params": _values(found.policy),
        "params_start": _values(search.policy),
        "numbers": _numbers(search.policy, found.policy),
        "unsaid_trainer_usd_per_h": _trainer_usd_per_h(found.policy, grid),
        "out": str(options.out),
    }


def _trainer_usd_per_h(policy: PolicyChoice, grid: Grid) -> list[float]:
    """What the simulator took for the trainer's cost in each scenario, where the policy weighs it and names none."""
    if getattr(policy.sizing.params, "trainer_usd_per_h", 0.0) is not None:
        return []
    return sorted({load_scenario(scenario).spec.trainer.usd_per_h for scenario in grid.scenarios})


def _values(policy: PolicyChoice) -> dict[str, Any]:
    """What is searched, by the names of the code and in base units."""
    specs = {"policy": policy.sizing, "placement": policy.placement}
    return {knob.name: getattr(specs[knob.part].params, knob.field) for knob in knobs_of(policy)}


def _numbers(start: PolicyChoice, found: PolicyChoice) -> dict[str, dict[str, Any]]:
    """What is searched, before and after, as the YAML has it."""
    before, after = forms_of(start), forms_of(found)
    keys = [(knob.part, yaml_name(knob.field)) for knob in knobs_of(found)]
    return {f"{part}.{key}": {"start": before[part][key], "found": after[part][key]} for part, key in keys}


def _for_people(answer: Mapping[str, Any]) -> str:
    params = [
        {"parameter": name, "start": value_text(each["start"]), "found": value_text(each["found"])}
        for name, each in answer["numbers"].items()
    ]
    lines = (table_of(params), "", heading(answer).replace("# ", "").rstrip(), answer["out"])
    return "\n".join(lines)
