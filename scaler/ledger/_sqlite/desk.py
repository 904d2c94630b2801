"""The desk: calls lie here in shared memory until whoever has the writers' lock does them along with its own.

With many clients a transaction each is mostly spent on what a transaction costs whatever is in it: the lock's way from
process to process, pages read anew because another process wrote, the log's frames, its sync. So a client that finds
the lock taken posts its call; the next holder does all posted calls of its job in one transaction with one sync, and
rings the bell of each client when its answer is durable.

Invariants
* A client writes its own request and nothing else of a slot; everything else in it is written under the writers' lock.
* An answer counts from the moment that its ticket is confirmed, which is after the commit. A holder killed before that
  leaves a mark that says which event its transaction ends with, and the next holder, whoever it is, looks whether that
  event is there: either the answers are confirmed then, or the calls are still posted. Neither is lost or done twice.
* A client believes an answer when it is marked as durable too, or when it has synced the log itself.
* A bell is only a hint: a client also looks by itself. So is the word that somebody is doing calls: it spares others a
  try of the lock, and they try all the same once they were rung or have waited.
* What is here is worth nothing once its clients are gone; it is never synced, and whose slot it is (a lock on the slot's
  bell) falls with its client.

Non-goals: calls of different jobs in one transaction; requests or answers of more than a MiB, which go without the desk;
processors that show others their stores in another order than they made them, where a ticket could be seen before its
request: there nobody sits at the desk, and each client does its own calls.
"""

import contextlib
import fcntl
import mmap
import os
import platform
import select
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scaler.ledger._sqlite.turnstile import Turnstile

SLOTS = 64
_AREA_BYTES = 1 << 20
_HEADER_BYTES = 1 << 13
_SLOT_BYTES = 2 * _AREA_BYTES
_BYTES = _HEADER_BYTES + SLOTS * _SLOT_BYTES
"""Sparse: only what was touched takes room."""
_LAYOUT = 1
_STORES_IN_ORDER = frozenset({"x86_64", "AMD64", "i686"})
_VERSION, _MARKED_JOB, _MARKED_SEQ, _TURNS, _SEATS, _HELD = range(6)
_POSTED, _ANSWERED, _ANSWERING, _JOB, _REQUEST_BYTES, _REPLY_BYTES, _REPLY_SEQ, _DURABLE = range(
    SLOTS, 9 * SLOTS, SLOTS
)
"""Where in the header, in words of eight bytes, each of the slots' numbers begins."""
_DECLINED = (1 << 64) - 1
_JOB_BITS = 24
_FILE_MASK = (1 << 40) - 1


@dataclass(frozen=True, slots=True)
class Post:
    """A call that waits at the desk."""

    slot: int
    ticket: int
    request: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a post."""

    reply: bytes | None
    """None: it has to be done by its own client, alone."""
    seq: int
    """The last event that the reply rests on."""
    durable: bool
    """Whether the log is synced up to it, for all that is known here."""


class Desk:
    """A client's place at the desk. To be opened under the writers' lock; `inode` is that of the file that it has open."""

    def __init__(self, folder: Path, job: int, timeout_s: float, inode: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._bells: dict[int, int] = {}
        self._ticket = 0
        self._of_file = (inode & _FILE_MASK) << _JOB_BITS
        """Part of a slot's job: whoever has another file open under the same name has other jobs."""
        self._file = os.open(folder / "slots", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size < _BYTES:
            os.ftruncate(self._file, _BYTES)
        self._memory = mmap.mmap(self._file, _BYTES)
        self.sync_turn = Turnstile(self._file, folder / "synced", timeout_s)
        """Of those who sync: while the next one waits, its successor's transaction grows."""
        self._words = memoryview(self._memory)[:_HEADER_BYTES].cast("Q")
        self._ringing = select.epoll()
        self._slot = self._take_slot()
        if self._slot is not None:
            self._sit_down(self._slot, job)

    def post(self, request: bytes) -> int | None:
        """Put a call on the desk; its ticket, or None where there is no room for it."""
        slot = self._slot
        if slot is None or len(request) > _AREA_BYTES:
            return None
        self._words[_POSTED + slot] = 0
        at = _HEADER_BYTES + slot * _SLOT_BYTES
        self._memory[at : at + len(request)] = request
        self._words[_REQUEST_BYTES + slot] = len(request)
        self._ticket += 1
        self._words[_POSTED + slot] = self._ticket
        return self._ticket

    def withdraw(self) -> None:
        """Take the own call back, unless somebody is doing it already."""
        if self._slot is not None:
            self._words[_POSTED + self._slot] = 0

    def take_back(self, ticket: int) -> None:
        """The same under the writers' lock, where nobody can be doing it: it is as good as answered."""
        self._words[_ANSWERED + (self._slot or 0)] = ticket

    def rung(self, timeout_s: float) -> bool:
        """Wait for the own bell."""
        if not self._ringing.poll(timeout_s, 1):
            return False
        with contextlib.suppress(BlockingIOError):
            os.read(self._bells[self._slot or 0], 64)
        return True

    def answer(self, ticket: int) -> Answer | None:
        """The answer to the own call, None while there is none."""
        slot, words = self._slot or 0, self._words
        if words[_ANSWERED + slot] != ticket:
            return None
        seq, size = words[_REPLY_SEQ + slot], words[_REPLY_BYTES + slot]
        if size == _DECLINED:
            return Answer(None, 0, durable=False)
        at = self._reply_at(slot)
        return Answer(self._memory[at : at + size], seq, durable=words[_DURABLE + slot] == ticket)

    @property
    def held(self) -> bool:
        """Whether somebody is doing calls, for all that is known here: trying the lock is hardly worth it."""
        return self._words[_HELD] != 0

    @property
    def marked(self) -> bool:
        """Whether there is something to settle; with the lock."""
        return self._words[_MARKED_JOB] != 0

    @property
    def turns(self) -> int:
        """Grows whenever a writer lets go of the lock."""
        return self._words[_TURNS]

    # What follows is for the holder of the writers' lock, and, in `synced` and `ring`, for who has done its work.

    def hold(self) -> None:
        """The holder is about to do calls. A mark that a killed one leaves goes with the next turn."""
        self._words[_HELD] = 1

    def posts(self, job: int) -> list[Post]:
        """The calls of other clients of the job."""
        found = []
        for slot, ticket in self._waiting():
            if self._words[_JOB + slot] != self._of_file | job:
                continue
            at = _HEADER_BYTES + slot * _SLOT_BYTES
            request = self._memory[at : at + self._words[_REQUEST_BYTES + slot]]
            # Else it was taken back meanwhile, and this may be part of one call and part of another.
            if self._words[_POSTED + slot] == ticket:
                found.append(Post(slot, ticket, request))
        return found

    def prepare(self, posts: Sequence[Post], replies: Sequence[bytes], job: int, seq: int) -> bool:
        """Lay the answers out before the commit, with the mark of its last event. False where one finds no room."""
        if any(len(reply) > _AREA_BYTES for reply in replies):
            return False
        words = self._words
        for post, reply in zip(posts, replies, strict=True):
            at = self._reply_at(post.slot)
            self._memory[at : at + len(reply)] = reply
            words[_REPLY_BYTES + post.slot], words[_REPLY_SEQ + post.slot] = len(reply), seq
            words[_ANSWERING + post.slot] = post.ticket
        words[_MARKED_SEQ] = seq
        words[_MARKED_JOB] = job
        return True

    def confirm(self, posts: Iterable[Post]) -> None:
        """The answers count: the transaction is committed."""
        for post in posts:
            self._words[_ANSWERED + post.slot] = post.ticket
        self._words[_MARKED_JOB] = 0

    def decline(self, posts: Iterable[Post]) -> None:
        """Have the clients do their calls themselves."""
        self._words[_MARKED_JOB] = 0
        for post in posts:
            self._words[_REPLY_BYTES + post.slot] = _DECLINED
            self._words[_ANSWERED + post.slot] = post.ticket

    def settle(self, last_seq: Callable[[int], int | None]) -> None:
        """See to what a killed holder has left; `last_seq` tells a job's last event."""
        job = self._words[_MARKED_JOB]
        if not job:
            return
        if last_seq(job) == self._words[_MARKED_SEQ]:
            # The own call may be among them.
            for slot, ticket in enumerate(self._words[_POSTED : _POSTED + SLOTS].tolist()):
                if ticket and ticket == self._words[_ANSWERING + slot]:
                    self._words[_ANSWERED + slot] = ticket
        self._words[_MARKED_JOB] = 0

    def count_turn(self) -> None:
        """The holder is about to let go of the lock."""
        self._words[_TURNS] = (self._words[_TURNS] + 1) & _DECLINED
        self._words[_HELD] = 0

    def ring_next(self) -> None:
        """Wake one whose call is not done yet: it will find the lock free."""
        waiting = self._waiting()
        if waiting:
            own = -1 if self._slot is None else self._slot
            self._ring(min(waiting, key=lambda one: (one[0] - own) % SLOTS)[0])

    def synced(self, posts: Iterable[Post]) -> None:
        """The answers are durable."""
        for post in posts:
            self._words[_DURABLE + post.slot] = post.ticket

    def ring(self, posts: Iterable[Post]) -> None:
        """Wake clients whose calls are done."""
        for post in posts:
            self._ring(post.slot)

    def close(self) -> None:
        """Leave. Harmless when repeated."""
        if not self._ringing.closed:
            self.withdraw()
            self._ringing.close()
            self._words.release()
            self._memory.close()
            self.sync_turn.close()
            os.close(self._file)
            for bell in self._bells.values():
                os.close(bell)

    def _take_slot(self) -> int | None:
        words = self._words
        if words[_VERSION] not in (0, _LAYOUT) or platform.machine() not in _STORES_IN_ORDER:
            return None
        words[_VERSION] = _LAYOUT
        for slot in range(SLOTS):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._bell(slot), fcntl.LOCK_EX | fcntl.LOCK_NB)
                return slot
        return None

    def _sit_down(self, slot: int, job: int) -> None:
        words = self._words
        words[_SEATS] = max(words[_SEATS], slot + 1)
        # A ticket is never used again, not even by the next client of the slot.
        self._ticket = max(words[kind + slot] for kind in (_POSTED, _ANSWERED, _ANSWERING))
        words[_POSTED + slot] = 0
        words[_JOB + slot] = self._of_file | job
        self._ringing.register(self._bell(slot), select.EPOLLIN)

    def _waiting(self) -> list[tuple[int, int]]:
        """Slots, but for the own one, whose call is not answered, with its ticket."""
        words, seats = self._words, self._words[_SEATS]
        posted, answered = words[_POSTED : _POSTED + seats].tolist(), words[_ANSWERED : _ANSWERED + seats].tolist()
        if posted == answered:
            return []
        return [
            (slot, ticket)
            for slot, ticket in enumerate(posted)
            if ticket and ticket != answered[slot] and slot != self._slot
        ]

    def _ring(self, slot: int) -> None:
        # A bell that is full of rings has not been heard yet, and will be.
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell(slot), b"!")

    def _bell(self, slot: int) -> int:
        if slot not in self._bells:
            path = self._folder / f"{slot}.bell"
            with contextlib.suppress(FileExistsError):
                os.mkfifo(path, 0o644)
            self._bells[slot] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._bells[slot]

    @staticmethod
    def _reply_at(slot: int) -> int:
        return _HEADER_BYTES + slot * _SLOT_BYTES + _AREA_BYTES
