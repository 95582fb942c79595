"""Sources on other servers."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Final

from etagere.auth.request import is_text
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.common import ContentHeaders, Metadata
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.checksums import MD5_BYTES
from etagere.protocol.rest.refusals import unread_source
from etagere.protocol.sources.addresses import SourceAddress
from etagere.rules.names import check_metadata

logger = logging.getLogger(__name__)

UPLOAD_SECONDS_MAX: Final = 600.0
"""The maximum time to read a source while the client waits."""
_META = "x-ms-meta-"
_LENGTH_DIGITS_MAX = 18
_CODE_CHARACTERS_MAX = 100


class RemoteSource:
    """The response of another server: its headers, and its bytes as they arrive."""

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
        """`received` yields its bytes as they arrive; `close` stops that."""
        self._authority = address.authority
        self._received = received
        self._close = close
        self._bytes_max = bytes_max
        self.address = address.without_secrets()
        """The URL without secrets."""
        self.status = status
        self.fields = fields
        """Its headers, by names in lower case."""
        self.metadata = metadata if _is_metadata(metadata) else ()
        """Its metadata, whose names keep their case; none if no object here could have it."""
        self.length = _length(fields.get("content-length"))
        """None if it is unknown."""

    @property
    def headers(self) -> ContentHeaders:
        """Returns its headers that are also properties of blobs."""
        return ContentHeaders(
            self._text("content-type") or ContentHeaders().content_type,
            self._text("content-encoding"),
            self._text("content-language"),
            self._text("content-disposition"),
            self._text("cache-control"),
            self._md5(),
        )

    def _md5(self) -> bytes | None:
        try:
            md5 = base64.b64decode(self.fields.get("content-md5", ""), validate=True)
        except (binascii.Error, ValueError):
            return None
        return md5 if len(md5) == MD5_BYTES else None

    def _text(self, name: str) -> str:
        value = self.fields.get(name, "")
        return value if is_text(value) and value.isprintable() else ""

    def require_bytes(self, asked: Range | None) -> None:
        """Requires a response with exactly the requested bytes, within the length limit."""
        if self.status not in (200, 206):
            code = self.fields.get("x-ms-error-code", "")
            is_code = code.isascii() and code.isalnum() and len(code) <= _CODE_CHARACTERS_MAX
            message = f"The source answered {self.status}."
            raise unread_source(self.status, code if is_code else "Unknown", message)
        # A server that ignores ranges sends everything.
        expected = 200 if asked is None else 206
        start = "" if asked is None else f"bytes {asked.start}-"
        if self.status != expected or not self.fields.get("content-range", "").startswith(start):
            message = "The source did not send the range that was asked for."
            raise unread_source(400, "InvalidRange", message)
        if self._bytes_max is not None and (self.length or 0) > self._bytes_max:
            raise too_large(self._bytes_max)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields its bytes; raises `Refused` if it ends early or sends too many."""
        count = 0
        async for chunk in self._received:
            count += len(chunk)
            if self._bytes_max is not None and count > self._bytes_max:
                raise too_large(self._bytes_max)
            yield chunk
        if self.length is not None and count != self.length:
            raise failed(self._authority, EOFError())

    async def close(self) -> None:
        """Closes the connection; the rest is not received."""
        self._close()

    async def __aenter__(self) -> RemoteSource:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def metadata_of(headers: Iterable[tuple[str, str]]) -> Metadata:
    """Returns the metadata in the headers of a response."""
    return tuple(
        (name[len(_META) :], value)
        for name, value in headers
        if name[: len(_META)].lower() == _META
    )


def _is_metadata(pairs: Metadata) -> bool:
    is_valid = all(is_text(name) and is_text(value) for name, value in pairs)
    return is_valid and check_metadata(pairs) is None


def too_large(bytes_max: int) -> Refused:
    return Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": bytes_max}))


def failed(authority: str, error: BaseException) -> Refused:
    """Logs why a source failed, and returns the refusal without the reason, which may reveal
    details of the network. The text of the error is not logged, because it may contain the URL and
    its secrets."""
    logger.warning("cannot read a copy source on %s: %s", authority, type(error).__name__)
    return unread_source(500, "InternalError", "The source could not be read.")


def _length(written: str | None) -> int | None:
    if written is None or not written.isdecimal() or len(written) > _LENGTH_DIGITS_MAX:
        return None
    return int(written)
