"""The metrics of several fleets as one page: each fleet keeps a registry of its own, and its samples get a label `fleet`.

Invariants: a family of one name is there once, whatever fleets have it; a fleet that goes takes its samples with it, and one
that cannot be read is left out and said, so that the others are still seen.
"""

from collections.abc import Callable, Iterator, Mapping

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

log = structlog.get_logger()


class Fleets(Collector):
    """`registries`: fleet (`<namespace>.<name>`) -> its registry; may change between two looks."""

    def __init__(self, registries: Mapping[str, CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        """Every family once."""
        families: dict[str, Metric] = {}
        for fleet, registry in list(self._registries.items()):
            for family in _read(fleet, registry):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type, family.unit)
                )
                for sample in family.samples:
                    merged.samples.append(sample._replace(labels={"fleet": fleet, **sample.labels}))
        yield from families.values()


class Requests(Collector):
    """Requests to API servers, by what permission each needs."""

    def __init__(
        self,
        api: Callable[[], Mapping[tuple[str, str], int]],
        aws: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        """`api`: (verb, resource) -> count; `aws`: (service, operation) -> count."""
        self._api = api
        self._aws = aws

    def collect(self) -> Iterator[Metric]:
        """Two families."""
        api = CounterMetricFamily(
            "headrace_api_requests", "Requests to the Kubernetes API server.", labels=["verb", "resource"]
        )
        for (verb, resource), count in self._api().items():
            api.add_metric([verb, resource], count)
        yield api
        aws = CounterMetricFamily("headrace_aws_requests", "Requests to AWS.", labels=["service", "operation"])
        for (service, operation), count in self._aws().items():
            aws.add_metric([service, operation], count)
        yield aws


def _read(fleet: str, registry: CollectorRegistry) -> list[Metric]:
    try:
        return list(registry.collect())
    except Exception:
        log.exception("metrics_unreadable", fleet=fleet)
        return []
