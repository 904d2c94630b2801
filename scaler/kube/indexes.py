"""`WatchedNodes`, `WatchedPods`: the indexes of `facts`, kept by reflectors.

Invariants: nothing is found by an empty key (KC#2507: an empty providerID matched all); of two objects under one key the
newer is found; memory is what is there now and nothing besides.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from typing import Generic, NoReturn, Protocol, TypeVar

from scaler.kube.contract import NODES, PODS, Json, KubeApi
from scaler.kube.facts import NodeFacts, PodFacts
from scaler.kube.reading import node_facts, pod_facts
from scaler.kube.reflector import Reflector
from scaler.kube.waiting import News
from scaler.model.clock import Clock


class _Known(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def created_at_s(self) -> float: ...


T = TypeVar("T", bound=_Known)


class _By(Generic[T]):
    """Objects by a key of theirs; those with an empty one are under none."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self._key = key
        self._found: dict[str, tuple[T, ...]] = {}

    def move(self, old: T | None, new: T | None) -> None:
        if old is not None and (key := self._key(old)):
            left = tuple(each for each in self._found.get(key, ()) if each.uid != old.uid)
            if left:
                self._found[key] = left
            else:
                self._found.pop(key, None)
        if new is not None and (key := self._key(new)):
            self._found[key] = (*self._found.get(key, ()), new)

    def all(self, key: str) -> tuple[T, ...]:
        return self._found.get(key, ())

    def newest(self, key: str) -> T | None:
        found = self.all(key)
        return found[0] if len(found) == 1 else max(found, key=lambda each: each.created_at_s, default=None)


class _Counted(Generic[T]):
    """A reading, and how many objects it could make nothing of."""

    def __init__(self, read: Callable[[Json], T | None]) -> None:
        self._read = read
        self.skipped = 0

    def __call__(self, body: Json) -> T | None:
        facts = self._read(body)
        self.skipped += facts is None
        return facts


class WatchedNodes:
    """`NodeIndex`, once somebody awaits `run`."""

    def __init__(self, api: KubeApi, clock: Clock, *, rng: random.Random | None = None) -> None:
        self._by_name = _By[NodeFacts](lambda node: node.name)
        self._by_instance = _By[NodeFacts](lambda node: node.instance_id)
        self._read = _Counted(node_facts)
        self._reflector = Reflector(api, NODES, clock=clock, keep=self._read, moved=self._move, rng=rng)

    def _move(self, uid: str, old: NodeFacts | None, new: NodeFacts | None) -> None:
        del uid
        self._by_name.move(old, new)
        self._by_instance.move(old, new)

    async def run(self) -> NoReturn:
        """Watch, for ever."""
        await self._reflector.run()

    @property
    def current_at_s(self) -> float | None:
        """Up to when the index is known to be whole."""
        return self._reflector.current_at_s

    @property
    def trouble(self) -> str:
        """What keeps it from being current; empty while nothing does."""
        return self._reflector.trouble

    @property
    def skipped(self) -> int:
        """Objects so far that were no nodes."""
        return self._read.skipped + self._reflector.odd

    def all(self) -> tuple[NodeFacts, ...]:
        """Every node."""
        return tuple(self._reflector.items.values())

    def by_name(self, name: str) -> NodeFacts | None:
        """The node of that name."""
        return self._by_name.newest(name)

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        """The newest node of that instance; None for an empty id."""
        return self._by_instance.newest(instance_id)

    async def changed(self) -> None:
        """Return when something may have changed since this task was told last."""
        await self._reflector.changed()


class WatchedPods:
    """`PodIndex`, once somebody awaits `run`. `namespaces` None: all of them, by one watch."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        namespaces: Collection[str] | None,
        label_selector: str = "",
        *,
        rng: random.Random | None = None,
    ) -> None:
        if namespaces is not None and not namespaces:
            raise ValueError("no namespace to watch")
        self._by_node = _By[PodFacts](lambda pod: pod.node_name)
        self._by_owner = _By[PodFacts](lambda pod: pod.owner_uid)
        self._pods: dict[str, PodFacts] = {}
        self._read = _Counted(pod_facts)
        self._news = News()
        self._reflectors = [
            Reflector(
                api,
                PODS,
                clock=clock,
                keep=self._read,
                moved=self._move,
                rng=rng,
                namespace=namespace,
                label_selector=label_selector,
            )
            for namespace in ([None] if namespaces is None else sorted(set(namespaces)))
        ]

    def _move(self, uid: str, old: PodFacts | None, new: PodFacts | None) -> None:
        self._by_node.move(old, new)
        self._by_owner.move(old, new)
        self._pods.pop(uid, None)
        if new is not None:
            self._pods[uid] = new

    async def run(self) -> NoReturn:
        """Watch, for ever."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
                group.create_task(self._pass_on(reflector))
        raise AssertionError("reflectors run for ever")

    async def _pass_on(self, reflector: Reflector[PodFacts]) -> NoReturn:
        while True:
            await reflector.changed()
            self._news.tell()

    @property
    def current_at_s(self) -> float | None:
        """Up to when all of its namespaces are known to be whole."""
        times_s = [reflector.current_at_s for reflector in self._reflectors]
        return None if None in times_s else min(at_s for at_s in times_s if at_s is not None)

    @property
    def trouble(self) -> str:
        """What keeps it from being current; empty while nothing does."""
        return next((reflector.trouble for reflector in self._reflectors if reflector.trouble), "")

    @property
    def skipped(self) -> int:
        """Objects so far that were no pods."""
        return self._read.skipped + sum(reflector.odd for reflector in self._reflectors)

    def all(self) -> tuple[PodFacts, ...]:
        """Every pod."""
        return tuple(self._pods.values())

    def on_node(self, node_name: str) -> tuple[PodFacts, ...]:
        """Pods scheduled to a node."""
        return self._by_node.all(node_name)

    def by_uid(self, uid: str) -> PodFacts | None:
        """The pod of that UID."""
        return self._pods.get(uid)

    def owned_by(self, owner_uid: str) -> tuple[PodFacts, ...]:
        """Pods whose controller has that UID."""
        return self._by_owner.all(owner_uid)

    async def changed(self) -> None:
        """Return when something may have changed since this task was told last."""
        await self._news.wait()
