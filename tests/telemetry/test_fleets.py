"""Several fleets, one page: valid for Prometheus, each family once, every sample with its fleet."""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from scaler.telemetry.fleets import Fleets
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.telemetry.test_metrics import a_readout


class Broken(Collector):
    """A registry's content that cannot be read."""

    def collect(self) -> Iterator[Metric]:
        raise RuntimeError("no")


def a_fleet(number: int = 0) -> CollectorRegistry:
    clock = FakeClock()
    metrics = Metrics(clock, lambda: a_readout(clock) if number < 9 else Readout())
    metrics.notice_to_taint.observe(0.5 + number)
    metrics.refusals.labels("pool", "quota").inc(number + 1)
    return metrics.registry


def page(registries: dict[str, CollectorRegistry]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fleets(registries))
    return generate_latest(registry).decode()


def test_the_page_of_two_fleets_is_valid_and_every_family_is_there_once() -> None:
    text = page({"rl.mill": a_fleet(0), "rl.weir": a_fleet(1)})
    families = list(text_string_to_metric_families(text))
    assert len(families) > 30
    assert max(Count(family.name for family in families).values()) == 1
    headers = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert max(Count(headers).values()) == 1
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["fleet"] for sample in samples} == {"rl.mill", "rl.weir"}
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert max(Count(series).values()) == 1


def test_what_one_fleet_alone_would_show_is_there_with_its_label() -> None:
    alone = a_fleet(1)
    together = text_string_to_metric_families(page({"rl.mill": a_fleet(0), "rl.weir": alone}))
    ours = {
        (
            sample.name,
            tuple(sorted((key, value) for key, value in sample.labels.items() if key != "fleet")),
        ): sample.value
        for family in together
        for sample in family.samples
        if sample.labels["fleet"] == "rl.weir"
    }
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(alone).decode())
        for sample in family.samples
    }
    assert ours == expected
    assert ours["headrace_launch_refusals_total", (("pool", "pool"), ("result", "quota"))] == 2.0


def test_a_fleet_that_goes_takes_its_samples_with_it_and_none_is_an_empty_page() -> None:
    registries = {"rl.mill": a_fleet(), "rl.weir": a_fleet(9)}
    assert 'fleet="rl.weir"' in page(registries)
    del registries["rl.weir"]
    assert 'fleet="rl.weir"' not in page(registries)
    assert page({}) == ""


def test_a_fleet_that_cannot_be_read_hides_no_other() -> None:
    broken = CollectorRegistry(auto_describe=False)
    broken.register(Broken())
    text = page({"rl.broken": broken, "rl.mill": a_fleet()})
    assert 'fleet="rl.mill"' in text
    assert "rl.broken" not in text
