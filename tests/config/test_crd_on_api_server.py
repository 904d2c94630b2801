"""The definition on a real API server: it is established, takes what is right, and refuses what is wrong with its path."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.config.crd import HASH_ANNOTATION, installed_hash, schema_hash
from scaler.config.crd_rules import RULES
from scaler.config.schema import RolloutFleet
from scaler.kube.contract import ROLLOUT_FLEETS
from tests.builders.definition import established, sent
from tests.builders.fleet_yaml import (
    GONE,
    a_cluster_fleet,
    a_fleet,
    a_karpenter_pool,
    a_local_provider,
    a_pool,
    a_stage,
    an_asg,
    an_eks_group,
    an_offering,
    changed,
    faults_of,
    without,
)
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import api_server
from tests.config.test_wrong_fields import CROSSED, POOL, RAILS, STAGE, WRONG_IN_A_CLUSTER, WRONG_VALUES

__all__ = ["api_server"]
pytestmark = pytest.mark.cluster
EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "deploy" / "examples").glob("*.yaml")
    if "kind: RolloutFleet" in path.read_text()
)

BY_CONDITION = {
    "weights that are nowhere": "looking through every word of every command of every pool is over the API server's budget",
}
"""What the API server takes and the controller alone refuses, with the reason."""
BY_ADDRESS = {
    "another version": "the API server has no such address",
    "a fleet's namespace in capitals": "the API server has no such address",
}
"""What never gets as far as the definition: the request's path says it."""


@pytest.fixture(scope="module")
def plane(api_server: ControlPlane) -> ControlPlane:
    established(api_server)
    return api_server


def wrong_documents() -> list[tuple[str, dict[str, Any]]]:
    """Every faulty document of the tests of this folder."""
    rows = [(name, changed(a_fleet(), *path, to=value)) for name, path, value, _ in WRONG_VALUES]
    rows += [(name, document) for name, document, _ in CROSSED]
    for name, pool, path, value, _ in WRONG_IN_A_CLUSTER:
        document = a_cluster_fleet(pool)
        rows.append((name, without(document, *path) if value is GONE else changed(document, *path, to=value)))
    rows += [
        (f"without {path[-1]}", without(a_fleet(), *path))
        for path in [("spec", "spendCapUsdPerH"), (*RAILS, "floor"), (*RAILS, "ceiling"), ("spec", "stages"), POOL[:-1]]
    ]
    trainer: dict[str, Any] = {"name": "t", "selector": {"matchLabels": {"app": "trainer"}}}
    odd: list[tuple[str, dict[str, Any]]] = [
        ("spares that nothing tells apart", {"hotSpares": 1}),
        ("a selector of everything", {"selector": {"matchLabels": {}}}),
        ("a label that is none", {"selector": {"matchLabels": {"/app": "x"}}}),
        ("a label's value that is none", {"selector": {"matchLabels": {"app": "x/y"}}}),
        ("a repair that is none", {"repair": ["reboot"]}),
        ("a check that is none", {"ignore": ["luck"]}),
    ]
    rows += [(name, a_cluster_fleet(trainers=[trainer | over])) for name, over in odd]
    rows.append(("one trainer twice", a_cluster_fleet(trainers=[trainer, trainer])))
    reward = a_stage(name="reward", pools=[a_pool(name="reward")])
    rows += [
        ("another stage on the ledger", a_fleet(stages=[a_stage(), reward])),
        ("no rollout", changed(a_fleet(), *STAGE, "name", to="reward")),
        ("one pool in two stages", a_fleet(stages=[a_stage(), {**reward, "pools": [a_pool()]}])),
        ("too many offerings", changed(a_fleet(), *POOL, "offerings", to=[an_offering(zone=f"z{n}") for n in range(65)])),
        ("depths upside down", changed(a_fleet(), *STAGE, "policy", to={"type": "rate_match", "targetDepthSteps": 3.5})),
        ("a dotted name", a_fleet("a.b")),
        ("two pools too dear together", a_fleet(stages=[a_stage(guardRails={"floor": 4, "ceiling": 9}, pools=[
            a_pool(name="cheap", maxReplicas=2), a_pool(name="dear", offerings=[an_offering(priceUsdPerH="4.50")])])])),
    ]  # fmt: skip
    return rows


WRONG = wrong_documents()


def names(message: str, path: str) -> bool:
    """Whether the message names the place: its path, or the path of what holds it and the key, or by the stage's name."""
    by_name = (
        path.replace("stages[0]", "stages[rollout]").replace("stages[1]", "stages[reward]").replace("pools[0]", "pools")
    )
    if "['" in path:
        return path.partition("['")[0] in message
    holder, _, key = path.rpartition(".")
    return path in message or by_name in message or (holder in message and key.partition("[")[0] in message)


@pytest.mark.parametrize(("name", "document"), WRONG, ids=[name for name, _ in WRONG])
def test_each_fault_is_refused_by_the_api_server_or_known_to_be_the_controllers(
    plane: ControlPlane, name: str, document: dict[str, Any]
) -> None:
    faults = faults_of(document)
    assert faults, "the controller refuses all of them"
    answer = sent(plane, document)
    if name in BY_CONDITION:
        assert answer.status == 201
    elif name not in BY_ADDRESS:
        assert answer.status in (400, 422), answer
        assert any(names(answer.message, fault.path) for fault in faults), (answer.message, faults)


def test_every_rule_is_one_that_some_fault_meets(plane: ControlPlane) -> None:
    said = " ".join(sent(plane, document).message for _, document in WRONG)
    said = said.replace('\\"', '"')
    unmet = [rule.message for rules in RULES.values() for rule in rules if json.dumps(rule.message)[1:-1] not in said]
    # A stage other than rollout has no source of signals yet, so nothing else can be wrong with it.
    assert [
        message for message in unmet if "stages[reward]" not in message and "stages[environment]" not in message
    ] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_taken(plane: ControlPlane, path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert sent(plane, document).message == ""


def the_largest_fleet() -> dict[str, Any]:
    """As many pools and offerings as there may be, on what costs most to check."""
    offerings = [an_offering(instanceType=f"p5.{n}xlarge", zone="us-west-2a", priceUsdPerH="12.345") for n in range(64)]
    billed = [
        {**offering, "billing": {"minimum": "60.5s", "refundIfInterruptedWithin": "1h"}} for offering in offerings
    ]
    timed = {"offerings": billed, "launchTimeout": "20m30s", "refusalBackoffMax": "1h30m", "maxReplicas": 2}
    pools = [{**an_asg(group=f"group-{n}"), "name": f"pool-{n}", **timed} for n in range(64)]
    return a_cluster_fleet(*pools, spendCapUsdPerH="100000")


def test_the_largest_fleet_is_within_the_api_servers_budget(plane: ControlPlane) -> None:
    document = the_largest_fleet()
    RolloutFleet.model_validate(document)
    assert sent(plane, document).message == ""


def test_the_definition_is_established_and_carries_its_hash(plane: ControlPlane) -> None:
    found = established(plane)
    assert found["metadata"]["annotations"][HASH_ANNOTATION] == schema_hash() == installed_hash(found)
    assert found["spec"]["names"]["shortNames"] == ["rfleet"]
    assert not [each for each in found["status"]["conditions"] if each["type"] == "NonStructuralSchema"]


def test_what_is_stored_is_what_was_written(plane: ControlPlane) -> None:
    """Defaults are the controller's: an old object never changes under a new definition."""
    document = a_cluster_fleet(an_asg(), an_eks_group() | {"name": "eks"}, a_karpenter_pool() | {"name": "karpenter"})
    body = {**document, "metadata": {"name": "kept"}}
    stored = plane.api.create(f"{ROLLOUT_FLEETS.path(namespace='default')}?dryRun=All", body)
    assert stored["spec"] == document["spec"]


JUST_RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("a floor as high as the ceiling", changed(a_fleet(), *RAILS, to={"floor": 4, "ceiling": 4})),
    ("a floor as large as the pools", changed(changed(a_fleet(), *POOL, "maxReplicas", to=2), *RAILS, "floor", to=2)),
    ("a cap that pays for just the floor", a_fleet(spendCapUsdPerH="1.00")),
    ("a stage's cap that pays for just the floor", changed(a_fleet(), *RAILS, "spendCapUsdPerH", to="1.00")),
    ("a stage's cap as high as the fleet's", changed(a_fleet(), *RAILS, "spendCapUsdPerH", to="10")),
    ("equal cool-downs", changed(a_fleet(), *RAILS, "cooldownUp", to="300000ms")),
    ("a margin just below the deadline", changed(a_fleet(), *STAGE, "drain", to={"margin": "119.999s"})),
    ("an age of one interval", changed(a_fleet(interval="1.1s"), *STAGE, "signals", to={"maxAge": "1100ms"})),
    ("a launch of one interval", changed(a_fleet(interval="1.1s"), *POOL, "launchTimeout", to="1100ms")),
    ("equal back-offs of a pool", changed(a_fleet(), *POOL, "refusalBackoffInitial", to="2m")),
    ("equal back-offs of a job", changed(a_fleet(), "spec", "job", "backoffInitial", to="0.5m")),
    ("equal depths", changed(a_fleet(), *STAGE, "policy", to={"type": "rate_match", "targetDepthSteps": 2.0})),
    ("a long name", a_fleet("a" * 63)),
    ("ten years", changed(a_fleet(), *RAILS, "cooldownDown", to="3650d")),
    ("all of the replicas", changed(a_fleet(), *RAILS, "disruptionBudget", to="100.00%")),
    ("the last port", a_fleet(http={"listen": "[::]:65535"})),
    ("literal braces", changed(a_fleet(), *POOL, "provider", "command", to=["{{x}}", "{{{ledger}}}"])),
]


@pytest.mark.parametrize("document", [row[1] for row in JUST_RIGHT], ids=[row[0] for row in JUST_RIGHT])
def test_what_is_just_right_is_taken(plane: ControlPlane, document: dict[str, Any]) -> None:
    assert not faults_of(document)
    assert sent(plane, document).message == ""


AMOUNTS = st.builds(
    lambda parts: "".join(f"{number}{unit}" for unit, number in parts),
    st.lists(
        st.tuples(
            st.sampled_from(["d", "h", "m", "s", "ms"]),
            st.one_of(st.integers(0, 2000).map(str), st.decimals(0, 99, places=3).map(str)),
        ),
        min_size=1,
        max_size=3,
    ),
)
URLS = st.sampled_from(
    ["valkey://h", "valkeys://h:1/2", "valkey://u@h:6379/0", "valkey://[::1]:6379", "valkey://h/", "valkey://H.x:7/9"]
)


@given(
    a=AMOUNTS,
    b=AMOUNTS,
    interval=AMOUNTS,
    url=URLS,
    prices=st.lists(st.integers(0, 5000), min_size=2, max_size=4),
    most=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    floor=st.integers(0, 9),
    cap=st.integers(0, 20000),
    word=st.text(alphabet="ab{}=-", max_size=8),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_what_the_controller_takes_the_api_server_takes(
    plane: ControlPlane, a: str, b: str, interval: str, url: str, prices: list[int], most: list[int], floor: int, cap: int,
    word: str,
) -> None:  # fmt: skip
    pools = [
        a_pool(
            name=f"pool-{n}",
            maxReplicas=bound,
            provider=a_local_provider(command=["run", word]),
            offerings=[an_offering(priceUsdPerH=f"{cents / 100}")],
        )
        for n, (cents, bound) in enumerate(zip(prices, most, strict=False))
    ]
    rails = {"floor": floor, "ceiling": 9, "cooldownUp": a, "cooldownDown": b}
    stage = a_stage(guardRails=rails, pools=pools, drain={"margin": a, "voluntaryDeadline": b}, signals={"maxAge": b})
    document = a_fleet(
        spendCapUsdPerH=f"{cap / 100}", interval=interval, stages=[stage], ledger={"type": "valkey", "url": url}
    )
    if not faults_of(document):
        assert sent(plane, document).message == ""


@given(
    prices=st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    most=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    floor=st.integers(0, 9),
    cap=st.integers(0, 20000),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_what_a_floor_costs_is_the_same_to_both(
    plane: ControlPlane, prices: list[int], most: list[int], floor: int, cap: int
) -> None:
    pools = [
        a_pool(name=f"pool-{n}", maxReplicas=bound, offerings=[an_offering(priceUsdPerH=f"{cents / 100}")])
        for n, (cents, bound) in enumerate(zip(prices, most, strict=False))
    ]
    stage = a_stage(guardRails={"floor": floor, "ceiling": 9}, pools=pools)
    document = a_fleet(spendCapUsdPerH=f"{cap / 100}", stages=[stage])
    assert bool(sent(plane, document).message) == bool(faults_of(document))
