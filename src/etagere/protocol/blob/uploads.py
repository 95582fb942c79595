"""The bodies of uploads: how long they may be, and whether what arrived is what was sent."""

from __future__ import annotations

import hashlib
from typing import Final

from awscrt.checksums import crc64nvme

from etagere.bodies.files import FileBodyWriter
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.protocol.answers import Headers
from etagere.protocol.blob import decode, encode
from etagere.protocol.exchange import Exchange

_MIB = 1 << 20

NO_BODY: Final = Body(b"", 0, 0)
"""In a command whose body is still to come."""
FORESEEN_BYTES_MIN: Final = 256 << 10
"""What is longer is not received before it is known that it would be taken now."""

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


def announced_length(exchange: Exchange, limits: Limits) -> int:
    """The length of a body, which has to be said before it is sent."""
    length = exchange.http.body.length
    if length is None:
        raise Refused(Refusal("MissingContentLengthHeader"))
    bytes_max = next(most for since, most in limits if exchange.version >= since)
    if length > bytes_max:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": bytes_max}))
    return length


async def receive(exchange: Exchange, writer: FileBodyWriter) -> Body:
    async for chunk in exchange.http.body:
        await writer.append(chunk)
    return await writer.seal()


def checked_document(exchange: Exchange, document: bytes) -> Headers:
    """The checksums of a request that is a document, which are compared with those it was sent
    with, to be answered with."""
    sent_md5 = decode.sent_md5(exchange)
    body = Body(b"", len(document), crc64nvme(document))
    md5 = hashlib.md5(document, usedforsecurity=False).digest() if sent_md5 else None
    require_intact(exchange, body, md5)
    checksums = [encode.crc64_header(body.crc)]
    if md5 is not None:
        checksums.append((b"Content-MD5", encode.digest_text(md5)))
    return checksums


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
        raise Refused(Refusal("Crc64Mismatch"))
