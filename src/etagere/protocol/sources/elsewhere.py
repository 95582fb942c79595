"""Sources on other servers: what they answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Final

from etagere.auth.request import is_text
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.blobs import BlobHeaders
from etagere.model.common import Metadata
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.refusals import unread
from etagere.protocol.sources.addresses import SourceAddress

logger = logging.getLogger(__name__)

UPLOAD_SECONDS_MAX: Final = 600.0
"""How long a source may be read for a request whose client waits."""
_LENGTH_DIGITS_MAX = 18
_CODE_CHARACTERS_MAX = 100


class Elsewhere:
    """The answer of another server: its headers, and its bytes while they arrive."""

    def __init__(
        self,
        address: SourceAddress,
        status: int,
        fields: Mapping[str, str],
        metadata: Metadata,
        received: AsyncIterator[bytes],
        close: Callable[[], None],
        bytes_max: int | None,
    ) -> None:
        """`received` are its bytes as they come, `close` ends that."""
        self._authority = address.authority
        self._received = received
        self._close = close
        self._bytes_max = bytes_max
        self.address = address.shown()
        """Without what gave the right to read it."""
        self.status = status
        self.fields = fields
        """Its headers by their names in lower case."""
        self.metadata = metadata
        """Names in the case in which they came."""
        self.length = _length(fields.get("content-length"))
        """None if it did not say."""

    @property
    def headers(self) -> BlobHeaders:
        """How it describes what it sends, as far as a blob is described so."""
        return BlobHeaders(
            self._text("content-type") or BlobHeaders().content_type,
            self._text("content-encoding"),
            self._text("content-language"),
            self._text("content-disposition"),
            self._text("cache-control"),
        )

    def _text(self, name: str) -> str:
        value = self.fields.get(name, "")
        return value if is_text(value) and value.isprintable() else ""

    def require_bytes(self, asked: Range | None) -> None:
        """It must be an answer with just the bytes that were asked for, and no more than are
        taken."""
        if self.status not in (200, 206):
            told = self.fields.get("x-ms-error-code", "")
            is_code = told.isascii() and told.isalnum() and len(told) <= _CODE_CHARACTERS_MAX
            message = f"The source answered {self.status}."
            raise unread(self.status, told if is_code else "Unknown", message)
        # Whoever does not know ranges sends everything, which nobody asked for.
        expected = 200 if asked is None else 206
        start = "" if asked is None else f"bytes {asked.start}-"
        if self.status != expected or not self.fields.get("content-range", "").startswith(start):
            message = "The source did not send the range that was asked for."
            raise unread(400, "InvalidRange", message)
        if self._bytes_max is not None and (self.length or 0) > self._bytes_max:
            raise too_large(self._bytes_max)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes, all of them or none at all: raises `Refused` if it stops early or sends more
        than is taken."""
        count = 0
        async for chunk in self._received:
            count += len(chunk)
            if self._bytes_max is not None and count > self._bytes_max:
                raise too_large(self._bytes_max)
            yield chunk
        if self.length is not None and count != self.length:
            raise failed(self._authority, EOFError())

    async def close(self) -> None:
        """Whatever has not arrived yet will not."""
        self._close()

    async def __aenter__(self) -> Elsewhere:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def too_large(bytes_max: int) -> Refused:
    return Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": bytes_max}))


def failed(authority: str, error: BaseException) -> Refused:
    """Why is for the log: it may tell of the network what a client need not know. Not in the
    words of the error, which may repeat the address and what is secret in it."""
    logger.warning("cannot read a copy source on %s: %s", authority, type(error).__name__)
    return unread(500, "InternalError", "The source could not be read.")


def _length(written: str | None) -> int | None:
    if written is None or not written.isdecimal() or len(written) > _LENGTH_DIGITS_MAX:
        return None
    return int(written)
