"""The notices that a queue's messages told, each once by (instance, kind), and whether they are told on and recorded.

Invariants
* The earliest deadline of a key holds; a hint is as young as the last message that gave it.
* Only what `current` has told can be recorded: a set of recorded instances that was made before says nothing about it.
  An earlier deadline has to be recorded anew.
* Memory is bounded: what is void goes, and so does what no message holds once its instance is not ours (any more).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaler.interruptions.base import InstanceOwner, Ownership, by_deadline
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind, void_at_s

Key = tuple[str, NoticeKind]


@dataclass(slots=True)
class Entry:
    """One notice. `holders`: messages in our hands that tell it."""

    notice: InterruptionNotice
    told: bool = False
    recorded: bool = False
    holders: int = 0


class Standing:
    """See the module's docstring. Times are the cloud's clock."""

    def __init__(self, owner: InstanceOwner) -> None:
        self._owner = owner
        self._entries: dict[Key, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def ours(self, key: Key) -> bool:
        """Whether it is about an instance of ours, by what is known now."""
        return self._owner.knows(key[0]) is Ownership.OURS

    def foreign(self, key: Key) -> bool:
        """Whether it is known to be about somebody else's instance."""
        return self._owner.knows(key[0]) is Ownership.FOREIGN

    def known(self, notice: InterruptionNotice) -> bool:
        """Whether it has been told before, as early or later."""
        return _key(notice) in self._entries

    def is_news(self, notice: InterruptionNotice) -> bool:
        """Whether its message has to be kept until it is recorded."""
        entry = self._entries.get(_key(notice))
        if entry is None or _earlier(notice, entry.notice):
            return True
        return not entry.recorded and not entry.holders

    def note(self, notice: InterruptionNotice) -> Key:
        """Take a notice in; returns its key."""
        key = _key(notice)
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = Entry(notice)
        elif _earlier(notice, entry.notice):
            entry.notice, entry.told, entry.recorded = notice, False, False
        elif notice.kind not in BINDING and notice.noticed_at_s > entry.notice.noticed_at_s:
            entry.notice = notice
        return key

    def hold(self, key: Key) -> None:
        """A message that tells it is in our hands."""
        self._entries[key].holders += 1

    def let_go(self, key: Key) -> None:
        """That message is not any more."""
        if key in self._entries:
            self._entries[key].holders -= 1

    def recorded(self, instance_ids: frozenset[str]) -> None:
        """See `NoticeSource.recorded`."""
        for (instance_id, _), entry in self._entries.items():
            if entry.told and instance_id in instance_ids:
                entry.recorded = True

    def is_recorded(self, key: Key) -> bool:
        """Whether a crash cannot lose it."""
        return key in self._entries and self._entries[key].recorded

    def is_void(self, key: Key, now_s: float) -> bool:
        """Whether it says nothing any more."""
        return key not in self._entries or now_s >= void_at_s(self._entries[key].notice)

    def tell(self, now_s: float) -> tuple[InterruptionNotice, ...]:
        """All that stand, about instances of ours, by deadline."""
        standing = list(self._standing(now_s))
        for entry in standing:
            entry.told = True
        return tuple(sorted((entry.notice for entry in standing), key=by_deadline))

    def untold(self, now_s: float) -> bool:
        """Whether `tell` would tell something that it has not told before."""
        return any(not entry.told for entry in self._standing(now_s))

    def prune(self, now_s: float) -> None:
        """Forget what is void or not ours, unless a message in our hands tells it."""
        for key in [key for key, entry in self._entries.items() if not entry.holders]:
            if self.is_void(key, now_s) or not self.ours(key):
                del self._entries[key]

    def _standing(self, now_s: float) -> Iterator[Entry]:
        for key, entry in self._entries.items():
            if now_s < void_at_s(entry.notice) and self.ours(key):
                yield entry


def _key(notice: InterruptionNotice) -> Key:
    return notice.instance_id, notice.kind


def _earlier(one: InterruptionNotice, other: InterruptionNotice) -> bool:
    """Whether `one` has the earlier deadline; none is the latest."""
    if one.deadline_s is None:
        return False
    return other.deadline_s is None or one.deadline_s < other.deadline_s
