"""kwok where a real kubelet would do better.

*Patient*: it waits for a pod's process; what takes pods away leaves those that carry a finalizer. By itself kwok takes finalizers
off a pod that is being deleted, so that no process could outlive its pod's deletion by a moment. Its other stages are taken from
its own module as they are.

*Attentive*: it starts every pod, also after the API server was away. With leases, kwok (0.7) passes over a pod that is bound
while its own list of leases does not show the node's yet, and never looks at it again. That list is watched, and after an
outage client-go may take up to a minute until it asks again: pods of new nodes were never started then, and their launches
were rightly given up. Without leases it starts whatever is bound, and tells a node's health by its status.

*Calm*: it tells a node's unchanged status every five minutes, as a kubelet does by default where there are leases. By itself kwok
(0.7) mixes its two stages up: with leases it writes the status of every node every 20 to 25 s, so that thousands of fake nodes
keep an API server as busy as tens of thousands of real ones.
"""

from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.cluster.addons import module_of

ATTENTIVE_KUBELET = ("--node-lease-duration-seconds=0",)
"""Arguments for kwok, see the module's docstring."""
_STAGES = "kustomize/stage/pod/fast"
_NODE_STAGES = ("fast/node-initialize", "heartbeat-with-lease/node-heartbeat-with-lease")
_UNCHANGED_EVERY_MS = 300_000, 600_000
"""Kubelet's nodeStatusReportFrequency, and some, so that nodes that began together do not report together."""


def patient_kubelet(folder: Path) -> tuple[str, ...]:
    """Arguments for kwok: what is said in the file that they name, which is written into `folder`."""
    found = (module_of("kwok", "sigs.k8s.io/kwok") / _STAGES).glob("pod-*.yaml")
    stages = [yaml.safe_load(file.read_text()) for file in sorted(found)]
    for spec in (stage["spec"] for stage in stages):
        if spec["next"].get("delete"):
            spec["selector"]["matchExpressions"].append({"key": ".metadata.finalizers", "operator": "DoesNotExist"})
            spec["next"] = {"delete": True}
    return _said(folder / "kubelet.yaml", stages)


def calm_kubelet(folder: Path) -> tuple[str, ...]:
    """Arguments for kwok, as `patient_kubelet`."""
    module = module_of("kwok", "sigs.k8s.io/kwok") / "kustomize/stage/node"
    stages = [yaml.safe_load((module / f"{name}.yaml").read_text()) for name in _NODE_STAGES]
    every_ms, at_most_ms = _UNCHANGED_EVERY_MS
    stages[1]["spec"]["delay"] = {"durationMilliseconds": every_ms, "jitterDurationMilliseconds": at_most_ms}
    return _said(folder / "calm.yaml", stages)


def _said(file: Path, stages: Sequence[object]) -> tuple[str, ...]:
    file.write_text(yaml.safe_dump_all(stages))
    return (f"--config={file}",)
