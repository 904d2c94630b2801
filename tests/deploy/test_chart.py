"""The chart: what Helm renders is valid, says what its values say, and grants no more than they ask for."""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from scaler.config.controller import load_controller
from scaler.config.crd import definition_text
from scaler.model.clock import Clock
from scaler.runtime.clock import SystemClock
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.cluster.control_plane import ControlPlane
from tests.deploy.chart import (
    CHART,
    EVERYTHING,
    IMAGE,
    ROOT,
    ChartError,
    Json,
    helm,
    of_kind,
    rendered,
    require_helm,
    the,
)
from tests.deploy.rights import granted

MONITORING = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
KUBERNETES = "1.37"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "by default": {},
    "with everything": EVERYTHING,
    "with little": {
        "replicas": 1,
        "antiAffinity": "preferred",
        "notOnSpot": False,
        "podDisruptionBudget": {"enabled": False},
        "service": {"enabled": False},
        "nodeAgent": {"enabled": False},
        "rbac": {"aggregate": False, "release": False},
        "priorityClassName": "",
        "serviceAccount": {"create": False, "name": "mine"},
    },
    "for Karpenter alone": {"karpenter": {"enabled": True}, "namespaces": ["rl"]},
    "under other names": {"fullnameOverride": "h2", "image": {"repository": "x", "digest": f"sha256:{'0' * 64}"}},
}


@pytest.fixture(autouse=True)
def _helm() -> None:
    require_helm()


@pytest.fixture(params=list(VARIANTS))
def values(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return VARIANTS[request.param]


def test_the_definition_in_the_chart_is_the_one_of_this_release() -> None:
    (file,) = (CHART / "crds").iterdir()
    assert file.read_text() == definition_text(), "make schemas"


def test_helm_finds_nothing_to_say_against_it(values: Mapping[str, Any]) -> None:
    said = helm("lint", "--strict", str(CHART), values={**IMAGE, **values})
    assert "1 chart(s) linted, 0 chart(s) failed" in said


def test_what_is_rendered_is_what_kubernetes_takes(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    assert objects
    for each in objects:
        if each["kind"] not in MONITORING:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_the_controller_reads_its_settings(values: Mapping[str, Any], tmp_path: Path) -> None:
    (config,) = of_kind(rendered(values), "ConfigMap")
    file = tmp_path / "controller.yaml"
    file.write_text(config["data"]["controller.yaml"])
    spec = load_controller(file).spec
    assert list(spec.namespaces) == values.get("namespaces", [])
    assert list(spec.worker_namespaces) == values.get("workerNamespaces", [])
    assert (spec.aws is not None) is bool(values.get("aws"))
    assert spec.election.namespace == "headrace-system"


def test_every_value_is_explained_and_known_to_the_schema() -> None:
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    blocks = re.split(r"(?m)^(?=# |[a-zA-Z]+:)", text)
    silent = [
        block
        for before, block in pairwise(blocks)
        if re.match(r"[a-zA-Z]+:", block) and not (before.startswith("# ") or re.search(r"(?m)^ +# ", block))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"image": {"repository": ""}}, "image.repository"),
        ({"aws": {"queueUrl": "https://q"}}, "region"),
        ({"replica": 3}, "replica"),
        ({"namespaces": ["A"]}, "namespaces"),
        ({"workerNamespaces": ["rl"]}, "namespaces"),
        ({"aws": {"region": "us-west-2", "roleArn": "role/x"}}, "roleArn"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
    ],
    ids=lambda each: str(each) if isinstance(each, str) else "",
)
def test_wrong_values_are_refused_with_their_name(wrong: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ChartError, match=told):
        rendered(wrong)


def test_pods_are_locked_down() -> None:
    objects = rendered(EVERYTHING)
    for each in of_kind(objects, "Deployment", "DaemonSet"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    controller = the(objects, "Deployment")["spec"]["template"]["spec"]
    assert controller["securityContext"]["runAsNonRoot"]
    writable = {each["name"] for each in controller["volumes"] if "emptyDir" in each}
    assert writable == {"state", "tmp"}


def test_the_node_agent_has_the_hosts_network_and_no_credentials() -> None:
    objects = rendered(EVERYTHING)
    spec = the(objects, "DaemonSet", "headrace-node-agent")["spec"]["template"]["spec"]
    assert spec["hostNetwork"]
    assert spec["automountServiceAccountToken"] is False
    account = the(objects, "ServiceAccount", spec["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    assert "annotations" not in account["metadata"], "no role"
    assert granted(objects, spec["serviceAccountName"]) == []


def test_the_role_is_named_where_it_is_given() -> None:
    account = the(rendered(EVERYTHING), "ServiceAccount")
    assert account["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/headrace",
        "example.com/owner": "rl",
    }


def test_a_changed_setting_starts_controllers_anew() -> None:
    hashes = {
        the(rendered({"api": {"burst": burst}}), "Deployment")["spec"]["template"]["metadata"]["annotations"][
            "headrace.dev/settings"
        ]
        for burst in (400, 401)
    }
    assert len(hashes) == 2


def test_named_namespaces_get_the_same_rights_as_all_and_nowhere_else() -> None:
    everywhere = granted(rendered({**EVERYTHING, "namespaces": [], "workerNamespaces": []}), "headrace")
    named = granted(rendered({**EVERYTHING, "namespaces": ["rl"], "workerNamespaces": []}), "headrace")
    assert {each.what for each in everywhere} == {each.what for each in named}
    assert {each.namespace for each in named} == {"", "rl", "headrace-system"}
    wide = {each.what for each in named if not each.namespace}
    assert not [what for what in wide if what[1] in ("configmaps", "events", "deployments", "pods/eviction", "leases")]
    assert [what for what in wide if what[1] == "pods"] == [("", "pods", "list")]


@pytest.mark.parametrize(
    ("off", "gone"),
    [
        ({"karpenter": {"enabled": False}}, {"nodepools", "nodeclaims"}),
        ({"leaderWorkerSet": {"enabled": False}}, {"leaderworkersets"}),
        ({"ray": {"enabled": False}}, {"rayclusters"}),
        ({"deployment": {"enabled": False}}, {"deployments", "replicasets"}),
        ({"trainers": {"watch": False, "repair": []}}, {"poddisruptionbudgets", "priorityclasses"}),
        ({"aws": {}}, {"pods/eviction"}),
    ],
    ids=["karpenter", "leaderWorkerSet", "ray", "deployment", "trainers", "aws"],
)
def test_what_is_switched_off_is_not_granted(off: Mapping[str, Any], gone: set[str]) -> None:
    def resources(values: Mapping[str, Any]) -> set[str]:
        return {each.resource for each in granted(rendered(values), "headrace")}

    assert resources(EVERYTHING) - resources({**EVERYTHING, **off}) == gone


def test_nothing_is_granted_wholesale() -> None:
    for role in of_kind(rendered(EVERYTHING), "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert "secrets" not in rule["resources"]
            assert not {"impersonate", "bind", "escalate", "deletecollection"} & set(rule["verbs"])


def test_worker_pods_reach_everything_but_instance_metadata() -> None:
    policies = of_kind(rendered(EVERYTHING), "NetworkPolicy")
    assert {each["metadata"]["namespace"] for each in policies} == {"rl", "ray"}
    for each in policies:
        (rule,) = each["spec"]["egress"]
        blocks = {peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"] for peer in rule["to"] if "ipBlock" in peer}
        assert blocks == {"0.0.0.0/0": ["169.254.169.254/32"], "::/0": ["fd00:ec2::254/128"]}
        assert each["spec"]["policyTypes"] == ["Egress"]


def test_alerts_are_about_metrics_that_there_are_and_have_a_runbook() -> None:
    rule = the(rendered(EVERYTHING), "PrometheusRule")
    names = _metric_names(SystemClock())
    alerts = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert "HeadraceGone" in {each["alert"] for each in alerts}
    for each in alerts:
        asked = set(re.findall(r"headrace_[a-z_]+", each["expr"]))
        assert asked
        assert asked <= names, each["alert"]
        assert (ROOT / each["annotations"]["runbook"]).exists()
        assert each["labels"]["team"] == "rl"


def test_without_fleets_the_dead_man_can_be_told_to_be_quiet() -> None:
    values = {"prometheusRule": {"enabled": True, "expectFleets": False}}
    alerts = the(rendered(values), "PrometheusRule")["spec"]["groups"][0]["rules"]
    assert "HeadraceGone" not in {each["alert"] for each in alerts}


def _metric_names(clock: Clock) -> set[str]:
    """Every name that the controller may export, counters as scraped."""
    source = (ROOT / "scaler" / "telemetry" / "metrics.py").read_text()
    written = set(re.findall(r'"(headrace_[a-z_]+)"', source))
    notices = {f"headrace_notice_{name}" for name in re.findall(r'\("([a-z_]+)", "', source)}
    families = {each.name for each in Metrics(clock, Readout).registry.collect()}
    return written | families | {f"{each}_total" for each in families | written | notices}


@pytest.mark.cluster
@pytest.mark.parametrize("variant", ["by default", "with everything", "for Karpenter alone"])
def test_a_real_api_server_takes_all_of_it(api_server: ControlPlane, variant: str) -> None:
    objects = [each for each in rendered(VARIANTS[variant]) if each["kind"] not in MONITORING]
    for name in {each["metadata"].get("namespace") for each in objects} - {None}:
        api_server.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for each in objects:
        made: Json = api_server.api.apply(each)
        assert made["metadata"]["uid"]
