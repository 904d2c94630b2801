"""Lists, selectors, watches."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from scaler.kube.contract import CONFIG_MAPS, NODES, PODS, Change, Invalid, Json, WatchEvent
from tests.builders.kube import pod
from tests.kube.contract.conftest import Bench


async def names(bench: Bench, label_selector: str = "", field_selector: str = "") -> str:
    listing = await bench.api.list(
        CONFIG_MAPS, namespace=bench.namespace, label_selector=label_selector, field_selector=field_selector
    )
    return "".join(sorted(i["metadata"]["name"] for i in listing.items if "kube-root-ca" not in i["metadata"]["name"]))


async def make(bench: Bench, name: str, **labels: str) -> Json:
    body = {"metadata": {"name": name, "labels": labels}}
    return await bench.api.create(CONFIG_MAPS, body, namespace=bench.namespace)


async def relabel(bench: Bench, name: str, **labels: str | None) -> None:
    await bench.api.patch(CONFIG_MAPS, name, {"metadata": {"labels": labels}}, namespace=bench.namespace)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "abc"),
        ("k=1", "a"),
        ("k==1", "a"),
        ("k!=1", "bc"),
        ("k", "ab"),
        ("!k", "c"),
        ("k in (1,2)", "ab"),
        ("k in (1, 2),z", "b"),
        ("k notin (1)", "bc"),
        ("k=1,z", ""),
    ],
)
async def test_labels_select(bench: Bench, selector: str, found: str) -> None:
    await make(bench, "a", k="1")
    await make(bench, "b", k="2", z="")
    await make(bench, "c")
    assert await names(bench, selector) == found


async def test_fields_select_where_the_server_knows_them(bench: Bench) -> None:
    await make(bench, "a")
    await make(bench, "b")
    assert await names(bench, field_selector="metadata.name=a") == "a"
    with pytest.raises(Invalid):
        await names(bench, field_selector="data.x=1")
    node = await bench.node()
    name = node["metadata"]["name"]
    for pod_name, where in (("p", name), ("q", None)):
        await bench.api.create(PODS, pod(pod_name, within=bench.namespace, node_name=where), namespace=bench.namespace)
    listing = await bench.api.list(PODS, field_selector=f"spec.nodeName={name}")
    assert [item["metadata"]["name"] for item in listing.items] == ["p"]


async def test_a_list_of_more_than_a_page_is_whole_and_of_one_version(bench: Bench) -> None:
    await asyncio.gather(*(make(bench, f"m{i}", mine="") for i in range(501)))
    listing = await bench.api.list(CONFIG_MAPS, namespace=bench.namespace, label_selector="mine")
    assert {item["metadata"]["name"] for item in listing.items} == {f"m{i}" for i in range(501)}
    pages = bench.api.pages(CONFIG_MAPS, namespace=bench.namespace, label_selector="mine")
    sizes_and_versions = [(len(page.items), page.resource_version) async for page in pages]
    assert [size for size, _ in sizes_and_versions] == [500, 1]
    assert len({version for _, version in sizes_and_versions}) == 1


async def test_nothing_is_a_list_too_and_has_a_version(bench: Bench) -> None:
    listing = await bench.api.list(PODS, namespace=bench.namespace)
    assert listing.items == ()
    assert listing.resource_version.isdecimal()


async def test_items_of_a_built_in_kind_come_without_it(bench: Bench) -> None:
    await bench.node()
    (item,) = (await bench.api.list(NODES, label_selector=f"test={bench.namespace}")).items
    assert "kind" not in item
    assert "apiVersion" not in item


async def watched(
    bench: Bench, version: str, *, selector: str = "", time_out_s: float = 60.0
) -> AsyncGenerator[WatchEvent, None]:
    events = bench.api.watch(
        CONFIG_MAPS,
        namespace=bench.namespace,
        resource_version=version,
        label_selector=selector,
        time_out_s=time_out_s,
    )
    async for event in events:
        if event.change is not Change.BOOKMARK:
            yield event


async def test_a_watch_tells_what_came_after_the_list_in_order(bench: Bench) -> None:
    await make(bench, "before")
    version = (await bench.api.list(CONFIG_MAPS, namespace=bench.namespace)).resource_version
    made = await make(bench, "m")
    events = watched(bench, version)
    async with aclosing(events):
        assert await anext(events) == WatchEvent(change=Change.ADDED, body=made)
        await relabel(bench, "m", x="1")
        assert (await anext(events)).change is Change.MODIFIED
        await bench.api.delete(CONFIG_MAPS, "m", namespace=bench.namespace)
        gone = await anext(events)
    assert (gone.change, gone.body["metadata"]["uid"]) == (Change.DELETED, made["metadata"]["uid"])
    assert int(gone.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_what_leaves_a_selection_is_deleted_for_its_watch_and_what_enters_is_added(bench: Bench) -> None:
    await make(bench, "a", k="1")
    await make(bench, "b", k="2")
    version = (await bench.api.list(CONFIG_MAPS, namespace=bench.namespace)).resource_version
    events = watched(bench, version, selector="k=1")
    async with aclosing(events):
        await relabel(bench, "b", other="x")
        await relabel(bench, "a", k=None)
        left = await anext(events)
        await relabel(bench, "b", k="1")
        came = await anext(events)
    assert [(e.change, e.body["metadata"]["name"]) for e in (left, came)] == [
        (Change.DELETED, "a"),
        (Change.ADDED, "b"),
    ]


async def test_a_watch_ends_by_itself_after_its_time(bench: Bench) -> None:
    version = (await bench.api.list(CONFIG_MAPS, namespace=bench.namespace)).resource_version
    async with asyncio.timeout(60):
        assert [event async for event in watched(bench, version, time_out_s=1.0)] == []


async def test_a_watch_that_has_seen_something_brings_a_bookmark_to_go_on_from(bench: Bench) -> None:
    version = (await bench.api.list(CONFIG_MAPS, namespace=bench.namespace)).resource_version
    await make(bench, "a")
    marks = []
    async for event in bench.api.watch(
        CONFIG_MAPS, namespace=bench.namespace, resource_version=version, time_out_s=4.0
    ):
        if event.change is Change.BOOKMARK:
            marks.append(event.body["metadata"]["resourceVersion"])
        elif event.body["metadata"]["name"] == "a":
            await make(bench, "b")
    assert int(marks[-1]) > int(version)
    made = await make(bench, "c")
    following = watched(bench, marks[-1])
    async with aclosing(following):
        assert (await anext(following)).body["metadata"]["uid"] == made["metadata"]["uid"]
