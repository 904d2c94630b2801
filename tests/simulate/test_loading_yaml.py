"""The YAML of a scenario: what is wrong is one line, with what to do; what can never be balanced is wrong."""

from pathlib import Path
from typing import Any

import pytest

from scaler.config.faults import ConfigError
from scaler.simulate.loading import load_scenario, scenario_schema
from tests.builders.fleet_yaml import changed, without
from tests.builders.scenario_yaml import a_document, a_reward_stage, lines_of, the_scenario

REWARD = a_reward_stage(concurrentSamples=4, service={"least": "5s"}, replicas=1)

WRONG: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("another kind", ("kind",), "RolloutFleet", "kind: this is a RolloutFleet, not a Scenario (name"),
    ("a kind that is none", ("kind",), "Job", "kind: 'Job' is not known here (use Scenario)"),
    ("a number that is none", ("spec", "hours"), float("nan"), "spec.hours: nan is no finite number (write a number"),
    ("a key with a slip", ("spec", "hour"), 12, "spec.hour: unknown key (did you mean hours?)"),
    ("a bare number for a duration", ("spec", "interval"), 60, "spec.interval: 60 is no duration (write it as text"),
    ("a bare number for an amount", ("spec", "spot", "priceUsdPerH"), 10, "spec.spot.priceUsdPerH: 10 is no amount of"),
    ("a zone's price that is none", ("spec", "spot", "zonePricesUsdPerH"), {"a": "x"},
     "spec.spot.zonePricesUsdPerH.a: 'x' is no amount of USD"),
    ("a ceiling too near to balance", ("spec", "guardRails", "ceiling"), 6,
     "spec.guardRails.ceiling: balance needs 6.0 replicas, more than 0.9 of the ceiling 6 (raise it to 7 at least)"),
    ("concurrency below a batch", ("spec", "job", "maxConcurrent"), 63,
     "spec.job.maxConcurrent: 63 units at once are less than a batch"),
    ("a stock bound below batch and flight", ("spec", "job", "maxStaleness"), 1,
     "spec.job.maxStaleness: staleness admits 128 samples in buffer and flight; a batch and what a fleet in balance"),
    ("groups that do not fill a replica", ("spec", "generation", "concurrentUnits"), 10,
     "spec.generation.concurrentUnits: 10 is no multiple of the group size 4"),
    ("hours that say little", ("spec", "hours"), 11.5, "spec.hours: 11.5 hours say little of a policy (write 12 at"),
    ("publishing all the time", ("spec", "trainer", "publish"), "64s", "spec.trainer.publish: publishing takes 64 s"),
    ("nothing accepted", ("spec", "acceptance"), "0%", "spec.acceptance: nothing would be accepted"),
    ("units over their bound", ("spec", "generation", "tokensPerS"), 100.0,
     "spec.generation.goodputPerReplicaPerS: it makes a unit of 4.8e+03 tokens on average, and units have 10 to 4096"),
    ("units of a handful of tokens", ("spec", "generation", "tokensPerS"), 0.2,
     "spec.generation.goodputPerReplicaPerS: it makes a unit of 9.6 tokens on average, and units have 10 to 4096"),
    ("a rate an hour for one a second", ("spec", "generation", "goodputPerReplicaPerS"), 360.0,
     "spec.generation.goodputPerReplicaPerS: a trainer of 1 samples/s over a replica of 360/s is 0.0028 replicas"),
    ("days between decisions", ("spec", "interval"), "3d",
     "spec.interval: a run of 12 h has 0.17 decisions, too few to judge any policy"),
    ("a floor over balance", ("spec", "guardRails", "floor"), 7, "spec.guardRails.floor: the floor alone is more"),
    ("a warm fleet over the ceiling", ("spec", "warm", "replicas"), 9, "spec.warm.replicas: more than the ceiling"),
    ("a warm buffer over the bound", ("spec", "warm", "depthSamples"), 577, "spec.warm.depthSamples: more than stale"),
    ("a timeout below the launch", ("spec", "launch"), {"timeout": "5m"}, "spec.launch.timeout: shorter than the long"),
    ("least over most", ("spec", "launch"), {"boot": {"least": "2m", "most": "1m"}},
     "spec.launch.boot.least: least is over most"),
    ("notices of more than all", ("spec", "notices"), {"late": "60%", "none": "60%"}, "spec.notices.late: late and"),
    ("late notices upside down", ("spec", "notices"), {"lateLeast": "111s"}, "spec.notices.lateLeast: late notices"),
    ("sojourns of nothing", ("spec", "generated", "up"), {"median": "1h"},
     "spec.generated.up.least: a time may be next to nothing (write 1s at least)"),
    ("scarcities without an end", ("spec", "generated", "scarcity", "every"), {"median": "1h"},
     "spec.generated.scarcity.every.least: a time may be next to nothing (write 1s at least)"),
    ("a stage that serves too little", ("spec", "services"), [REWARD],
     "spec.services[0].replicas: 1 serve 0.8 samples/s, and balance makes 1/s (raise it to 2 at least)"),
    ("a stage in which more waits than may be in flight", ("spec", "services"),
     [REWARD | {"service": {"least": "8m"}, "replicas": 120}],
     "spec.job.maxStaleness: staleness admits 576 samples in buffer and flight; a batch and what a fleet in balance"),
    ("a zone twice", ("spec", "generated", "regions"), [{"name": "r", "zones": ["z", "z"]}],
     "spec.generated.regions: zone z is there twice"),
    ("a hazard that starts late", ("spec", "generated", "hazard"), {"steps": [{"from": "1h", "perH": 1}]},
     "spec.generated.hazard.steps: ages must grow, the first 0s"),
    ("blocks of one name", ("spec", "capacityBlocks"),
     [{"name": "b", "priceUsdPerH": "1", "replicas": 1, "lasts": "1h"}] * 2,
     "spec.capacityBlocks[1].name: block b is there twice"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "line"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_one_line_that_says_where_and_what_to_do(
    path: tuple[str | int, ...], value: Any, line: str
) -> None:
    (found,) = lines_of(changed(a_document(), *path, to=value))
    assert found.startswith(line)
    assert found.endswith(")")


def test_long_units_of_few_versions_would_all_be_too_stale() -> None:
    """Groups of 4 of about 1.6 mean units, 480 s each, and two versions of 64 s."""
    document = changed(a_document(), "spec", "generation", "concurrentUnits", to=80)
    document = changed(document, "spec", "generation", "tokensPerS", to=2.0)
    document = changed(document, "spec", "job", "maxConcurrent", to=4096)
    assert "would be too stale" in " ".join(lines_of(document))


def test_rates_that_do_not_fit_are_told_with_their_arithmetic() -> None:
    rate, tokens = (
        lines_of(changed(a_document(), "spec", "generation", key, to=value))[0]
        for key, value in (("goodputPerReplicaPerS", 360.0), ("tokensPerS", 0.2))
    )
    assert "0.0028 replicas in balance, less than half of one (both are per second, not per hour; write 2 at" in rate
    assert "and units have 10 to 4096: (8 units * 1 accepted / 0.166667/s) * 0.2 tokens/s (change goodput" in tokens


def test_what_is_missing_is_named() -> None:
    assert lines_of(without(a_document(), "spec", "trainer")) == ["spec.trainer: is missing (add it: The consumer)"]


def test_a_recording_may_be_short() -> None:
    short = changed(changed(a_document(), "spec", "hours", to=0.02), "spec", "replay", to=True)
    assert the_scenario(short).hours == 0.02


def test_a_recording_may_have_few_tokens_and_little_balance_but_a_decision() -> None:
    odd = changed(changed(a_document(), "spec", "replay", to=True), "spec", "generation", "tokensPerS", to=1.0)
    odd = changed(odd, "spec", "generation", "goodputPerReplicaPerS", to=2.5)
    assert the_scenario(odd).spec.balance_replicas == 0.4
    (found,) = lines_of(changed(odd, "spec", "interval", to="13h"))
    assert found.startswith("spec.interval: a run of 12 h has 0.92 decisions")


def test_a_name_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no scenario or file of that name \(shipped: aws-48-nodes, case-a"):
        load_scenario("case-z")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty (write a Scenario; `headrace scenarios` lists"),
        (b"a: [", "is no YAML"),
        (b"\xff", "is no UTF-8"),
        (b"a: 1\n---\nb: 2\n", "holds 2 documents"),
    ],
    ids=["nothing", "no YAML", "no text", "two documents"],
)
def test_a_file_that_is_no_scenario_is_a_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_scenario(str(file))
    assert says in str(caught.value)
    assert len(caught.value.faults) == 1


def test_every_field_of_the_schema_says_what_it_is_and_what_the_notes_are_that_it_cites() -> None:
    schema = scenario_schema()
    assert "research/*.md" in schema["description"]
    undocumented = [
        f"{name}.{key}"
        for name, model in schema["$defs"].items()
        for key, field in model.get("properties", {}).items()
        if "description" not in field and not name.endswith("Policy")
    ]
    assert not undocumented
