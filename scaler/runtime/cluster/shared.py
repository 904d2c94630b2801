"""What all fleets of a cluster share: connections, watched lists, notices, and the question whether this process leads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scaler.act.sharing import Places
from scaler.aws.contract import Aws
from scaler.kube.contract import KubeApi
from scaler.kube.facts import NodeIndex, PodIndex
from scaler.model.clock import Clock
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """See the module's docstring."""

    clock: Clock
    kube: KubeApi
    aws: Aws | None
    nodes: NodeIndex
    pods: PodIndex
    places: Places
    hub: NoticeHub
    owners: Owners
    leading: Callable[[], bool]
    state_dir: Path
