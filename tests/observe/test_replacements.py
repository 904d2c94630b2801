"""Replacements that come by themselves: what is counted is what will be there, whatever comes in whatever order."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler.decide.world import is_noticed
from scaler.model.capacity import COUNTS_AS_CAPACITY, ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import Duties, PoolSpec
from scaler.observe.replacements import Replacements, to_come
from tests.builders.snapshots import NOW_S, a_notice, a_pool_spec, a_replica

POOL: PoolSpec = a_pool_spec(duties=Duties(replaces=False), launch_timeout_s=900.0)
READY, DRAINED, TERMINATING = ReplicaPhase.READY, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING
HINT = a_notice(kind=NoticeKind.REBALANCE_RECOMMENDATION, deadline_s=None)


def there(name: str, *, phase: ReplicaPhase = READY, at_s: float = 0.0, **facts: Any) -> ReplicaView:
    return a_replica(name, phase, launched_at_s=at_s, **facts)


def noticed(name: str, at_s: float = NOW_S, **facts: Any) -> ReplicaView:
    return there(name, notice=a_notice(f"i-{name}", noticed_at_s=at_s, deadline_s=at_s + 120), **facts)


@dataclass
class Looks:
    """One look after the other, a second apart."""

    memory: Replacements = field(default_factory=Replacements)
    now_s: float = NOW_S

    def at(self, *views: ReplicaView, ours: frozenset[str] = frozenset(), after_s: float = 1.0) -> list[str]:
        self.now_s += after_s
        return [each.replica_id for each in self.memory.look(POOL, views, self.now_s, ours)]


def test_a_noticed_replica_is_owed_one_until_something_comes_by_itself() -> None:
    looks = Looks()
    assert looks.at(there("a"), there("b")) == []
    assert looks.at(noticed("a"), there("b")) == ["replacement-of:a"]
    assert looks.at(noticed("a"), there("b")) == ["replacement-of:a"]
    assert looks.at(noticed("a"), there("b"), there("c", at_s=NOW_S + 3)) == []
    assert looks.at(there("b"), there("c", at_s=NOW_S + 3)) == []


def test_what_we_launched_ourselves_pays_nothing() -> None:
    looks = Looks()
    looks.at(noticed("a"))
    assert looks.at(noticed("a"), there("b", launch_token="fleet.rollout.9")) == ["replacement-of:a"]


def test_a_launch_that_is_listed_by_its_pod_instead_of_its_token_went_nowhere() -> None:
    looks = Looks()
    assert looks.at(there("a"), there("token", phase=ReplicaPhase.LAUNCHING, launch_token="token")) == []
    assert looks.at(there("a"), there("pod", phase=ReplicaPhase.LAUNCHING, launch_token="token")) == []
    assert looks.at(there("a")) == ["replacement-of:pod"]


def test_a_debt_outlives_its_replica() -> None:
    looks = Looks()
    looks.at(noticed("a"), there("b"))
    assert looks.at(there("b")) == ["replacement-of:a"]
    assert looks.at(there("b"), there("c")) == []


def test_a_loss_without_notice_is_owed_too() -> None:
    looks = Looks()
    looks.at(there("a"), there("b"))
    assert looks.at(there("b")) == ["replacement-of:a"]
    assert looks.at(there("b"), there("c")) == []


@pytest.mark.parametrize("phase", [READY, DRAINED, TERMINATING])
def test_what_goes_by_our_choice_is_owed_nothing(phase: ReplicaPhase) -> None:
    looks = Looks()
    looks.at(there("a"), there("b"))
    assert looks.at(there("a", phase=phase), there("b"), ours=frozenset({"a"})) == []
    assert looks.at(there("b")) == []


def test_what_shows_a_drain_of_our_choice_is_owed_nothing_also_after_a_restart() -> None:
    victim = there("a", phase=DRAINED, drain_reason="size_down")
    looks = Looks()
    assert looks.at(victim, there("b")) == []
    assert looks.at(there("a", phase=TERMINATING), there("b")) == []
    assert looks.at(there("b")) == []


def test_what_comes_while_one_goes_between_two_looks_pays_at_once() -> None:
    looks = Looks()
    looks.at(there("a"))
    assert looks.at(there("b")) == []


def test_bug_040_a_debt_that_nobody_pays_ends_and_is_not_made_again() -> None:
    looks = Looks()
    looks.at(noticed("a"))
    assert looks.at(noticed("a"), after_s=900.0) == ["replacement-of:a"]
    assert looks.at(noticed("a")) == []
    assert looks.at(noticed("a"), after_s=900.0) == []


def test_a_notice_that_is_taken_back_is_owed_nothing() -> None:
    looks = Looks()
    looks.at(noticed("a"))
    assert looks.at(there("a")) == []
    assert looks.at(noticed("a")) == ["replacement-of:a"], "and a new one is another"


def test_a_replica_that_comes_again_under_its_name_pays_for_itself_alone() -> None:
    looks = Looks()
    looks.at(there("a"), there("b"))
    assert looks.at(noticed("a"), noticed("b")) == ["replacement-of:a", "replacement-of:b"]
    assert looks.at(there("a", at_s=NOW_S + 9), noticed("b")) == ["replacement-of:b"]


def test_a_list_that_left_one_out_for_a_moment_changes_nothing_for_good() -> None:
    looks = Looks()
    looks.at(there("a"), noticed("b"))
    assert looks.at(noticed("b")) == ["replacement-of:b", "replacement-of:a"]
    assert looks.at(there("a"), noticed("b")) == ["replacement-of:b"]


def test_a_launch_that_follows_a_hint_is_the_replacement() -> None:
    looks = Looks()
    assert looks.at(there("a", notice=HINT), there("b")) == []
    assert looks.at(there("a", notice=HINT), there("b"), there("c", at_s=NOW_S + 30)) == []
    assert looks.at(noticed("a", NOW_S + 60), there("b"), there("c", at_s=NOW_S + 30)) == []


def shown(looks: Looks, *views: ReplicaView) -> dict[str, NoticeKind]:
    looks.at(*views)
    told = looks.memory.noticed(POOL.name, views)
    return {view.replica_id: view.notice.kind for view in told if view.notice is not None}


def test_bug_017_a_hint_binds_once_its_replacement_is_there_and_not_before() -> None:
    looks, hinted = Looks(), there("a", notice=HINT)
    assert shown(looks, hinted, there("b")) == {"a": NoticeKind.REBALANCE_RECOMMENDATION}
    found = shown(looks, hinted, there("b"), there("c", at_s=NOW_S + 30))
    assert found == {"a": NoticeKind.NODE_DISRUPTED}
    assert shown(looks, hinted, there("b"), there("c", at_s=NOW_S + 30)) == found, "and keeps binding"
    assert shown(looks, there("a"), there("b"), there("c", at_s=NOW_S + 30)) == {}, "until it is taken back"


def test_one_replacement_binds_one_hint() -> None:
    looks, hinted = Looks(), (there("a", notice=HINT), there("b", notice=HINT))
    shown(looks, *hinted)
    found = shown(looks, *hinted, there("c", at_s=NOW_S + 30))
    assert sorted(found.values()) == [NoticeKind.NODE_DISRUPTED, NoticeKind.REBALANCE_RECOMMENDATION]


def test_what_we_launched_binds_no_hint() -> None:
    looks, hinted = Looks(), there("a", notice=HINT)
    shown(looks, hinted)
    ours = there("c", at_s=NOW_S + 30, launch_token="fleet.rollout.9")
    assert shown(looks, hinted, ours) == {"a": NoticeKind.REBALANCE_RECOMMENDATION}


def test_a_hint_that_is_heard_of_after_its_replacement_was_listed_binds_too() -> None:
    looks = Looks()
    looks.at(there("a"), there("b"))
    looks.at(there("a"), there("b"), there("c", at_s=NOW_S + 2))
    assert shown(looks, there("a", notice=HINT), there("b"), there("c")) == {"a": NoticeKind.NODE_DISRUPTED}


def test_a_notice_that_is_heard_of_after_its_replacement_was_listed_is_owed_nothing() -> None:
    looks = Looks()
    looks.at(there("a"), there("b"))
    looks.at(there("a"), there("b"), there("c", at_s=NOW_S + 2))
    assert looks.at(noticed("a", NOW_S + 1), there("b"), there("c")) == []


def test_what_came_before_a_notice_was_given_does_not_answer_it() -> None:
    looks = Looks()
    looks.at(there("a"))
    looks.at(there("a"), there("c"))
    assert looks.at(noticed("a", looks.now_s + 1), there("c"), after_s=60.0) == ["replacement-of:a"]
    looks = Looks()
    looks.at(there("a"), there("b"))
    looks.at(there("a"), there("b"), there("c"))
    assert looks.at(there("b"), there("c")) == ["replacement-of:a"], "nor a loss that nobody told of"


def test_one_that_we_end_is_owed_nothing_though_its_groups_hook_tells_of_it() -> None:
    hook = a_notice("i-a", kind=NoticeKind.LIFECYCLE_HOOK, noticed_at_s=NOW_S, deadline_s=NOW_S + 120)
    looks, ours = Looks(), frozenset({"a"})
    looks.at(there("a"), there("b"))
    looks.at(there("a", phase=DRAINED, drain_reason="size_down"), there("b"), ours=ours)
    assert looks.at(there("a", phase=TERMINATING, notice=hook), there("b"), ours=ours) == []
    assert looks.at(there("a", phase=DRAINED, notice=hook), there("b")) == [], "also when it takes long to go"
    assert looks.at(there("b")) == []


def test_a_hook_that_tells_of_an_end_that_is_not_ours_is_owed_one() -> None:
    hook = a_notice("i-a", kind=NoticeKind.LIFECYCLE_HOOK, noticed_at_s=NOW_S, deadline_s=NOW_S + 120)
    looks = Looks()
    looks.at(there("a"), there("b"))
    assert looks.at(there("a", notice=hook), there("b")) == ["replacement-of:a"]


def test_who_starts_anew_knows_the_replacement_by_the_bound_hint_that_its_node_carries() -> None:
    looks, hinted, late = Looks(), there("a", notice=HINT), there("c", at_s=NOW_S + 30)
    looks.at(hinted)
    looks.at(hinted, late, after_s=60.0)
    (bound, _) = looks.memory.noticed(POOL.name, [hinted, late])
    assert Looks(now_s=looks.now_s).at(bound, late) == []


def test_a_hint_that_nothing_followed_is_owed_only_once_it_binds() -> None:
    looks = Looks()
    assert looks.at(there("a", notice=HINT)) == []
    assert looks.at(noticed("a")) == ["replacement-of:a"]


def test_a_new_process_sees_what_has_come_since_the_notice() -> None:
    views = (noticed("a", NOW_S - 60), noticed("b", NOW_S - 50), there("c", at_s=NOW_S - 55), there("d", at_s=0.0))
    assert Looks().at(*views) == ["replacement-of:b"]


def test_what_comes_and_is_noticed_at_once_pays_and_is_owed() -> None:
    looks = Looks()
    looks.at(noticed("a"))
    late = replace(noticed("b", NOW_S + 5), launched_at_s=NOW_S + 2)
    assert looks.at(late) == ["replacement-of:b"]


def test_what_is_shown_counts_and_names_its_offering() -> None:
    (shown,) = Replacements().look(POOL, [noticed("a")], NOW_S, frozenset())
    assert (shown.phase, shown.comes_by_itself, shown.instance_ids) == (ReplicaPhase.REQUESTED, True, ())
    assert (shown.pool, shown.offering_id) == ("pool", noticed("a").offering_id)


@pytest.mark.parametrize(
    ("views", "missing", "expected"),
    [
        pytest.param([there("a"), there("b")], 0, [], id="nothing goes"),
        pytest.param([noticed("a"), there("b")], 0, ["replacement-of:a"], id="one that stands will be replaced"),
        pytest.param(
            [noticed("a", phase=DRAINED), there("b")], 0, ["replacement-of:a"], id="also once it has handed over"
        ),
        pytest.param(
            [noticed("a", phase=TERMINATING), there("b")], 1, ["replacement-of:0"], id="one that goes is missing"
        ),
        pytest.param(
            [noticed("a", phase=TERMINATING), there("b"), there("c")], 0, [], id="until its replacement is there"
        ),
        pytest.param([there("a", phase=TERMINATING), there("b")], 0, [], id="what we take out is not replaced"),
        pytest.param([there("a", notice=HINT)], 0, [], id="a hint is not waited for"),
    ],
)
def test_where_an_object_holds_the_count_what_is_to_come_is_told_by_it(
    views: list[ReplicaView], missing: int, expected: list[str]
) -> None:
    found = to_come(POOL, views, NOW_S, missing)
    assert [each.replica_id for each in found] == expected
    assert all(each.comes_by_itself and each.phase in COUNTS_AS_CAPACITY for each in found)


def test_pools_that_are_no_more_are_forgotten() -> None:
    memory = Replacements()
    memory.look(POOL, [noticed("a")], NOW_S, frozenset())
    memory.keep(["other"])
    assert memory.look(POOL, [], NOW_S + 1, frozenset()) == []


class GroupThatRefills(RuleBasedStateMachine):
    """A group of `target` that replaces whatever it loses, sooner or later; we only look."""

    @initialize(size=st.integers(1, 6))
    def begin(self, size: int) -> None:
        self.memory = Replacements()
        self.now_s = NOW_S
        self.number = 0
        self.views: dict[str, ReplicaView] = {}
        self.owed = 0
        self.target = size
        for _ in range(size):
            self._launch()
        self.owed = 0
        self.told: set[str] = set()
        self._look()

    def _launch(self) -> None:
        self.number += 1
        self.views[f"r{self.number}"] = there(f"r{self.number}", at_s=self.now_s)

    def _look(self) -> None:
        self.now_s += 1.0
        views = list(self.views.values())
        expected = self.memory.look(POOL, views, self.now_s, self.told)
        capacity = [view for view in views if view.phase in COUNTS_AS_CAPACITY and not is_noticed(view)]
        self.counted = len(capacity) + len(expected)

    def _some(self, pick: int, *, noticed_too: bool = True) -> str | None:
        names = [name for name, view in self.views.items() if noticed_too or not is_noticed(view)]
        names = [name for name in names if name not in self.told]
        return names[pick % len(names)] if names else None

    @rule(pick=st.integers(0, 99))
    def notice(self, pick: int) -> None:
        name = self._some(pick, noticed_too=False)
        if name is not None:
            notice = a_notice(f"i-{name}", noticed_at_s=self.now_s, deadline_s=self.now_s + 120)
            self.views[name] = replace(self.views[name], notice=notice)
            self.owed += 1

    @rule(pick=st.integers(0, 99))
    def lose(self, pick: int) -> None:
        name = self._some(pick)
        if name is not None:
            self.owed += not is_noticed(self.views.pop(name))

    @precondition(lambda self: self.owed > 0)
    @rule()
    def arrive(self) -> None:
        self.owed -= 1
        self._launch()

    @rule(pick=st.integers(0, 99))
    def we_lower(self, pick: int) -> None:
        """One of ours goes, with decrement: the group does not replace it."""
        name = self._some(pick, noticed_too=False)
        if name is not None and self.target > 0:
            self.told.add(name)
            self.views[name] = replace(self.views[name], phase=DRAINED, drain_reason="size_down")
            self.target -= 1
            self._look()
            del self.views[name]

    @rule()
    def look(self) -> None:
        self._look()
        self.told &= self.views.keys()

    @invariant()
    def what_counts_is_what_will_be_there(self) -> None:
        if hasattr(self, "memory"):
            self._look()
            assert self.counted == self.target, f"{self.counted} counted, {self.target} will be there"


TestAGroupThatRefills = GroupThatRefills.TestCase
TestAGroupThatRefills.settings = settings(max_examples=150)


@given(order=st.permutations(["notice", "lose", "arrive"]), looks=st.lists(st.booleans(), min_size=3, max_size=3))
def test_notice_loss_and_arrival_in_any_order_end_at_the_target(order: list[str], looks: list[bool]) -> None:
    """What arrives before anything was seen to go is one more for a moment, as AWS has it, and never for good."""
    memory = Looks()
    views = {"a": there("a"), "b": there("b", notice=HINT)}
    memory.at(*views.values())
    for step, look in zip(order, looks, strict=True):
        if step == "notice" and "b" in views:
            views["b"] = noticed("b", memory.now_s)
        elif step == "lose":
            views.pop("b", None)
        elif step == "arrive":
            views["c"] = there("c", at_s=memory.now_s + 1)
        if look:
            memory.at(*views.values())
    expected = memory.at(*views.values())
    capacity = [view for view in views.values() if not is_noticed(view)]
    assert len(capacity) + len(expected) == 2
