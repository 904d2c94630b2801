"""One computation of a comparison: a policy, or the optimum, in one window of one scenario; with a store of results.

Policy: what a job gives depends on the bound scenario, its seed and our code alone. The store's key is a digest of exactly
these, so that an interrupted comparison goes on where it was, and nothing old is taken for new after a change.
Invariants: a result is written whole or not at all; jobs are values that any process can run.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from policies import cheapest_available, static
from scaler.model.spec import PolicySpec
from scaler.simulate.loading import ScenarioFile, load_scenario, open_trace
from scaler.simulate.optimum import solve
from scaler.simulate.policy_file import PolicyChoice
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import simulate
from scaler.traces.trace import CapacityTrace

OPTIMUM = "optimum"
_SOURCES = Path(__file__).resolve().parents[2]
_NOBODY = PolicyChoice(
    name=OPTIMUM,
    sizing=PolicySpec(name="static", params=static.Params(replicas=0)),
    placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
)
"""The optimum asks no policy; a world needs one all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One window of one scenario. `trace` None: the scenario's own capacity, generated with the window's number as seed."""

    scenario: str
    """Name or file."""
    trace: str | None
    """FILE or FILE#zone1,zone2."""
    window: int
    start_h: float
    hours: float
    ignore_dips: bool = False

    def bind(self, policy: PolicyChoice | None) -> Scenario:
        """The world of this window under a policy; None for the optimum."""
        file = _scenario(self.scenario)
        choice = policy or _NOBODY
        if self.trace is None:
            return file.bind(choice, hours=self.hours, seed=self.window)
        trace = _trace(self.trace, self.ignore_dips)
        return file.bind(choice, trace=trace, start_h=self.start_h, hours=self.hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A policy in a window with a seed; without a policy the optimum, which has no luck and so no seed."""

    place: Place
    policy: PolicyChoice | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """The policy's name, or the optimum's."""
        return OPTIMUM if self.policy is None else self.policy.name


def run_job(job: Job, store: Path | None = None) -> dict[str, Any]:
    """The figures of a job by name, from the store where it has them."""
    scenario = job.place.bind(job.policy)
    if store is None:
        return _compute(job, scenario)
    file = store / f"{_digest(job, scenario)}.json"
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = _compute(job, scenario)
        _write(file, found)
    return found


def _compute(job: Job, scenario: Scenario) -> dict[str, Any]:
    if job.policy is None:
        return dict(solve(scenario).to_json())
    return simulate(scenario, job.seed).summary.to_json()


def _write(file: Path, figures: dict[str, Any]) -> None:
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(figures), encoding="utf-8")
        draft.replace(file)
    except OSError as error:  # of a disk that is full the system names no file
        raise OSError(error.errno, error.strerror, error.filename or str(file)) from error


def _digest(job: Job, scenario: Scenario) -> str:
    words = (code_digest(), job.name if job.policy is None else "policy", str(job.seed), repr(scenario))
    return hashlib.sha256("\x1f".join(words).encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """Digest of all that a result may depend on: the sources of simulator, engine and policies."""
    digest = hashlib.sha256()
    folders = (
        "policies",
        "scaler/simulate",
        "scaler/decide",
        "scaler/model",
        "scaler/observe",
        "scaler/traces",
        "scaler/config",
    )
    for folder in folders:
        for file in sorted((_SOURCES / folder).rglob("*.py")):
            digest.update(file.relative_to(_SOURCES).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=32)
def _scenario(name: str) -> ScenarioFile:
    return load_scenario(name)


@lru_cache(maxsize=32)
def _trace(text: str, ignore_dips: bool) -> CapacityTrace:
    return open_trace(text, ignore_dips=ignore_dips)
