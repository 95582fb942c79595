"""One run of an operation within a group, and its transaction as the operation sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from etagere.engine import wire
from etagere.engine.account_moves import require_writable
from etagere.engine.group_writer import Answer, Hook, fault_answer, operation_named, origin
from etagere.engine.interface import (
    EXCLUSIVE,
    Conflict,
    FaultReason,
    Guard,
    Refused,
)
from etagere.engine.postgres.acquiring import (
    LEVEL_OF_GUARD,
    LockLevel,
    WantedLocks,
    has_guard,
    merge_wanted,
)
from etagere.engine.postgres.fence import Reading, StaleFence
from etagere.engine.postgres.pipeline import PipelineFailed
from etagere.engine.postgres.stamps import NotReserved
from etagere.engine.postgres.storing import Row
from etagere.engine.postgres.transaction import GroupTransaction
from etagere.engine.records import ENCODE, Collection, K, R, RecordKey, Span
from etagere.engine.tasks import require_epoch
from etagere.engine.timeline import Instant
from etagere.engine.wire import Outcome
from etagere.model.cluster import FILE_TASK
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_ACQUIRE_ATTEMPTS: Final = 4
_LOOKS_AHEAD_MAX: Final = 8
"""Per run of an operation: to look ahead takes as long as the operation itself."""


class Times(Protocol):
    """The times and stamps of a group."""

    def instant(self) -> Instant: ...

    def update(self, reading: Reading, elapsed: int) -> None: ...

    def next_stamp(self, above: int) -> int: ...


class MustQuery(BaseException):
    """An operation needs a query, which cannot be predicted. Not an `Exception`, so that operations
    do not handle it."""


class TimeOutdated(BaseException):
    """An operation has used a time that is before the last change of a record which it has locked
    since, so it must run again. Not an `Exception`, so that operations do not handle it."""


class Attempt:
    """A run of one operation: a `WriteTxn` that notes what the operation looked at.

    A prediction (`is_direct` False) sees records as they are cached. A direct run locks and reads
    in the transaction whatever the group has not locked or read yet. Before it does so, it looks
    ahead: a prediction with the results of the scans so far tells what else the operation will look
    at, so that the records of a long scan are locked in one round trip.
    """

    __slots__ = (
        "_above",
        "_group",
        "_instant",
        "_looks_ahead",
        "_scans",
        "_scans_used",
        "_stamp",
        "_times",
        "answer",
        "asked_stamp",
        "asked_time",
        "hooks",
        "is_direct",
        "is_done",
        "reads",
        "request",
        "writes",
    )

    def __init__(
        self,
        request: wire.Request,
        group: GroupTransaction,
        times: Times,
        *,
        is_direct: bool,
        scans: Sequence[list[Any]] = (),
    ) -> None:
        """`scans`: the results of the first scans, for a prediction."""
        self.request = request
        self._group = group
        self._times = times
        self.is_direct = is_direct
        self.reads: dict[RecordKey, Guard | None] = {}
        self.writes: dict[RecordKey, Row | None] = {}
        self.hooks: list[Hook] = []
        self._instant: Instant | None = None
        self._stamp: int | None = None
        self._above = 0
        self._scans = list(scans)
        self._scans_used = 0
        self._looks_ahead = 0
        self.asked_time = False
        self.asked_stamp = False
        self.is_done = False
        """Whether the operation came to its end; False if it must run directly."""
        self.answer = Answer(Outcome.CONFLICT, b"")

    # The transaction

    @property
    def now(self) -> int:
        return self._current_instant().now

    @property
    def steady_now(self) -> int:
        return self._current_instant().steady_now

    def _current_instant(self) -> Instant:
        if self._instant is None:
            self.asked_time = True
            self._instant = self._times.instant()
        return self._instant

    @property
    def stamp(self) -> int:
        if self._stamp is None:
            self.asked_stamp = True
            self._stamp = self._times.next_stamp(self._above)
        return self._stamp

    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None:
        record_key = collection, collection.pack(key)
        if self.is_direct and self._lacks(record_key, guard):
            self._acquire({record_key: LEVEL_OF_GUARD[guard]})
        return cast("R | None", self._look(record_key, guard))

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        record_keys = [(collection, collection.pack(key)) for key in keys]
        if self.is_direct:
            lacking = {
                record_key: LEVEL_OF_GUARD[guard]
                for record_key in record_keys
                if self._lacks(record_key, guard)
            }
            if lacking:
                self._acquire(lacking)
        return [cast("R | None", self._look(record_key, guard)) for record_key in record_keys]

    def _lacks(self, record_key: RecordKey, guard: Guard | None) -> bool:
        if guard is None and (
            record_key in self.writes or record_key[1] in self._group.overlay.get(record_key[0], ())
        ):
            return False
        return self._group.lacks(record_key, LEVEL_OF_GUARD[guard])

    def _acquire(self, wanted: WantedLocks) -> None:
        if self._looks_ahead < _LOOKS_AHEAD_MAX:
            self._looks_ahead += 1
            self._acquire_once(self._look_ahead(wanted))
            wanted = self._group.missing(wanted)
            if not wanted:
                return
        for _ in range(_ACQUIRE_ATTEMPTS):
            self._acquire_once(wanted)
            if not self._group.unavailable.isdisjoint(wanted):
                break
            wanted = self._group.missing(wanted)
            if not wanted:
                return
        raise Conflict("another node has locked a record")

    def _acquire_once(self, wanted: WantedLocks) -> None:
        """Locks and reads records. The time of the group is that after the locks."""
        group = self._group
        changed = group.acquire(wanted)
        self._update_time()
        used = self._instant
        if used is not None and any(
            group.look_up(record_key).version > used.now for record_key in changed
        ):
            raise TimeOutdated

    def _update_time(self) -> None:
        assert self._group.reading is not None
        self._times.update(self._group.reading, self._group.elapsed())

    def _look_ahead(self, wanted: WantedLocks) -> WantedLocks:
        """Returns what is needed now and, as far as it can be predicted, what will be needed."""
        ahead = Attempt(self.request, self._group, self._times, is_direct=False, scans=self._scans)
        ahead.run()
        wanted = {**ahead.missing_locks(with_writes=False), **wanted}
        return {**ahead.unguarded(), **wanted} if has_guard(wanted) else wanted

    def _look(self, record_key: RecordKey, guard: Guard | None) -> object:
        known = self.reads.get(record_key, self)
        if known is self or (guard is not None and known is not EXCLUSIVE):
            self.reads[record_key] = guard
        base = self._group.look_up(record_key)
        if guard is not None and base.version > self._above:
            self._above = base.version
        writes = self.writes
        if record_key in writes:
            row = writes[record_key]
        else:
            changed = self._group.overlay.get(record_key[0])
            if changed is None or record_key[1] not in changed:
                return base.record
            row = changed[record_key[1]]
        return None if row is None else row[0]

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        if not self.is_direct:
            if self._scans_used == len(self._scans):
                raise MustQuery
            self._scans_used += 1
            return list(self._scans[self._scans_used - 1])
        with_time = self._instant is None
        found = self._group.scan(
            collection,
            span,
            limit,
            self.writes,
            reverse=reverse,
            claim=claim,
            with_time=with_time,
        )
        if with_time:
            self._update_time()
        if claim:
            self._above = max([self._above, *[versioned.version for _, versioned in found]])
        keys = collection.unpack_all([key for key, _ in found])
        rows = [(key, cast("R", row.record)) for key, (_, row) in zip(keys, found, strict=True)]
        self._scans.append(list(rows))
        return rows

    def put(self, collection: Collection[K, R], key: K, record: R) -> R:
        self.writes[collection, collection.pack(key)] = record, ENCODE(record)
        return record

    def delete(self, collection: Collection[K, R], key: K) -> None:
        self.writes[collection, collection.pack(key)] = None

    def on_commit(self, hook: Callable[[Any], None], argument: Any) -> None:
        self.hooks.append((hook, argument))

    # The run

    def run(self) -> None:
        """Runs the operation. Errors of the engine in a direct run are raised."""
        request = self.request
        try:
            operation = operation_named(request.operation)
            if request.epoch:
                require_epoch(self, FILE_TASK, request.epoch)
            if request.account:
                require_writable(self, request.account.decode())
            result = operation.run(self, operation.decode_command(request.command))
            self.answer = Answer(Outcome.RESULT, ENCODE(result))
            self.is_done = True
            return
        except MustQuery:
            return
        except (StaleFence, NotReserved, PipelineFailed):
            raise
        except Refused as refused:
            self.answer = Answer(Outcome.REFUSED, ENCODE(refused.refusal))
        except Conflict:
            self.answer = Answer(Outcome.CONFLICT, b"")
        except Exception as error:
            if not self.is_direct:
                return  # a wrong prediction may be the reason
            logger.exception("an operation failed", extra=origin(request))
            self.answer = fault_answer(FaultReason.FAILED, describe_exception(error))
        self.is_done = True
        self.writes.clear()
        self.hooks.clear()

    def missing_locks(self, *, with_writes: bool) -> WantedLocks:
        """Returns what the group has not locked or read yet of what the operation looked at."""
        wanted: WantedLocks = {}
        group = self._group
        for record_key, guard in self.reads.items():
            if group.lacks(record_key, LEVEL_OF_GUARD[guard]):
                merge_wanted(wanted, record_key, guard)
        if with_writes:
            for record_key in self.writes:
                if group.lacks(record_key, LEVEL_OF_GUARD[EXCLUSIVE]):
                    merge_wanted(wanted, record_key, EXCLUSIVE)
        return wanted

    def unguarded(self) -> WantedLocks:
        """Returns what the operation looked at and nothing protects but perhaps the guard on
        another record. It has to be read again after that guard was taken."""
        lacks = self._group.lacks
        return {
            record_key: LockLevel.READ
            for record_key in self.reads
            if lacks(record_key, LockLevel.SHARED)
        }

    def give_up(self) -> None:
        """Ends with a conflict."""
        self.answer = Answer(Outcome.CONFLICT, b"")
        self.reads.clear()
        self.writes.clear()
        self.hooks.clear()

    def is_affected_by(self, changed: set[RecordKey]) -> bool:
        return not changed.isdisjoint(self.reads)

    def is_blocked(self) -> bool:
        """Whether it looked at a record that others have locked."""
        unavailable = self._group.unavailable
        if not unavailable:
            return False
        return not (unavailable.isdisjoint(self.reads) and unavailable.isdisjoint(self.writes))
