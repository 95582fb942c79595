"""Sources in this store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol

from etagere.bodies.store import BodyReader, Plan
from etagere.model.blobs import Blob, Tags
from etagere.model.bodies import Content
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.files import Entry
from etagere.model.sources import StoredSource
from etagere.operations.file.changes import file_node
from etagere.protocol.rest import checksums

StoredObject = Blob | Entry
"""The record of a source: a blob, or the entry of a file."""


class OpenedRange(Protocol):
    """A range of a source, and the location of its bytes."""

    @property
    def start(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def plan(self) -> Plan: ...


class LocalSource:
    """A blob or file of this store, or of a snapshot, as of one snapshot of the ledger.

    Its bytes stay readable until it is closed. To share its content instead of reading it, look it
    up again in the transaction that shares it, and require that its stamp is that of `found`.
    """

    def __init__(
        self,
        shown_address: str,
        found: StoredSource,
        stored: StoredObject,
        opened: OpenedRange | None,
        reader: BodyReader,
    ) -> None:
        self.address = shown_address
        """The URL without secrets."""
        self.found = found
        """The object, and the stamp of its version."""
        self._stored = stored
        self.start = 0 if opened is None else opened.start
        self.length = self.content.length if opened is None else opened.length
        """The length of the requested range, or of the object."""
        self._plan: Plan | None = None if opened is None else opened.plan
        self._reader: BodyReader | None = reader

    @property
    def content(self) -> Content:
        stored = self._stored
        return stored.content if isinstance(stored, Blob) else file_node(stored).content

    @property
    def headers(self) -> ContentHeaders:
        stored = self._stored
        return stored.headers if isinstance(stored, Blob) else file_node(stored).headers

    @property
    def metadata(self) -> Metadata:
        return self._stored.metadata

    @property
    def tags(self) -> Tags:
        """The tags of a blob; files have none."""
        return self._stored.tags if isinstance(self._stored, Blob) else ()

    @property
    def is_whole(self) -> bool:
        """Whether the range is the whole object."""
        return self.length == self.content.length

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the bytes of the range; only if it was opened for reading."""
        plan, reader = self._opened_to_be_read()
        async for chunk in reader.chunks(plan):
            yield chunk

    async def crc64(self) -> int:
        """Returns the CRC64 of the bytes, which are read only if it is unknown; only if it was
        opened for reading."""
        plan, reader = self._opened_to_be_read()
        known = await checksums.known_crc(plan)
        return await checksums.crc64_of(reader.chunks(plan)) if known is None else known

    def _opened_to_be_read(self) -> tuple[Plan, BodyReader]:
        if self._plan is None or self._reader is None:
            raise ValueError("this source was not opened to be read")
        return self._plan, self._reader

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def __aenter__(self) -> LocalSource:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
