"""A policy by name or file; its file reads back as the same choice."""

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import marginal_value, rate_match
from policies.registry import SIZING
from scaler.config.faults import ConfigError
from scaler.model.spec import PolicySpec
from scaler.simulate import policy_file
from scaler.simulate.policy_file import dump_policy, load_policy, with_unsaid_of
from tests.builders.fleet_yaml import a_fleet, a_stage, text_of
from tests.builders.scenario_yaml import fixed

README = Path(__file__).parents[2] / "README.md"
NEED_NOTHING = [
    name for name, entry in SIZING.items() if all(f.default is not f.default_factory for f in fields(entry.params))
]


def written(folder: Path, content: bytes | str) -> str:
    file = folder / "mine.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


@pytest.mark.parametrize("name", NEED_NOTHING)
def test_a_name_is_the_policy_with_its_defaults_and_its_file_reads_back(tmp_path: Path, name: str) -> None:
    choice = load_policy(name)
    assert (choice.name, choice.sizing.name) == (name, name)
    assert choice.sizing.params == SIZING[name].params()
    assert choice.placement.name == "cheapest_available"
    assert replace(load_policy(written(tmp_path, dump_policy(choice))), name=name) == choice


def test_the_file_in_the_readme_is_a_policy(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), flags=re.DOTALL)
    choice = load_policy(written(tmp_path, dedent(block)))
    assert choice.sizing.params == marginal_value.Params(expected_spot_ratio=0.5)


@settings(max_examples=25)
@given(
    seconds=st.integers(1, 10**7).map(lambda ms: ms / 1000),
    headroom=st.integers(0, 1000).map(lambda n: n / 1000),
    goodput=st.none() | st.floats(0.001, 100),
)
def test_what_was_tuned_reads_back(
    tmp_path_factory: pytest.TempPathFactory, seconds: float, headroom: float, goodput: float | None
) -> None:
    params = rate_match.Params(
        headroom_ratio=headroom, fill_horizon_s=seconds, initial_goodput_per_replica_per_s=goodput
    )
    choice = replace(fixed(1), name="mine", sizing=PolicySpec(name="rate_match", params=params))
    assert load_policy(written(tmp_path_factory.mktemp("tuned"), dump_policy(choice))) == choice


def test_a_whole_fleet_is_the_policy_of_its_rollout_stage(tmp_path: Path) -> None:
    stage = a_stage(policy={"type": "static", "replicas": 3})
    choice = load_policy(written(tmp_path, text_of(a_fleet(stages=[stage]))))
    assert choice == replace(fixed(3), name="mine")


def test_what_is_left_unsaid_is_taken_from_another_of_the_same_policy_alone() -> None:
    said = rate_match.Params(headroom_ratio=0.3, initial_goodput_per_replica_per_s=2.0)
    other = replace(fixed(1), sizing=PolicySpec(name="rate_match", params=said))
    found = with_unsaid_of(load_policy("rate_match"), other).sizing.params

    assert found == replace(rate_match.Params(), initial_goodput_per_replica_per_s=2.0)
    assert with_unsaid_of(load_policy("buffer_band"), other) == load_policy("buffer_band")


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(str(policy_file.PRESETS)).glob("*.yaml")))
def test_a_shipped_preset_is_other_than_its_policy_as_shipped(name: str) -> None:
    preset = load_policy(name)
    assert preset.name == name
    assert preset.sizing != load_policy(preset.sizing.name).sizing


def test_a_preset_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careful.yaml").write_text("policy: {type: static, replicas: 5}\n")
    monkeypatch.setattr(policy_file, "PRESETS", tmp_path)
    assert load_policy("careful") == replace(fixed(5), name="careful")
    with pytest.raises(ConfigError, match=r"known: .*careful"):
        load_policy("careless")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("policy: {type: magic}", "mine.yaml:1: policy: unknown policy 'magic' (known: "),
        ("policy: {type: static, replica: 1}", "policy.replica: unknown key (did you mean replicas?)"),
        ("policy: {type: rate_match, fillHorizon: 300}", "policy.fillHorizon: 300 is no duration"),
        ("placement: {type: cheapest_available}", "policy: is missing"),
        ("policy: {type: rate_match}\nstage: rollout", "stage: unknown key"),
        ("", "is empty (write policy: {type: rate_match})"),
        ("policy: {type: rate_match}\n---\npolicy: {type: rate_match}", "holds 2 documents"),
    ],
)
def test_a_policy_that_is_none_is_a_line(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_policy(written(tmp_path, content))
    assert any(says in str(fault) for fault in caught.value.faults)


def test_a_policy_that_needs_a_number_says_so() -> None:
    with pytest.raises(ConfigError, match=r"policy\.replicas: is missing"):
        load_policy("static")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangeParams:
    size: int = field(default=1)


def test_parameters_of_no_registered_policy_cannot_be_written() -> None:
    strange: Any = replace(fixed(1), sizing=PolicySpec(name="static", params=StrangeParams()))
    with pytest.raises(ValueError, match="is no registered policy"):
        dump_policy(strange)
