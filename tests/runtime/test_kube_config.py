"""The configuration from the cluster: live, and never worse than the last one accepted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scaler.config.crd import HASH_ANNOTATION, NAME
from scaler.config.custom_object import read_fleet
from scaler.config.faults import ConfigError
from scaler.kube.contract import DEFINITIONS, ROLLOUT_FLEETS, Denied, Json, KubeUnreachable, NotFound
from scaler.runtime.kube_config import KubeConfigWatch
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.fleet_yaml import a_local_provider, a_pool, a_stage, an_asg
from tests.builders.rollout_fleets import a_cluster, a_watch, an_object, change, the_object

BAD_SPEND = {"spendCapUsdPerH": "0.01"}


@asynccontextmanager
async def watched(kube: FakeKube, clock: FakeClock) -> AsyncIterator[tuple[KubeConfigWatch, asyncio.Event]]:
    """A configuration that is started and followed, and the event that wakes the loop."""
    config, wake = a_watch(kube, clock), asyncio.Event()
    await config.start()
    task = asyncio.create_task(config.watch(wake))
    await clock.settle()
    yield config, wake
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def the_status_is_kept(kube: FakeKube, config: KubeConfigWatch) -> None:
    """What the status writer does with the spec accepted."""
    status = {"lastAccepted": config.state.accepted.to_json()}
    await kube.patch(ROLLOUT_FLEETS, "demo", {"status": status}, namespace="rl", subresource="status")


async def test_an_object_becomes_the_fleet_of_its_namespace() -> None:
    clock = FakeClock()
    body = an_object()
    body["metadata"] |= {"labels": {"team": "rl"}, "annotations": {"tool": "x"}, "finalizers": ["a/b"]}
    config = a_watch(await a_cluster(clock, body), clock)
    await config.start()
    assert (config.spec.name, config.spec.namespace, config.spec.labels) == ("demo", "rl", {"team": "rl"})
    assert config.spec.dry_run, "a new fleet shows what it would do before it may do it"
    assert not config.spec.paused
    assert config.faults == ()
    assert config.state.accepted.generation == 1


async def test_a_change_is_used_and_wakes_the_loop() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, wake):
        before = config.digest
        await change(kube, paused=True, dryRun=False, interval="20s")
        await clock.settle()
        assert wake.is_set()
        assert (config.spec.paused, config.spec.dry_run, config.spec.interval_s) == (True, False, 20.0)
        assert config.digest != before
        assert config.state.accepted.generation == 2


async def test_a_status_that_changes_is_no_change() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, wake):
        await the_status_is_kept(kube, config)
        await clock.settle()
        assert config.body["status"]["lastAccepted"]["generation"] == 1
        assert not wake.is_set()


async def test_a_bad_spec_is_told_until_it_is_good_again_and_never_used() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, wake):
        good = config.digest
        await change(kube, **BAD_SPEND)
        await clock.settle()
        (fault,) = config.faults
        assert fault.startswith("rolloutfleet rl/demo: spec.spendCapUsdPerH: 0.01 USD/h do not pay for the floor")
        assert (config.digest, config.state.accepted.generation, config.state.generation) == (good, 1, 2)
        await change(kube, spendCapUsdPerH="10.00")
        await clock.settle()
        assert config.faults == ()
        assert (config.digest, config.state.accepted.generation) == (good, 3)
        assert not wake.is_set()


async def test_a_restart_while_the_spec_is_bad_goes_on_with_the_one_last_accepted() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(interval="12s"))
    first = a_watch(kube, clock)
    await first.start()
    await the_status_is_kept(kube, first)
    await change(kube, interval="soon")
    again = a_watch(kube, clock)
    await again.start()
    assert again.spec.interval_s == 12.0
    assert again.digest == first.digest
    assert "spec.interval: 'soon' is no duration" in again.faults[0]


async def test_a_bad_spec_with_nothing_accepted_before_is_refused() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(**BAD_SPEND))
    with pytest.raises(ConfigError, match="do not pay for the floor"):
        await a_watch(kube, clock).start()


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        ({"digest": "0", "spec": {"interval": "1s"}}, "status.lastAccepted: does not match its digest"),
        ({"digest": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "spec": {}}, "status.lastAccepted: spec"),
    ],
    ids=["damaged", "bad by now"],
)  # fmt: skip
async def test_an_accepted_spec_that_cannot_be_used_is_told(kept: Json, fault: str) -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(**BAD_SPEND))
    await kube.patch(ROLLOUT_FLEETS, "demo", {"status": {"lastAccepted": kept}}, namespace="rl", subresource="status")
    with pytest.raises(ConfigError, match=fault):
        await a_watch(kube, clock).start()


async def test_what_needs_a_restart_waits_for_one() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, wake):
        await change(kube, stages=[a_stage(pools=[an_asg(group="another")])])
        await clock.settle()
        (fault,) = config.faults
        assert "spec.stages[rollout].pools[spot].provider.group: cannot change while the controller runs" in fault
        assert not wake.is_set()
    again = a_watch(kube, clock)
    await again.start()
    assert again.faults == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"ledger": {"type": "valkey", "urlFile": "secret/url"}},
        {"weightsDir": "weights"},
        {"stages": [a_stage(pools=[a_pool(provider=a_local_provider(stateDir="cloud"))])]},
    ],
    ids=["urlFile", "weightsDir", "stateDir"],
)
def test_a_relative_path_has_nowhere_to_start_from(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"starts from nowhere in a cluster \(write the whole path"):
        read_fleet(an_object(**spec))


def test_a_spec_too_large_to_be_kept_twice_is_refused() -> None:
    provider = a_local_provider(stateDir="/cloud", command=["w" * 4000] * 200)
    with pytest.raises(ConfigError, match="spec: is larger than 512 KiB"):
        read_fleet(an_object(stages=[a_stage(pools=[a_pool(provider=provider)])]))


def test_a_whole_path_is_taken() -> None:
    fleet = read_fleet(an_object(ledger={"type": "valkey", "urlFile": "/etc/headrace/../headrace/url"}))
    assert getattr(fleet.spec.ledger, "url_file", None) == "/etc/headrace/url"


async def test_bug_090_another_fleet_of_the_name_is_not_this_one() -> None:
    """KEDA#8124: identity is the UID."""
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, wake):
        before = config.state
        await kube.delete(ROLLOUT_FLEETS, "demo", namespace="rl")
        await kube.create(ROLLOUT_FLEETS, an_object(interval="20s"), namespace="rl")
        await clock.settle()
        assert config.gone.is_set()
        assert (config.spec.interval_s, config.state.uid) == (10.0, before.uid)
        assert not wake.is_set()


async def test_a_fleet_that_went_before_it_was_followed_is_gone() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    config = a_watch(kube, clock)
    await config.start()
    await kube.delete(ROLLOUT_FLEETS, "demo", namespace="rl")
    task = asyncio.create_task(config.watch(asyncio.Event()))
    await clock.settle()
    assert config.gone.is_set()
    task.cancel()


async def test_no_fleet_is_no_configuration() -> None:
    clock = FakeClock()
    with pytest.raises(NotFound):
        await a_watch(await a_cluster(clock), clock).start()


async def annotate(kube: FakeKube, value: str | None) -> None:
    await kube.patch(DEFINITIONS, NAME, {"metadata": {"annotations": {HASH_ANNOTATION: value}}})


@pytest.mark.parametrize("value", ["0123456789abcdef", None], ids=["another hash", "no hash"])
async def test_a_definition_that_is_not_ours_holds_the_fleet_until_it_is(value: str | None) -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(dryRun=False))
    ours = (await kube.get(DEFINITIONS, NAME))["metadata"]["annotations"][HASH_ANNOTATION]
    await annotate(kube, value)
    async with watched(kube, clock) as (config, wake):
        held = config.state
        assert (config.spec.paused, held.paused, held.schema_current) == (True, False, False)
        assert "holding: the installed definition has schema" in held.schema_message
        await annotate(kube, ours)
        await clock.advance(61.0)
        assert wake.is_set()
        assert (config.spec.paused, config.state.schema_current) == (False, True)


async def test_a_definition_that_becomes_another_holds_the_fleet() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(dryRun=False))
    async with watched(kube, clock) as (config, wake):
        assert not config.spec.paused
        await annotate(kube, "0123456789abcdef")
        await clock.advance(61.0)
        assert wake.is_set()
        assert config.spec.paused


async def test_no_definition_holds() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    await kube.delete(DEFINITIONS, NAME)
    config = a_watch(kube, clock)
    await config.start()
    assert (config.spec.paused, config.state.schema_current) == (True, False)


async def test_a_definition_that_cannot_be_read_holds_only_where_it_never_could() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    denied = kube.fail_next("get", "customresourcedefinitions", Denied("forbidden", status=403))
    async with watched(kube, clock) as (config, _):
        assert denied.hit
        assert (config.spec.paused, config.state.schema_current) == (True, None)
        assert "cannot be read: forbidden" in config.state.schema_message
        await clock.advance(61.0)
        assert not config.spec.paused
        kube.fail_next("get", "customresourcedefinitions", KubeUnreachable("no answer"))
        await clock.advance(60.0)
        assert not config.spec.paused, "what was known stays known"


async def test_the_body_is_the_newest() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    async with watched(kube, clock) as (config, _):
        await change(kube, paused=True)
        await clock.settle()
        assert config.body == await the_object(kube)
