"""Bodies of uploads: their length, and how they are received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

import pytest

from etagere.bodies.store import IncomingBody
from etagere.engine.interface import Refused
from etagere.model.bodies import Body
from etagere.protocol.codecs import structured_messages
from etagere.protocol.rest import uploads
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.blob.exchanges import exchange, refusal_code

LIMITS = (("2020-01-01", 10), ("", 5))
STRUCTURED = {"x-ms-structured-body": structured_messages.KIND}


class RecordingWriter:
    """A body writer that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.appends = 0

    async def __aenter__(self) -> RecordingWriter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def md5(self) -> bytes:
        return b""

    async def append(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data
        self.appends += 1

    async def append_body(self, body: IncomingBody) -> None:
        async for chunk in body:
            await self.append(chunk)

    async def seal(self) -> Body:
        return Body(b"id", len(self.data), 0, self.data)


def structured(content: bytes, segment_bytes: int = 4) -> bytes:
    """Returns a structured message with segments of this length."""
    encoder = structured_messages.Encoder(len(content), segment_bytes)
    return b"".join([encoder.start(), *encoder.feed(content), encoder.end()])


# Length


@pytest.mark.parametrize(("version", "length_max"), [("2021-12-02", 10), ("2019-12-12", 5)])
def test_the_version_decides_how_long_a_body_may_be(version: str, length_max: int) -> None:
    fits = exchange(body=b"x" * length_max, version=version)
    assert uploads.announced_length(fits, LIMITS) == length_max
    assert uploads.bytes_max(fits, LIMITS) == length_max
    longer = exchange(body=b"x" * (length_max + 1), version=version)
    code = refusal_code(lambda asked: uploads.announced_length(asked, LIMITS), longer)
    assert code == "RequestBodyTooLarge"


def test_the_length_has_to_be_announced() -> None:
    unknown = exchange(body=None)
    code = "MissingContentLengthHeader"
    assert refusal_code(lambda asked: uploads.announced_length(asked, LIMITS), unknown) == code
    assert refusal_code(uploads.require_no_body, unknown) == code


def test_requests_with_a_source_have_no_body() -> None:
    uploads.require_no_body(exchange())
    assert refusal_code(uploads.require_no_body, exchange(body=b"x")) == "InvalidHeaderValue"


# Structured messages


def test_the_length_of_a_structured_message_is_that_of_its_content() -> None:
    message = structured(b"0123456789")
    headers = STRUCTURED | {"x-ms-structured-content-length": "10"}
    assert uploads.announced_length(exchange(headers, body=message), LIMITS) == 10
    assert len(message) > 10


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-ms-structured-body": "XSM/2.0"}, "InvalidHeaderValue"),
        (STRUCTURED, "MissingRequiredHeader"),
        (STRUCTURED | {"x-ms-structured-content-length": "x"}, "InvalidHeaderValue"),
        (STRUCTURED | {"x-ms-structured-content-length": "11"}, "InvalidHeaderValue"),
        ({"x-ms-structured-content-length": "10"}, "MissingRequiredHeader"),
    ],
)
def test_refused_structured_messages(headers: dict[str, str], code: str) -> None:
    asked = exchange(headers, body=structured(b"0123456789"))
    assert refusal_code(lambda it: uploads.announced_length(it, LIMITS), asked) == code


def test_a_structured_message_is_confirmed() -> None:
    assert uploads.structured_headers(exchange()) == []
    asked = exchange({"x-ms-structured-body": "xsm/1.0;properties=CRC64"})
    confirmation = (b"x-ms-structured-body", structured_messages.KIND.encode())
    assert uploads.structured_headers(asked) == [confirmation]
    length = (b"x-ms-structured-content-length", b"7")
    assert uploads.structured_response_headers(7) == [confirmation, length]


# Receiving


def received(asked: Exchange) -> bytes:
    writer = RecordingWriter()
    body = asyncio.run(uploads.receive(asked, writer))
    assert body.length == len(writer.data)
    return body.data


def test_receive() -> None:
    assert received(exchange(body=b"content")) == b"content"


@pytest.mark.parametrize("content", [b"", b"0", b"0123456789"])
def test_only_the_content_of_a_structured_message_is_stored(content: bytes) -> None:
    headers = STRUCTURED | {"x-ms-structured-content-length": str(len(content))}
    assert received(exchange(headers, body=structured(content))) == content


def test_a_damaged_structured_message_is_refused() -> None:
    message = bytearray(structured(b"0123456789"))
    message[message.index(b"0123")] ^= 1
    headers = STRUCTURED | {"x-ms-structured-content-length": "10"}
    with pytest.raises(Refused):
        received(exchange(headers, body=bytes(message)))


def test_receive_source() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"con"
        yield b"tent"

    writer = RecordingWriter()
    body = asyncio.run(uploads.receive_source(chunks(), writer))
    assert (body.data, writer.appends) == (b"content", 2)
