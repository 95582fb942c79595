"""Decoding requests to the queue service."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.queue import decode
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.codecs.test_xml import BILLION_LAUGHS
from tests.protocol.queue.exchanges import decoded, exchange

WEEK_SECONDS = 7 * 24 * 3600
OUT_OF_RANGE = "OutOfRangeQueryParameterValue"
NO_NUMBER = "InvalidQueryParameterValue"


def refusal_of(read: Callable[[Exchange], object], asked: Exchange) -> Refusal:
    with pytest.raises(Refused) as caught:
        read(asked)
    return caught.value.refusal


# Texts


def text_of(body: bytes) -> str | Refusal:
    return decoded(decode.message_text(exchange(body=body)))


def code_of(body: bytes) -> str:
    refusal = text_of(body)
    assert isinstance(refusal, Refusal), refusal
    return refusal.code


def wrapped(content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return b"<QueueMessage><MessageText>" + raw + b"</MessageText></QueueMessage>"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        ("", ""),
        (" \n\t ", " \n\t "),
        ("&lt;a&gt; &amp;amp; &quot;b&quot; &apos;c&apos;", "<a> &amp; \"b\" 'c'"),
        ("&#233;&#x1F984;&#13;&#10;", "é🦄\r\n"),
        # XML parsers normalise line endings to one character.
        ("a\r\nb\rc", "a\nb\nc"),
        ("<![CDATA[<a>&amp;]]>", "<a>&amp;"),
        ("a<![CDATA[]]>b<!-- c -->d<?what ever?>e", "abde"),
        ("a<b>c</b>d<e/>f", "adf"),
        ("été 書棚 🦄 \u2028", "été 書棚 🦄 \u2028"),
    ],
)
def test_texts(content: str, text: str) -> None:
    assert text_of(wrapped(content)) == text


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf<QueueMessage><MessageText>\xc3\xa9</MessageText></QueueMessage>",
        b'<?xml version="1.0" encoding="utf-8"?>' + wrapped("é"),
        ('<?xml version="1.0" encoding="utf-16"?>' + wrapped("é").decode()).encode("utf-16"),
        b"<?xml version='1.0'?>\n<QueueMessage>\n"
        b" <MessageText>&#xE9;</MessageText>\n</QueueMessage>",
        b"<QueueMessage><Other>1</Other><MessageText>\xc3\xa9</MessageText></QueueMessage>",
        b"<q:QueueMessage xmlns:q='http://schemas.example'><q:MessageText>\xc3\xa9"
        b"</q:MessageText></q:QueueMessage>",
    ],
)
def test_the_forms_of_one_message(body: bytes) -> None:
    assert text_of(body) == "é"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"text",
        b"<MessageText>text</MessageText>",
        b"<queuemessage><MessageText>text</MessageText></queuemessage>",
        b"<QueueMessage><MessageText>text</QueueMessage>",
        b"<QueueMessage><MessageText>text</MessageText>",
        wrapped("&nbsp;"),
        wrapped("&#0;"),
        wrapped("&#xD800;"),
        wrapped(b"\x00"),
        wrapped(b"\x1b"),
        wrapped(b"\xff"),
        wrapped(b"\xed\xa0\x80"),
        wrapped("<b>"),
        wrapped("a") * 2,
        b"<!DOCTYPE QueueMessage>" + wrapped("a"),
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + wrapped("&x;"),
        BILLION_LAUGHS.replace(b"<r>", b"<QueueMessage>").replace(b"</r>", b"</QueueMessage>"),
        wrapped("<a>" * 20 + "</a>" * 20),
        wrapped("<a/>" * 1_000),
    ],
)
def test_malformed_messages(body: bytes) -> None:
    assert code_of(body) == "InvalidXmlDocument"


@pytest.mark.parametrize(
    "content", ["", "text", "<messagetext>a</messagetext>", "<A><MessageText>a</MessageText></A>"]
)
def test_a_message_without_a_text(content: str) -> None:
    assert text_of(f"<QueueMessage>{content}</QueueMessage>".encode()) == Refusal(
        "MissingRequiredXmlNode", {"XmlNodeName": "MessageText"}
    )


def referred_to(character: str) -> str:
    return f"&#x{ord(character):X};"


@pytest.mark.parametrize(
    ("character", "bytes_each"), [("a", 1), ("&", 1), ("é", 2), ("書", 3), ("🦄", 4)]
)
@pytest.mark.parametrize("spelled", [escape, referred_to])
def test_64_kib_and_one_byte_more(
    character: str, bytes_each: int, spelled: Callable[[str], str]
) -> None:
    """The limit applies to the text itself, in UTF-8, however it is encoded."""
    written = spelled(character)
    count, rest = divmod(65_536, bytes_each)
    assert text_of(wrapped(written * count + "." * rest)) == character * count + "." * rest
    assert code_of(wrapped(written * count + "." * (rest + 1))) == "RequestBodyTooLarge"


def test_a_body_that_is_too_large_is_not_read() -> None:
    too_long = exchange(body=b"<" * (decode.BODY_BYTES_MAX + 1))
    refusal = decoded(decode.message_text(too_long))
    assert refusal == Refusal("RequestBodyTooLarge", {"MaxLimit": 65_536})


def test_an_optional_text_may_be_absent_but_not_malformed() -> None:
    def optional(body: bytes) -> str | Refusal | None:
        return decoded(decode.optional_text(exchange(body=body)))

    assert optional(b"") is None
    assert optional(wrapped("")) == ""
    assert optional(wrapped("new")) == "new"
    for body in (b" ", b"<QueueMessage/>"):
        assert isinstance(optional(body), Refusal)


@given(st.binary(max_size=100))
def test_arbitrary_bytes(body: bytes) -> None:
    refusal = text_of(body)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidXmlDocument"


# Parameters


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 1), ("numofmessages=", 1), ("numofmessages=1", 1), ("NumOfMessages=32", 32)],
)
def test_number_of_messages(query: str, count: int) -> None:
    assert decode.count(exchange(query)) == count


@pytest.mark.parametrize("written", ["0", "33", "-1", "999999999999999999", "9" * 1_000])
def test_invalid_numbers_of_messages(written: str) -> None:
    refusal = refusal_of(decode.count, exchange(f"numofmessages={written}"))
    assert refusal == Refusal(
        OUT_OF_RANGE,
        {
            "QueryParameterName": "numofmessages",
            "QueryParameterValue": int(written),
            "MinimumAllowed": 1,
            "MaximumAllowed": 32,
        },
    )


@pytest.mark.parametrize(
    "written",
    ["one", "1.0", "1e1", "0x1", "%2B1", "--1", "-", "%D9%A3", "1" * 1_001, "1,1", "%00"],
)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("numofmessages", decode.count),
        ("visibilitytimeout", decode.get_timeout_seconds),
        ("visibilitytimeout", decode.update_timeout_seconds),
        ("visibilitytimeout", decode.new_message_times),
        ("messagettl", decode.new_message_times),
    ],
)
def test_invalid_numbers(name: str, read: Callable[[Exchange], object], written: str) -> None:
    assert refusal_of(read, exchange(f"{name}={written}")).code == NO_NUMBER


@pytest.mark.parametrize(
    ("written", "seconds"), [("", 30), ("1", 1), (str(WEEK_SECONDS), WEEK_SECONDS)]
)
def test_visibility_timeout_of_get(written: str, seconds: int) -> None:
    assert decode.get_timeout_seconds(exchange(f"visibilitytimeout={written}")) == seconds


@pytest.mark.parametrize("written", ["0", "-1", str(WEEK_SECONDS + 1)])
def test_invalid_visibility_timeouts_of_get(written: str) -> None:
    asked = exchange(f"visibilitytimeout={written}")
    assert refusal_of(decode.get_timeout_seconds, asked).code == OUT_OF_RANGE


def test_visibility_timeout_of_update() -> None:
    """It is required and may be zero."""
    refusal = refusal_of(decode.update_timeout_seconds, exchange())
    assert refusal == Refusal(
        "MissingRequiredQueryParameter", {"QueryParameterName": "visibilitytimeout"}
    )
    for seconds in (0, 1, WEEK_SECONDS):
        assert decode.update_timeout_seconds(exchange(f"visibilitytimeout={seconds}")) == seconds
    for seconds in (-1, WEEK_SECONDS + 1):
        asked = exchange(f"visibilitytimeout={seconds}")
        assert refusal_of(decode.update_timeout_seconds, asked).code == OUT_OF_RANGE


@pytest.mark.parametrize(
    ("query", "times"),
    [
        ("", (0, WEEK_SECONDS)),
        ("messagettl=-1", (0, None)),
        (f"messagettl=-1&visibilitytimeout={WEEK_SECONDS}", (WEEK_SECONDS, None)),
        ("messagettl=2&visibilitytimeout=1", (1, 2)),
        ("messagettl=2147483647", (0, 2**31 - 1)),
        (f"messagettl={2**63}", (0, 2**31 - 1)),
        (f"messagettl={10**999}", (0, 2**31 - 1)),
    ],
)
def test_times_of_a_new_message(query: str, times: tuple[int, int | None]) -> None:
    assert decode.new_message_times(exchange(query)) == times


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("messagettl=0", "2021-12-02"),
        ("messagettl=-2", "2021-12-02"),
        ("messagettl=-1", "2017-04-17"),
        ("messagettl=604801", "2017-04-17"),
        ("messagettl=1&visibilitytimeout=1", "2021-12-02"),
        ("visibilitytimeout=604800", "2021-12-02"),
        ("visibilitytimeout=-1", "2021-12-02"),
    ],
)
def test_invalid_times_of_a_new_message(query: str, version: str) -> None:
    assert (
        refusal_of(decode.new_message_times, exchange(query, version=version)).code == OUT_OF_RANGE
    )


# Names, ids, receipts


@pytest.mark.parametrize(
    "below", ["/messages/nonsense", "/messages/", "/messages/%FF", "/messages"]
)
def test_an_invalid_id_is_not_found(below: str) -> None:
    assert refusal_of(decode.message_id, exchange(below=below)).code == "MessageNotFound"


def test_ids_and_receipts() -> None:
    drawn = uuid.uuid4()
    assert decode.message_id(exchange(below=f"/messages/{drawn}")) == drawn.bytes
    for number in (0, 1, 2**63, 2**64 - 1):
        written = base64.b64encode(number.to_bytes(8, "big")).decode()
        quoted = written.replace("+", "%2B").replace("/", "%2F")
        assert decode.receipt(exchange(f"popreceipt={quoted}")) == number


def test_a_receipt_is_required() -> None:
    assert refusal_of(decode.receipt, exchange()) == Refusal(
        "MissingRequiredQueryParameter", {"QueryParameterName": "popreceipt"}
    )


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "x",
            "AAAA",
            "AAAAAAAAAAA",
            "AAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAA",
            "AAAAAAAA_-A=",
            "=====",
        ),
        *("%FF", "%C3%A9", "%00", "AAAAAAAAAAA=&popreceipt=AAAAAAAAAAA=", "A" * 5_000),
    ],
)
def test_invalid_receipts(written: str) -> None:
    asked = exchange(f"popreceipt={written}")
    assert refusal_of(decode.receipt, asked).code == "InvalidQueryParameterValue"
