"""Mutations of bodies with a format of their own: batches and structured messages."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Final

from awscrt.checksums import crc64nvme

from tests.probes.blob.batches import BOUNDARY, CONTENT_TYPE
from tests.probes.blob.operations import PAGE
from tests.probes.client import Request

NUMBERS: Final = (
    "0", "1", "-1", "+1", " 1", "511", "512", "513", "1024", "4294967296", "1099511627776",
    "9223372036854775807", "9223372036854775808", "8796093022208", "8796093022720", "1" * 5_000,
    "1.0", "1e3", "0x200", "٣", "", "00000000000000000000512", "a", "512,512",
)  # fmt: skip
REPLACEMENTS: Final = (
    (b"HTTP/1.1", b"HTTP/9.9", b"", b"HTTP/1.1 x"),
    (b"Content-ID: 0", b"Content-ID: ", b"Content-ID: -1", b"Content-ID: \xff", b"a" * 9_000),
    (b"application/http", b"text/plain", b"multipart/mixed; boundary=b", b""),
    (b"binary", b"base64", b"8bit", b""),
    (b"x-ms-version: ", b"x-ms-version: \x00", b"Host: ", b"x-injected\n: "),
    (b"/devstoreaccount1/", b"/", b"//", b"http://a/", b"/%FF/", b"/second/"),
)
"""Bytes of a batch, each followed by replacements."""
MESSAGE_KIND: Final = "XSM/1.0; properties=crc64"


def multipart(chance: random.Random, request: Request) -> Request:
    """A batch with malformed parts."""
    body = request.body or f"--{BOUNDARY}--".encode()
    at = chance.randrange(len(body))
    end = f"--{BOUNDARY}--".encode()
    part = body.partition(end)[0]
    old, *others = chance.choice(REPLACEMENTS)
    line = chance.choice(
        (b"GET /", b"DELETE", b"DELETE  HTTP/1.1", b"\x00", b"POST /?comp=batch H")
    )
    bodies = (
        body[:at],
        body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :],
        body[:at] + b"\r\n" + body[at:],
        body.replace(b"\r\n", b"\n"),
        body.replace(b"\r\n\r\n", b"\r\n"),
        body.replace(end, b""),
        body.replace(b"Content-ID: 0", b"Content-ID: 0\r\nContent-ID: 0"),
        body.replace(old, chance.choice(others)),
        body.replace(b"DELETE", line).replace(b"PUT", line),
        part * chance.choice((2, 256, 257)) + end,
        end,
        b"a" * (1 << 20),
        f"--{BOUNDARY}\r\n".encode() * 5_000,
        chance.randbytes(2_000),
    )  # fmt: skip
    request = replace(request, body=chance.choice(bodies)).lacking("Content-Length")
    types = (
        CONTENT_TYPE, CONTENT_TYPE, CONTENT_TYPE, "multipart/mixed", "multipart/mixed; boundary=",
        'multipart/mixed; boundary="' + BOUNDARY + '"', "text/plain", "", "a" * 9_000,
        "multipart/mixed; boundary=" + "b" * 71, "multipart/mixed; boundary=\udcff",
        f"{CONTENT_TYPE}; boundary=b", "multipart/mixed; boundary=--",
    )  # fmt: skip
    return request.setting("Content-Type", chance.choice(types))


def _message(chance: random.Random, content: bytes) -> bytes:
    """Encodes a structured message of one or several segments."""
    size = max(chance.choice((1, 7, PAGE, len(content))), len(content) // 1_000, 1)
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    written = b"".join(
        struct.pack("<HQ", number, len(part)) + part + struct.pack("<Q", crc64nvme(part))
        for number, part in enumerate(parts, 1)
    )
    trailer = struct.pack("<Q", crc64nvme(content))
    length = 13 + len(written) + len(trailer)
    return struct.pack("<BQHH", 1, length, 1, len(parts)) + written + trailer


def structured(chance: random.Random, request: Request) -> Request:
    """A structured message, intact or with something wrong."""
    length = len(request.body)
    message = _message(chance, request.body)
    at = chance.randrange(len(message))
    if chance.random() < 0.3:
        # The announced length is right, so that the message is read to its end.
        mutated = message[:at] + bytes([chance.randrange(256)]) + message[at + 1 :]
        request = replace(request, body=chance.choice((message, mutated))).lacking("Content-Length")
        request = request.setting("x-ms-structured-body", MESSAGE_KIND)
        return request.setting("x-ms-structured-content-length", str(length))
    messages = (
        message,
        message[:at],
        message[:at] + bytes([chance.randrange(256)]) + message[at + 1 :],
        message[:1] + b"\xff" * 8 + message[9:],
        message[:9] + chance.randbytes(4) + message[13:],
        message + b"a",
        chance.randbytes(len(message)),
        b"",
    )
    request = replace(request, body=chance.choice(messages)).lacking("Content-Length")
    kinds = (*[MESSAGE_KIND] * 6, "XSM/1.0", "XSM/2.0; properties=crc64", "", "\udcff", "a" * 9_000)
    request = request.setting("x-ms-structured-body", chance.choice(kinds))
    lengths = (*[str(length)] * 4, str(length + 1), *NUMBERS)
    return request.setting("x-ms-structured-content-length", chance.choice(lengths))
