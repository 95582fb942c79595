"""Checksums of bodies: those that requests announce, and those that responses carry."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body, Content, Empty, Inline, Pieces
from etagere.protocol.codecs import structured_messages
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header
from etagere.protocol.rest.responses import Headers

MD5_BYTES = 16
CRC64_BYTES = 8
_CHECKED_RANGE_MAX = 4 << 20
_MD5_OF_LISTS_SINCE: Final = "2019-07-07"
"""From this version on a block list that was sent with an MD5 is answered with it."""
_CHECKSUMS: Final = ("content-md5", "x-ms-blob-content-md5", "x-ms-content-crc64")


# Requests


def digest(exchange: Exchange, name: str, size: int | None, code: str) -> bytes | None:
    written = exchange.header(name)
    if written is None:
        return None
    try:
        decoded = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded or size not in (None, len(decoded)):
        raise Refused(Refusal(code, {"HeaderName": name, "HeaderValue": written}))
    return decoded


def announced_md5(exchange: Exchange) -> bytes | None:
    return digest(exchange, "content-md5", MD5_BYTES, "InvalidMd5")


def announced_crc64(exchange: Exchange) -> int | None:
    found = digest(exchange, "x-ms-content-crc64", CRC64_BYTES, "InvalidHeaderValue")
    return None if found is None else int.from_bytes(found, "little")


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
    sent_md5, sent_crc = announced_md5(exchange), announced_crc64(exchange)
    if sent_md5 is not None and sent_crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    told_md5 = blob_md5 or sent_md5
    if told_md5 is not None and md5 is not None and told_md5 != md5:
        facts: dict[str, str | int] = {
            "UserSpecifiedMd5": digest_text(told_md5).decode(),
            "ServerCalculatedMd5": digest_text(md5).decode(),
        }
        raise Refused(Refusal("Md5Mismatch", facts))
    if sent_crc is not None and sent_crc != body.crc:
        told, calculated = sent_crc.to_bytes(8, "little"), body.crc.to_bytes(8, "little")
        raise Refused(structured_messages.crc_mismatch(told, calculated))


def checked_document(exchange: Exchange, document: bytes) -> tuple[bytes, bytes]:
    """The checksum that a request which is a document is answered with, after those that it was
    sent with were compared."""
    sent_md5 = announced_md5(exchange)
    body = Body(b"", len(document), crc64nvme(document))
    md5 = hashlib.md5(document, usedforsecurity=False).digest() if sent_md5 else None
    require_intact(exchange, body, md5)
    return checksum_header(body.crc, md5 if exchange.version >= _MD5_OF_LISTS_SINCE else None)


def refuse_range_checksums(exchange: Exchange) -> None:
    """For a read of the whole blob: only those of ranges are told."""
    for kind in ("md5", "crc64"):
        name = f"x-ms-range-get-content-{kind}"
        if (exchange.header(name) or "").lower() == "true":
            raise invalid_header(name, "true")


def wanted_checksums(exchange: Exchange, length: int) -> set[str]:
    """Which checksums of a range are asked for; one at a time, of a range that is not large."""
    wanted = {
        kind
        for kind in ("md5", "crc64")
        if (exchange.header(f"x-ms-range-get-content-{kind}") or "").lower() == "true"
    }
    if len(wanted) > 1:
        raise invalid_header("x-ms-range-get-content-crc64", "true")
    if wanted and length > _CHECKED_RANGE_MAX:
        facts: dict[str, str | int] = {"Input": "Range", "Maximum": _CHECKED_RANGE_MAX}
        raise Refused(Refusal("OutOfRangeInput", facts))
    return wanted


# Sources


def source_md5(exchange: Exchange) -> bytes | None:
    return digest(exchange, "x-ms-source-content-md5", MD5_BYTES, "InvalidMd5")


def source_crc64(exchange: Exchange) -> int | None:
    name = "x-ms-source-content-crc64"
    found = digest(exchange, name, CRC64_BYTES, "InvalidHeaderValue")
    return None if found is None else int.from_bytes(found, "little")


class ToldChecksums(NamedTuple):
    """What a request says of the bytes of its source."""

    md5: bytes | None
    crc: int | None

    def require(self, crc: int, md5: bytes | None) -> None:
        """The bytes must have these checksums, as far as the request says so."""
        if self.md5 is not None and md5 is not None and self.md5 != md5:
            facts: dict[str, str | int] = {
                "UserSpecifiedMd5": digest_text(self.md5).decode(),
                "ServerCalculatedMd5": digest_text(md5).decode(),
            }
            raise Refused(Refusal("Md5Mismatch", facts))
        if self.crc is not None and self.crc != crc:
            told, calculated = self.crc.to_bytes(8, "little"), crc.to_bytes(8, "little")
            raise Refused(structured_messages.crc_mismatch(told, calculated))


NOTHING_TOLD: Final = ToldChecksums(None, None)


def told_of_source(exchange: Exchange) -> ToldChecksums:
    told = ToldChecksums(source_md5(exchange), source_crc64(exchange))
    if told.md5 is not None and told.crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    return told


# Responses


def digest_text(digest: bytes) -> bytes:
    return base64.b64encode(digest)


def md5_header(md5: bytes) -> tuple[bytes, bytes]:
    return b"Content-MD5", digest_text(md5)


def crc64_header(crc: int) -> tuple[bytes, bytes]:
    return b"x-ms-content-crc64", digest_text(crc.to_bytes(8, "little"))


def checksum_headers(data: bytes, wanted: set[str]) -> Headers:
    """Checksums of exactly what is sent."""
    headers = []
    if "md5" in wanted:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        headers.append(md5_header(md5))
    if "crc64" in wanted:
        headers.append(crc64_header(crc64nvme(data)))
    return headers


def checksum_header(crc: int, sent_md5: bytes | None) -> tuple[bytes, bytes]:
    """Of what arrived and was found to be what was sent: the MD5 if the client sent one, otherwise
    the CRC64."""
    return crc64_header(crc) if sent_md5 is None else md5_header(sent_md5)


# Bytes


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
