"""Who a client of the test bed is, and what it may do: certificates, groups, service accounts, the audit log."""

from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.builders.kube import Kube, namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import require
from tests.cluster.paths import JsonObject
from tests.cluster.programs import named

pytestmark = pytest.mark.cluster
RBAC = "rbac.authorization.k8s.io"

CLIENTS: dict[str, tuple[Callable[[ControlPlane], Path], JsonObject]] = {
    "a user": (
        lambda plane: plane.kubeconfig_for("jane+of/ops"),
        {"kind": "User", "name": "jane+of/ops", "apiGroup": RBAC},
    ),
    "a group": (
        lambda plane: plane.kubeconfig_for("joe", ["readers", "others"]),
        {"kind": "Group", "name": "readers", "apiGroup": RBAC},
    ),
    "a service account": (
        lambda plane: plane.service_account_kubeconfig("access", "headrace"),
        {"kind": "ServiceAccount", "name": "headrace", "namespace": "access"},
    ),
}


@pytest.mark.parametrize("who", CLIENTS)
async def test_a_client_may_do_what_rbac_allows_it_and_nothing_else(api_server: ControlPlane, who: str) -> None:
    kubeconfig, subject = CLIENTS[who]
    async with Kube.of(api_server) as admin, Kube.of(kubeconfig(api_server)) as client:
        with pytest.raises(aiohttp.ClientResponseError, match="forbidden"):
            await client.get("/api/v1/nodes")
        for obj in may_list_nodes(subject):
            await admin.apply(obj)
        await client.until("/api/v1/nodes", lambda _: True)
        with pytest.raises(aiohttp.ClientResponseError, match="forbidden"):
            await client.create(namespace("not-allowed"))
        for obj in may_list_nodes(subject):
            await admin.delete(obj)


def may_list_nodes(subject: JsonObject) -> list[JsonObject]:
    name = f"may-list-nodes-{subject['kind'].lower()}"
    metadata = {"name": name}
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    reference = {"kind": "ClusterRole", "name": name, "apiGroup": RBAC}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata}
    return [role, {**binding, "roleRef": reference, "subjects": [subject]}]


async def test_nobody_gets_in_without_a_certificate_or_token(api_server: ControlPlane) -> None:
    connector = aiohttp.TCPConnector(ssl=False)
    async with (
        aiohttp.ClientSession(api_server.url, connector=connector) as session,
        session.get("/api/v1/nodes") as reply,
    ):
        assert reply.status in {401, 403}


async def test_the_audit_log_tells_who_did_what() -> None:
    require()
    with ControlPlane(audit=True) as plane:
        async with Kube.of(plane.kubeconfig_for("jane", ["system:masters"])) as kube:
            await kube.create(namespace("audited"))
        events = list(plane.audited())
    done = {(each["user"]["username"], each["verb"], each.get("objectRef", {}).get("name")) for each in events}
    assert ("jane", "create", "audited") in done


def test_a_program_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="keda: not one of etcd, kube-apiserver"):
        named("keda")
