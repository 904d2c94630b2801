"""Which pod answers which launch, where an object has a count and its controller makes anonymous pods.

Policy: an object that asks for `desired` pods and has fewer has launches still to come, the newest ones; all older ones are
answered by the newest pods that answer none yet, oldest to oldest. So neither pods that were there before, nor clocks,
matter. Which of two pods made at once answers which of two launches is all one.
Non-goals: pods that replace lost ones; they answer no launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scaler.act.worker_sets.notes import Launch, Notes
from scaler.kube.facts import TOKEN_ANNOTATION, PodFacts

VOID_AFTER_S = 60.0
"""A launch that no pod answers although none is to come: lists may lag by less than this."""
ENDED = ("Succeeded", "Failed")


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
    notes: Notes, pods: Sequence[PodFacts], *, candidates: Sequence[PodFacts], missing: int, now_s: float
) -> Pairing:
    """The launches and their pods.

    Args:
        notes: the object's.
        pods: all of its pods.
        candidates: those that may answer a launch: live ones of the newest template.
        missing: how many pods the object asks for beyond those it has; at least 0.
        now_s: of the clock that noted the launches.
    """
    told = {pod.annotations.get(TOKEN_ANNOTATION, ""): pod.uid for pod in pods}
    known = {launch.token: told[launch.token] for launch in notes.waiting if launch.token in told}
    waiting = sorted((launch for launch in notes.waiting if launch.token not in told), key=lambda launch: launch.at_s)
    due = waiting[: max(0, len(waiting) - missing)]
    taken = {launch.pod_uid for launch in notes.launches}
    free = sorted((pod for pod in candidates if _is_free(pod, taken)), key=_age)
    newest = free[len(free) - min(len(due), len(free)) :]
    unanswered = due[len(newest) :]
    void = tuple(launch.token for launch in unanswered if now_s - launch.at_s > VOID_AFTER_S)
    return Pairing(answers=tuple(zip(due, newest, strict=False)), known=known, void=void)


def _age(pod: PodFacts) -> tuple[float, bool, str]:
    """Oldest first. Times are whole seconds: of pods of one second, one that is ready has been there longer."""
    return pod.created_at_s, not pod.ready, pod.name


def _is_free(pod: PodFacts, taken: set[str]) -> bool:
    return counts(pod) and pod.uid not in taken and not pod.annotations.get(TOKEN_ANNOTATION)
