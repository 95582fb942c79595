"""What an engine is: two calls, two kinds of transaction, four outcomes.

An operation is a module-level, plain synchronous function of a transaction and a
command. It loads what it guards, lets the rules decide, and stores. It may be run more
than once and in another process: no I/O, no clock, no randomness inside.

A call ends in its result or in exactly one of

    Refused   the rules said no: nothing was changed, and the refusal is durable knowledge
    Conflict  another transaction was in the way: the engine runs the operation again
    Fault     the engine could not: nothing was changed
    Unknown   a commit whose answer was lost: it may or may not have happened
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


class Lane(NamedTuple):
    """What long reads are shared fairly between: kinds of work, and of each kind the clients."""

    kind: str
    client: str = ""
    """Who asked for it; "" for the server's own work."""


class Guard(enum.Enum):
    """What a transaction keeps others from doing to a record, present or absent, until it ends."""

    SHARED = enum.auto()
    """Nobody changes it."""
    EXCLUSIVE = enum.auto()
    """Nobody changes or guards it."""


SHARED, EXCLUSIVE = Guard.SHARED, Guard.EXCLUSIVE


SIFTED_BYTES_MAX: Final = 4 << 20
"""What a sieve looks at in one go, unless it is told otherwise: a thousand of the largest records
would be more than a process can hold for each who asks."""


class Sifted(NamedTuple, Generic[K, R]):
    """What has passed a sieve."""

    rows: list[tuple[K, R]]
    sizes: list[int]
    """How many bytes are stored of each."""
    seen: int
    """How many records were looked at, and how many bytes are stored of all of them."""
    seen_bytes: int
    rest: Span | None
    """Of the span, what was not looked at; None if that is nothing."""


class Counted(NamedTuple):
    """How many records there are in a part of a span."""

    records: int
    rest: Span | None
    """Of the span, what was not looked at; None if that is nothing."""


class ReadTxn(Protocol):
    """One consistent snapshot."""

    @property
    def now(self) -> int:
        """The engine's date, in ticks since 1970: for visibility and expiry of messages. Never
        runs backwards, and follows the wall clock when that is ahead."""
        ...

    @property
    def steady_now(self) -> int:
        """The engine's time for leases and all else that waits: never jumps. In ticks; not to be
        compared with anything but other moments of this time."""
        ...

    @property
    def is_overdue(self) -> bool:
        """Whether the snapshot is as old as it may become: whoever looks at much stops here, and
        goes on in a new one. A snapshot keeps the write-ahead log from starting over."""
        ...

    def get(self, collection: Collection[K, R], key: K) -> R | None: ...

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        """As many gets, which cost less together."""
        ...

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        """At most `limit` records of a span in the order of their keys."""
        ...

    def sift(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = SIFTED_BYTES_MAX,
    ) -> Sifted[K, R]:
        """Looks at no more than `limit` records of a span and gives those that pass: what does
        not costs much less than in a scan. Ends with the record that makes it `bytes_max`."""
        ...

    def sift_keys(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> Sifted[K, R]:
        """The same for the records with these keys, in the order of these; those that are not
        there are passed over. Nothing is a rest."""
        ...

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        """How many records a span has, of which no more than `limit` are looked at."""
        ...


class WriteTxn(Protocol):
    """One atomic change. Reads see its own writes.

    Without a guard a read may be stale by the time of the commit; only what is guarded
    (and what is written, which guards it exclusively) holds until then.
    """

    @property
    def now(self) -> int: ...

    @property
    def steady_now(self) -> int: ...

    @property
    def stamp(self) -> int:
        """Names this change: unique for ever, above every stamp on the records that the
        transaction guarded before it asked. Guard first, then stamp."""
        ...

    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None: ...

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        """As many gets, which cost less together."""
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
        """As in a read; with `claim`, guards exclusively what it returns and skips what
        others hold."""
        ...

    def put(self, collection: Collection[K, R], key: K, record: R) -> R: ...

    def delete(self, collection: Collection[K, R], key: K) -> None:
        """Absent is as good as deleted."""
        ...

    def on_commit(self, hook: Callable[[C], None], argument: C) -> None:
        """Call this once the commit is durable, in the process that ran the operation.
        Lost in a crash: nothing's correctness may rest on it."""
        ...


Steps = Generator[None, None, T]
"""An operation that stops every now and then."""


class Engine(Protocol):
    """A ledger. `write` returns when the change is durable and visible to every reader."""

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T: ...

    async def read_aside(
        self, operation: Callable[[ReadTxn, C], T], command: C, lane: Lane | None = None
    ) -> T:
        """The same for an operation that takes long: others do not wait for it, but for those of
        the same lane. Without one, it is the operation's own."""
        ...

    async def read_in_steps(
        self, operation: Callable[[ReadTxn, C], Steps[T]], command: C, lane: Lane | None = None
    ) -> T:
        """The same for an operation that stops every now and then: others have their turn at each
        stop, and all of it is one snapshot. Of those that wait, each lane has its turn."""
        ...

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T: ...

    async def close(self) -> None: ...


class Refused(Exception):
    """The rules said no; nothing was changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class Conflict(Exception):
    """Another transaction was in the way; running the operation again may succeed."""


class FaultReason(enum.Enum):
    """Why an engine could not."""

    FAILED = "failed"
    DISK_FULL = "disk_full"
    CONTENTION = "contention"
    UNAVAILABLE = "unavailable"


class Fault(Exception):
    """The engine could not; nothing was changed."""

    def __init__(self, reason: FaultReason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class Unknown(Exception):
    """The answer to a commit was lost. Nobody may retry it blindly."""


def abort_if(refusal: Refusal | None) -> None:
    """Ends the operation with this refusal, if there is one."""
    if refusal is not None:
        raise Refused(refusal)


class Operation(Generic[C, T]):
    """A registered write operation: its name and how its command and result travel."""

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
    """Registers a function as a write operation, so that a writer process knows it by name.

    `reclaims` marks what frees space: it is still run when the disk is full.
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
    """The registration of an operation."""
    try:
        return _BY_FUNCTION[run]
    except KeyError:
        raise TypeError(f"{run!r} is not an operation: decorate it with @operation") from None
