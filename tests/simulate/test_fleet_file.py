"""Another policy in a fleet's text: nothing else changes, and the copy means the same wherever it lies."""

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import cheapest_available, rate_match
from scaler.config.faults import ConfigError
from scaler.config.loader import parse_fleets
from scaler.model.spec import PolicySpec
from scaler.simulate.fleet_file import fleet_with
from scaler.simulate.policy_file import PolicyChoice, load_policy, policy_of
from tests.builders.fleet_yaml import a_fleet, a_stage

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "local.yaml"
HERE, BESIDE, ELSEWHERE = Path("/jobs/fleet.yaml"), Path("/jobs/tuned.yaml"), Path("/out/tuned.yaml")


def matching(headroom: float, **params: Any) -> PolicyChoice:
    """`rate_match` with this headroom."""
    spec = PolicySpec(name="rate_match", params=rate_match.Params(headroom_ratio=headroom, **params))
    return replace(load_policy("rate_match"), sizing=spec)


def placed_within(reclaiming_s: float, choice: PolicyChoice) -> PolicyChoice:
    """The choice, with this number for its placement."""
    params = cheapest_available.Params(reclaiming_s=reclaiming_s)
    return replace(choice, placement=PolicySpec(name="cheapest_available", params=params))


def changes(before: str, after: str) -> list[str]:
    """Lines that went and came."""
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]


def policy_in(text: str, file: Path = BESIDE) -> PolicyChoice:
    (fleet,) = parse_fleets(text.encode(), file)
    return policy_of(fleet, "rate_match")


def written(policy: str, *, more: str = "") -> str:
    """A fleet whose rollout stage has this text for a policy, behind `policy:`."""
    placeholder = a_stage(policy={"type": "rate_match", "headroom": "77%"})
    text = yaml.safe_dump(a_fleet(stages=[placeholder]), sort_keys=False)
    return text.replace("\n      type: rate_match\n      headroom: 77%\n", f"{policy}\n{more}")


def test_of_the_same_type_only_lines_whose_values_differ_change_and_comments_stay() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    changed = fleet_with(matching(0.25, lower_slack_ratio=0.3), EXAMPLE.read_bytes(), EXAMPLE, EXAMPLE)

    assert changes(text, changed) == [
        "-         headroom: 10%",
        "+         headroom: 25%",
        "+         lowerSlack: 30%",
    ]


def test_the_same_policy_changes_nothing_at_all() -> None:
    choice = load_policy(str(EXAMPLE))
    assert fleet_with(choice, EXAMPLE.read_bytes(), EXAMPLE, EXAMPLE).encode() == EXAMPLE.read_bytes()


def test_of_another_type_the_policy_is_written_anew_and_all_else_stays() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    changed = fleet_with(load_policy("buffer_band"), EXAMPLE.read_bytes(), EXAMPLE, EXAMPLE)

    went = [line for line in changes(text, changed) if line[0] == "-"]
    assert went == ["-         type: rate_match", "-         headroom: 10%", "-         fillHorizon: 5m"]
    assert "      policy: # how many replicas are wanted\n        type: buffer_band\n" in changed
    assert policy_in(changed).sizing == load_policy("buffer_band").sizing


@pytest.mark.parametrize(
    "policy",
    [
        "\n      type: rate_match\n      headroom: 20% # of last month",
        "\n      headroom: 20%\n      # in between\n      type: rate_match # and behind",
        " {type: rate_match, headroom: 20%}",
        " {type: rate_match, headroom: 20%,} # in one line",
        '\n      "type": "rate_match"\n      initialGoodputPerReplicaPerS: # none\n',
        " # nothing of its own\n\n      type: rate_match",
        "\n      type: buffer_band # of another type\n      # tuned in May\n      lowMark: 0.5",
        " {type: buffer_band, lowMark: 0.5}",
        " &mine # an anchor that nothing uses\n      type: rate_match",
        " &mine\n      type: buffer_band",
        "\n      headroom: |-\n        20%\n\n      type: !!str rate_match\n      lowerSlack: &slack 10%",
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("placed", ["", "    placement: {type: cheapest_available, reclaiming: 1m} # quick\n"])
def test_however_a_policy_is_written_the_result_is_that_fleet_with_the_new_one(
    policy: str, placed: str, line_end: str
) -> None:
    text = written(policy, more=placed).replace("\n", line_end)
    wanted = placed_within(45.0, matching(0.25, initial_goodput_per_replica_per_s=1e-05))
    changed = fleet_with(wanted, text.encode(), HERE, BESIDE)

    assert policy_in(changed) == wanted
    assert "\n" not in changed.replace(line_end, "")


def test_a_fleet_in_one_line_gets_a_placement_that_it_had_not() -> None:
    text = yaml.safe_dump(a_fleet(), default_flow_style=True, width=10**6)
    wanted = placed_within(45.0, load_policy("rate_match"))

    assert policy_in(fleet_with(wanted, text.encode(), HERE, BESIDE)) == wanted


def test_a_byte_order_mark_and_letters_of_any_size_move_nothing() -> None:
    text = "# größer \U0001f600 \U0001f600\n" + yaml.safe_dump(a_fleet())
    changed = fleet_with(matching(0.25), b"\xef\xbb\xbf" + text.encode(), HERE, BESIDE)

    assert changes(text, changed) == ["+       headroom: 25%"]


@settings(max_examples=50)
@given(
    headroom=st.integers(0, 1000).map(lambda n: n / 1000),
    seconds=st.integers(1, 10**7).map(lambda ms: ms / 1000),
    goodput=st.none() | st.floats(1e-9, 100),
)
def test_any_numbers_are_read_back(headroom: float, seconds: float, goodput: float | None) -> None:
    wanted = matching(headroom, fill_horizon_s=seconds, initial_goodput_per_replica_per_s=goodput)
    assert policy_in(fleet_with(wanted, EXAMPLE.read_bytes(), EXAMPLE, BESIDE)) == replace(
        wanted, placement=load_policy(str(EXAMPLE)).placement
    )


def test_for_another_folder_relative_paths_are_written_out_and_whole_ones_stay() -> None:
    text = written("\n      type: rate_match") + "  weightsDir: ../weights\n"
    text = text.replace("stateDir: cloud", "stateDir: /var/cloud # ours")
    changed = fleet_with(load_policy("rate_match"), text.encode(), HERE, ELSEWHERE)

    assert changes(text, changed) == [
        "-     path: ledger.db",
        "+     path: /jobs/ledger.db",
        "-   weightsDir: ../weights",
        "+   weightsDir: /weights",
    ]
    assert parse_fleets(changed.encode(), ELSEWHERE) == parse_fleets(text.encode(), HERE)


@pytest.mark.parametrize(
    ("schema", "there"),
    [
        ("../schema/fleet.json", "/schema/fleet.json"),
        ("fleet.json#/definitions/fleet", "/jobs/fleet.json#/definitions/fleet"),
        ("/schemas/fleet.json", "/schemas/fleet.json"),
        ("https://example.org/fleet.json", "https://example.org/fleet.json"),
        ("file:///schemas/fleet.json", "file:///schemas/fleet.json"),
    ],
)
@pytest.mark.parametrize("line", ["# yaml-language-server: $schema={}", "#yaml-language-server : $schema={} # ours"])
def test_for_another_folder_a_comment_names_its_schema_from_there(line: str, schema: str, there: str) -> None:
    text = f"# ours, with $schema=x.json\n{line.format(schema)}\n---\n{yaml.safe_dump(a_fleet())}"
    changed = fleet_with(load_policy("rate_match"), text.encode(), HERE, ELSEWHERE)
    assert changed.splitlines()[:2] == ["# ours, with $schema=x.json", line.format(there)]


def test_a_schema_in_a_folder_with_a_space_in_its_name_is_a_url() -> None:
    text = f"# yaml-language-server: $schema=s/fleet.json\n{yaml.safe_dump(a_fleet())}"
    changed = fleet_with(load_policy("rate_match"), text.encode(), Path("/my jobs/fleet.yaml"), ELSEWHERE)
    assert changed.startswith("# yaml-language-server: $schema=file:///my%20jobs/s/fleet.json\n")


def test_beside_the_fleet_relative_paths_stay() -> None:
    text = f"# yaml-language-server: $schema=../fleet.json\n{yaml.safe_dump(a_fleet())}"
    assert fleet_with(load_policy("rate_match"), text.encode(), HERE, BESIDE) == text


def test_another_name_of_the_same_folder_is_not_another_folder() -> None:
    text = yaml.safe_dump(a_fleet())
    assert fleet_with(load_policy("rate_match"), text.encode(), HERE, Path("/jobs/old/../tuned.yaml")) == text


@pytest.mark.parametrize(
    "policy",
    [
        " {type: rate_match, headroom: &h 20%, lowerSlack: *h}",
        " {type: rate_match}\n    drain: {margin: &s 1m}\n    placement: {type: cheapest_available, reclaiming: *s}",
    ],
)
def test_what_stands_in_two_places_is_refused_also_where_nothing_would_change(policy: str) -> None:
    text = written(policy)
    with pytest.raises(
        ConfigError, match=r"fleet.yaml: spec.stages\[0\]: stands in several places by an alias \(write"
    ):
        fleet_with(policy_in(text), text.encode(), HERE, BESIDE)


def test_a_path_that_stands_in_two_places_is_refused_for_another_folder_only() -> None:
    text = written(" {type: rate_match}").replace("ledger.db", "&path ledger.db") + "  weightsDir: *path\n"

    assert fleet_with(policy_in(text), text.encode(), HERE, BESIDE) == text
    with pytest.raises(ConfigError, match=r"spec.ledger.path: is a relative path that cannot be written out"):
        fleet_with(policy_in(text), text.encode(), HERE, ELSEWHERE)
