"""Checksums of bodies in requests and responses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere.bodies.plans import Plan, SegmentRange
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.protocol.codecs import structured_messages
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header
from etagere.protocol.rest.responses import Headers
from etagere.protocol.time_slices import TimeSlice

MD5_BYTES = 16
CRC64_BYTES = 8
_CHECKED_RANGE_MAX = 4 << 20
_CRC64_BESIDES_MD5_SINCE: Final = "2026-10-06"
_MD5_OF_LISTS_SINCE: Final = "2019-07-07"
"""The first version in which the response to a block list repeats the MD5 of the request."""
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


def announces_checksum(exchange: Exchange) -> bool:
    """Returns whether a request has a checksum of its body."""
    return any(exchange.header(name) is not None for name in _CHECKSUMS)


def require_intact(
    exchange: Exchange, body: Body, md5: bytes | None, blob_md5: bytes | None = None
) -> None:
    """Refuses a body that does not have the announced checksums.

    `blob_md5` is the MD5 that the request sets as a property of a blob which is put whole. It
    takes precedence over that of the body.
    """
    sent_md5, sent_crc = announced_md5(exchange), announced_crc64(exchange)
    if sent_md5 is not None and sent_crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    expected_md5 = blob_md5 or sent_md5
    if expected_md5 is not None and md5 is not None and expected_md5 != md5:
        facts: dict[str, str | int] = {
            "UserSpecifiedMd5": digest_text(expected_md5).decode(),
            "ServerCalculatedMd5": digest_text(md5).decode(),
        }
        raise Refused(Refusal("Md5Mismatch", facts))
    if sent_crc is not None and sent_crc != body.crc:
        sent, calculated = sent_crc.to_bytes(8, "little"), body.crc.to_bytes(8, "little")
        raise Refused(structured_messages.crc_mismatch(sent, calculated))


def checked_document(exchange: Exchange, document: bytes) -> tuple[bytes, bytes]:
    """Compares a document with its announced checksums; returns the header that confirms it."""
    sent_md5 = announced_md5(exchange)
    body = Body(b"", len(document), crc64nvme(document))
    md5 = hashlib.md5(document, usedforsecurity=False).digest() if sent_md5 else None
    require_intact(exchange, body, md5)
    return checksum_header(body.crc, md5 if exchange.version >= _MD5_OF_LISTS_SINCE else None)


def refuse_range_checksums(exchange: Exchange) -> None:
    """Refuses the request for checksums of a range where no range is read."""
    for kind in ("md5", "crc64"):
        name = f"x-ms-range-get-content-{kind}"
        if (exchange.header(name) or "").lower() == "true":
            raise invalid_header(name, "true")


def wanted_checksums(exchange: Exchange, length: int) -> set[str]:
    """Returns the checksums of a range that a request asks for: at most one, and only of a short
    range."""
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


class SourceChecksums(NamedTuple):
    """The checksums that a request announces for the bytes of its source."""

    md5: bytes | None
    crc: int | None
    if_match: int | None = None
    """The CRC64 that is a condition of the request,"""
    if_none_match: int | None = None
    """and the one that must not be that of the bytes."""

    def require(self, crc: int, md5: bytes | None) -> None:
        """Refuses bytes that do not have the announced checksums, or do not meet the conditions."""
        if self.md5 is not None and md5 is not None and self.md5 != md5:
            facts: dict[str, str | int] = {
                "UserSpecifiedMd5": digest_text(self.md5).decode(),
                "ServerCalculatedMd5": digest_text(md5).decode(),
            }
            raise Refused(Refusal("Md5Mismatch", facts))
        if self.crc is not None and self.crc != crc:
            sent, calculated = self.crc.to_bytes(8, "little"), crc.to_bytes(8, "little")
            raise Refused(structured_messages.crc_mismatch(sent, calculated))
        if self.if_match not in (None, crc) or self.if_none_match == crc:
            raise Refused(Refusal("SourceConditionNotMet"))


NO_CHECKSUMS: Final = SourceChecksums(None, None)


def source_checksums(exchange: Exchange) -> SourceChecksums:
    announced = SourceChecksums(source_md5(exchange), source_crc64(exchange))
    if announced.md5 is not None and announced.crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    return announced


# Responses


def digest_text(digest: bytes) -> bytes:
    return base64.b64encode(digest)


def md5_header(md5: bytes) -> tuple[bytes, bytes]:
    return b"Content-MD5", digest_text(md5)


def crc64_header(crc: int) -> tuple[bytes, bytes]:
    return b"x-ms-content-crc64", digest_text(crc.to_bytes(8, "little"))


def checksum_headers(data: bytes, wanted: set[str]) -> Headers:
    """Returns the headers with the checksums of a response body."""
    headers = []
    if "md5" in wanted:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        headers.append(md5_header(md5))
    if "crc64" in wanted:
        headers.append(crc64_header(crc64nvme(data)))
    return headers


def checksum_header(crc: int, sent_md5: bytes | None) -> tuple[bytes, bytes]:
    """Returns the header that confirms what was received: the MD5 if the client sent one, otherwise
    the CRC64."""
    return crc64_header(crc) if sent_md5 is None else md5_header(sent_md5)


def upload_checksum_headers(exchange: Exchange, crc: int, sent_md5: bytes | None) -> Headers:
    """Returns the headers that confirm an upload. Newer versions return the CRC64 besides an MD5
    that the client sent."""
    if sent_md5 is not None and exchange.version >= _CRC64_BESIDES_MD5_SINCE:
        return [md5_header(sent_md5), crc64_header(crc)]
    return [checksum_header(crc, sent_md5)]


# Bytes


async def checksums_of(chunks: AsyncIterator[bytes]) -> tuple[int, bytes]:
    """Returns CRC64 and MD5. The MD5 is computed in a thread, so that other requests are served
    meanwhile."""
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


async def known_crc(plan: Plan) -> int | None:
    """Returns the CRC64 of the bytes of a plan, or None if they would have to be read for it. There
    may be very many ranges."""
    if isinstance(plan, bytes):
        plan = (plan,)
    time_slice, crc = TimeSlice(), 0
    for part in plan:
        if isinstance(part, bytes):
            crc = crc64nvme(part, crc)
            continue
        if not isinstance(part, SegmentRange) or part.crc is None:
            return None
        crc = combine_crc64nvme(crc, part.crc, part.length)
        await time_slice.yield_if_over()
    return crc
