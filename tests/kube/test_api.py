"""The client against a server that misbehaves: what is asked again, what is not, and what each answer means."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    Conflict,
    Denied,
    Gone,
    Invalid,
    Json,
    KubeApi,
    KubeError,
    KubeUnreachable,
    NotFound,
    PatchType,
    TooMany,
)
from scaler.runtime.clock import SystemClock
from tests.builders.scripted_http import OK, Answer, ScriptedHttp

Call = Callable[[KubeApi], Awaitable[Any]]


@asynccontextmanager
async def facing(folder: Path, *answers: Answer, **options: Any) -> AsyncIterator[tuple[KubeApi, ScriptedHttp]]:
    server = ScriptedHttp(*answers)
    async with server.serving():
        api = open_api(server.kubeconfig(folder), clock=SystemClock(), **options)
        try:
            yield api, server
        finally:
            await api.close()


def refusal(status: int, *, retry_after: str | None = None, **told: Any) -> Answer:
    body = {"kind": "Status", "status": "Failure", "message": "said the server", "code": status, **told}
    return Answer(status=status, body=body, headers={"Retry-After": retry_after} if retry_after else {})


BODY: Json = {"metadata": {"name": "m"}}


def patching(how: PatchType) -> Call:
    body: Any = [] if how is PatchType.JSON else BODY
    return lambda api: api.patch(CONFIG_MAPS, "m", body, namespace="ns", patch_type=how)


CALLS: dict[str, Call] = {
    "get": lambda api: api.get(CONFIG_MAPS, "m", namespace="ns"),
    "create": lambda api: api.create(CONFIG_MAPS, BODY, namespace="ns"),
    "replace": lambda api: api.replace(CONFIG_MAPS, "m", BODY, namespace="ns"),
    "merge patch": patching(PatchType.MERGE),
    "JSON patch": patching(PatchType.JSON),
    "delete": lambda api: api.delete(CONFIG_MAPS, "m", namespace="ns"),
    "evict": lambda api: api.evict("p", namespace="ns", pod_uid="u"),
}
FIRST = {
    "no answer": Answer(drop=True),
    "busy": refusal(429, retry_after="0"),
    "busy without a word": refusal(429),
    "away": refusal(503),
    "broken": refusal(500),
}
AGAIN = {
    "get": {"no answer", "busy", "busy without a word", "away", "broken"},
    "create": {"busy"},
    "replace": {"no answer", "busy", "away"},
    "merge patch": {"busy", "away"},
    "JSON patch": {"busy"},
    "delete": {"no answer", "busy", "away"},
    "evict": {"away"},
}
"""After which first answers each call is repeated."""


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_is_repeated_only_where_that_is_harmless(tmp_path: Path, call: str, first: str) -> None:
    async with facing(tmp_path, FIRST[first], OK) as (api, server):
        again = first in AGAIN[call]
        if again:
            await CALLS[call](api)
        else:
            with pytest.raises(KubeError):
                await CALLS[call](api)
        assert len(server.seen) == 1 + again
        assert first == "no answer" or sum(api.counts().values()) == len(server.seen)


@pytest.mark.parametrize("call", CALLS)
async def test_who_does_not_lead_reads_and_writes_nothing_but_leases(tmp_path: Path, call: str) -> None:
    async with facing(tmp_path, OK, OK, may_write=lambda: False) as (api, server):
        if call == "get":
            await CALLS[call](api)
        else:
            with pytest.raises(KubeUnreachable, match="does not lead"):
                await CALLS[call](api)
        assert len(server.seen) == sum(api.counts().values()) == (call == "get")
        await api.replace(LEASES, "m", BODY, namespace="ns")


async def test_leadership_is_asked_for_when_a_requests_turn_has_come(tmp_path: Path) -> None:
    leads = True
    async with facing(tmp_path, OK, OK, qps=5.0, burst=1, may_write=lambda: leads) as (api, server):
        calls = [asyncio.ensure_future(CALLS["create"](api)) for _ in range(2)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        leads = False
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in told] == [dict, KubeUnreachable]
        assert len(server.seen) == 1


async def test_a_half_open_connection_is_found_by_its_silence_and_a_read_gets_its_answer_by_another(
    tmp_path: Path,
) -> None:
    async with facing(tmp_path, Answer(silent=True), OK, time_out_s=2.0) as (api, server):
        assert (await CALLS["get"](api))["metadata"]["name"] == "m"
        assert len(server.seen) == 2


@pytest.mark.parametrize("call", CALLS)
async def test_a_server_that_is_mute_is_unreachable_in_time_and_a_write_is_sent_to_it_once(
    tmp_path: Path, call: str
) -> None:
    async with facing(tmp_path, Answer(silent=True), time_out_s=0.5) as (api, server):
        async with asyncio.timeout(30):
            with pytest.raises(KubeUnreachable):
                await CALLS[call](api)
        assert call == "get" or len(server.seen) == 1


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    async with facing(tmp_path, OK, time_out_s=0.5) as (api, server):
        pass
    api = open_api(server.kubeconfig(tmp_path), clock=SystemClock(), time_out_s=0.5)
    with pytest.raises(KubeUnreachable):
        await CALLS["get"](api)
    await api.close()


async def test_a_wish_to_wait_longer_than_the_call_may_take_is_handed_on(tmp_path: Path) -> None:
    async with facing(tmp_path, refusal(429, retry_after="30")) as (api, server):
        with pytest.raises(TooMany) as told:
            await CALLS["create"](api)
    assert told.value.retry_after_s == 30.0
    assert len(server.seen) == 1


async def test_a_read_that_fails_to_the_end_says_of_what(tmp_path: Path) -> None:
    async with facing(tmp_path, refusal(500, message="etcd leader changed"), time_out_s=0.5) as (api, server):
        with pytest.raises(KubeUnreachable, match="etcd leader changed"):
            await CALLS["get"](api)
    assert len(server.seen) > 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (301, Invalid),
        (400, Invalid),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (405, Invalid),
        (409, Conflict),
        (410, Gone),
        (413, Invalid),
        (415, Invalid),
        (422, Invalid),
        (429, TooMany),
        (500, KubeUnreachable),
        (504, KubeUnreachable),
    ],
)
async def test_each_status_is_an_error_of_its_own(tmp_path: Path, status: int, error: type[KubeError]) -> None:
    async with facing(tmp_path, refusal(status, reason="Because")) as (api, _):
        with pytest.raises(KubeError, match="said the server") as told:
            await CALLS["create"](api)
    assert type(told.value) is error
    assert (told.value.status, told.value.reason) == (status, "Because")


@pytest.mark.parametrize("body", [b"<html>404</html>", b"", b"\xff\xfe", b"[]", b"5", b'{"kind":"Status","message":5}'])
async def test_an_error_is_told_by_its_status_whatever_the_body(tmp_path: Path, body: bytes) -> None:
    async with facing(tmp_path, Answer(status=404, body=body)) as (api, _):
        with pytest.raises(NotFound):
            await CALLS["create"](api)


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"", b"[]", b"5", b"{"])
async def test_who_answers_no_object_is_no_api_server(tmp_path: Path, body: bytes) -> None:
    async with facing(tmp_path, Answer(body=body)) as (api, _):
        with pytest.raises(KubeUnreachable):
            await CALLS["create"](api)


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(status=307, body={}, headers={"Location": "/elsewhere"})) as (api, server):
        with pytest.raises(Invalid):
            await CALLS["create"](api)
    assert len(server.seen) == 1


# Lists.


def a_page(*names: str, more: str = "", version: str = "5") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    return Answer(body={"kind": "List", "metadata": {"resourceVersion": version, "continue": more}, "items": items})


async def test_a_list_follows_its_pages(tmp_path: Path) -> None:
    async with facing(tmp_path, a_page("a", more="next"), a_page("b")) as (api, server):
        listing = await api.list(NODES, label_selector="x=1")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert listing.resource_version == "5"
    assert [seen.query.get("continue") for seen in server.seen] == [None, "next"]
    assert all(seen.query["labelSelector"] == "x=1" for seen in server.seen)


async def test_a_list_that_expires_between_pages_is_begun_again_once(tmp_path: Path) -> None:
    expired = refusal(410)
    async with facing(tmp_path, a_page("a", more="n"), expired, a_page("b", version="9")) as (api, _):
        assert (await api.list(NODES)).resource_version == "9"
    async with facing(tmp_path, a_page("a", more="n"), expired, a_page("a", more="n"), expired) as (api, _):
        with pytest.raises(Gone):
            await api.list(NODES)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"metadata": {}, "items": []},
        {"metadata": 5, "items": []},
        {"metadata": {"resourceVersion": "1"}, "items": 5},
    ],
)
async def test_bug_083_what_is_no_list_is_no_empty_list(tmp_path: Path, body: Any) -> None:
    async with facing(tmp_path, Answer(body=body)) as (api, _):
        with pytest.raises(KubeUnreachable):
            await api.list(NODES)


async def test_a_list_without_items_is_empty(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(body={"metadata": {"resourceVersion": "1"}, "items": None})) as (api, _):
        assert (await api.list(NODES)).items == ()


# Watches.


def line(change: str, **body: Any) -> bytes:
    return json.dumps({"type": change, "object": body}).encode() + b"\n"


ADDED = line("ADDED", metadata={"name": "a"})


async def changes(api: KubeApi, silent_s: float = 20.0) -> list[str]:
    events = api.watch(NODES, resource_version="1", time_out_s=30.0, silent_s=silent_s)
    return [event.change.value async for event in events]


async def test_a_watch_asks_for_bookmarks_from_its_version_on_for_its_time(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(chunks=[ADDED])) as (api, server):
        assert await changes(api) == ["ADDED"]
    query = server.seen[0].query
    assert (query["watch"], query["allowWatchBookmarks"], query["resourceVersion"]) == ("1", "true", "1")
    assert query["timeoutSeconds"] == "30"


async def test_events_are_whole_however_they_are_chunked_and_however_large(tmp_path: Path) -> None:
    large = line("MODIFIED", metadata={"name": "b"}, data="x" * 3_000_000)
    stream = ADDED + large + b"\n" + line("BOOKMARK", metadata={"resourceVersion": "9"})
    chunks = [stream[:10], stream[10:1_000_000], stream[1_000_000:-5], stream[-5:]]
    async with facing(tmp_path, Answer(chunks=chunks)) as (api, _):
        assert await changes(api) == ["ADDED", "MODIFIED", "BOOKMARK"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>\n",
        b"5\n",
        b"{}\n",
        b'{"type":"ADDED"}\n',
        line("NEWS", a=1),
        b'{"type":"ADDED","object":[]}\n',
        b"\xff\n",
    ],
)
async def test_garbage_in_a_watch_ends_it_after_what_came_before(tmp_path: Path, garbage: bytes) -> None:
    async with facing(tmp_path, Answer(chunks=[ADDED + garbage + ADDED])) as (api, _):
        events = api.watch(NODES, resource_version="1")
        assert (await anext(events)).change.value == "ADDED"
        with pytest.raises(KubeUnreachable):
            await anext(events)


@pytest.mark.parametrize(
    ("code", "error"),
    [(410, Gone), (500, KubeUnreachable), (403, Denied), ("x", KubeUnreachable), (200, KubeUnreachable)],
)
async def test_an_error_event_is_the_error_that_it_names(tmp_path: Path, code: Any, error: type[KubeError]) -> None:
    event = line("ERROR", kind="Status", code=code, message="too old")
    async with facing(tmp_path, Answer(chunks=[event])) as (api, _):
        with pytest.raises(error, match="too old"):
            await changes(api)


async def test_a_watch_that_is_refused_as_too_old_is_gone(tmp_path: Path) -> None:
    async with facing(tmp_path, refusal(410)) as (api, _):
        with pytest.raises(Gone):
            await changes(api)


async def test_a_watch_that_is_refused_for_now_is_asked_for_again(tmp_path: Path) -> None:
    async with facing(tmp_path, refusal(429, retry_after="0"), Answer(chunks=[ADDED])) as (api, _):
        assert await changes(api) == ["ADDED"]


async def test_a_watch_that_falls_silent_or_breaks_is_unreachable(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(chunks=[ADDED], silent=True)) as (api, _):
        with pytest.raises(KubeUnreachable):
            await changes(api, silent_s=0.3)
    async with facing(tmp_path, Answer(chunks=[ADDED], drop=True)) as (api, _):
        with pytest.raises(KubeUnreachable):
            await changes(api)


async def test_a_watch_whose_beginning_is_silent_is_unreachable(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(silent=True), time_out_s=0.3) as (api, _):
        with pytest.raises(KubeUnreachable):
            await changes(api)


# Limits.


async def test_bug_101_leases_do_not_wait_for_other_work(tmp_path: Path) -> None:
    """KP#4168."""
    async with facing(tmp_path, OK, qps=0.001, burst=1) as (api, server):
        await CALLS["get"](api)
        waiting = asyncio.ensure_future(CALLS["get"](api))
        for _ in range(3):
            await api.get(LEASES, "l", namespace="ns")
        assert not waiting.done()
        waiting.cancel()
    assert len(server.seen) == 4


async def test_so_many_requests_are_open_at_once_and_no_more(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(silent=True, body=OK.body), time_out_s=60.0) as (api, server):
        calls = asyncio.gather(*(CALLS["create"](api) for _ in range(150)))
        await server.until_open(64)
        server.speak()
        await calls
    assert len(server.seen) == 150
    assert server.open_most == 64


async def test_bug_092_connections_are_kept_and_used_again(tmp_path: Path) -> None:
    """KEDA#5248."""
    async with facing(tmp_path, OK) as (api, _):
        for _ in range(20):
            await CALLS["get"](api)
        session = api._work._session  # type: ignore[attr-defined]
        assert sum(len(idle) for idle in session.connector._conns.values()) == 1


# Clocks and credentials.


async def test_the_servers_clock_is_read_off_its_answers_refusals_too(tmp_path: Path) -> None:
    late = {"Date": formatdate(SystemClock().now_s() + 3600.0, usegmt=True)}
    async with facing(tmp_path, Answer(status=404, body={}, headers=late)) as (api, _):
        assert api.ahead_s() is None
        with pytest.raises(NotFound):
            await CALLS["get"](api)
        ahead_s = api.ahead_s()
    assert ahead_s is not None
    assert abs(ahead_s - 3600.0) < 60.0


async def test_a_date_that_is_none_tells_nothing(tmp_path: Path) -> None:
    async with facing(tmp_path, Answer(body=OK.body, headers={"Date": "noon"})) as (api, _):
        await CALLS["get"](api)
        assert api.ahead_s() is None


async def test_bug_107_after_a_401_the_token_is_read_anew_and_the_call_repeated_once(tmp_path: Path) -> None:
    """kubernetes-client/python#741."""
    token = tmp_path / "token"
    token.write_text("old")
    server = ScriptedHttp(OK, refusal(401), OK, refusal(401))
    async with server.serving():
        api = open_api(server.kubeconfig(tmp_path, tokenFile=str(token)), clock=SystemClock())
        await CALLS["create"](api)
        token.write_text("new")
        await asyncio.sleep(1.05)
        await CALLS["create"](api)
        with pytest.raises(Denied):
            await CALLS["create"](api)
        await api.close()
    assert [seen.token for seen in server.seen] == [
        "Bearer old",
        "Bearer old",
        "Bearer new",
        "Bearer new",
        "Bearer new",
    ]


async def test_a_plugins_token_is_used(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    plugin = {
        "apiVersion": credential["apiVersion"],
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(credential))})"],
    }
    server = ScriptedHttp(OK)
    async with server.serving():
        api = open_api(server.kubeconfig(tmp_path, exec=plugin), clock=SystemClock())
        await CALLS["get"](api)
        await api.close()
    assert server.seen[0].token == "Bearer made"


async def test_without_a_configuration_every_call_is_denied(tmp_path: Path) -> None:
    api = open_api(tmp_path / "none", clock=SystemClock())
    with pytest.raises(Denied, match="configuration"):
        await CALLS["get"](api)
    outside = open_api(None, clock=SystemClock())
    with pytest.raises(Denied, match="configuration"):
        await CALLS["get"](outside)


async def test_a_kubeconfig_that_is_a_pipe_is_denied_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "kubeconfig"
    os.mkfifo(pipe)
    api = open_api(pipe, clock=SystemClock())
    with pytest.raises(Denied, match="is no regular file"):
        await CALLS["get"](api)


def test_no_typed_model_of_the_official_client_is_ever_imported() -> None:
    """They cost two seconds and 190 MiB."""
    code = (
        "import sys, scaler.kube.api, scaler.kube.indexes, scaler.kube.lease\n"
        "print([m for m in sys.modules if m.startswith('kubernetes.') and ('.models.v' in m or '_api' in m.rsplit('.')[-1])])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(told.stdout.replace("'", '"')) if "api_client" not in name]
    assert loaded == []
