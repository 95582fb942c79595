"""Sources in this store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from etagere.bodies.store import BodyReader, Plan
from etagere.model.blobs import Blob
from etagere.model.common import ContentHeaders
from etagere.model.sources import SourceBlob
from etagere.operations.blob.blobs import OpenedBlob
from etagere.protocol.rest import checksums


class LocalSource:
    """A blob or snapshot of this store, as of one snapshot of the ledger.

    Its bytes stay readable until it is closed. To share its content instead of reading it, look it
    up again in the transaction that shares it, and require that its stamp is that of `found`.
    """

    def __init__(
        self,
        shown_address: str,
        found: SourceBlob,
        blob: Blob,
        opened: OpenedBlob | None,
        reader: BodyReader,
    ) -> None:
        self.address = shown_address
        """The URL without secrets."""
        self.found = found
        """The blob, and the stamp of its version."""
        self.blob = blob
        self.start = 0 if opened is None else opened.start
        self.length = blob.content.length if opened is None else opened.length
        """The length of the requested range, or of the blob."""
        self._plan: Plan | None = None if opened is None else opened.plan
        self._reader: BodyReader | None = reader

    @property
    def headers(self) -> ContentHeaders:
        return self.blob.headers

    @property
    def is_whole(self) -> bool:
        """Whether the range is the whole blob."""
        return self.length == self.blob.content.length

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
