"""Tables of the SQLite engine.

A file holds several jobs; every table says whose a row is. Ids: a group has a number `gid`, growing in the order groups
were put and never used again; unit `index` of it has the row id `gid << 20 | index`, so that a group's units lie side by
side and a unit is found from its id with one look-up of the group's name.

Hot and cold are apart: a unit's row is small and changes often (the name of its group is in it, so that a lease need
not look there); its prompt (`specs`), journal (`progress`) and sample are written once, and units of a group that come
together share a row there. What has to be searched is in partial indexes, so that finished units cost nothing. Leased
units have none: they are found through their groups, which enter and leave theirs once, not with every unit. Everything
that `stats` says is a counter. A job's counters share one table with what calls need to know of their worker: each
write of one client empties the page caches of all others, and so pages touched are what a call costs.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import sqlite3

from scaler.ledger.contract import LedgerRefused, UnitState

APPLICATION_ID = 0x48524C47
SCHEMA_VERSION = 2

PENDING, BACKING_OFF, LEASED, COMMITTED, CONSUMED, DROPPED, DEAD_LETTERED = range(7)
"""`units.state`. BACKING_OFF is pending, not before `due_s`."""
UNIT_STATES = (
    UnitState.PENDING,
    UnitState.PENDING,
    UnitState.LEASED,
    UnitState.COMMITTED,
    UnitState.CONSUMED,
    UnitState.DROPPED,
    UnitState.DEAD_LETTERED,
)
OPEN, READY, TAKEN, DONE, GONE = range(5)
"""`groups.state`: incomplete, complete, in a batch, acknowledged, dropped."""

INDEX_BITS = 20
MAX_GROUP_SIZE = 1 << INDEX_BITS
INDEX_MASK = MAX_GROUP_SIZE - 1
FRESH = 1 << 62
"""`units.rank` until the group's first lease; then the number of that lease call, so that half-done groups sort first."""
SEQ_BITS = 40
"""A history row's id is `job << 40 | seq`."""
WORKER_BITS = 40
"""In `counters`, a job's row has the id `job << 40`, and a worker's `job << 40 | wid`, with the first five columns only."""

_TABLES = f"""
CREATE TABLE jobs (
    job INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT, digest TEXT, report TEXT, report_at_s REAL,
    bare_through INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE counters (
    id INTEGER PRIMARY KEY,
    samples INTEGER, gone INTEGER, drain_deadline_s REAL, drain_reason TEXT, drain_epoch INTEGER,
    store_epoch INTEGER, fence INTEGER, seq INTEGER, configured INTEGER, admitted INTEGER, ready INTEGER, batch INTEGER,
    trainer_epoch INTEGER, controller_epoch INTEGER, version INTEGER, version_epoch INTEGER, next_expiry_s REAL,
    next_due_s REAL, pending INTEGER, half_done INTEGER, backing_off INTEGER, running INTEGER, in_vain INTEGER,
    buffered INTEGER, ready_groups INTEGER, taken INTEGER, accepted INTEGER, dead_lettered INTEGER,
    committed_tokens INTEGER, salvaged_tokens INTEGER, discarded_tokens INTEGER, salvages INTEGER
);
CREATE TABLE next_gid (one INTEGER PRIMARY KEY CHECK (one = 1), gid INTEGER NOT NULL);
INSERT INTO next_gid VALUES (1, 1);
CREATE TABLE groups (
    gid INTEGER PRIMARY KEY, job INTEGER NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, state INTEGER NOT NULL,
    admitted INTEGER NOT NULL, committed INTEGER NOT NULL, redraws INTEGER NOT NULL, oldest INTEGER, ready INTEGER,
    ready_at_s REAL, batch INTEGER, place INTEGER, final_seq INTEGER
);
CREATE UNIQUE INDEX groups_by_name ON groups (job, name);
CREATE INDEX groups_in_flight ON groups (job) WHERE state = {OPEN} AND admitted = 1;
CREATE INDEX groups_ready ON groups (job, ready) WHERE state = {READY};
CREATE INDEX groups_taken ON groups (job, batch, place) WHERE state = {TAKEN};
CREATE INDEX groups_final ON groups (job, final_seq) WHERE final_seq IS NOT NULL;
CREATE TABLE units (
    uid INTEGER PRIMARY KEY, job INTEGER NOT NULL, name TEXT NOT NULL, state INTEGER NOT NULL, rank INTEGER NOT NULL,
    attempt INTEGER NOT NULL, store_epoch INTEGER NOT NULL, fence INTEGER NOT NULL, owner INTEGER, deadline_s REAL,
    due_s REAL, resume INTEGER NOT NULL, published INTEGER NOT NULL, oldest INTEGER, failures INTEGER NOT NULL,
    returns INTEGER NOT NULL, tokens INTEGER
);
CREATE INDEX units_pending ON units (job, rank) WHERE state = {PENDING};
CREATE INDEX units_backing_off ON units (job, due_s) WHERE state = {BACKING_OFF};
CREATE INDEX units_in_vain ON units (job, owner) WHERE state = {DROPPED} AND owner IS NOT NULL;
CREATE TABLE specs (uid INTEGER PRIMARY KEY, size INTEGER NOT NULL, facts BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE progress (uid INTEGER NOT NULL, start INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (uid, start))
    WITHOUT ROWID;
CREATE TABLE samples (uid INTEGER PRIMARY KEY, parts BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE batches (
    job INTEGER NOT NULL, batch INTEGER NOT NULL, wanted INTEGER NOT NULL, trainer_version INTEGER NOT NULL,
    max_staleness INTEGER NOT NULL, acked INTEGER NOT NULL, PRIMARY KEY (job, batch)
) WITHOUT ROWID;
CREATE INDEX batches_open ON batches (job, batch) WHERE acked = 0;
CREATE TABLE workers (
    wid INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, name TEXT NOT NULL, identity TEXT NOT NULL,
    incarnation INTEGER NOT NULL, registered_at_s REAL NOT NULL, seen_at_s REAL NOT NULL, status TEXT NOT NULL
);
CREATE UNIQUE INDEX workers_by_name ON workers (job, name);
CREATE TABLE dead_letters (job INTEGER NOT NULL, unit_id TEXT NOT NULL, failures INTEGER NOT NULL, error TEXT NOT NULL);
CREATE TABLE drops (
    job INTEGER NOT NULL, reason TEXT NOT NULL, bucket TEXT NOT NULL, units INTEGER NOT NULL,
    PRIMARY KEY (job, reason, bucket)
) WITHOUT ROWID;
CREATE TABLE history (hid INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, worker TEXT, body TEXT NOT NULL);
CREATE TABLE watermarks (job INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (job, name)) WITHOUT ROWID;
"""


def check(db: sqlite3.Connection) -> None:
    """Raise `LedgerRefused` unless the file is a ledger of this schema."""
    if not is_ledger(db):
        raise LedgerRefused("the file is empty, not a ledger")


def is_ledger(db: sqlite3.Connection) -> bool:
    """Whether the file is a ledger of this schema; False where it is empty.

    Raises:
        LedgerRefused: the file is something else, or has a schema that this version does not know.
    """
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if (application, version) == (APPLICATION_ID, SCHEMA_VERSION):
        return True
    if application == APPLICATION_ID:
        raise LedgerRefused(
            f"the ledger's schema is version {version}, this Headrace knows version {SCHEMA_VERSION}:"
            " go on with the Headrace that wrote it, or begin a new ledger"
        )
    if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise LedgerRefused("the file is an SQLite database, but not a Headrace ledger")
    return False


def prepare(db: sqlite3.Connection) -> None:
    """Make the tables in an empty file; to be called in a write transaction. `LedgerRefused` as `is_ledger`."""
    if is_ledger(db):
        return
    for statement in _TABLES.split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
