"""A ledger file opened for reading: nothing is created, locked, raised or written, so that an audit leaves no trace.

It may be damaged, that is what an audit asks: whatever cannot be made out in it is `LedgerRefused`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from scaler.ledger._sqlite import calls, schema
from scaler.ledger._sqlite.store import Store, translated
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.bodies import FolderStore
from scaler.ledger.contract import LedgerRefused, legible


class ReadStore(Store):
    """See the module's docstring; every write is refused."""

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One consistent reading."""
        with _legible(), super().read() as tx:
            yield tx

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Refused."""
        self._refuse()
        yield self._begun()

    def call(self, request: calls.Told) -> calls.Told:
        """Refused."""
        del request
        self._refuse()
        return ()

    def _refuse(self) -> None:
        raise LedgerRefused(f"{self._path} was opened for reading")

    def close(self) -> None:
        """Give up the file."""
        self._db.close()

    def _open(self, *, may_create: bool) -> None:
        del may_create
        with _legible(), translated():
            self._db = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                schema.check(self._db)
                self._job = self._find_job()
            except BaseException:
                self._db.close()
                raise
        self.objects = FolderStore(self._path.with_name(self._path.name + ".objects") / str(self._job))

    def _find_job(self) -> int:
        jobs = {str(name): int(job) for job, name in self._db.execute("SELECT job, name FROM jobs")}
        if self._job_name not in jobs:
            known = ", ".join(sorted(jobs)) or "none"
            raise LedgerRefused(f"there is no job {self._job_name!r} in it; it has: {known}")
        return jobs[self._job_name]


@contextmanager
def _legible() -> Iterator[None]:
    """Also what SQLite takes for a mistake in a statement: the tables that it names may be damaged."""
    try:
        with legible("the file"):
            yield
    except sqlite3.DatabaseError as error:
        raise LedgerRefused(f"SQLite: {error}") from error
