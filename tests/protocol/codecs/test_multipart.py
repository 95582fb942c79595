"""Batches: literal bytes in both directions, refusals, and bounded parsing time."""

from __future__ import annotations

import email
import email.policy
import time
from collections.abc import Callable

import pytest
from azure.core.pipeline.transport import HttpRequest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.protocol.codecs import multipart
from etagere.protocol.codecs.multipart import (
    OPERATIONS_MAX,
    Batch,
    ChangeSet,
    PartRequest,
    PartResponse,
    SingleQuery,
    format_changeset,
    format_part,
    format_query,
    format_responses,
    parse_batch,
)

CONTENT_TYPE = "multipart/mixed; boundary=batch_1"

CHANGES = b"""\
--batch_1
Content-Type: multipart/mixed; boundary=changeset_1

--changeset_1
Content-Type: application/http
Content-Transfer-Encoding: binary
Content-ID: 0

POST http://127.0.0.1:10002/devstoreaccount1/People HTTP/1.1
Content-Type: application/json;odata=nometadata
Accept: application/json;odata=minimalmetadata
Prefer: return-no-content
DataServiceVersion: 3.0

{"PartitionKey":"p","RowKey":"r1","S":"x"}
--changeset_1
Content-Type: application/http
Content-Transfer-Encoding: binary
Content-ID: 1

DELETE http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r2') HTTP/1.1
If-Match: *
Accept: application/json;odata=minimalmetadata

--changeset_1--
--batch_1--
"""
REQUESTS = [
    PartRequest(
        "POST",
        "http://127.0.0.1:10002/devstoreaccount1/People",
        {
            "content-type": "application/json;odata=nometadata",
            "accept": "application/json;odata=minimalmetadata",
            "prefer": "return-no-content",
            "dataserviceversion": "3.0",
        },
        b'{"PartitionKey":"p","RowKey":"r1","S":"x"}',
        "0",
    ),
    PartRequest(
        "DELETE",
        "http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r2')",
        {"if-match": "*", "accept": "application/json;odata=minimalmetadata"},
        b"",
        "1",
    ),
]
QUERY = b"""\
--batch_1
Content-Type: application/http
Content-Transfer-Encoding: binary

GET /devstoreaccount1/People(PartitionKey='p',RowKey='r') HTTP/1.1
Accept: application/json;odata=nometadata

--batch_1--
"""


def crlf(body: bytes) -> bytes:
    return body.replace(b"\n", b"\r\n")


def parsed(body: bytes, content_type: str = CONTENT_TYPE) -> Batch:
    batch = parse_batch(content_type, body)
    assert isinstance(batch, ChangeSet | SingleQuery), batch
    return batch


def refused(body: bytes, content_type: str = CONTENT_TYPE) -> None:
    refusal = parse_batch(content_type, body)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.code == "InvalidInput"


def change_set(*requests: bytes) -> bytes:
    parts = b"".join(
        b"--c\r\nContent-Type: application/http\r\n\r\n%b\r\n" % request for request in requests
    )
    return outer(b"Content-Type: multipart/mixed; boundary=c\r\n\r\n%b--c--" % parts)


def outer(*parts: bytes) -> bytes:
    return b"".join(b"--batch_1\r\n%b\r\n" % part for part in parts) + b"--batch_1--\r\n"


def single(request: bytes) -> PartRequest:
    batch = parsed(change_set(request))
    assert isinstance(batch, ChangeSet)
    (only,) = batch.requests
    return only


# Reading


@pytest.mark.parametrize("body", [CHANGES, crlf(CHANGES)])
def test_golden_change_set(body: bytes) -> None:
    assert parsed(body) == ChangeSet(REQUESTS)


def test_batches_of_the_sdk() -> None:
    address = "http://127.0.0.1:10002/devstoreaccount1"
    headers = {"Accept": "application/json"}
    insert = HttpRequest("POST", f"{address}/People", headers)
    insert.set_bytes_body(b'{"PartitionKey":"p"}')
    delete = HttpRequest("DELETE", f"{address}/People('r%20')", {"If-Match": "*"})
    changes = HttpRequest("", "")
    changes.set_multipart_mixed(insert, delete)
    batch = HttpRequest("POST", f"{address}/$batch")
    batch.set_multipart_mixed(changes)
    batch.prepare_multipart_body()
    assert isinstance(batch.body, bytes)
    assert parsed(batch.body, batch.headers["Content-Type"]) == ChangeSet(
        [
            PartRequest(
                "POST",
                f"{address}/People",
                {"accept": "application/json", "content-length": "20"},
                b'{"PartitionKey":"p"}',
                "0",
            ),
            PartRequest("DELETE", f"{address}/People('r%20')", {"if-match": "*"}, b"", "1"),
        ]
    )


@pytest.mark.parametrize("body", [QUERY, crlf(QUERY)])
def test_golden_query(body: bytes) -> None:
    assert parsed(body) == SingleQuery(
        PartRequest(
            "GET",
            "/devstoreaccount1/People(PartitionKey='p',RowKey='r')",
            {"accept": "application/json;odata=nometadata"},
            b"",
            "",
        )
    )


@pytest.mark.parametrize("body", [CHANGES, crlf(CHANGES)])
def test_preamble_and_epilogue_are_ignored(body: bytes) -> None:
    assert parsed(b"preamble\n--batch_11\n" + body + b"epilogue\n--batch_1\nmore") == parsed(body)
    assert parsed(body.rstrip()) == parsed(body)
    assert parsed(body.replace(b"--batch_1--", b"--batch_1-- \t")) == parsed(body)


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/mixed; boundary="batch_1"',
        "Multipart/Mixed;BOUNDARY=batch_1",
        "multipart/mixed; charset=utf-8; boundary=batch_1; other=x",
        'multipart/mixed; other="; boundary=x"; boundary = "batch_1"',
    ],
)
def test_content_types(content_type: str) -> None:
    assert parsed(CHANGES, content_type) == ChangeSet(REQUESTS)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "multipart/mixed",
        "multipart/mixed; boundary=",
        'multipart/mixed; boundary=""',
        'multipart/mixed; boundary="batch_1',
        "multipart/mixed; boundary=batch_2",
        "multipart/mixed; boundary=batch_1; boundary=batch_1",
        "multipart/form-data; boundary=batch_1",
        "application/json; boundary=batch_1",
        "multipart/mixed; boundary=" + "b" * 71,
        "multipart/mixed; boundary=" + "b" * 2_000,
        'multipart/mixed; boundary="batch_1\n"',
        "multipart/mixed; boundary=bätch",
        "multipart/mixed" + "; a=b" * 400 + "; boundary=batch_1",
    ],
)
def test_refused_content_types(content_type: str) -> None:
    refused(CHANGES, content_type)


def test_boundaries_are_not_regular_expressions() -> None:
    strange = "b(a)+.=_?'x y"
    body = CHANGES.replace(b"batch_1", strange.encode())
    assert parsed(body, f'multipart/mixed; boundary="{strange}"') == ChangeSet(REQUESTS)
    longest = "b" * 70
    body = CHANGES.replace(b"batch_1", longest.encode())
    assert parsed(body, f"multipart/mixed; boundary={longest}") == ChangeSet(REQUESTS)


def test_one_boundary_may_be_a_prefix_of_the_other() -> None:
    body = change_set(*[b"POST /a HTTP/1.1\r\n\r\n{}"] * OPERATIONS_MAX)
    for inner in (b"batch_12", b"batch"):
        renamed = body.replace(b"boundary=c", b"boundary=" + inner).replace(b"--c", b"--" + inner)
        assert parsed(renamed) == parsed(body)


@pytest.mark.parametrize(
    ("line", "method", "target"),
    [
        (b"POST /a/People HTTP/1.1", "POST", "/a/People"),
        (b"PUT /a/People HTTP/1.0", "PUT", "/a/People"),
        (b"PATCH /a/People", "PATCH", "/a/People"),
        (b"MERGE  http://h:1/a?b=c%20d  HTTP/1.1 ", "MERGE", "http://h:1/a?b=c%20d"),
        (
            b"DELETE People(PartitionKey='',RowKey='')",
            "DELETE",
            "People(PartitionKey='',RowKey='')",
        ),
        ("DELETE /Café HTTP/1.1".encode(), "DELETE", "/Café"),
        (b"\r\n\nPOST /a HTTP/1.1", "POST", "/a"),
    ],
)
def test_request_lines(line: bytes, method: str, target: str) -> None:
    for body in (line, line + b"\r\n", line + b"\r\n\r\n", line + b"\n\n"):
        assert single(body) == PartRequest(method, target, {}, b"", "")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\r\n",
        b"POST",
        b"POST ",
        b" POST /a HTTP/1.1",
        b"post /a HTTP/1.1",
        b"POST /a b HTTP/1.1",
        b"POST /a HTTP/2",
        b"POST /a\x00 HTTP/1.1",
        b"POST /\xff HTTP/1.1",
        b"BREW /a HTTP/1.1",
        b"HTTP/1.1 204 No Content",
        b"POST /a HTTP/1.1\r\nno header",
        b"POST /a HTTP/1.1\r\n: no name",
        b"POST /a HTTP/1.1\r\nspace : x",
        b"POST /a HTTP/1.1\r\na: b\r\n folded",
        b"POST /a HTTP/1.1\r\na: b\rc",
        b"POST /a HTTP/1.1\r\na: \x00",
        b"POST /a HTTP/1.1\r\na: \xff",
        b"POST /a HTTP/1.1\r\na: " + b"x" * 65_536,
        b"POST /a HTTP/1.1" + b"\r\na: x" * 101,
        b"GET /a HTTP/1.1",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_refused_requests(request_bytes: bytes) -> None:
    refused(change_set(request_bytes))
    refused(change_set(b"POST /a HTTP/1.1", request_bytes))


def test_headers() -> None:
    request = single(
        b'POST /a HTTP/1.1\r\nIF-Match:  W/"x" \t\r\nA:\r\nb: 1:2\r\nB: 3\r\nc: \xc3\xa9\r\n\r\n'
    )
    assert request.headers == {"if-match": 'W/"x"', "a": "", "b": "1:2, 3", "c": "é"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\r\n", b"{}\r\n", b"a\r\n\r\nb", b"a\n--c-\n--cc\n --c\nb", b"\x00\xff\r\n\r\n"],
)
def test_bodies_are_kept(body: bytes) -> None:
    assert single(b"POST /a HTTP/1.1\r\nContent-Length: 7\r\n\r\n" + body).body == body


def test_content_id_in_the_nested_headers() -> None:
    assert single(b"POST /a HTTP/1.1\r\nContent-ID: 7").content_id == "7"


def part(head: bytes, content: bytes = b"GET /a HTTP/1.1\r\n\r\n") -> bytes:
    return outer(head + b"\r\n\r\n" + content)


@pytest.mark.parametrize(
    ("body", "good"),
    [
        (part(b"Content-Type: application/http"), True),
        (part(b"content-type:Application/HTTP; msgtype=request"), True),
        (part(b"Content-Type: application/http\r\nContent-Transfer-Encoding: Binary"), True),
        (part(b"Content-Type: application/http\r\nContent-Transfer-Encoding: base64"), False),
        (part(b"Content-Type: application/json"), False),
        (part(b"Content-Type: application/http", b"POST /a HTTP/1.1\r\n\r\n{}"), False),
        (part(b"Content-Type: application/http", b""), False),
        (part(b"Content-ID: 1"), False),
        (part(b"Content-Type: multipart/mixed", b"--c--"), False),
        (part(b"Content-Type: multipart/mixed; boundary=c", b"--c--"), False),
        (part(b"Content-Type: multipart/mixed; boundary=c", b""), False),
        (part(b"Content-Type: multipart/mixed; boundary=c", b"--c\r\n--c--"), False),
        (part(b"Content-Type: multipart/mixed; boundary=batch_1", b"--batch_1--"), False),
        (part(b"Content-Type"), False),
        (outer(b""), False),
        (outer(), False),
        (b"", False),
        (b"--batch_1", False),
        (b"--batch_1\r\n", False),
        (b"--batch_1--", False),
        (b"--batch_1--\r\n" + QUERY, False),
    ],
)
def test_outer_parts(body: bytes, good: bool) -> None:
    if good:
        assert isinstance(parsed(body), SingleQuery)
    else:
        refused(body)


@pytest.mark.parametrize("form", [bytes, crlf])
def test_missing_boundaries(form: Callable[[bytes], bytes]) -> None:
    refused(form(CHANGES.replace(b"--batch_1--", b"")))
    refused(form(CHANGES.replace(b"--changeset_1--", b"")))
    refused(form(CHANGES.replace(b"--batch_1\n", b"")))
    refused(form(QUERY.replace(b"--batch_1--", b"--batch_1")))
    refused(form(QUERY.replace(b"--batch_1--", b"x--batch_1--")))


def test_a_batch_has_one_change_set_or_one_query() -> None:
    changes = CHANGES.removesuffix(b"--batch_1--\n")
    query = QUERY.removesuffix(b"--batch_1--\n")
    for body in (changes + CHANGES, changes + QUERY, query + CHANGES, query + QUERY):
        refused(body)
        refused(crlf(body))


def test_the_number_of_operations() -> None:
    most = parsed(change_set(*[b"POST /a HTTP/1.1\r\n\r\n{}"] * OPERATIONS_MAX))
    assert isinstance(most, ChangeSet)
    assert len(most.requests) == OPERATIONS_MAX == 100
    targets = [b"POST /%d HTTP/1.1\r\n\r\n{}" % number for number in range(OPERATIONS_MAX + 1)]
    more = parsed(change_set(*targets))
    assert isinstance(more, ChangeSet)
    assert more.is_too_long
    assert [request.target for request in more.requests] == ["/99"]


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [
        b"--batch_1\n" * (4 * MEBIBYTE // 10),
        b"\n" * (4 * MEBIBYTE),
        b"\r" * (4 * MEBIBYTE),
        b"\n--batch_1x" * (4 * MEBIBYTE // 11),
        b"--batch_1" + b" " * (4 * MEBIBYTE),
        b"\n--batch_1" + b" " * 1000 + (b"\n--batch_1" + b" " * 1000 + b"x") * 4000,
        part(b"Content-Type: multipart/mixed; boundary=c", b"--c\n" * MEBIBYTE),
        part(b"Content-Type: multipart/mixed; boundary=" + b" " * 60_000 + b'"'),
        part(b"Content-Type: application/http;" + b" " * (4 * MEBIBYTE)),
        part(b"A:" + b" " * 65_000 + b"\x00"),
        part(b"A:" + b"x " * 32_000 + b"\x00"),
        change_set(*[b"POST /a" + b" " * 40_000 + b"x"] * 100),
        change_set(*[b"POST " + b"/" * 40_000 + b" x"] * 100),
        change_set(*[b"POST /a HTTP/1.1" + b"\na:" * 20_000] * 64),
        change_set(*[b"POST /a HTTP/1.1\na:" + b" \t" * 20_000 + b"\x00"] * 100),
        change_set(*[b"POST /a HTTP/1.1\r\n\r\n" + b"\r\n" * 20_000] * 99),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_parsing_time_is_bounded(body: bytes) -> None:
    began = time.process_time()
    parse_batch(CONTENT_TYPE, body)
    assert time.process_time() - began < 1


@given(st.binary())
def test_arbitrary_bytes(body: bytes) -> None:
    parse_batch(CONTENT_TYPE, body)
    parse_batch("multipart/mixed; boundary=b", body)
    parse_batch(CONTENT_TYPE, part(b"Content-Type: multipart/mixed; boundary=c", body))
    parse_batch(CONTENT_TYPE, change_set(body))


@given(st.text())
def test_arbitrary_content_types(text: str) -> None:
    parse_batch(text, CHANGES)
    parse_batch(f"multipart/mixed; {text}", CHANGES)


LINES = st.sampled_from([*set(CHANGES.split(b"\n")), *set(QUERY.split(b"\n")), b"\r", b"x"])


@given(st.lists(LINES, max_size=30), st.sampled_from([b"\n", b"\r\n"]))
def test_arbitrary_lines(lines: list[bytes], line_end: bytes) -> None:
    batch = parse_batch(CONTENT_TYPE, line_end.join(lines))
    assert isinstance(batch, ChangeSet | SingleQuery) or batch.code == "InvalidInput"


# Writing


def test_golden_response() -> None:
    address = b"http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r1')"
    response = PartResponse(
        204,
        [
            (b"X-Content-Type-Options", b"nosniff"),
            (b"Cache-Control", b"no-cache"),
            (b"Preference-Applied", b"return-no-content"),
            (b"DataServiceVersion", b"3.0;"),
            (b"Location", address),
            (b"DataServiceId", address),
            (b"ETag", b"W/\"datetime'2024-01-05T10%3A00%3A00.1234567Z'\""),
        ],
    )
    assert format_changeset([format_part(response)], "1", "2") == (
        "multipart/mixed; boundary=batchresponse_1",
        crlf(b"""\
--batchresponse_1
Content-Type: multipart/mixed; boundary=changesetresponse_2

--changesetresponse_2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 204 No Content
X-Content-Type-Options: nosniff
Cache-Control: no-cache
Preference-Applied: return-no-content
DataServiceVersion: 3.0;
Location: http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r1')
DataServiceId: http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r1')
ETag: W/"datetime'2024-01-05T10%3A00%3A00.1234567Z'"


--changesetresponse_2--
--batchresponse_1--
"""),
    )


def test_golden_response_to_a_query() -> None:
    response = PartResponse(200, [(b"Content-Type", b"application/json")], b'{"a":1}')
    assert format_query(response, "1") == (
        "multipart/mixed; boundary=batchresponse_1",
        crlf(b"""\
--batchresponse_1
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 200 OK
Content-Type: application/json

{"a":1}
--batchresponse_1--
"""),
    )


def test_golden_responses_to_independent_requests() -> None:
    """Nothing follows the closing delimiter, which a C++ client requires."""
    error = PartResponse(404, [(b"Content-Type", b"application/xml")], b"<Error />", "1", "Absent.")
    content_type, body = format_responses([PartResponse(202, content_id="0\r\n"), error], "1")
    assert content_type == "multipart/mixed; boundary=batchresponse_1"
    assert body == crlf(b"""\
--batchresponse_1
Content-Type: application/http
Content-ID: 0

HTTP/1.1 202 Accepted


--batchresponse_1
Content-Type: application/http
Content-ID: 1

HTTP/1.1 404 Absent.
Content-Type: application/xml

<Error />
--batchresponse_1--""")


def test_line_endings_cannot_be_injected() -> None:
    _, body = format_query(PartResponse(200, [(b"A", b"b\r\nC: d\n\n")]), "1")
    assert b"A: bC: d\r\n\r\n" in body


RESPONSES = st.builds(
    PartResponse,
    st.sampled_from([200, 201, 204, 400, 404, 409, 412]),
    st.lists(st.tuples(st.sampled_from([b"A", b"B"]), st.sampled_from([b"a", b"bc"])), max_size=3),
    st.binary(max_size=50).filter(lambda body: b"\n" not in body and b"\r" not in body),
)


@given(st.lists(RESPONSES, min_size=1, max_size=4))
def test_responses_are_parsed_by_the_standard_library(responses: list[PartResponse]) -> None:
    content_type, body = format_changeset([format_part(one) for one in responses], "1", "2")
    message = email.message_from_bytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + body, policy=email.policy.HTTP
    )
    (changes,) = message.iter_parts()
    parts = list(changes.iter_parts())
    assert len(parts) == len(responses)
    for found, response in zip(parts, responses, strict=True):
        assert found.get_content_type() == "application/http"
        payload = found.get_payload(decode=True)
        assert isinstance(payload, bytes)
        head, _, content = payload.partition(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        assert line.startswith(f"HTTP/1.1 {response.status} ")
        assert headers == [f"{name.decode()}: {value.decode()}" for name, value in response.headers]
        assert content == response.body


HEADS = [
    b"Content-Type: application/http\r\n\r\nPOST /a HTTP/1.1",
    b"Content-Type: application/http\r\n\r\nPOST /a HTTP/1.1\r\nAccept: a",
    b"Content-Type: application/http\r\n\r\nPOST /a HTTP/1.1\r\nAccept: ab",
    b"Content-Type: application/http\n\nPOST /a HTTP/1.1\nAccept: ab",
    b"Content-Type: application/http\r\n\r\n\r\n\r\nPOST /b HTTP/1.1",
]
PARTS = st.builds(
    b"".join,
    st.tuples(
        st.sampled_from(HEADS),
        st.sampled_from([b"", b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\n\r\n\r\n\r\n"]),
        st.sampled_from([b"", b"{}", b"b", b"\n", b"\r\n\r\n"]),
    ),
)


def readable(parts: list[bytes]) -> list[PartRequest] | str:
    try:
        return multipart._requests(parts)
    except multipart._Unreadable as unreadable:
        return str(unreadable)


@given(st.lists(PARTS, min_size=1, max_size=6))
def test_cached_heads_are_parsed_like_others(parts: list[bytes]) -> None:
    alone: list[PartRequest] | str = []
    for part in parts:
        read = readable([part])
        if isinstance(read, str):
            alone = read
            break
        assert isinstance(alone, list)
        alone += read
    assert readable(parts) == alone
