"""Error bodies: literal bytes, and details only for callers who may see them."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import ERRORS, Refusal
from etagere.protocol.codecs import errors
from etagere.protocol.codecs.errors import ErrorContext

NOW = 1_704_448_800 * TICKS_PER_SECOND + 12
REQUEST_ID = "7f2c6a1e-001e-0001-0000-000000000000"
HIDDEN = ErrorContext(REQUEST_ID, NOW)
SHOWN = ErrorContext(REQUEST_ID, NOW, shows_details=True)
REFUSAL = Refusal(
    "InvalidHeaderValue", {"HeaderName": "x-ms-<a>", "HeaderValue": "é & \x00", "N": 1}
)

TAIL = b"RequestId:7f2c6a1e-001e-0001-0000-000000000000"


def test_xml() -> None:
    start = (
        b'<?xml version="1.0" encoding="utf-8"?>'
        b"<Error>"
        b"<Code>InvalidHeaderValue</Code>"
        b"<Message>The value for one of the HTTP headers is not in the correct format.\n"
        + TAIL
        + b"\nTime:2024-01-05T10:00:00.0000012Z</Message>"
    )
    assert errors.encode_xml(REFUSAL, HIDDEN) == start + b"</Error>"
    assert errors.encode_xml(REFUSAL, SHOWN) == (
        start + b"<HeaderName>x-ms-&lt;a&gt;</HeaderName>"
        b"<HeaderValue>\xc3\xa9 &amp; \xef\xbf\xbd</HeaderValue>"
        b"<N>1</N>"
        b"</Error>"
    )


def test_json() -> None:
    start = (
        b'{"error":{"code":"InvalidHeaderValue",'
        b'"message":"The value for one of the HTTP headers is not in the correct format.\\n'
        + TAIL
        + b'\\nTime:2024-01-05T10:00:00.0000012Z"'
    )
    assert errors.encode_json(REFUSAL, HIDDEN) == start + b"}}"
    assert errors.encode_json(REFUSAL, SHOWN) == (
        start + b',"detail":{"HeaderName":"x-ms-<a>","HeaderValue":"\xc3\xa9 & \\u0000","N":"1"}}}'
    )


def test_odata() -> None:
    refusal = Refusal("EntityAlreadyExists", {"Current": 'W/"1"'})
    message = ERRORS["EntityAlreadyExists"].message.encode()
    rest = message + b"\\n" + TAIL + b"\\nTime:2024-01-05T10:00:00.0000012Z"
    start = b'{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"'
    assert errors.encode_odata(refusal, HIDDEN) == start + rest + b'"}}}'
    in_batch = HIDDEN._replace(operation_index=1)
    assert errors.encode_odata(refusal, in_batch) == start + b"1:" + rest + b'"}}}'
    assert errors.encode_odata(refusal, SHOWN) == (
        start + rest + b'"}},"details":{"Current":"W/\\"1\\""}}'
    )


def test_every_service_has_an_error_format() -> None:
    assert set(errors.BY_SERVICE) == {"blob", "queue", "file", "table", "dfs"}
    for content_type, encode in errors.BY_SERVICE.values():
        body = encode(REFUSAL, HIDDEN)
        assert body.startswith(b"<?xml" if content_type == errors.XML_TYPE else b"{")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HeaderName", "HeaderName"),
        ("x-ms-lease-id", "x-ms-lease-id"),
        ("Lease State", "LeaseState"),
        ("a<b>&", "ab"),
        ("1st", "st"),
        ("-.9", "Detail"),
        ("", "Detail"),
        ("é", "Detail"),
        ("xmlXMLnode", "node"),
        ("1xml2Node", "Node"),
        ("Code", "DetailCode"),
        ("Message", "DetailMessage"),
    ],
)
def test_names_of_details(name: str, expected: str) -> None:
    assert errors.detail_name(name) == expected


FACTS = st.dictionaries(st.text(), st.text() | st.integers(), max_size=4)


@given(st.sampled_from(sorted(ERRORS)), FACTS, st.text())
def test_every_body_can_be_parsed(code: str, facts: dict[str, str | int], request_id: str) -> None:
    context = ErrorContext(request_id, NOW, shows_details=True)
    refusal = Refusal(code, facts)
    root = ElementTree.fromstring(errors.encode_xml(refusal, context))
    assert root.findtext("Code") == code
    assert (root.findtext("Message") or "").startswith(ERRORS[code].message)
    assert len(root) <= 2 + len(facts)
    assert msgspec.json.decode(errors.encode_json(refusal, context))["error"]["code"] == code
    odata = msgspec.json.decode(errors.encode_odata(refusal, context))
    assert odata["odata.error"]["code"] == code


def test_long_details_are_truncated() -> None:
    body = errors.encode_xml(Refusal("InvalidInput", {"Input": "<" * 100_000}), SHOWN)
    assert len(body) < 8 * 1024
