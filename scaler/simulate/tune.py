"""Search of a policy's parameters: the lowest mean ratio of its cost to the bound over training windows.

Policy
* A trial is a set of parameters; its value is the mean over windows and seeds of cost per sample over the bound of that
  window, so that windows where everything is dear weigh no more than others. All trials meet the same windows and seeds.
  A run that trains nothing counts as `WORST_RATIO`; a window where not even the optimum trains is none.
* Windows come in one shuffled order, the same for every trial; after each the running mean is reported, and a trial whose
  mean is above the median of those that came to their end, at the same window, is given up. (optuna's own median pruner
  looks at a trial's best report, and a mean over windows is at its best wherever the easy windows happen to be.)
* The first trial is the policy to start from; then a tree-structured Parzen estimator proposes. Parameters that a policy
  refuses together are a trial given up at once.
* Several processes, and machines, share one study through its storage; its name holds a digest of all that makes results
  comparable, so that different searches in one storage never mix.

Invariants: with one process and no storage a seed fixes the result; the best found is never worse on the training windows
than the start, where the start lies in the space.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import FrozenTrial, TrialState

from scaler.files import check_regular
from scaler.simulate.jobs import Job, Place, code_digest, run_job
from scaler.simulate.policy_file import PolicyChoice
from scaler.simulate.search_space import Value, knobs_of, start_of, with_values

WORST_RATIO = 100.0
"""A policy that trains nothing costs infinitely much: a search needs a number."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched where. `bounds`: cost per 1,000 samples of the optimum in each place."""

    policy: PolicyChoice
    bounds: Mapping[Place, float]
    seeds: int = 1
    trials: int = 20
    seed: int = 0

    @property
    def name(self) -> str:
        """Of the study: what may be compared has the same."""
        places = sorted(self.bounds, key=repr)
        words = repr((code_digest(), self.policy, places, self.seeds, self.seed))
        return f"{self.policy.name}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"

    @property
    def order(self) -> list[tuple[Place, int]]:
        """(place, seed) in the order in which every trial meets them."""
        every = [(place, seed) for place in sorted(self.bounds, key=repr) for seed in range(self.seeds)]
        Random(self.seed).shuffle(every)
        return every


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best of a search, and its mean ratio to the bound on the training windows."""

    policy: PolicyChoice
    ratio: float
    trials: int
    pruned: int


class RunningMeanPruner(BasePruner):
    """See the module's docstring. Nothing is given up before `startup` trials have ended, or in the first `warmup` windows."""

    def __init__(self, startup: int, warmup: int) -> None:
        self._startup, self._warmup = startup, warmup

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether the trial's latest report is above the median of the others' at that step."""
        step = trial.last_step
        if step is None or step < self._warmup:
            return False
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        others = [other.intermediate_values[step] for other in complete if step in other.intermediate_values]
        return len(others) >= self._startup and trial.intermediate_values[step] > median(others)


def open_storage(url: str | None) -> BaseStorage | None:
    """A storage that processes share: `journal:FILE`, or a database URL as `sqlite:///FILE`; None stays in memory.

    Raises:
        ValueError: what the URL names cannot be opened.
    """
    if url is None:
        return None
    try:
        if url.startswith("journal:"):
            return JournalStorage(JournalFileBackend(_journal(url.removeprefix("journal:"))))
        return RDBStorage(url)
    except Exception as error:  # every driver has errors of its own
        raise ValueError(f"storage {url!r} cannot be opened: {str(error).partition(chr(10))[0]}") from error


def _journal(file: str) -> str:
    """The name of a journal that is there and can be read to its end, or is still to be made."""
    if Path(file).exists():
        check_regular(Path(file))
    return file


def new_study(search: Search, storage: BaseStorage | None, worker: int = 0) -> optuna.Study:
    """The search's study, made or joined. `worker` keeps processes that share it from proposing the same."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    startup = max(5, search.trials // 4)
    return optuna.create_study(
        study_name=search.name,
        storage=storage,
        load_if_exists=True,
        sampler=TPESampler(seed=search.seed + worker, n_startup_trials=startup, constant_liar=True),
        pruner=RunningMeanPruner(startup, warmup=len(search.order) // 4),
    )


def enqueue_start(study: optuna.Study, search: Search) -> None:
    """The policy to start from comes first; nothing where the study has it already."""
    study.enqueue_trial(dict(start_of(search.policy, knobs_of(search.policy))), skip_if_exists=True)


def optimize(study: optuna.Study, search: Search, store: Path | None, ended: Callable[[], None] = lambda: None) -> None:
    """Work on the study until it has its trials."""

    def run(trial: optuna.Trial) -> float:
        return value_of(trial, search, store)

    def after(_study: optuna.Study, _trial: FrozenTrial) -> None:
        ended()

    enough = MaxTrialsCallback(search.trials, states=ENDED)
    if sum(trial.state in ENDED for trial in study.get_trials(deepcopy=False)) < search.trials:
        study.optimize(run, callbacks=[enough, after])


def value_of(trial: optuna.Trial, search: Search, store: Path | None) -> float:
    """A trial's value. Raises `TrialPruned` where it is given up."""
    policy = _suggested(trial, search.policy)
    ratios: list[float] = []
    for step, (place, seed) in enumerate(search.order):
        figures = run_job(Job(place=place, policy=policy, seed=seed), store)
        ratios.append(ratio_of(figures, search.bounds[place]))
        trial.report(fmean(ratios), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return fmean(ratios)


def ratio_of(figures: Mapping[str, Any], bound: float) -> float:
    """Cost over a finite bound, at most `WORST_RATIO`."""
    return min(WORST_RATIO, float(figures["cost_usd_per_1k_samples"]) / bound)


def _suggested(trial: optuna.Trial, policy: PolicyChoice) -> PolicyChoice:
    values: dict[str, Value] = {knob.name: knob.suggested(trial) for knob in knobs_of(policy)}
    try:
        return with_values(policy, values)
    except ValueError as error:
        raise optuna.TrialPruned(str(error)) from error


def found_in(study: optuna.Study, search: Search) -> Found:
    """The best of the study. `ValueError` where not one trial came to its end."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state in ENDED]
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    if not complete:
        raise ValueError("no trial came to its end: the policy refuses every set of parameters that was tried")
    best = min(complete, key=lambda trial: (math.inf if trial.value is None else trial.value, trial.number))
    return Found(
        policy=with_values(search.policy, best.params),
        ratio=best.value or math.inf,
        trials=len(trials),
        pruned=len(trials) - len(complete),
    )
