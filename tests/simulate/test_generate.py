"""Generated capacity: by seed alone, the same for whoever asks, and shaped as its numbers say."""

from itertools import pairwise
from statistics import correlation, mean

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.simulate.generate import generate
from scaler.simulate.generated_yaml import Generated
from scaler.simulate.loading import ScenarioFile, load_scenario
from scaler.traces.trace import Series
from tests.builders.fleet_yaml import changed
from tests.builders.scenario_yaml import a_document, fixed, the_scenario

WEEKS_S = 8 * 7 * 86400.0
HOUR_S = 3600.0


def a_generated(**over: object) -> Generated:
    plain = {
        "regions": [{"name": "east", "zones": ["east-a", "east-b"]}, {"name": "west", "zones": ["west-a"]}],
        "replicas": 8,
        "up": {"least": "1h", "median": "2h", "sigma": 1},
        "down": {"least": "30m", "median": "30m", "sigma": 1},
        "full": "50%",
    }
    return Generated.model_validate(plain | over)


def generated_by(scenario: ScenarioFile) -> Generated:
    assert scenario.spec.generated is not None
    return scenario.spec.generated


def hourly(series: Series) -> list[int]:
    return [series.at(hour * HOUR_S) for hour in range(int(WEEKS_S / HOUR_S))]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), hours=st.floats(1, 100))
def test_a_longer_stretch_starts_like_a_shorter_one_and_counts_stay_within_the_most(seed: int, hours: float) -> None:
    short = generate(a_generated(), seed, hours * HOUR_S)
    long = generate(a_generated(), seed, 2 * hours * HOUR_S)
    for one, other in zip(short.series, long.series, strict=True):
        assert list(other.changes())[: len(one.times_s)] == list(one.changes())
        assert set(one.counts) <= set(range(9))
        assert all(before != after for before, after in pairwise(one.counts))


def test_a_zone_more_changes_nothing_for_the_others() -> None:
    more = a_generated(regions=[{"name": "east", "zones": ["east-a", "east-b", "east-c"]}])
    assert generate(more, 3, WEEKS_S).one("east-a") == generate(a_generated(), 3, WEEKS_S).one("east-a")


def test_seeds_differ() -> None:
    assert generate(a_generated(), 1, WEEKS_S).series != generate(a_generated(), 2, WEEKS_S).series


def test_a_zone_is_up_for_its_share_of_the_time_and_half_of_that_full() -> None:
    """Means: up 1 h + 2 h * e^0.5 = 4.3 h, down 0.5 h + 0.5 h * e^0.5 = 1.3 h."""
    counts = [n for series in generate(a_generated(), 0, WEEKS_S).series for n in hourly(series)]
    up = [n for n in counts if n]
    assert 0.72 < len(up) / len(counts) < 0.82
    assert 0.42 < mean(n == 8 for n in up) < 0.58
    assert all(0.04 < mean(n == some for n in up) < 0.11 for some in range(1, 8))


def test_a_scarcity_takes_the_zones_of_a_region_together_and_no_other() -> None:
    scarce = a_generated(
        down={"least": "1s"},
        up={"least": "100h"},
        full="100%",
        scarcity={
            "every": {"least": "1h", "median": "5h", "sigma": 1},
            "lasts": {"least": "2h", "median": "2h"},
            "strikes": "90%",
        },
    )
    a, b, west = (hourly(series) for series in generate(scarce, 0, WEEKS_S).series)
    assert correlation(a, b) > 0.7
    assert abs(correlation(a, west)) < 0.2


def test_case_a_generates_what_the_h100_probes_showed() -> None:
    """research/spot-policies.md 1.3: P(>=1) = .77, P(16) = .44; same region .28 to .44, other region .09."""
    found = generate(generated_by(load_scenario("case-a")), 0, WEEKS_S)
    counts = {series.name: hourly(series) for series in found.series}
    every = [n for each in counts.values() for n in each]
    assert 0.65 < mean(n > 0 for n in every) < 0.85
    assert 0.33 < mean(n == 16 for n in every) < 0.5
    assert 0.2 < correlation(counts["us-east-2a"], counts["us-east-2b"]) < 0.6
    assert abs(correlation(counts["us-east-2a"], counts["us-west-2a"])) < 0.2


def test_hazards_belong_to_generated_capacity_alone() -> None:
    hazard = {"burstsPerH": 0.1, "burst": "50%"}
    scenario = the_scenario(changed(a_document(), "spec", "generated", "hazard", to=hazard))
    (spot, *_) = scenario.bind(fixed(6)).offerings
    assert spot.hazard is not None
    assert (spot.hazard.steps, spot.hazard.bursts_per_h, spot.hazard.burst_ratio) == (((0.0, 0.0),), 0.1, 0.5)
    trace = generate(generated_by(scenario), 0, 24 * HOUR_S)
    assert all(model.hazard is None for model in scenario.bind(fixed(6), trace=trace).offerings)
