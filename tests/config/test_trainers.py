"""Trainers in the YAML: what is asked for arrives, and what cannot be meant is refused with what to do."""

from typing import Any

import pytest

from scaler.config.convert import to_spec
from scaler.model.trainers import CheckCode, RepairKind, TrainerSpec
from tests.builders.fleet_yaml import a_fleet, faults_of, parsed

TRAINER: dict[str, Any] = {"name": "policy", "selector": {"matchLabels": {"app": "trainer"}}}


def test_a_fleet_has_no_trainers_unless_it_names_them() -> None:
    (fleet,) = parsed(a_fleet())
    assert to_spec(fleet).trainers == ()


def test_nothing_is_repaired_or_left_out_by_default() -> None:
    (fleet,) = parsed(a_fleet(trainers=[TRAINER]))
    assert to_spec(fleet).trainers == (TrainerSpec(name="policy", namespace="", match_labels={"app": "trainer"}),)


def test_everything_that_can_be_said_arrives() -> None:
    (fleet,) = parsed(
        a_fleet(
            trainers=[
                {
                    **TRAINER,
                    "namespace": "rl",
                    "nodes": {"matchLabels": {"example.com/role": "trainer"}},
                    "repair": ["annotations", "disruption_budget", "scale_in_protection", "checkpoint"],
                    "ignore": ["termination_protection"],
                    "efaDevices": 16,
                    "accelerators": 8,
                    "hotSpares": 1,
                    "checkpointLead": "30m",
                }
            ]
        )
    )
    assert to_spec(fleet).trainers == (
        TrainerSpec(
            name="policy",
            namespace="rl",
            match_labels={"app": "trainer"},
            node_labels={"example.com/role": "trainer"},
            repair=frozenset(RepairKind),
            ignore=frozenset({CheckCode.TERMINATION_PROTECTION}),
            efa_devices=16,
            accelerators=8,
            hot_spares=1,
            checkpoint_lead_s=1800.0,
        ),
    )


WRONG: dict[str, tuple[list[dict[str, Any]], str]] = {
    "an empty selector": (
        [{**TRAINER, "selector": {"matchLabels": {}}}],
        "spec.trainers[0].selector.matchLabels",
    ),
    "no selector": ([{"name": "policy"}], "spec.trainers[0]"),
    "two of one name": ([TRAINER, TRAINER], "spec.trainers[1].name: trainer policy is there twice"),
    "an unknown repair": ([{**TRAINER, "repair": ["everything"]}], "spec.trainers[0].repair[0]"),
    "an unknown check": ([{**TRAINER, "ignore": ["all"]}], "spec.trainers[0].ignore[0]"),
    "spares that nothing tells from others": (
        [{**TRAINER, "hotSpares": 1}],
        "spec.trainers[0].hotSpares: nothing tells which nodes stand by for this trainer",
    ),
    "a value that is none": (
        [{**TRAINER, "selector": {"matchLabels": {"app": "a b"}}}],
        "'a b' is no value of a label (use up to 63 letters, digits, dots and dashes)",
    ),
    "a key that is none": (
        [{**TRAINER, "selector": {"matchLabels": {"a,b": "c"}}}],
        "'a,b' is no label (write it like app or example.com/app)",
    ),
}


@pytest.mark.parametrize(("trainers", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_meant_is_refused(trainers: list[dict[str, Any]], expected: str) -> None:
    faults = [str(fault) for fault in faults_of(a_fleet(trainers=trainers))]
    assert len(faults) == 1
    assert expected in faults[0]
