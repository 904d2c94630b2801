"""The controller's own settings in a cluster, kind `Controller`: what all of its fleets share. Fleets are RolloutFleet objects.

Invariants: as for fleets, unknown keys are refused and every fault names its path and what to do. Nothing here is reloaded: the
process is started anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from scaler.config.documents import validated
from scaler.config.faults import ConfigError, Fault, shown
from scaler.config.json_schema import json_schema_of
from scaler.config.scalars import Flag, ListenAddress, Name, PlainText, PositiveCount
from scaler.config.yaml_model import Problem, YamlModel, duplicates, refusal
from scaler.config.yaml_text import read_bytes, read_documents

KIND = "Controller"


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise refusal(
            f"{shown(value)} is no URL", "write it whole, like https://sqs.us-west-2.amazonaws.com/123456789012/notices"
        )
    return value


Url = Annotated[PlainText, AfterValidator(_url)]


class AwsAccess(YamlModel):
    """One region of one account; credentials come from the pod's role."""

    region: PlainText
    """For example `us-west-2`."""
    endpoint_url: Url | None = None
    """Another endpoint for all services, as a test bed has. Default: AWS's own."""


class Queue(YamlModel):
    """The queue that EventBridge and Auto Scaling send to; its tag `headrace.dev/cluster` names the cluster's UID."""

    url: Url
    """The queue's URL."""
    dead_letter_url: Url | None = None
    """Where messages go that nobody can read. Default: they stay until the queue's own redrive policy moves them."""

    def problems(self) -> Iterator[Problem]:
        """Messages that nobody can read would come back for ever."""
        if self.dead_letter_url == self.url:
            yield Problem(("deadLetterUrl",), "is the queue itself", "name another queue, or leave it out")


class Notices(YamlModel):
    """Where interruption notices come from. Several may tell of one instance; the earliest deadline holds."""

    queue: Queue | None = None
    """Default: none; then notices come from nodes only."""
    nodes: Flag = True
    """Taints and conditions that others set on nodes. Default true: it costs nothing."""
    instance_status: Flag = True
    """DescribeInstanceStatus once a minute. Default true; nothing is asked without `aws`."""


class Election(YamlModel):
    """The lease of whoever acts."""

    namespace: Name = "headrace-system"
    """Where the Lease is."""
    name: Name = "headrace"
    """Its name. Default headrace: one controller a cluster."""


class ApiLimits(YamlModel):
    """Requests to the API server."""

    requests_per_s: PositiveCount = 200
    """Default 200: five hundred nodes are tainted in seconds; a quiet day needs one or two."""
    burst: PositiveCount = 400
    """Default 400."""


class ControllerSpec(YamlModel):
    """What the controller is to do."""

    namespaces: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Where fleets are looked for. Default: in all namespaces."""
    worker_namespaces: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Where pods are watched, besides `namespaces`. Default: in all namespaces where `namespaces` is empty, else there only."""
    aws: AwsAccess | None = None
    """Default: none; then only pools of Karpenter can be acted on."""
    notices: Notices = Notices()
    """Default: from nodes, and from instance status where there is AWS."""
    election: Election = Election()
    """Default: `headrace` in `headrace-system`."""
    api: ApiLimits = ApiLimits()
    """Default: 200 a second."""
    listen: ListenAddress = "0.0.0.0:9090"
    """Metrics, health and status, read-only. Default 0.0.0.0:9090: probes and Prometheus come from outside the pod."""
    state_dir: PlainText = "/var/lib/headrace"
    """Folder of this process's record of decisions; nothing in it must survive. Default /var/lib/headrace."""

    def problems(self) -> Iterator[Problem]:
        """A queue without AWS, namespaces named twice, workers looked for in fewer namespaces than fleets."""
        if self.notices.queue is not None and self.aws is None:
            yield Problem(("notices", "queue"), "a queue cannot be read without AWS", "set spec.aws.region")
        for key, names in (("namespaces", self.namespaces), ("workerNamespaces", self.worker_namespaces)):
            for index, name in duplicates(list(names)):
                yield Problem((key, index), f"{name} is there twice", "keep one of them")
        if self.worker_namespaces and not self.namespaces:
            remedy = "name the fleets' namespaces too, or leave this out"
            yield Problem(("workerNamespaces",), "fleets may be anywhere, and their own pods would not be seen", remedy)


class ControllerMetadata(YamlModel):
    """Who the controller is."""

    name: Name
    """A name for people."""


class Controller(YamlModel):
    """The controller of a cluster's rollout fleets."""

    api_version: Literal["headrace.dev/v1alpha1"]
    """Version of this form."""
    kind: Literal["Controller"]
    """What the document describes."""
    metadata: ControllerMetadata
    """Who it is."""
    spec: ControllerSpec = ControllerSpec()
    """What it is to do. Default: every default below."""


def load_controller(path: Path) -> Controller:
    """The settings in a file. `ConfigError` tells every fault."""
    documents = read_documents(read_bytes(path), path)
    if len(documents) != 1:
        message = f"holds {len(documents)} documents, and one of kind {KIND} is wanted"
        raise ConfigError([Fault(file=str(path), message=message, remedy="fleets are objects of the cluster")])
    return validated(documents[0], path, Controller, lambda: json_schema_of(Controller))
