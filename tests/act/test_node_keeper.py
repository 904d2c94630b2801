"""Nodes carry the marks that are wanted, and everybody else's taints, labels and cordons stay as they are."""

from dataclasses import replace

import pytest

from scaler.act.node_marks import (
    CORDONED_ANNOTATION,
    EXCLUDED_ANNOTATION,
    EXPIRES_AFTER_S,
    MARKED_BY_ANNOTATION,
    NodeMark,
)
from scaler.kube.contract import NODES, Conflict, KubeUnreachable, TooMany
from scaler.kube.facts import (
    DEADLINE_ANNOTATION,
    DRAIN_TAINT,
    EXCLUDE_LABEL,
    EXPIRY_ANNOTATION,
    FLEET_LABEL,
    NOTICE_ANNOTATION,
    POOL_LABEL,
)
from scaler.model.interruption import NoticeKind
from scaler.model.notice_file import parse_notice
from tests.builders.node_bed import (
    FLEET,
    FOREIGN_TAINT,
    NOW_S,
    OTHER_FLEET,
    a_bed,
    a_mark,
    a_victim,
    an_emptying,
    utc,
)

AWAY = KubeUnreachable("away")


async def test_bug_037_a_mark_is_one_patch_taint_cordon_labels_and_annotations_together() -> None:
    async with a_bed() as bed:
        bed.node("a", taints=[FOREIGN_TAINT], labels={"team": "rl"})
        keeping = bed.keep()
        keeping.want(a_mark("a"))
        await bed.settle()

        assert keeping.writes == 1
        assert bed.taints("a") == {"nvidia.com/gpu": "present", DRAIN_TAINT: "notice"}
        assert bed.is_cordoned("a")
        assert bed.labels("a") == {"team": "rl", FLEET_LABEL: FLEET, POOL_LABEL: "spot", EXCLUDE_LABEL: "true"}
        notes = bed.annotations("a")
        assert notes[DEADLINE_ANNOTATION] == utc(NOW_S + 120)
        assert notes[EXPIRY_ANNOTATION] == utc(NOW_S + 120 + EXPIRES_AFTER_S)
        assert parse_notice(notes[NOTICE_ANNOTATION]) == a_mark("a").notice
        assert (notes[MARKED_BY_ANNOTATION], notes["headrace.dev/epoch"]) == (FLEET, "7")


async def test_nothing_is_patched_where_nothing_changes_however_long_it_stands() -> None:
    async with a_bed() as bed:
        for name in "abc":
            bed.node(name)
        keeping = bed.keep()
        keeping.want(a_mark("a", in_s=3000.0), owned="abc")
        await bed.settle()
        assert keeping.writes == 3
        for turn in range(60):
            keeping.want(a_mark("a", in_s=3000.0, epoch=8 + turn), owned="abc")
            await bed.settle(10.0)
        assert keeping.writes == 3


@pytest.mark.parametrize(
    ("moved_s", "patches"),
    [
        pytest.param(-0.9, 0, id="a little earlier"),
        pytest.param(0.9, 0, id="a little later"),
        pytest.param(2.5, 0, id="later: shown early is safe"),
        pytest.param(-30.0, 1, id="brought forward"),
        pytest.param(60.0, 1, id="put off"),
    ],
)
async def test_a_deadline_that_trembles_is_not_written_again(moved_s: float, patches: int) -> None:
    async with a_bed(NOW_S + 0.4) as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.want(a_victim("a", now_s=NOW_S + 0.4))
        await bed.settle()
        keeping.want(a_victim("a", in_s=120.0 + moved_s, now_s=NOW_S + 0.4))
        await bed.settle()
        assert keeping.writes == 1 + patches


async def test_bug_005_bug_006_of_five_hundred_nodes_every_one_is_tainted_by_a_request_of_its_own() -> None:
    async with a_bed() as bed:
        names = [f"n{number}" for number in range(500)]
        for name in names:
            bed.node(name)
        keeping = bed.keep()
        await bed.settle()
        keeping.want(*(an_emptying(name) for name in names))
        await bed.settle(2.0)
        assert all(bed.is_marked(name) for name in names)
        assert keeping.writes == 500
        assert len(keeping.marked) == 500


async def test_all_nodes_are_tainted_before_any_slow_eviction_ends() -> None:
    async with a_bed() as bed:
        names = [f"n{number}" for number in range(100)]
        for name in names:
            bed.node(name)
            bed.pod(f"pod-{name}", name)
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.hang("create", "pods/eviction")
        keeping.want(*(an_emptying(name) for name in names[:50]))
        await bed.settle(2.0)
        keeping.want(*(an_emptying(name) for name in names))
        await bed.settle(2.0)
        assert all(bed.is_marked(name) for name in names)
        assert len(bed.pods_left()) == 100


async def test_the_nearest_deadline_is_marked_first() -> None:
    async with a_bed() as bed:
        names = [f"n{number:02}" for number in range(40)]
        for name in names:
            bed.node(name)
        keeping = bed.keep()
        keeping.want(*(a_mark(name, in_s=200.0 - number) for number, name in enumerate(names)))
        await bed.settle()
        assert [instance for instance, _ in keeping.marked] == [f"i-{name}" for name in reversed(names)]


async def test_bug_035_a_taint_that_somebody_sets_meanwhile_is_kept() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.lag("patch", "nodes", 2.0, times=1)
        keeping.want(a_mark("a"))
        await bed.clock.settle()
        await bed.kube.patch(NODES, "a", {"spec": {"taints": [FOREIGN_TAINT]}, "metadata": {"labels": {"new": "yes"}}})
        await bed.settle(5.0)
        assert bed.taints("a") == {"nvidia.com/gpu": "present", DRAIN_TAINT: "notice"}
        assert bed.labels("a")["new"] == "yes"
        assert keeping.sent("get", "nodes") == 1, "after a conflict it reads anew"


async def test_bug_003_conflict_upon_conflict_is_neither_swallowed_nor_given_up() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.kube.fail_next("patch", "nodes", Conflict("changed", status=409), times=20)
        keeping.want(a_mark("a"))
        await bed.settle(1.0)
        assert not keeping.keeper.recorded("i-a"), "its message must come back"
        await bed.settle(60.0)
        assert bed.is_marked("a")
        assert keeping.keeper.recorded("i-a")


async def test_bug_004_a_taint_that_is_refused_keeps_the_notice_unrecorded() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        refused = keeping.kube.fail_next("patch", "nodes", TooMany("slow down", status=429), times=10_000)
        keeping.want(a_mark("a"))
        await bed.settle(60.0)
        assert not keeping.keeper.recorded("i-a")
        assert 4 <= refused.hit <= 15, "it rests between tries"
        keeping.kube.heal()
        await bed.settle(15.0)
        assert keeping.keeper.recorded("i-a")


async def test_what_was_answered_counts_at_once_and_what_is_taken_away_later_does_not() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.end_watches(AWAY)
        keeping.kube.hang("watch", "nodes", times=1)
        keeping.want(a_mark("a"))
        await bed.settle()
        assert keeping.keeper.recorded("i-a"), "the server has answered, whatever the watch shows"
        await bed.settle(100.0)
        assert keeping.writes == 1
        await bed.kube.patch(NODES, "a", {"spec": {"taints": None}})
        await bed.settle(10.0)
        assert bed.is_marked("a")
        assert (keeping.writes, len(keeping.marked)) == (2, 1), "it is counted once"


async def test_an_uncordon_by_hand_is_undone_while_the_node_is_to_go() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.want(a_mark("a"))
        await bed.settle()
        await bed.kube.patch(NODES, "a", {"spec": {"unschedulable": None}})
        await bed.settle()
        assert bed.is_cordoned("a")


@pytest.mark.parametrize("cordoned", [True, False], ids=["cordoned by somebody", "open before"])
@pytest.mark.parametrize("excluded", [True, False], ids=["excluded by somebody", "balanced before"])
async def test_undoing_a_mark_leaves_the_node_as_it_was(cordoned: bool, excluded: bool) -> None:
    async with a_bed() as bed:
        labels = {"team": "rl", **({EXCLUDE_LABEL: "of-old"} if excluded else {})}
        bed.node("a", taints=[FOREIGN_TAINT], labels=labels, annotations={"note": "x"}, unschedulable=cordoned)
        keeping = bed.keep()
        keeping.want(a_victim("a"))
        await bed.settle()
        assert (CORDONED_ANNOTATION in bed.annotations("a"), EXCLUDED_ANNOTATION in bed.annotations("a")) == (
            not cordoned,
            not excluded,
        )
        keeping.want(owned="a")
        await bed.settle()
        assert bed.taints("a") == {"nvidia.com/gpu": "present"}
        assert bed.is_cordoned("a") == cordoned
        assert bed.labels("a") == {**labels, FLEET_LABEL: FLEET, POOL_LABEL: "spot"}
        assert bed.annotations("a") == {"note": "x"}
        assert keeping.writes == 2


async def test_bug_038_after_a_restart_own_marks_are_finished_or_undone() -> None:
    async with a_bed() as bed:
        for name in "abc":
            bed.node(name)
        first = bed.keep()
        await bed.settle()
        first.kube.fail_next("patch", "nodes", AWAY, times=1)
        first.want(a_mark("a"), a_victim("b"), a_mark("c"))
        await bed.settle(0.3)
        await bed.crash(first)
        assert sum(bed.is_marked(name) for name in "abc") == 2

        second = bed.keep()
        await bed.settle(20.0)
        assert second.writes == 0, "before it knows what is wanted it touches nothing"
        second.want(a_mark("a"), a_mark("c"), owned="b")
        await bed.settle()
        assert {name: bed.is_marked(name) for name in "abc"} == {"a": True, "b": False, "c": True}


async def test_bug_039_an_instance_that_is_ending_stays_marked_and_gets_no_pods() -> None:
    """What is not listed any more, or shuts down, is not known to stay: its node keeps its taint."""
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.want(a_victim("a"))
        await bed.settle()
        keeping.want()
        await bed.settle(600.0)
        assert bed.is_marked("a")
        await bed.settle(EXPIRES_AFTER_S)
        assert not bed.is_marked("a"), "every mark runs out"


async def test_a_dead_controllers_mark_runs_out_whoevers_it_was() -> None:
    async with a_bed() as bed:
        bed.node("a", labels={FLEET_LABEL: OTHER_FLEET})
        other = bed.keep(OTHER_FLEET)
        other.want(a_mark("a"))
        await bed.settle()
        await bed.crash(other)
        keeping = bed.keep()
        keeping.want()
        await bed.settle(120.0 + EXPIRES_AFTER_S - 10.0)
        assert bed.is_marked("a")
        await bed.settle(20.0)
        assert not bed.is_marked("a")
        assert not bed.is_cordoned("a")
        assert bed.labels("a") == {FLEET_LABEL: OTHER_FLEET}


async def test_a_mark_that_is_still_wanted_is_renewed_in_time() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping, other = bed.keep(), bed.keep(OTHER_FLEET)
        keeping.want(a_victim("a"))
        other.want()
        for _ in range(6):
            await bed.settle(EXPIRES_AFTER_S / 2)
            assert bed.is_marked("a")
        assert 2 <= keeping.writes <= 6
        assert other.writes == 0


async def test_an_expiry_that_cannot_be_read_is_left_to_its_owner() -> None:
    async with a_bed() as bed:
        notes = {MARKED_BY_ANNOTATION: OTHER_FLEET, EXPIRY_ANNOTATION: "tomorrow"}
        bed.node("a", annotations=notes)
        keeping = bed.keep()
        keeping.want()
        await bed.settle(1e4)
        assert bed.annotations("a") == notes


async def test_a_node_that_joins_late_is_marked_when_it_joins() -> None:
    async with a_bed() as bed:
        keeping = bed.keep()
        keeping.want(a_mark("a"))
        await bed.settle(30.0)
        assert not keeping.keeper.recorded("i-a"), "its message stays in the queue"
        bed.node("a")
        await bed.settle()
        assert bed.is_marked("a")
        assert keeping.keeper.recorded("i-a")


async def test_bug_019_a_node_is_found_by_its_instance_not_by_its_name() -> None:
    async with a_bed() as bed:
        bed.node("a", instance_id="i-b")
        bed.node("b", instance_id="i-a")
        bed.node("i-a", instance_id="i-c")
        keeping = bed.keep()
        keeping.want(a_mark("a"))
        await bed.settle()
        assert [name for name in ("a", "b", "i-a") if bed.is_marked(name)] == ["b"]


async def test_another_fleets_node_is_never_touched() -> None:
    async with a_bed() as bed:
        bed.node("a", labels={FLEET_LABEL: OTHER_FLEET})
        bed.pod("p", "a")
        before = bed.found("a")
        keeping = bed.keep()
        keeping.want(an_emptying("a", in_s=20.0))
        await bed.settle(60.0)
        assert bed.found("a") == before
        assert (bed.pods_left(), keeping.writes) == ({"p": None}, 0)


async def test_a_node_that_another_fleet_takes_between_look_and_patch_is_left_to_it() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.lag("patch", "nodes", 2.0, times=1)
        keeping.want(a_mark("a"))
        await bed.clock.settle()
        await bed.kube.patch(NODES, "a", {"metadata": {"labels": {FLEET_LABEL: OTHER_FLEET}}})
        await bed.settle(30.0)
        assert not bed.is_marked("a")


async def test_of_two_fleets_that_want_one_node_one_gets_it_and_the_other_lets_be() -> None:
    async with a_bed() as bed:
        for number in range(20):
            bed.node(f"n{number}")
        ours, theirs = bed.keep(), bed.keep(OTHER_FLEET)
        await bed.settle()
        names = [f"n{number}" for number in range(20)]
        ours.want(*(a_mark(name) for name in names[:10]), owned=names)
        theirs.want(*(a_mark(name) for name in names[5:]), owned=names)
        await bed.settle(60.0)
        for name in names:
            owner = bed.labels(name)[FLEET_LABEL]
            assert owner in (FLEET, OTHER_FLEET)
            wants = names[:10] if owner == FLEET else names[5:]
            assert bed.is_marked(name) == (name in wants)
            if bed.is_marked(name):
                assert bed.annotations(name)[MARKED_BY_ANNOTATION] == owner


async def test_a_trainers_node_is_never_touched_and_said_once() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        before = bed.found("a")
        bed.objections["a"] = "a trainer's pod runs on it"
        keeping = bed.keep()
        keeping.want(an_emptying("a", in_s=20.0), owned="a")
        await bed.settle(60.0)
        assert bed.found("a") == before
        assert keeping.writes == 0
        del bed.objections["a"]
        await bed.settle(10.0)
        assert bed.is_marked("a")


async def test_a_trainer_that_moves_in_stops_the_evictions_and_gets_its_node_back() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(an_emptying("a", in_s=30.0))
        await bed.settle(5.0)
        bed.objections["a"] = "a trainer's"
        await bed.settle(60.0)
        assert bed.pods_left() == {"p": None}
        keeping.want(owned="a")
        await bed.settle(10.0)
        assert not bed.is_marked("a"), "what we did is undone"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda keeping: keeping.leads.append(False), id="another leads"),
        pytest.param(lambda keeping: keeping.keeper.rest(), id="a dry run"),
    ],
)
async def test_nothing_is_touched_by_who_may_not_act(change: object) -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.node("b")
        bed.pod("p", "a", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(an_emptying("a"))
        await bed.settle(5.0)
        sent = keeping.writes
        change(keeping)  # type: ignore[operator]
        await bed.kube.patch(NODES, "a", {"spec": {"taints": None}})
        await bed.settle(200.0)
        assert bed.pods_left() == {"p": None}
        assert not bed.is_marked("a")
        assert keeping.writes == sent


async def test_the_api_server_goes_and_comes_back() -> None:
    async with a_bed() as bed:
        for name in "abc":
            bed.node(name)
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.end_watches(AWAY)
        away = keeping.kube.fail_next("*", "*", AWAY, times=1_000_000)
        keeping.want(a_mark("a"), a_mark("b"), owned="abc")
        await bed.settle(60.0)
        assert away.hit < 200, "nothing hammers a server that is away"
        keeping.kube.heal()
        await bed.settle(30.0)
        assert {name: bed.is_marked(name) for name in "abc"} == {"a": True, "b": True, "c": False}
        assert {bed.labels(name)[FLEET_LABEL] for name in "abc"} == {FLEET}


async def test_a_patch_whose_answer_was_lost_is_found_to_have_been_made() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.kube.fail_next("patch", "nodes", AWAY, times=1, landed=True)
        keeping.want(a_mark("a"))
        await bed.settle(10.0)
        assert bed.is_marked("a")
        assert keeping.writes == 1


async def test_one_node_that_never_takes_its_patch_holds_nobody_up() -> None:
    async with a_bed() as bed:
        for name in "ab":
            bed.node(name)
        keeping = bed.keep()
        keeping.kube.hang("patch", "nodes", times=1)
        keeping.want(a_mark("a", in_s=10.0), a_mark("b"))
        await bed.settle(1.0)
        assert (bed.is_marked("a"), bed.is_marked("b")) == (False, True)
        await bed.settle(20.0)
        assert bed.is_marked("a")


async def test_a_node_that_is_being_deleted_is_marked_and_not_unmarked() -> None:
    async with a_bed() as bed:
        bed.node("a", finalizers=["karpenter.sh/termination"])
        bed.node("b", finalizers=["karpenter.sh/termination"])
        await bed.kube.delete(NODES, "a")
        keeping = bed.keep()
        keeping.want(a_mark("a"), a_victim("b"))
        await bed.settle()
        assert bed.is_marked("a")
        await bed.kube.delete(NODES, "b")
        keeping.want(owned="ab")
        await bed.settle(60.0)
        assert bed.is_marked("b"), "it goes: nothing is to be scheduled there"


async def test_a_node_of_the_same_name_that_came_instead_is_another_node() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.lag("patch", "nodes", 2.0, times=1)
        keeping.want(a_mark("a"))
        await bed.clock.settle()
        await bed.kube.delete(NODES, "a")
        bed.node("a", instance_id="i-new")
        await bed.settle(30.0)
        assert not bed.is_marked("a")


async def test_somebody_elses_taints_are_left_to_them_where_they_own_them() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.want(a_mark("a", taint=False))
        await bed.settle()
        assert (bed.taints("a"), bed.is_cordoned("a"), EXCLUDE_LABEL in bed.labels("a")) == ({}, False, False)
        assert bed.annotations("a")[DEADLINE_ANNOTATION] == utc(NOW_S + 120)
        assert keeping.keeper.recorded("i-a")
        keeping.want(owned="a")
        await bed.settle()
        assert bed.annotations("a") == {}


async def test_a_notice_that_follows_another_is_recorded_too() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        later = a_mark("a")
        assert later.notice is not None
        change = replace(later.notice, kind=NoticeKind.SCHEDULED_CHANGE, deadline_s=NOW_S + 90_000.0)
        keeping.want(replace(later, notice=change))
        await bed.settle()
        assert keeping.keeper.recorded("i-a")
        keeping.want(later)
        assert not keeping.keeper.recorded("i-a"), "what stands there is another notice"
        await bed.settle()
        assert parse_notice(bed.annotations("a")[NOTICE_ANNOTATION]) == later.notice
        assert keeping.keeper.recorded("i-a")


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        pytest.param(a_victim("a", reason="sigterm"), "sigterm", id="a worker's own"),
        pytest.param(a_victim("a", reason="the worker said: good bye!"), "other", id="no label value"),
        pytest.param(a_victim("a", reason="x" * 64), "other", id="too long"),
        pytest.param(a_victim("a", in_s=float("inf")), "size_down", id="a deadline that never comes"),
        pytest.param(a_victim("a", in_s=float("nan")), "size_down", id="a deadline that is no number"),
        pytest.param(a_victim("a", in_s=-1e12), "size_down", id="a deadline before all time"),
    ],
)
async def test_whatever_a_mark_says_it_can_be_written_once(mark: NodeMark, value: str) -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        keeping.want(mark)
        await bed.settle(30.0)
        assert bed.taints("a")[DRAIN_TAINT] == value
        assert (keeping.writes, keeping.keeper.recorded("i-a")) == (1, True)


async def test_time_to_taint_is_told_once_a_notice_and_not_for_our_own_choice() -> None:
    async with a_bed() as bed:
        for name in "ab":
            bed.node(name)
        keeping = bed.keep()
        await bed.settle(3.0)
        keeping.want(a_mark("a"), a_victim("b"))
        await bed.settle(5.0)
        keeping.want(a_mark("a", in_s=30.0), a_mark("b"))
        await bed.settle(5.0)
        (first, first_s), *others = keeping.marked
        assert first == "i-a"
        assert first_s == pytest.approx(3.0, abs=0.2)
        assert len(others) == 2
        assert dict(others)["i-b"] == pytest.approx(8.0, abs=0.2)


async def test_own_taint_without_its_annotations_is_taken_away_where_we_own_the_node() -> None:
    async with a_bed() as bed:
        stray = {"key": DRAIN_TAINT, "value": "notice", "effect": "NoSchedule"}
        bed.node("a", labels={FLEET_LABEL: FLEET}, taints=[stray, FOREIGN_TAINT])
        keeping = bed.keep()
        keeping.want(owned="a")
        await bed.settle()
        assert bed.taints("a") == {"nvidia.com/gpu": "present"}


async def test_a_wish_that_is_taken_back_while_it_is_carried_out_is_undone() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.slow("patch", "nodes", 2.0, times=1)
        keeping.want(a_victim("a"))
        await bed.clock.settle()
        keeping.want(owned="a")
        await bed.settle(5.0)
        assert not bed.is_marked("a")
