"""The bodies of uploads: how long they may be, and whether what arrived is what was sent."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere.bodies.store import BodyWriter
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body, Content, Empty, Inline, Pieces
from etagere.protocol import requests
from etagere.protocol.answers import Headers
from etagere.protocol.blob import decode, decode_sources, encode
from etagere.protocol.codecs import structured_messages
from etagere.protocol.exchange import Exchange
from etagere.protocol.turns import Turn

_MIB = 1 << 20

_MD5_OF_LISTS_SINCE: Final = "2019-07-07"
"""From this version on a block list that was sent with an MD5 is answered with it."""
NO_BODY: Final = Body(b"", 0, 0)
"""In a command whose body is still to come."""
FORESEEN_BYTES_MIN: Final = 256 << 10
"""What is longer is not received before it is known that it would be taken now."""

_CHECKSUMS: Final = ("content-md5", "x-ms-blob-content-md5", "x-ms-content-crc64")

# The newest first; versions before the last one have its limits.
Limits = tuple[tuple[str, int], ...]
BLOB_BYTES_MAX: Final[Limits] = (
    ("2019-12-12", 5_000 * _MIB),
    ("2016-05-31", 256 * _MIB),
    ("", 64 * _MIB),
)
BLOCK_BYTES_MAX: Final[Limits] = (
    ("2019-12-12", 4_000 * _MIB),
    ("2016-05-31", 100 * _MIB),
    ("", 4 * _MIB),
)
APPENDED_BYTES_MAX: Final[Limits] = (
    ("2022-11-02", 100 * _MIB),
    ("", 4 * _MIB),
)
PAGES_BYTES_MAX: Final[Limits] = (("", 4 * _MIB),)


def announced_length(exchange: Exchange, limits: Limits) -> int:
    """The length of a content, which has to be said before it is sent."""
    length = exchange.http.body.length
    if length is None:
        raise Refused(Refusal("MissingContentLengthHeader"))
    structured_length = decode.structured_content_length(exchange, length)
    if structured_length is not None:
        length = structured_length
    bytes_max = next(most for since, most in limits if exchange.version >= since)
    if length > bytes_max:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": bytes_max}))
    return length


async def receive(exchange: Exchange, writer: BodyWriter) -> Body:
    """The content of a request: its body, or what a structured message has in it."""
    body = exchange.http.body
    content_length = decode.structured_content_length(exchange, body.length or 0)
    if content_length is None:
        await writer.append_arriving(body)
        return await writer.seal()
    decoder = structured_messages.Decoder(body.length or 0, content_length)
    turn = Turn()
    async for chunk in body:
        for content in decoder.feed(chunk):
            if content:
                await writer.append(content)
            # Segments may be tiny, and thousands of them in a chunk.
            await turn.give_way()
        turn.begin()
    decoder.finish()
    return await writer.seal()


def structured_headers(exchange: Exchange) -> Headers:
    """Says that a structured message was taken for one; clients insist on it."""
    return encode.STRUCTURED_BODY if decode.is_structured(exchange) else []


def checksum_header(crc: int, sent_md5: bytes | None) -> tuple[bytes, bytes]:
    """Of what arrived and was found to be what was sent: the MD5 if the client sent one, otherwise
    the CRC64."""
    return encode.crc64_header(crc) if sent_md5 is None else encode.md5_header(sent_md5)


def checked_document(exchange: Exchange, document: bytes) -> tuple[bytes, bytes]:
    """The checksum that a request which is a document is answered with, after those that it was
    sent with were compared."""
    sent_md5 = decode.sent_md5(exchange)
    body = Body(b"", len(document), crc64nvme(document))
    md5 = hashlib.md5(document, usedforsecurity=False).digest() if sent_md5 else None
    require_intact(exchange, body, md5)
    return checksum_header(body.crc, md5 if exchange.version >= _MD5_OF_LISTS_SINCE else None)


def tells_checksum(exchange: Exchange) -> bool:
    """Whether the body is to be compared with a checksum."""
    return any(exchange.header(name) is not None for name in _CHECKSUMS)


def require_intact(
    exchange: Exchange, body: Body, md5: bytes | None, blob_md5: bytes | None = None
) -> None:
    """What arrived must be what was sent, as far as the sender said what that was.

    A blob that is put whole is its body: what is said of the blob counts before what is said of
    the body.
    """
    sent_md5, sent_crc = decode.sent_md5(exchange), decode.sent_crc64(exchange)
    if sent_md5 is not None and sent_crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    told_md5 = blob_md5 or sent_md5
    if told_md5 is not None and md5 is not None and told_md5 != md5:
        facts: dict[str, str | int] = {
            "UserSpecifiedMd5": encode.digest_text(told_md5).decode(),
            "ServerCalculatedMd5": encode.digest_text(md5).decode(),
        }
        raise Refused(Refusal("Md5Mismatch", facts))
    if sent_crc is not None and sent_crc != body.crc:
        told, calculated = sent_crc.to_bytes(8, "little"), body.crc.to_bytes(8, "little")
        raise Refused(structured_messages.crc_mismatch(told, calculated))


# From sources


def bytes_max(exchange: Exchange, limits: Limits) -> int:
    """How long a content may be that is not announced."""
    return next(most for since, most in limits if exchange.version >= since)


def require_no_body(exchange: Exchange) -> None:
    """For what takes its bytes from elsewhere."""
    length = exchange.http.body.length
    if length is None:
        raise Refused(Refusal("MissingContentLengthHeader"))
    if length:
        raise requests.invalid_header("Content-Length", str(length))


class ToldChecksums(NamedTuple):
    """What a request says of the bytes of its source."""

    md5: bytes | None
    crc: int | None

    def require(self, crc: int, md5: bytes | None) -> None:
        """The bytes must have these checksums, as far as the request says so."""
        if self.md5 is not None and md5 is not None and self.md5 != md5:
            facts: dict[str, str | int] = {
                "UserSpecifiedMd5": encode.digest_text(self.md5).decode(),
                "ServerCalculatedMd5": encode.digest_text(md5).decode(),
            }
            raise Refused(Refusal("Md5Mismatch", facts))
        if self.crc is not None and self.crc != crc:
            told, calculated = self.crc.to_bytes(8, "little"), crc.to_bytes(8, "little")
            raise Refused(structured_messages.crc_mismatch(told, calculated))


NOTHING_TOLD: Final = ToldChecksums(None, None)


def told_of_source(exchange: Exchange) -> ToldChecksums:
    told = ToldChecksums(decode_sources.source_md5(exchange), decode_sources.source_crc64(exchange))
    if told.md5 is not None and told.crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    return told


async def receive_source(chunks: AsyncIterator[bytes], writer: BodyWriter) -> Body:
    async for chunk in chunks:
        await writer.append(chunk)
    return await writer.seal()


async def checksums_of(chunks: AsyncIterator[bytes]) -> tuple[int, bytes]:
    """CRC64 and MD5, made in a thread: others have their turn meanwhile."""
    crc, md5 = 0, hashlib.md5(usedforsecurity=False)
    async for chunk in chunks:
        await asyncio.to_thread(md5.update, chunk)
        crc = crc64nvme(chunk, crc)
    return crc, md5.digest()


async def crc64_of(chunks: AsyncIterator[bytes]) -> int:
    crc = 0
    async for chunk in chunks:
        crc = crc64nvme(chunk, crc)
        await asyncio.sleep(0)
    return crc


def known_crc(content: Content) -> int | None:
    """The CRC64 of all bytes of a content; None if it takes reading them."""
    if isinstance(content, Empty):
        return 0
    if isinstance(content, Inline):
        return content.crc
    if not isinstance(content, Pieces):
        return None
    crc = 0
    for piece in content.pieces:
        if piece.crc is None:
            return None
        crc = combine_crc64nvme(crc, piece.crc, piece.length)
    return crc
