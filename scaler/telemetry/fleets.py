"""The metrics of several fleets as one page: each fleet keeps a registry of its own, and its samples get a label `fleet`.

Invariants: a family of one name is there once, whatever fleets have it; a fleet that goes takes its samples with it.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class Fleets(Collector):
    """`registries`: fleet (`<namespace>.<name>`) -> its registry; may change between two looks."""

    def __init__(self, registries: Mapping[str, CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        """Every family once."""
        families: dict[str, Metric] = {}
        for fleet, registry in list(self._registries.items()):
            for family in registry.collect():
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type, family.unit)
                )
                for sample in family.samples:
                    merged.samples.append(sample._replace(labels={"fleet": fleet, **sample.labels}))
        yield from families.values()
