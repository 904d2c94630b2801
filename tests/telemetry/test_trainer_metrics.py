"""Metrics of the trainers' guard: bounded labels, zeros where something is known, nothing where nothing is."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scaler.model.trainers import CheckCode, Finding, Severity, SubjectKind
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock

NAME = "headrace_trainer_findings"


def scraped(readout: Readout) -> dict[tuple[str, str], float]:
    text = generate_latest(Metrics(FakeClock(), lambda: readout).registry).decode()
    return {
        (sample.labels["check"], sample.labels["severity"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == NAME
    }


def a_finding(number: int, severity: Severity = Severity.ALARM) -> Finding:
    return Finding(
        check=CheckCode.QOS,
        trainer="policy",
        subject_kind=SubjectKind.POD,
        subject=f"rl/trainer-{number}",
        severity=severity,
        message="",
    )


def test_before_the_first_look_nothing_is_told() -> None:
    assert scraped(Readout()) == {}


def test_a_clean_look_tells_zero_of_every_check_and_severity() -> None:
    assert scraped(Readout(guard=())) == {(check.value, level.value): 0.0 for check in CheckCode for level in Severity}


def test_findings_are_counted_and_their_subjects_are_no_labels() -> None:
    found = scraped(Readout(guard=(*map(a_finding, range(300)), a_finding(0, Severity.UNKNOWN))))
    assert found["qos", "alarm"] == 300.0
    assert found["qos", "unknown"] == 1.0
    assert len(found) == len(CheckCode) * len(Severity)
