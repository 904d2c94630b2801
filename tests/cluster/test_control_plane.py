"""The test bed itself: what starts comes up, survives what tests do to it, and leaves nothing."""

import asyncio

import pytest

from tests.builders.kube import Kube, node, nodes
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
NODES = "/api/v1/nodes"


async def test_an_object_outlives_kill_9_of_etcd_and_of_the_api_server(api_server: ControlPlane) -> None:
    kept = node("kept-through-crashes")
    async with Kube.of(api_server) as kube:
        made = await kube.create(kept)
        for name in ("etcd", "kube-apiserver"):
            api_server.kill(name)
            assert not api_server.running(name)
            await asyncio.to_thread(api_server.restart, name)
            await asyncio.to_thread(api_server.wait_ready)
            found = await kube.get(f"{NODES}/kept-through-crashes")
            assert found["metadata"]["uid"] == made["metadata"]["uid"]
        await kube.delete(kept)


async def test_a_paused_api_server_answers_nobody_until_it_is_resumed(api_server: ControlPlane) -> None:
    async with Kube.of(api_server) as kube:
        api_server.pause("api")
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await kube.get(NODES)
        finally:
            api_server.resume("api")
        assert (await kube.get("/version"))["gitVersion"] == "v1.37.2"


async def test_many_nodes_are_made_at_once(api_server: ControlPlane) -> None:
    async with Kube.of(api_server) as kube:
        await kube.create_all(nodes(100, "many", labels={"of": "many"}))
        found = await kube.items(f"{NODES}?labelSelector=of=many")
        assert len({each["spec"]["providerID"] for each in found}) == 100
        await kube.delete(f"{NODES}?labelSelector=of=many")
        await kube.until(f"{NODES}?labelSelector=of=many", lambda left: not left)
