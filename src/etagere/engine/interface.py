"""The engine contract: reads, writes, their transactions, and four outcomes.

An operation is a module-level, synchronous function of a transaction and a command. It loads
records with guards, lets the rules decide, and stores. It may run more than once and in another
process, so it does no I/O, reads no clock and generates no random numbers.

A call returns its result or raises exactly one of

    Refused   the rules said no: nothing was changed, and what they rest on is durable
    Conflict  another transaction interfered: the engine runs the operation again
    Fault     the engine failed: nothing was changed
    Unknown   a commit whose response was lost: it may or may not have happened
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from etagere.engine.records import Collection, K, R, Span
from etagere.errors import Refusal

C = TypeVar("C")
T = TypeVar("T")


class ReadClass(NamedTuple):
    """The scheduling class of a long read. Kinds of work take turns, and so do the clients of each
    kind."""

    kind: str
    client: str = ""
    """The client that the read is for; "" for the server's own work."""


class Guard(enum.Enum):
    """A lock on a record, present or absent, until the transaction ends."""

    SHARED = enum.auto()
    """Others may not change the record."""
    EXCLUSIVE = enum.auto()
    """Others may neither change nor guard the record."""


SHARED, EXCLUSIVE = Guard.SHARED, Guard.EXCLUSIVE


FILTERED_SCAN_BYTES_MAX: Final = 4 << 20
"""The most that `scan_filtered` reads in one call by default: a thousand of the largest records
would be more than a process can hold for each request."""


class FilteredRows(NamedTuple, Generic[K, R]):
    """The records that passed a filter."""

    rows: list[tuple[K, R]]
    sizes: list[int]
    """The stored size of each record, in bytes."""
    seen: int
    """How many records were examined; `seen_bytes` is their stored size."""
    seen_bytes: int
    rest: Span | None
    """The part of the span that was not examined; None if there is none."""


class Counted(NamedTuple):
    """The number of records in a part of a span."""

    records: int
    rest: Span | None
    """The part of the span that was not examined; None if there is none."""


class ReadTxn(Protocol):
    """A read transaction: one consistent snapshot."""

    @property
    def now(self) -> int:
        """The engine's date, in ticks since 1970, for visibility and expiry of messages. It never
        runs backwards, and follows the wall clock when that is ahead."""
        ...

    @property
    def steady_now(self) -> int:
        """The engine's time for leases and other durations, in ticks. It never jumps. Compare it
        only with other values of `steady_now`."""
        ...

    @property
    def is_overdue(self) -> bool:
        """Whether the snapshot has reached its maximum age. Long operations stop here and continue
        in a new snapshot, because a snapshot keeps the write-ahead log from being restarted."""
        ...

    def get(self, collection: Collection[K, R], key: K) -> R | None: ...

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        """Returns what `get` would for each key, at a lower cost."""
        ...

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        """Returns at most `limit` records of a span, in the order of their keys."""
        ...

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> FilteredRows[K, R]:
        """Examines at most `limit` records of a span and returns those that pass the filter; the
        others cost much less than in a scan. Stops at the record that reaches `bytes_max`."""
        ...

    def get_filtered(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> FilteredRows[K, R]:
        """Filters the records with these keys, in the order of the keys. Missing records are
        skipped. `rest` is None."""
        ...

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        """Counts the records of a span, at most `limit`."""
        ...


class WriteTxn(Protocol):
    """A write transaction: one atomic change. Reads see its own writes.

    A record that is read without a guard may have changed by the time of the commit. Only guarded
    records stay the same until then; writing a record guards it exclusively.
    """

    @property
    def now(self) -> int: ...

    @property
    def steady_now(self) -> int: ...

    @property
    def stamp(self) -> int:
        """The number of this change: unique for ever, and greater than every stamp on the records
        that the transaction guarded before it asked. Guard first, then stamp."""
        ...

    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None: ...

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        """Returns what `get` would for each key, at a lower cost."""
        ...

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        """As in a read transaction. `claim` guards the returned records exclusively and skips
        those that others have guarded."""
        ...

    def put(self, collection: Collection[K, R], key: K, record: R) -> R: ...

    def delete(self, collection: Collection[K, R], key: K) -> None:
        """Deletes a record, if there is one."""
        ...

    def on_commit(self, hook: Callable[[C], None], argument: C) -> None:
        """Calls a hook once the commit is durable, in the process that ran the operation. A crash
        loses the call, so correctness must not depend on it."""
        ...


Steps = Generator[None, None, T]
"""An operation that yields now and then."""


class Engine(Protocol):
    """A ledger. `write` returns when the change is durable and visible to every reader."""

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T: ...

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        """Runs a long read in a thread. It waits only for reads of the same class; by default each
        operation has its own, in which clients take turns."""
        ...

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        """Runs a read that yields now and then, in one snapshot; other requests run whenever it
        yields. Read classes take turns."""
        ...

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T: ...

    async def close(self) -> None: ...


class Refused(Exception):
    """The rules refused the operation; nothing was changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class Conflict(Exception):
    """Another transaction interfered; running the operation again may succeed."""


class FaultReason(enum.Enum):
    """Why an engine failed."""

    FAILED = "failed"
    DISK_FULL = "disk_full"
    CONTENTION = "contention"
    UNAVAILABLE = "unavailable"


class Fault(Exception):
    """The engine failed; nothing was changed."""

    def __init__(self, reason: FaultReason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class SchemaTooNew(Exception):
    """The ledger was written by a newer version of the program."""


class Unknown(Exception):
    """The response to a commit was lost. It must not be retried blindly."""


def abort_if(refusal: Refusal | None) -> None:
    """Ends the operation with this refusal, if there is one."""
    if refusal is not None:
        raise Refused(refusal)


def unwrap(result: T | Refusal) -> T:
    """Returns a result, or ends the operation with the refusal in its place."""
    if isinstance(result, Refusal):
        raise Refused(result)
    return result


class Operation(Generic[C, T]):
    """A registered write operation: its name, and the decoders of its command and result."""

    def __init__(self, run: Callable[[WriteTxn, C], T], *, reclaims: bool) -> None:
        self.run = run
        self.reclaims = reclaims
        self.name = f"{run.__module__}:{run.__qualname__}"
        self.wire_name = self.name.encode()

    @cached_property
    def _types(self) -> tuple[Any, Any]:
        hints = typing.get_type_hints(self.run)
        result = hints.pop("return")
        return hints[list(hints)[-1]], result

    @cached_property
    def decode_command(self) -> Callable[[bytes | memoryview], C]:
        return cast(
            "Callable[[bytes | memoryview], C]", msgspec.msgpack.Decoder(self._types[0]).decode
        )

    @cached_property
    def decode_result(self) -> Callable[[bytes | memoryview], T]:
        return cast(
            "Callable[[bytes | memoryview], T]", msgspec.msgpack.Decoder(self._types[1]).decode
        )


OPERATIONS: dict[str, Operation[Any, Any]] = {}
_BY_FUNCTION: dict[Callable[..., Any], Operation[Any, Any]] = {}


@typing.overload
def operation(run: Callable[[WriteTxn, C], T]) -> Callable[[WriteTxn, C], T]: ...
@typing.overload
def operation(
    *, reclaims: bool
) -> Callable[[Callable[[WriteTxn, C], T]], Callable[[WriteTxn, C], T]]: ...
def operation(run: Callable[[WriteTxn, C], T] | None = None, *, reclaims: bool = False) -> Any:
    """Registers a function as a write operation that the writer process knows by name.

    `reclaims` marks operations that free space, which still run when the disk is full.
    """

    def register(run: Callable[[WriteTxn, C], T]) -> Callable[[WriteTxn, C], T]:
        registered = Operation(run, reclaims=reclaims)
        if registered.name in OPERATIONS:
            raise ValueError(f"two operations are called {registered.name}")
        OPERATIONS[registered.name] = registered
        _BY_FUNCTION[run] = registered
        return run

    return register if run is None else register(run)


def registered(run: Callable[[WriteTxn, C], T]) -> Operation[C, T]:
    """Returns the registration of an operation."""
    try:
        return _BY_FUNCTION[run]
    except KeyError:
        raise TypeError(f"{run!r} is not an operation: decorate it with @operation") from None
