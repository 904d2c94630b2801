"""Which pod answers which launch, where an object has a count and its controller makes anonymous pods.

Policy: an object that asks for `desired` pods and has fewer has launches still to come, the newest ones; all older ones are
answered by the newest pods that answer none yet, newest to newest. So neither pods that were there before nor clocks matter;
where pods are of one second, those that this controller saw before it launched are no answer (`Precedence`). Which of two
pods made at once answers which of two launches is all one.
Non-goals: pods that replace lost ones; they answer no launch.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from scaler.act.worker_sets.notes import Launch, Notes
from scaler.kube.facts import TOKEN_ANNOTATION, PodFacts

VOID_AFTER_S = 60.0
"""A launch that no pod answers although none is to come: lists may lag by less than this."""
ENDED = ("Succeeded", "Failed")


class Precedence:
    """Pods that were there before a launch was noted, as far as this controller saw: they do not answer it."""

    def __init__(self) -> None:
        self._launched = 0
        self._seen_at: dict[str, int] = {}
        self._noted_at: dict[str, int] = {}

    def launching(self, token: str, present: Iterable[str]) -> None:
        """A launch is about to be noted; `present` are the UIDs of pods that are there."""
        self._launched += 1
        self._noted_at[token] = self._launched
        for uid in present:
            self._seen_at.setdefault(uid, self._launched)

    def may_answer(self, pod_uid: str, token: str) -> bool:
        """Whether the pod may have come after the launch."""
        return self.rank(pod_uid) > self._noted_at.get(token, 0)

    def rank(self, pod_uid: str) -> float:
        """Sorts pods by when they were seen first; those that came after the last launch are last."""
        return self._seen_at.get(pod_uid, inf)

    def keep(self, tokens: Collection[str], pod_uids: Collection[str]) -> None:
        """Forget all others."""
        self._noted_at = {token: at for token, at in self._noted_at.items() if token in tokens}
        self._seen_at = {uid: at for uid, at in self._seen_at.items() if uid in pod_uids}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """What an object's pods say of its noted launches."""

    answers: tuple[tuple[Launch, PodFacts], ...]
    """New answers: neither the pod nor the object tells of them yet."""
    known: dict[str, str]
    """Token -> UID of the pod that tells that it answers it, where the object does not know."""
    void: tuple[str, ...]
    """Tokens that nothing will answer."""


def counts(pod: PodFacts) -> bool:
    """Whether a ReplicaSet counts the pod as one of its replicas."""
    return not pod.deleting and pod.phase not in ENDED


def pair(
    notes: Notes,
    pods: Sequence[PodFacts],
    precedence: Precedence,
    *,
    candidates: Sequence[PodFacts],
    missing: int,
    now_s: float,
) -> Pairing:
    """The launches and their pods.

    Args:
        notes: the object's.
        pods: all of its pods.
        precedence: what was there before.
        candidates: those that may answer a launch: live ones of the newest template.
        missing: how many pods the object asks for beyond those it has; at least 0.
        now_s: of the clock that noted the launches.
    """
    told = {pod.annotations.get(TOKEN_ANNOTATION, ""): pod.uid for pod in pods}
    known = {launch.token: told[launch.token] for launch in notes.waiting if launch.token in told}
    waiting = sorted((launch for launch in notes.waiting if launch.token not in told), key=lambda launch: launch.at_s)
    due = waiting[: max(0, len(waiting) - missing)]
    taken = {launch.pod_uid for launch in notes.launches}
    free = sorted(
        (pod for pod in candidates if _is_free(pod, taken)),
        # Times are whole seconds: of pods of one second, one that is ready has been there longer.
        key=lambda pod: (pod.created_at_s, precedence.rank(pod.uid), not pod.ready, pod.name),
    )
    pairs = [
        (launch, pod)
        for launch, pod in zip(reversed(due), reversed(free), strict=False)
        if precedence.may_answer(pod.uid, launch.token)
    ]
    answered = {launch.token for launch, _ in pairs}
    void = tuple(each.token for each in due if each.token not in answered and now_s - each.at_s > VOID_AFTER_S)
    return Pairing(answers=tuple(pairs), known=known, void=void)


def _is_free(pod: PodFacts, taken: set[str]) -> bool:
    return counts(pod) and pod.uid not in taken and not pod.annotations.get(TOKEN_ANNOTATION)
