"""Requests for exclusive locks, which keep the share locks of other nodes from starving a writer.

PostgreSQL grants a share lock on a row that has share locks, even while another transaction waits
for an exclusive lock. If the share locks of several nodes overlap without a gap, the exclusive lock
is never granted. So a writer that could not get one stores a request, and the other writers, which
read the requests together with the fence, take no share lock on that record until the request is
withdrawn or has expired. Their operations end in a conflict, and are retried. A request expires
some time after another writer has first read it, because the commit that stores it may take long.

The table is nearly always empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from psycopg import pq

from etagere.clock import TICKS_PER_MILLISECOND
from etagere.engine.postgres import fence
from etagere.engine.postgres.binary import bigint, bigint_array, bytea_array, to_int
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.records import COLLECTIONS, Collection, RecordKey

VALID_TICKS: Final = 400 * TICKS_PER_MILLISECOND
"""How long a request counts after it was first read, unless it is renewed: longer than a front end
waits before it retries an operation, and shorter than all its retries take."""
RENEW_TICKS: Final = VALID_TICKS // 2
"""A request is renewed at this age, so that not every retry of an operation writes it."""
REQUESTS_MAX: Final = 64
"""Per writer."""

CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS lock_requests (slot bigint NOT NULL, collection text NOT NULL,"
    " key bytea NOT NULL, requested_at bigint NOT NULL)"
)
DELETE: Final = "DELETE FROM lock_requests WHERE slot = $1::bigint"
_INSERT: Final = (
    "INSERT INTO lock_requests SELECT $1::bigint, convert_from(r.collection, 'UTF8'), r.key,"
    " r.requested_at FROM unnest($2::bytea[], $3::bytea[], $4::bigint[])"
    " AS r (collection, key, requested_at)"
)
_FIRST_COLUMN: Final = 5


def fence_and_requests_sql(clock: str) -> str:
    """Returns the query for the fence (`fence.select_sql`) with the requests of all writers: one
    row for each request, or one with NULLs if there is none."""
    return (
        "SELECT f.*, r.slot, r.collection, r.key, r.requested_at"  # noqa: S608
        f" FROM ({fence.select_sql(clock)}) AS f LEFT JOIN lock_requests AS r ON true"
    )


class _ReadRequest(NamedTuple):
    """The request of another writer."""

    requested_at: int
    """By the database's clock."""
    first_read: int
    """In elapsed time of this machine."""


class LockRequests:
    """The requests of one writer, and those of the others as it last read them."""

    def __init__(self) -> None:
        self.slot = 0
        """The slot of this writer."""
        self._own: dict[RecordKey, int] = {}
        """By record: when its lock was requested, by the database's clock."""
        self._next: dict[RecordKey, int] | None = None
        self._others: dict[RecordKey, _ReadRequest] = {}

    def of_others(self, elapsed: int) -> frozenset[RecordKey]:
        """Returns the records whose locks other writers request, at an elapsed time of this
        machine."""
        if not self._others:
            return frozenset()
        oldest = elapsed - VALID_TICKS
        return frozenset(
            [record_key for record_key, read in self._others.items() if read.first_read > oldest]
        )

    def receive(self, result: pq.abc.PGresult, elapsed: int) -> None:
        """Stores the requests of others from a result of `fence_and_requests_sql`."""
        if result.get_value(0, _FIRST_COLUMN) is None:
            if self._others:
                self._others = {}
            return
        others: dict[RecordKey, _ReadRequest] = {}
        for row in range(result.ntuples):
            slot, name, key, requested_at = [
                result.get_value(row, column) for column in range(_FIRST_COLUMN, _FIRST_COLUMN + 4)
            ]
            assert name is not None
            assert key is not None
            # A newer version may have collections that this one does not know.
            collection: Collection[Any, Any] | None = COLLECTIONS.get(name.decode())
            if collection is not None and to_int(slot) != self.slot:
                record_key = collection, key
                read = _ReadRequest(to_int(requested_at), elapsed)
                known = others.get(record_key) or self._others.get(record_key)
                is_known = known is not None and known.requested_at >= read.requested_at
                others[record_key] = known if known is not None and is_known else read
        self._others = others

    def send_changes(
        self,
        pipeline: Pipeline,
        unavailable: set[RecordKey],
        acquired: Iterable[RecordKey],
        clock: int,
    ) -> None:
        """Sends the statements that store the requests for records whose exclusive locks were not
        available, and withdraw those for locks that were acquired."""
        self._next = None
        if not self._own and not unavailable:
            return
        oldest = clock - VALID_TICKS
        requests = {record_key: since for record_key, since in self._own.items() if since > oldest}
        for record_key in acquired:
            requests.pop(record_key, None)
        for record_key in unavailable:
            since = requests.get(record_key)
            if since is None:
                is_due = len(requests) < REQUESTS_MAX
            else:
                is_due = clock - since >= RENEW_TICKS
            if is_due:
                requests[record_key] = clock
        if requests == self._own:
            return
        slot = bigint(self.slot)
        pipeline.send(DELETE, (slot,))
        if requests:
            names = bytea_array([collection.name.encode() for collection, _ in requests])
            keys = bytea_array([key for _, key in requests])
            pipeline.send(_INSERT, (slot, names, keys, bigint_array([*requests.values()])))
        self._next = requests

    def committed(self) -> None:
        """Notes that the changes that were sent last are committed."""
        if self._next is not None:
            self._own, self._next = self._next, None
