"""The YAML of a scenario for tests (the shipped small one), and capacity that it can be bound to."""

from pathlib import Path
from typing import Any

import yaml

from policies import cheapest_available, static
from scaler.config.faults import ConfigError
from scaler.model.spec import PolicySpec
from scaler.simulate.loading import ScenarioFile, parse_scenario, shipped_scenarios
from scaler.simulate.policy_file import PolicyChoice
from scaler.traces.trace import CapacityTrace, Series

SOURCE = Path("/here/scenario.yaml")


def a_document() -> dict[str, Any]:
    """The small scenario as plain values."""
    document: dict[str, Any] = yaml.safe_load(shipped_scenarios()["small"].read_text())
    return document


def a_reward_stage(**over: Any) -> dict[str, Any]:
    """Two replicas of 16 samples at once, two seconds each."""
    stage = {"name": "reward", "concurrentSamples": 16, "service": {"least": "2s"}, "replicas": 2}
    return stage | {"instanceType": "cpu", "priceUsdPerH": "0.5"} | over


def the_scenario(document: object | None = None) -> ScenarioFile:
    return parse_scenario(yaml.safe_dump(a_document() if document is None else document).encode(), SOURCE)


def lines_of(document: object) -> list[str]:
    """What is wrong with it, a line each, without file and line."""
    try:
        the_scenario(document)
    except ConfigError as error:
        return [str(fault).split(": ", 1)[1] for fault in error.faults]
    return []


def fixed(replicas: int) -> PolicyChoice:
    """A fleet of one size."""
    return PolicyChoice(
        name=f"static-{replicas}",
        sizing=PolicySpec(name="static", params=static.Params(replicas=replicas)),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
    )


def plenty(replicas: int = 1000, hours: float = 96.0) -> CapacityTrace:
    """One zone with more than anybody wants, all the time."""
    series = Series(name="plenty", times_s=(0.0,), counts=(replicas,))
    return CapacityTrace(source="plenty", format="made up", series=(series,), end_s=hours * 3600, tick_s=60.0)
