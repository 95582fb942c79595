"""Looking up sources in this store: one class per service.

Access is checked as for a request of the caller with nothing but the URL of the source.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from etagere.auth.file_permissions import READ_FILE
from etagere.auth.permissions import READ_BLOB, Permit, Public, authorize, refuse_anonymous
from etagere.auth.principal import Anonymous, Principal
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, unwrap
from etagere.errors import Refusal
from etagere.model.blobs import GetBlob, OpenBlob
from etagere.model.files import Entry, EntryPath, GetEntry, OpenFile
from etagere.model.sources import SourceBlob, SourceFile, StoredSource
from etagere.opens.remote import RestOpens
from etagere.operations.blob import blobs
from etagere.operations.file import entries, ranges
from etagere.protocol.blob import decode as blob_decode
from etagere.protocol.blob.permitted import read_permitted
from etagere.protocol.file import decode as file_decode
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.sources.local import OpenedRange, StoredObject
from etagere.rules.opens import RestAccess

SOURCE_TRAILING_DOT: Final = "x-ms-source-allow-trailing-dot"

Check = Callable[[StoredObject], None]
"""Refuses a source that does not meet the conditions of the request, or cannot be copied."""


class FoundSource(NamedTuple):
    """A source, and its range if it is to be read."""

    found: StoredSource
    stored: StoredObject
    opened: OpenedRange | None = None


class Lookup(Protocol):
    """A source that the caller may read."""

    async def find(self, check: Check) -> FoundSource:
        """Finds the source quickly, without its bytes."""
        ...

    async def open(self, check: Check, asked: Range | None) -> FoundSource:
        """Finds the source and a range of its bytes, or all of them."""
        ...


def _limits(asked: Range | None) -> tuple[int | None, int | None]:
    return (None, None) if asked is None else (asked.start, asked.end)


# Blobs


class BlobLookup:
    """A blob, or a snapshot of one, that the caller may read."""

    def __init__(self, engine: Engine, exchange: Exchange, permit: Permit, ask: GetBlob) -> None:
        self._engine = engine
        self._exchange = exchange
        self._permit = permit
        self._ask = ask

    async def find(self, check: Check) -> FoundSource:
        blob = (await self._read(blobs.get_blob, self._ask)).blob
        check(blob)
        return FoundSource(self._found(blob.stamp), blob)

    async def open(self, check: Check, asked: Range | None) -> FoundSource:
        for brief in (True, False):
            command = OpenBlob(self._ask, *_limits(asked), brief)
            opened = await self._read(_open_blob, (command, check), in_thread=not brief)
            if opened is not None:
                blob = opened.result.blob
                return FoundSource(self._found(blob.stamp), blob, opened)
        raise RuntimeError("a lookup that may take long returned nothing")

    def _found(self, stamp: int) -> SourceBlob:
        return SourceBlob(self._ask.blob, self._ask.snapshot, stamp)

    async def _read(
        self, operation: Callable[[ReadTxn, C], T], command: C, *, in_thread: bool = False
    ) -> T:
        exchange = self._exchange
        read_class = exchange.read_class(operation.__name__) if in_thread else None
        return await read_permitted(
            self._engine,
            self._permit,
            exchange.version,
            operation,
            command,
            self._ask.blob.container,
            read_class=read_class,
        )


def _open_blob(txn: ReadTxn, asked: tuple[OpenBlob, Check]) -> blobs.OpenedBlob | None:
    """Opens a blob; conditions are checked before the range, as in any read."""
    command, check = asked
    result = blobs.get_blob(txn, command.ask)
    check(result.blob)
    return blobs.open_found(txn, command, result)


def authorize_blob(
    engine: Engine, exchange: Exchange, asking: Exchange, principal: Principal, needs_tags: bool
) -> Lookup:
    """Authorizes the read of a blob. `asking` is the request that the caller could have sent."""
    if asking.parameter("versionid") is not None:
        raise Refused(Refusal("UnsupportedQueryParameter"))
    name, snapshot = blob_decode.blob_name(asking), blob_decode.snapshot(asking)
    permit = unwrap(
        authorize(
            principal,
            "blob",
            READ_BLOB,
            f"{name.container.name}/{name.name}",
            extra_letters="t" if needs_tags else "",
            version=exchange.version,
        )
    )
    if needs_tags and permit.public is not Public.NOTHING:
        # Public access includes blobs, but not their tags.
        raise Refused(refuse_anonymous(exchange.version))
    return BlobLookup(engine, exchange, permit, GetBlob(name, snapshot=snapshot))


# Files


class FileLookup:
    """A file, in a share or a snapshot of it, that the caller may read."""

    def __init__(
        self, engine: Engine, opens: RestOpens | None, exchange: Exchange, path: EntryPath
    ) -> None:
        self._engine = engine
        self._opens = opens
        self._exchange = exchange
        self._ask = GetEntry(path)

    async def find(self, check: Check) -> FoundSource:
        async def read(path: EntryPath) -> Entry:
            ask = replace(self._ask, path=path)
            return (await self._engine.read(entries.get_file, ask)).entry

        entry = await self._read(read)
        check(entry)
        return FoundSource(SourceFile(self._ask.path, entry.stamp), entry)

    async def open(self, check: Check, asked: Range | None) -> FoundSource:
        async def read(path: EntryPath) -> ranges.OpenedFile:
            command = OpenFile(replace(self._ask, path=path), *_limits(asked), brief=True)
            opened = await self._engine.read(_open_file, (command, check))
            if opened is None:
                command = replace(command, brief=False)
                read_class = self._exchange.read_class(_open_file.__name__)
                opened = await self._engine.read_in_thread(
                    _open_file, (command, check), read_class=read_class
                )
            assert opened is not None, "a lookup that may take long returned nothing"
            return opened

        opened = await self._read(read)
        entry = opened.result.entry
        return FoundSource(SourceFile(self._ask.path, entry.stamp), entry, opened)

    async def _read(self, read: Callable[[EntryPath], Awaitable[T]]) -> T:
        """Runs a read when the open handles of the file allow it, and sees what was written to
        it."""
        path = self._ask.path
        if self._opens is None:
            return await read(path)
        seconds_max = file_decode.wait_seconds(self._exchange)
        return await self._opens.rest(path, RestAccess.READ, read, seconds_max=seconds_max)


def _open_file(txn: ReadTxn, asked: tuple[OpenFile, Check]) -> ranges.OpenedFile | None:
    """Opens a file; conditions are checked before the range, as in any read."""
    command, check = asked
    check(entries.get_file(txn, command.ask).entry)
    return ranges.open_file(txn, command)


def authorize_file(
    engine: Engine,
    opens: RestOpens | None,
    exchange: Exchange,
    asking: Exchange,
    principal: Principal,
    *,
    is_copy: bool,
) -> Lookup:
    """Authorizes the read of a file. `asking` is the request that the caller could have sent."""
    components = file_decode.components(asking, SOURCE_TRAILING_DOT)
    ref = file_decode.share_ref(asking)
    if not components or (is_copy and isinstance(principal, Anonymous)):
        # Copies of a source without a token are refused as if there were no such source.
        raise Refused(Refusal("ResourceNotFound"))
    target = file_decode.target(asking, SOURCE_TRAILING_DOT)
    unwrap(authorize(principal, "file", READ_FILE, target, version=exchange.version))
    return FileLookup(engine, opens, exchange, EntryPath(ref, components))
