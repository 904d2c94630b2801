"""The chart as Helm renders it."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.build import PROGRAMS, Unavailable, binaries, is_required

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "headrace"
RELEASE = "headrace"
NAMESPACE = "headrace-system"
IMAGE: Mapping[str, Any] = {"image": {"repository": "registry.example.com/headrace"}}

Json = dict[str, Any]


class ChartError(Exception):
    """Helm refused; its own words."""


def require_helm() -> None:
    """Skip the test where Helm is not built; an error where a control plane is required."""
    try:
        binaries(["helm"])
    except Unavailable as reason:
        if is_required():
            raise
        pytest.skip(f"no Helm: {reason}")


def helm(*words: str, values: Mapping[str, Any] | None = None) -> str:
    """What Helm says, with these values on its standard input."""
    more = [] if values is None else ["--values", "-"]
    done = subprocess.run(
        [str(PROGRAMS["helm"].binary), *words, *more],
        input=None if values is None else json.dumps(dict(values)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise ChartError(done.stderr + done.stdout)
    return done.stdout


def rendered(values: Mapping[str, Any], *words: str) -> list[Json]:
    """Every object of the chart, the definition apart."""
    text = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *words, values={**IMAGE, **values})
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(objects: Iterable[Json], *kinds: str) -> list[Json]:
    """Those of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def the(objects: Iterable[Json], kind: str, name: str = RELEASE) -> Json:
    """The one of that kind and name."""
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


EVERYTHING: Mapping[str, Any] = {
    "aws": {
        "region": "us-west-2",
        "queueUrl": "https://sqs.us-west-2.amazonaws.com/123456789012/headrace",
        "deadLetterUrl": "https://sqs.us-west-2.amazonaws.com/123456789012/headrace-dead",
        "roleArn": "arn:aws:iam::123456789012:role/headrace",
    },
    "namespaces": ["rl"],
    "workerNamespaces": ["ray"],
    "karpenter": {"enabled": True},
    "leaderWorkerSet": {"enabled": True},
    "ray": {"enabled": True},
    "trainers": {"watch": True, "repair": ["rl"]},
    "serviceMonitor": {"enabled": True, "labels": {"prometheus": "main"}},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True, "alertLabels": {"team": "rl"}},
    "networkPolicy": {"workers": {"namespaces": ["rl", "ray"]}},
    "serviceAccount": {"annotations": {"example.com/owner": "rl"}},
    "podLabels": {"team": "rl"},
    "podAnnotations": {"example.com/x": "y"},
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"role": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "ledger", "secret": {"secretName": "ledger"}}],
    "extraVolumeMounts": [{"name": "ledger", "mountPath": "/etc/headrace/ledger", "readOnly": True}],
}
"""Values under which everything is rendered."""
