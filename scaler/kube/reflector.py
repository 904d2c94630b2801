"""`Reflector`: all objects of a kind that a selection matches, cut down as they come, and kept up to date.

Policy: list, then watch from the list's version, and from the last version seen whenever a watch ends; list anew when the
version is too old (410), and every `relist_s` in any case, so that nothing that was missed stays missed. Failures back off,
with jitter, so that many controllers do not come back at once; so does a watch that ends at once.
Silence is no proof: an idle kind gets neither events nor bookmarks (kube-apiserver sends a bookmark only where it is newer
than all that was sent), a connection may be half-open, and an API server that lost etcd ends its watches as if all were
well, or, while etcd hangs, sends nothing. So watches are short, and one that lasted its time is followed by a list of
nothing, which the server answers only when it is up to date with etcd.

Invariants: what is kept is replaced by a list only once that list is whole. `current_at_s` moves with whole lists, with
events, and with a watch that lasted and was so confirmed; by nothing else. Objects are known by UID: one that is made anew
under its name is another. An object without a UID is left out and counted in `odd`.
Source: Kubernetes API concepts, "Efficient detection of changes". Bugs this must not have: kubernetes-client/python#728,
#801 (silent watches), KEDA#7756 (reconnects without delay), KP#3209 (growing caches), KEDA#8124 (keys by name).
"""

import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Generic, NoReturn, TypedDict, TypeVar, cast

from scaler.kube.contract import Change, Gone, Json, KubeApi, KubeError, Resource, WatchEvent
from scaler.kube.waiting import News
from scaler.model.clock import Clock

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_STEADY_S = 1.0
"""A watch that held for less counts as a failure."""
_LASTED_RATIO = 0.9
"""Of the time asked for: a watch that ended sooner was broken off."""
_SILENT_GRACE_S = 10.0
_TRY_LIST_S = 60.0
"""A list that is due and fails is tried again after that; watching goes on meanwhile."""
_NOTHING = "metadata.name=headrace-asks-for-nothing"


class _Where(TypedDict):
    namespace: str | None
    label_selector: str
    field_selector: str


Moved = Callable[[str, T | None, T | None], None]
"""Told of each change: the UID, what was kept before, what is kept now (None: nothing)."""


class Reflector(Generic[T]):
    """See the module's docstring. `keep` must be total; it returns None for what is not wanted.

    Args:
        moved: keeps an index beside `items`; called before anybody is woken.
        watch_s: how long a watch lasts; on a healthy connection `current_at_s` is never much older.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        clock: Clock,
        keep: Callable[[Json], T | None],
        moved: Moved[T] | None = None,
        rng: random.Random | None = None,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        watch_s: float = 20.0,
        relist_s: float = 900.0,
    ) -> None:
        self._api = api
        self._resource = resource
        self._where: _Where = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._nowhere = self._where.copy()
        self._nowhere["field_selector"] = ",".join(filter(None, (field_selector, _NOTHING)))
        self._clock = clock
        self._keep = keep
        self._moved = moved
        self._rng = rng or random.Random()
        self._watch_s = watch_s
        self._relist_s = relist_s
        self._items: dict[str, T] = {}
        self._version = ""
        self._list_due_s = 0.0
        self._news = News()
        self._pause_s = 0.0
        self.current_at_s: float | None = None
        """Up to when `items` is known to be whole (wall clock); None before the first list."""
        self.trouble = ""
        """What the last attempt failed of; empty while all is well."""
        self.odd = 0
        """Objects so far that had no UID."""
        self.lists = 0
        """Whole lists so far."""

    @property
    def items(self) -> Mapping[str, T]:
        """What is kept, by UID."""
        return self._items

    async def changed(self) -> None:
        """Return when something may have changed since this task was told last."""
        await self._news.wait()

    async def run(self) -> NoReturn:
        """Keep up, for ever. Errors of the server are waited out."""
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await self._step()
                failed = self._clock.monotonic_s() - began_s < _STEADY_S
            except KubeError as error:
                self.trouble = f"{type(error).__name__}: {error}"
                self._version = "" if isinstance(error, Gone) else self._version
                failed = True
            self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, self._pause_s * 2)) if failed else 0.0
            await self._clock.sleep(self._pause_s * self._rng.uniform(0.5, 1.5))

    async def _step(self) -> None:
        if not self._version or self._clock.monotonic_s() >= self._list_due_s:
            self._list_due_s = self._clock.monotonic_s() + _TRY_LIST_S
            await self._list()
        began_s = self._clock.monotonic_s()
        await self._watch()
        if self._clock.monotonic_s() - began_s >= self._watch_s * _LASTED_RATIO:
            await self._confirm()

    async def _list(self) -> None:
        began_s = self._clock.now_s()
        found: dict[str, T] = {}
        version = ""
        async for page in self._api.pages(self._resource, **self._where):
            version = page.resource_version
            for body in page.items:
                uid, item = self._cut(body)
                if uid and item is not None:
                    found[uid] = item
        self._replace(found)
        self._version = version
        self.lists += 1
        self._list_due_s = self._clock.monotonic_s() + self._relist_s * self._rng.uniform(0.9, 1.1)
        self._seen(began_s)

    def _replace(self, found: Mapping[str, T]) -> None:
        for uid in self._items.keys() - found.keys():
            self._put(uid, None)
        for uid, item in found.items():
            self._put(uid, item)
        self._news.tell()

    async def _watch(self) -> None:
        events = self._api.watch(
            self._resource,
            resource_version=self._version,
            time_out_s=self._watch_s,
            silent_s=self._watch_s + _SILENT_GRACE_S,
            **self._where,
        )
        async with aclosing(cast("AsyncGenerator[WatchEvent, None]", events)):
            async for event in events:
                self._take(event)

    async def _confirm(self) -> None:
        asked_at_s = self._clock.now_s()
        await self._api.list(self._resource, **self._nowhere)
        self._seen(asked_at_s)

    def _take(self, event: WatchEvent) -> None:
        meta = event.body.get("metadata")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else None
        if isinstance(version, str) and version:
            self._version = version
        self._pause_s = 0.0
        if event.change is not Change.BOOKMARK:
            uid, item = self._cut(event.body)
            if uid:
                self._put(uid, None if event.change is Change.DELETED else item)
                self._news.tell()
        self._seen(self._clock.now_s())

    def _cut(self, body: Json) -> tuple[str, T | None]:
        meta = body.get("metadata") if isinstance(body, dict) else None
        uid = meta.get("uid") if isinstance(meta, dict) else None
        if not isinstance(uid, str) or not uid:
            self.odd += 1
            return "", None
        return uid, self._keep(body)

    def _put(self, uid: str, item: T | None) -> None:
        old = self._items.pop(uid, None)
        if item is not None:
            self._items[uid] = item
        if self._moved is not None and (old is not None or item is not None):
            self._moved(uid, old, item)

    def _seen(self, at_s: float) -> None:
        self.current_at_s = at_s
        self.trouble = ""
