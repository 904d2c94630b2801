"""A unit as the transitions see it, and its journal."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.schema import DROPPED, INDEX_BITS, LEASED, OPEN
from scaler.ledger._sqlite.transaction import Transaction, unit_id
from scaler.ledger.bodies import ObjectStore, decode_progress, encode_progress, pack, unpack
from scaler.ledger.history import Scalar
from scaler.ledger.rules import join_spans, merge_delta
from scaler.model.work import FencingToken, Progress, ProgressDelta, Resume, VersionSpan

RESUMES = (Resume.TOKEN, Resume.TURN, Resume.RESTART)
"""`units.resume` is the place in this list."""
JournalRows = Sequence[tuple[int, bytes]]
"""Start and record of each part."""
UNIT_COLUMNS = (
    "u.uid, u.name, u.state, u.attempt, u.store_epoch, u.fence, u.owner, u.resume, u.published, u.oldest, u.failures,"
    " u.returns, u.tokens"
)
_LEASED_UNITS = (
    f"groups g CROSS JOIN units u ON u.uid >= g.gid << {INDEX_BITS} AND u.uid < (g.gid + 1) << {INDEX_BITS}"
    f" WHERE g.job = ? AND g.state = {OPEN} AND g.admitted = 1 AND u.state = {LEASED}"
)
_UNITS_HELD_IN_VAIN = f"units u WHERE u.job = ? AND u.state = {DROPPED} AND u.owner IS NOT NULL"


@dataclass(slots=True)
class UnitRow:
    """The fields are `UNIT_COLUMNS`, in order."""

    uid: int
    name: str
    """Of its group."""
    state: int
    attempt: int
    store_epoch: int
    fence: int
    owner: int | None
    resume: int
    published: int
    oldest: int | None
    failures: int
    returns: int
    tokens: int | None
    """Of its sample; None before it was committed."""

    @property
    def unit_id(self) -> str:
        """Its id."""
        return unit_id(self.name, self.uid)

    @property
    def gid(self) -> int:
        """Its group's number."""
        return self.uid >> INDEX_BITS

    @property
    def fence_text(self) -> str:
        """The token as the history writes it."""
        return f"{self.store_epoch}.{self.fence}"

    def held_under(self, token: FencingToken) -> bool:
        """Whether this is the last token that was handed out for the unit."""
        return token.counter == self.fence and token.store_epoch == self.store_epoch and self.attempt > 0


def find_units(tx: Transaction, unit_ids: Sequence[str]) -> dict[str, UnitRow]:
    """Units by id; those that the store does not hold are missing."""
    uids = tx.uids_of(unit_ids)
    by_uid = {
        row.uid: row
        for first, last in runs({uid for uid in uids if uid is not None})
        for row in units_where(tx, "u.uid BETWEEN ? AND ?", first, last)
    }
    return {wanted: by_uid[uid] for wanted, uid in zip(unit_ids, uids, strict=True) if uid in by_uid}


def runs(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Sets of numbers that follow each other, as first and last: what lies side by side is read in one go."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def units_where(tx: Transaction, condition: str, *parameters: object) -> list[UnitRow]:
    """Units that meet an SQL condition, in the order they were put."""
    query = f"SELECT {UNIT_COLUMNS} FROM units u WHERE {condition} ORDER BY u.uid"
    return [UnitRow(*row) for row in tx.db.execute(query, parameters)]


def held_units(tx: Transaction, condition: str = "true", *parameters: object) -> list[UnitRow]:
    """Units that a worker believes to hold: leased ones, and those dropped while they were. Reads all groups in flight."""
    rows: list[UnitRow] = []
    for source in (_LEASED_UNITS, _UNITS_HELD_IN_VAIN):
        query = f"SELECT {UNIT_COLUMNS} FROM {source} AND {condition} ORDER BY u.uid"
        rows += [UnitRow(*row) for row in tx.db.execute(query, (tx.job, *parameters))]
    return rows


def first_deadline_s(tx: Transaction) -> float | None:
    """When the first of the held units' leases runs out."""
    queries = (f"SELECT min(u.deadline_s) FROM {source}" for source in (_LEASED_UNITS, _UNITS_HELD_IN_VAIN))
    found = [tx.db.execute(query, (tx.job,)).fetchone()[0] for query in queries]
    return min((deadline_s for deadline_s in found if deadline_s is not None), default=None)


def leases_by_owner(tx: Transaction) -> dict[int, int]:
    """How many leases each worker has."""
    return dict(tx.db.execute(f"SELECT u.owner, count(*) FROM {_LEASED_UNITS} GROUP BY u.owner", (tx.job,)).fetchall())


def append_progress(tx: Transaction, row: UnitRow, delta: ProgressDelta) -> bool:
    """Add what is new of a delta to the unit's journal and to `row`, which the caller writes. False where it leaves a gap.

    Raises:
        ValueError: the delta's parts differ in length.
    """
    if len(delta.tokens) != len(delta.logprobs):
        raise ValueError("a delta has as many log-probabilities as tokens")
    skip = row.published - delta.start
    if skip < 0:
        return False
    if skip >= len(delta.tokens):
        return True
    spans = join_spans((), delta.spans, row.published)
    news = Progress(tokens=delta.tokens[skip:], logprobs=delta.logprobs[skip:], spans=spans)
    body = pack(UnitObjects(tx.objects, row.unit_id), encode_progress(news))
    tx.db.execute("INSERT INTO progress (uid, start, body) VALUES (?, ?, ?)", (row.uid, row.published, body))
    row.published += len(news.tokens)
    row.oldest = _oldest(row.oldest, spans)
    return True


def read_journal(tx: Transaction, uid: int) -> JournalRows:
    """A unit's journal as it is stored."""
    return tuple(tx.db.execute("SELECT start, body FROM progress WHERE uid = ? ORDER BY start", (uid,)))


def decode_journal(objects: ObjectStore, unit_id: str, rows: JournalRows) -> Progress:
    """The journal of its rows."""
    progress = Progress()
    for start, record in rows:
        part = decode_progress(unpack(UnitObjects(objects, unit_id), record))
        delta = ProgressDelta(start=start, tokens=part.tokens, logprobs=part.logprobs, spans=part.spans)
        progress = merge_delta(progress, delta)
    return progress


def note_oldest(tx: Transaction, rows: Sequence[UnitRow]) -> None:
    """Let the groups of units know their oldest version, after it may have become older."""
    tx.db.executemany(
        "UPDATE groups SET oldest = ?1 WHERE gid = ?2 AND (oldest IS NULL OR oldest > ?1)",
        [(row.oldest, row.gid) for row in rows if row.oldest is not None],
    )


def renew_oldest(tx: Transaction, gid: int) -> None:
    """Work a group's oldest version out anew, after tokens of it were thrown away."""
    tx.db.execute(
        "UPDATE groups SET oldest = (SELECT min(oldest) FROM units WHERE uid >= ?1 << 20 AND uid < (?1 + 1) << 20)"
        " WHERE gid = ?1",
        (gid,),
    )


def entry(row: UnitRow, *values: Scalar) -> tuple[Scalar, ...]:
    """A unit's history entry: its id, its fence, and `values`."""
    return (row.unit_id, row.fence_text, *values)


def _oldest(known: int | None, spans: Sequence[VersionSpan]) -> int | None:
    versions = [span.version for span in spans] + ([] if known is None else [known])
    return min(versions, default=None)
