"""Whatever a file holds, the loader gives fleets or faults, and nothing else."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.config import convert
from scaler.config.loader import parse_fleets
from scaler.model.spec import FleetSpec
from scaler.model.units import format_duration
from tests.builders.fleet_yaml import SOURCE, a_fleet, a_pool, a_stage, an_offering, faults_in, text_of, the_fleet

EXAMPLE = (Path(__file__).parents[2] / "deploy" / "examples" / "local.yaml").read_bytes()
DOCUMENT = yaml.safe_load(EXAMPLE)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.sampled_from(
        ["type", "local", "sqlite", "rollout", "10s", "10%", "1.00", "{x}", "{{", "0s", "-1", "a" * 500, "\ud7ff\0"]
    ),
)
KEYS = st.one_of(
    st.text(max_size=12), st.integers(), st.booleans(), st.none(), st.sampled_from(["type", "name", "floor"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) in a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from places(inner)


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    """The example with up to four places replaced, removed, renamed or doubled."""
    document = copy.deepcopy(DOCUMENT)
    for _ in range(draw(st.integers(1, 4))):
        spots = list(places(document))
        container, key = spots[draw(st.integers(0, len(spots) - 1))]
        match draw(st.sampled_from(["replace", "remove", "rename", "double"])):
            case "replace":
                container[key] = draw(VALUES)
            case "remove":
                del container[key]
            case "rename" if isinstance(container, dict):
                container[draw(KEYS)] = container.pop(key)
            case _ if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
    return document


def loads_or_tells(data: bytes) -> None:
    faults = faults_in(data)
    assert all(str(fault).isprintable() for fault in faults)
    assert all(fault.message and fault.remedy for fault in faults)
    if not faults:
        assert all(isinstance(convert.to_spec(fleet), FleetSpec) for fleet in parse_fleets(data, SOURCE))


@given(mutants())
@settings(max_examples=150)
def test_a_changed_document_is_read_or_told_about(document: Any) -> None:
    loads_or_tells(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(
    st.lists(
        st.tuples(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=5
    )
)
@settings(max_examples=150)
def test_changed_bytes_are_read_or_told_about(edits: list[tuple[int, int, bytes]]) -> None:
    data = EXAMPLE
    for at, removed, added in edits:
        data = data[:at] + added + data[at + removed :]
    loads_or_tells(data)


@given(st.text(alphabet="ab:-[]{}&*!|>?#%@'\"\n\t ,0.~<=", max_size=80))
@settings(max_examples=300)
def test_any_text_is_read_or_told_about(text: str) -> None:
    loads_or_tells(text.encode())


DURATIONS_MS = st.integers(1, 10**9)


@given(
    floor=st.integers(0, 50),
    spread=st.integers(1, 50),
    interval_ms=st.integers(1, 30_000),
    cooldown_ms=DURATIONS_MS,
    percent=st.integers(0, 1000),
    prices=st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
    paused=st.booleans(),
)
@settings(max_examples=100)
def test_every_number_of_a_valid_fleet_arrives(
    floor: int, spread: int, interval_ms: int, cooldown_ms: int, percent: int, prices: list[int], paused: bool
) -> None:
    rails = {
        "floor": floor,
        "ceiling": floor + spread,
        "cooldownDown": format_duration(cooldown_ms / 1e3),
        "disruptionBudget": f"{percent / 10}%",
    }
    offerings = [an_offering(zone=f"z{n}", priceUsdPerH=f"{cents / 100:.2f}") for n, cents in enumerate(prices)]
    document = a_fleet(
        spendCapUsdPerH="1000000",
        interval=format_duration(interval_ms / 1e3),
        paused=paused,
        stages=[a_stage(guardRails=rails, pools=[a_pool(offerings=offerings)])],
    )
    fleet = the_fleet(document)
    spec = convert.to_spec(fleet)
    (stage,) = spec.stages
    assert (stage.guard_rails.min_replicas, stage.guard_rails.max_replicas) == (floor, floor + spread)
    assert abs(stage.guard_rails.cooldown_down_s - cooldown_ms / 1e3) < 1e-6
    assert abs(stage.guard_rails.disruption_budget_ratio - percent / 1000) < 1e-12
    assert [offering.price_usd_per_h for offering in stage.pools[0].offerings] == [cents / 100 for cents in prices]
    assert (spec.paused, abs(spec.interval_s - interval_ms / 1e3) < 1e-6) == (paused, True)
    assert parse_fleets(text_of(fleet.model_dump(mode="json", by_alias=True)), SOURCE) == [fleet]
