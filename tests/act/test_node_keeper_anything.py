"""Whatever is wanted, whatever others do and whatever fails: once the API server is well, every node is as it should be."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.act.node_marks import MARKED_BY_ANNOTATION, marked_by, undoing
from scaler.kube.contract import NODES, Conflict, Denied, Json, KubeError, KubeUnreachable, TooMany
from scaler.kube.facts import DRAIN_TAINT, FLEET_LABEL
from scaler.kube.reading import node_facts
from tests.builders.node_bed import FLEET, OTHER_FLEET, Keeping, NodeBed, a_bed, a_mark, a_victim

NAMES = ("a", "b", "c")
ERRORS = (
    KubeUnreachable("away"),
    TooMany("slow down", status=429),
    Conflict("changed", status=409),
    Denied("no", status=403),
)


@dataclass
class Truth:
    """What nodes are to look like, apart from marks."""

    bed: NodeBed
    keeping: Keeping
    wanted: set[str] = field(default_factory=set)
    taints: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in NAMES})
    labels: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in NAMES})
    cordoned: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    turn: int = 0

    def tell(self) -> None:
        """As the loop does, at every turn."""
        now_s = self.bed.clock.now_s()
        self.turn += 1
        make = a_mark if self.turn % 2 else a_victim
        self.keeping.want(*(make(name, in_s=2000.0, now_s=now_s) for name in sorted(self.wanted)), owned=NAMES)

    async def change(self, name: str, change: Callable[[Json], Json]) -> None:
        """Somebody else's write, by who reads before."""
        node = self.bed.found(name)
        patch = change(node)
        patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
        await self.bed.kube.patch(NODES, name, patch)


Step = Callable[[Truth, str], object]


async def want(truth: Truth, name: str) -> None:
    truth.wanted.add(name)
    truth.tell()


async def unwant(truth: Truth, name: str) -> None:
    truth.wanted.discard(name)
    truth.tell()


async def taint(truth: Truth, name: str) -> None:
    key = f"theirs-{len(truth.taints[name])}"
    truth.taints[name].add(key)
    more = [{"key": key, "value": "x", "effect": "NoExecute", "timeAdded": "2026-11-29T00:00:00Z"}]
    await truth.change(name, lambda node: {"spec": {"taints": (node["spec"].get("taints") or []) + more}})


async def untaint(truth: Truth, name: str) -> None:
    truth.taints[name].clear()
    await truth.change(
        name,
        lambda node: {"spec": {"taints": [t for t in node["spec"].get("taints") or [] if t["key"] == DRAIN_TAINT]}},
    )


async def wipe_taints(truth: Truth, name: str) -> None:
    truth.taints[name].clear()
    await truth.change(name, lambda _: {"spec": {"taints": None}})


async def label(truth: Truth, name: str) -> None:
    truth.labels[name]["theirs"] = str(truth.turn)
    await truth.change(name, lambda _: {"metadata": {"labels": {"theirs": str(truth.turn)}}})


async def cordon(truth: Truth, name: str) -> None:
    """Before us: afterwards nobody could tell the two cordons apart."""
    if not truth.bed.is_cordoned(name):
        truth.cordoned.add(name)
        await truth.change(name, lambda _: {"spec": {"unschedulable": True}})


async def taken(truth: Truth, name: str) -> None:
    """Another fleet has it, if nobody had."""
    if not truth.bed.labels(name).get(FLEET_LABEL):
        truth.foreign.add(name)
        await truth.change(name, lambda _: {"metadata": {"labels": {FLEET_LABEL: OTHER_FLEET}}})


async def replaced(truth: Truth, name: str) -> None:
    """The node goes, and one of the same name and instance comes."""
    await truth.bed.kube.delete(NODES, name)
    truth.taints[name].clear()
    truth.labels[name].clear()
    truth.cordoned.discard(name)
    truth.foreign.discard(name)
    truth.bed.node(name)


async def crash(truth: Truth, name: str) -> None:
    del name
    await truth.bed.crash(truth.keeping)
    truth.keeping = truth.bed.keep()


async def told(truth: Truth, name: str) -> None:
    del name
    truth.tell()


async def watch_breaks(truth: Truth, name: str) -> None:
    del name
    truth.keeping.kube.end_watches(KubeUnreachable("broken"))


async def lag(truth: Truth, name: str) -> None:
    """Patches arrive late, whoever has written meanwhile, and whoever sent them has died since."""
    del name
    truth.keeping.kube.lag("patch", "nodes", 0.7, times=2)


STEPS = (
    want, want, unwant, taint, untaint, wipe_taints, label, cordon, taken, replaced, crash, told, watch_breaks, lag,
)  # fmt: skip
steps = st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.sampled_from([0.0, 0.1, 1.0, 30.0]))
faults = st.tuples(
    st.just(None),
    st.sampled_from(ERRORS),
    st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 3.0]), st.sampled_from(["patch", "get"])),
)


@settings(max_examples=120)
@given(plan=st.lists(st.one_of(steps, steps, steps, faults), max_size=14))
def test_nodes_carry_exactly_the_wanted_marks_and_everything_of_others(
    plan: list[tuple[Step | None, object, object]],
) -> None:
    asyncio.run(_live_through(plan))


async def _live_through(plan: list[tuple[Step | None, object, object]]) -> None:
    async with a_bed() as bed:
        for name in NAMES:
            bed.node(name)
        truth = Truth(bed, bed.keep())
        await bed.settle(1.0)
        for step, what, how in plan:
            if step is None:
                assert isinstance(what, KubeError)
                assert isinstance(how, tuple)
                times, landed, delay_s, verb = how
                truth.keeping.kube.fail_next(verb, "nodes", what, times=times, landed=landed, delay_s=delay_s)
            else:
                await step(truth, str(what))  # type: ignore[misc]
                assert isinstance(how, float)
                await bed.clock.advance(how)
        truth.keeping.kube.heal()
        truth.tell()
        await bed.settle(60.0)
        for name in NAMES:
            _check(truth, name)
        sent = truth.keeping.writes
        truth.tell()
        await bed.settle(60.0)
        assert truth.keeping.writes <= sent + len(truth.wanted), "and then there is peace"


def _check(truth: Truth, name: str) -> None:
    bed, marked = truth.bed, name in truth.wanted and name not in truth.foreign
    assert bed.is_marked(name) == marked
    assert bed.taints(name).keys() - {DRAIN_TAINT} == truth.taints[name]
    assert truth.labels[name].items() <= bed.labels(name).items()
    assert bed.is_cordoned(name) == (marked or name in truth.cordoned)
    assert bed.labels(name)[FLEET_LABEL] == (OTHER_FLEET if name in truth.foreign else FLEET)
    node = node_facts(bed.found(name))
    assert node is not None
    if marked:
        assert bed.annotations(name)[MARKED_BY_ANNOTATION] == FLEET
    else:
        assert (marked_by(node), undoing(node)) == (None, None)
