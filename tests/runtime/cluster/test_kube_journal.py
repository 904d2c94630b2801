"""The journal in a ConfigMap: what it says is durable survives, and a leader that was succeeded finds out before it acts."""

import asyncio
import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import CONFIG_MAPS, Conflict, Invalid, KubeApi, KubeUnreachable, NotFound
from scaler.ledger.contract import StaleEpoch
from scaler.model.plan import Memory, StageMemory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.runtime.clock import SystemClock
from scaler.runtime.cluster.kube_journal import KubeJournal
from scaler.runtime.journal import Journal, Turn
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.fleet import a_launch
from tests.cluster.control_plane import ControlPlane

OWNER = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "RolloutFleet",
    "name": "mill",
    "uid": "1bd25ab3-9a1a-4d1e-9f2f-2f3b52d0a001",
}
SPACE, NAME = "default", "headrace-journal-mill"
AWAY = KubeUnreachable("away")
EPOCH = 1_800_000_000
MEMORY = Memory(stages=(("rollout", StageMemory(desired=3)),), next_intent=9)

Opener = Callable[..., Any]


def an_intent(token: str = "mill.rollout.1", at_s: float = 1.0) -> Intent:
    return Intent(command=replace(a_launch(), token=token), decided_at_s=at_s)


def an_order(replica_id: str = "r", *, random: Random | None = None) -> DrainOrder:
    instance_id = f"i-{UUID(int=random.getrandbits(128)).hex[:17]}" if random else f"i-{replica_id}"
    return DrainOrder(
        stage="rollout",
        pool="spot-us-west-2a",
        replica_id=instance_id if random else replica_id,
        instance_ids=(instance_id,),
        deadline_s=EPOCH + (random.random() * 120 if random else 120.0),
        reason="notice",
        noticed_at_s=EPOCH + (random.random() if random else 0.0),
    )


def a_turn(**facts: Any) -> Turn:
    given: dict[str, Any] = {"at_s": 1.0, "memory": MEMORY} | facts
    return Turn(**given)


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[Opener]:
    """Opens journals on an API, each with a file of its own beside it."""
    opened: list[KubeJournal] = []

    def make(kube: KubeApi, epoch: int = EPOCH) -> KubeJournal:
        file = Journal(tmp_path / f"{len(opened)}.sqlite")
        opened.append(KubeJournal(kube, namespace=SPACE, fleet="mill", owner=OWNER, epoch=epoch, decisions=file))
        return opened[-1]

    yield make
    for journal in opened:
        journal.close()


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(FakeClock())


@pytest.fixture
async def real(api_server: ControlPlane) -> AsyncIterator[KubeApi]:
    api = open_api(api_server.kubeconfig, clock=SystemClock())
    yield api
    try:
        await api.delete(CONFIG_MAPS, NAME, namespace=SPACE)
    except NotFound:
        pass
    finally:
        await api.close()


async def opened(journals: Opener, kube: KubeApi, epoch: int = EPOCH) -> KubeJournal:
    journal: KubeJournal = journals(kube, epoch)
    await journal.open()
    return journal


async def _round(journals: Opener, kube: KubeApi) -> None:
    first = await opened(journals, kube)
    written = await first.commit(
        a_turn(intents=(an_intent("b", 2.0), an_intent("a", 1.0)), orders=(an_order(),), decision=_decision(3))
    )
    assert (written.durable, written.seq) == (True, 1)
    assert first.decisions(1)[0]["stages"][0]["desired"] == 3
    second = await opened(journals, kube, EPOCH + 1)
    assert second.memory() == MEMORY
    assert [each.token for each in second.intents()] == ["a", "b"]
    assert second.orders() == (an_order(),)
    await second.commit(a_turn(intents_over=("a",), orders_over=("r",)))
    third = await opened(journals, kube, EPOCH + 2)
    assert ([each.token for each in third.intents()], third.orders()) == (["b"], ())


def _decision(desired: int) -> dict[str, Any]:
    reason = {"code": "steady", "clamps": []}
    stage = {"stage": "s", "desired": desired, "requested": 0, "observed": 0, "ready": 0, "reason": reason}
    return {"stages": [stage], "commands": []}


async def test_what_is_written_is_there_for_the_next_leader(kube: FakeKube, journals: Opener) -> None:
    await _round(journals, kube)


@pytest.mark.cluster
async def test_the_same_on_a_real_api_server(real: KubeApi, journals: Opener) -> None:
    await _round(journals, real)
    found = await real.get(CONFIG_MAPS, NAME, namespace=SPACE)
    assert found["metadata"]["ownerReferences"][0]["uid"] == OWNER["uid"], "it goes with its fleet"


async def test_bug_063_what_was_written_before_a_crash_is_known_before_anything_is_decided(
    kube: FakeKube, journals: Opener
) -> None:
    first = await opened(journals, kube)
    lost = kube.fail_next("update", "configmaps", AWAY, landed=True)
    assert not (await first.commit(a_turn(intents=(an_intent(),)))).durable, "nobody said that it was written"
    assert lost.hit == 1
    second = await opened(journals, kube, EPOCH + 1)
    assert second.intents() == (an_intent(),)


async def test_what_landed_without_an_answer_does_not_stay_when_it_is_over(kube: FakeKube, journals: Opener) -> None:
    """Or a launch that was given up would be called for by the next leader."""
    first = await opened(journals, kube)
    assert (await first.commit(a_turn())).durable
    kube.fail_next("update", "configmaps", AWAY, landed=True)
    assert not (await first.commit(a_turn(intents=(an_intent(),)))).durable
    assert (await first.commit(a_turn(intents_over=(an_intent().token,)))).durable, (
        "as it was when it was last answered"
    )
    assert (await opened(journals, kube, EPOCH + 1)).intents() == ()


async def _succession(journals: Opener, kube: KubeApi) -> None:
    old, new = await opened(journals, kube), await opened(journals, kube, EPOCH + 1)
    with pytest.raises(StaleEpoch, match=f"{EPOCH + 1} has written"):
        await old.commit(a_turn(intents=(an_intent("old"),)))
    assert (await new.commit(a_turn(intents=(an_intent("new"),)))).durable
    with pytest.raises(StaleEpoch):
        await opened(journals, kube)
    assert [each.token for each in (await opened(journals, kube, EPOCH + 2)).intents()] == ["new"]


async def test_a_leader_that_was_succeeded_finds_out_before_it_acts(kube: FakeKube, journals: Opener) -> None:
    await _succession(journals, kube)


@pytest.mark.cluster
async def test_a_leader_that_was_succeeded_finds_out_on_a_real_api_server(real: KubeApi, journals: Opener) -> None:
    await _succession(journals, real)


async def test_what_an_old_leader_writes_while_a_new_one_opens_is_not_lost(kube: FakeKube, journals: Opener) -> None:
    old = await opened(journals, kube)
    slow = kube.client()
    slow.slow("get", "configmaps", 1.0, times=1)
    clock = kube._clock
    assert isinstance(clock, FakeClock)
    new = journals(slow, EPOCH + 1)
    opening = asyncio.ensure_future(new.open())
    await clock.settle()
    assert (await old.commit(a_turn(intents=(an_intent(),)))).durable
    await clock.advance(5.0)
    await opening
    assert new.intents() == (an_intent(),)


async def test_while_the_api_is_away_nothing_is_durable_and_afterwards_everything_is(
    kube: FakeKube, journals: Opener
) -> None:
    journal = await opened(journals, kube)
    kube.fail_next("*", "*", AWAY, times=6)
    for turn in range(3):
        written = await journal.commit(a_turn(intents=(an_intent(f"t{turn}"),), decision=_decision(turn)))
        assert (written.durable, written.seq) == (False, turn + 1)
    kube.heal()
    assert (await journal.commit(a_turn(intents_over=("t1",)))).durable
    assert [each.token for each in (await opened(journals, kube, EPOCH + 1)).intents()] == ["t0", "t2"]


async def test_an_api_server_that_hangs_holds_a_turn_up_for_seconds_only(
    kube: FakeKube, journals: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.runtime.cluster.kube_journal._COMMIT_S", 0.01)
    journal = await opened(journals, kube)
    kube.hang("update", "configmaps", times=1)
    assert not (await journal.commit(a_turn(intents=(an_intent(),)))).durable
    assert (await journal.commit(a_turn())).durable


@pytest.mark.parametrize(
    "meddle",
    [
        pytest.param({"metadata": {"annotations": {"note": "x"}}}, id="an annotation"),
        pytest.param({"metadata": {"annotations": {"headrace.dev/epoch": "soon"}}}, id="an epoch that is none"),
        pytest.param({"binaryData": None}, id="the body taken away"),
        pytest.param(None, id="deleted"),
    ],
)
async def test_what_somebody_does_to_it_by_hand_is_written_over(
    kube: FakeKube, journals: Opener, meddle: dict[str, Any] | None
) -> None:
    journal = await opened(journals, kube)
    assert (await journal.commit(a_turn(intents=(an_intent(),)))).durable
    if meddle is None:
        await kube.delete(CONFIG_MAPS, NAME, namespace=SPACE)
    else:
        await kube.patch(CONFIG_MAPS, NAME, meddle, namespace=SPACE)
    assert (await journal.commit(a_turn(orders=(an_order(),)))).durable
    after = await opened(journals, kube, EPOCH + 1)
    assert (after.intents(), after.orders()) == ((an_intent(),), (an_order(),))


async def test_a_turn_that_changes_nothing_is_no_request(kube: FakeKube, journals: Opener) -> None:
    journal = await opened(journals, kube)
    await journal.commit(a_turn())
    before = dict(kube.counts())
    for _ in range(5):
        assert (await journal.commit(a_turn())).durable
    assert dict(kube.counts()) == before


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="empty"),
        pytest.param("!!!", id="no base64"),
        pytest.param(b64encode(b"no gzip").decode(), id="no gzip"),
        pytest.param(b64encode(gzip.compress(b'{"memory": {}}' * 50)[:-9]).decode(), id="cut short"),
        pytest.param(b64encode(gzip.compress(b"{not json")).decode(), id="no JSON"),
        pytest.param(b64encode(gzip.compress(b"[1, 2]")).decode(), id="a list"),
        pytest.param(b64encode(gzip.compress(b'{"memory": 3, "intents": 4}')).decode(), id="of other types"),
    ],
)
async def test_a_body_that_nobody_can_read_starts_anew_above_all_tokens(
    kube: FakeKube, journals: Opener, data: str
) -> None:
    await opened(journals, kube)
    await kube.patch(CONFIG_MAPS, NAME, {"binaryData": {"journal.json.gz": data}}, namespace=SPACE)
    after = await opened(journals, kube, EPOCH + 7)
    assert (after.intents(), after.orders()) == ((), ())
    assert after.memory() == Memory(next_intent=EPOCH + 7)
    assert (await after.commit(a_turn(intents=(an_intent(),)))).durable


async def test_entries_of_another_version_are_left_out_and_the_others_kept(kube: FakeKube, journals: Opener) -> None:
    await (await opened(journals, kube)).commit(a_turn(intents=(an_intent("a"), an_intent("b")), orders=(an_order(),)))
    found = await kube.get(CONFIG_MAPS, NAME, namespace=SPACE)
    body = json.loads(gzip.decompress(b64decode(found["binaryData"]["journal.json.gz"])))
    body["intents"][0] = {"what": "is this"}
    body["memory"] = {"stages": "what is this", "next_intent": EPOCH * 2}
    data = b64encode(gzip.compress(json.dumps(body).encode())).decode()
    await kube.patch(CONFIG_MAPS, NAME, {"binaryData": {"journal.json.gz": data}}, namespace=SPACE)
    after = await opened(journals, kube, EPOCH + 1)
    assert [each.token for each in after.intents()] == ["b"]
    assert after.orders() == (an_order(),)
    assert after.memory() == Memory(next_intent=EPOCH * 2)


async def test_who_cannot_open_it_does_not_begin(kube: FakeKube, journals: Opener) -> None:
    kube.fail_next("get", "configmaps", AWAY)
    with pytest.raises(KubeUnreachable):
        await opened(journals, kube)
    kube.fail_next("create", "configmaps", Conflict("again", status=409), times=99)
    with pytest.raises(Conflict):
        await opened(journals, kube)


async def _five_thousand_orders(journals: Opener, kube: KubeApi) -> int:
    random = Random(5)
    journal = await opened(journals, kube)
    intents = tuple(an_intent(f"rl.mill.rollout.{EPOCH + number}", random.random()) for number in range(500))
    orders = tuple(an_order(random=random) for _ in range(5000))
    assert (await journal.commit(a_turn(orders=orders, intents=intents))).durable
    after = await opened(journals, kube, EPOCH + 1)
    assert len(after.orders()) == 5000
    found = await kube.get(CONFIG_MAPS, NAME, namespace=SPACE)
    return len(json.dumps(found))


async def test_five_thousand_orders_fit(kube: FakeKube, journals: Opener) -> None:
    assert await _five_thousand_orders(journals, kube) < 1 << 20


@pytest.mark.cluster
async def test_five_thousand_orders_fit_a_real_api_server(real: KubeApi, journals: Opener) -> None:
    assert await _five_thousand_orders(journals, real) < 1 << 20


async def test_a_body_that_the_server_will_not_take_is_not_durable(kube: FakeKube, journals: Opener) -> None:
    journal = await opened(journals, kube)
    kube.fail_next("update", "configmaps", Invalid("too long", status=422))
    assert not (await journal.commit(a_turn(intents=(an_intent(),)))).durable


async def test_a_full_disk_stops_no_fleet(kube: FakeKube, journals: Opener) -> None:
    journal = await opened(journals, kube)
    assert (await journal.commit(a_turn(decision=_decision(1)))).seq == 1
    journal._decisions.close()
    written = await journal.commit(a_turn(decision=_decision(2), intents=(an_intent(),)))
    assert (written.seq, written.durable) == (1, True)
