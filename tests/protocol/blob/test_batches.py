"""Blob batches: parsing, checks of the parts, and responses."""

from __future__ import annotations

import asyncio
import email
import email.policy
from collections.abc import Sequence

import pytest

from etagere.auth.permissions import Permit
from etagere.auth.principal import KeyOwner
from etagere.engine.interface import Refused
from etagere.protocol.blob import batches
from etagere.protocol.blob.batches import BYTES_MAX, PARTS_MAX, answer, read_requests
from etagere.protocol.blob.operations import find_operation
from etagere.protocol.codecs.multipart import PartRequest
from etagere.protocol.http.messages import BodyTooLarge, Request, RequestBody, Response
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.flows import CompleteBodyFlow

ACCOUNT = "devstoreaccount1"
TYPE = "multipart/mixed; boundary=batch_1"
DELETE = "DELETE", f"/{ACCOUNT}/box/blob"
TIER = "PUT", f"/{ACCOUNT}/box/blob?comp=tier"


def batch(
    body: bytes = b"", content_type: str = TYPE, *, announced: int | None = None, host: str = ""
) -> Exchange:
    """Returns a batch that is signed with the account key."""
    received = RequestBody(CompleteBodyFlow(), announced)
    if body:
        received.feed(body)
    received.feed_end()
    fields = {b"host": host.encode() or b"127.0.0.1:10000", b"x-ms-version": b"2021-12-02"}
    if content_type:
        fields[b"content-type"] = content_type.encode()
    target = f"/{'' if host else ACCOUNT}?comp=batch".encode()
    exchange = Exchange("blob", Request("POST", target, list(fields.items()), fields, received))
    exchange.principal, exchange.permit = KeyOwner(ACCOUNT), Permit()
    return exchange


def part(method: str, target: str, *headers: str, content_id: str = "0") -> bytes:
    lines = [
        "--batch_1",
        "Content-Type: application/http",
        f"Content-ID: {content_id}",
        "Content-Transfer-Encoding: binary",
        "",
        f"{method} {target} HTTP/1.1",
        *headers,
        "Content-Length: 0",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def requests_in(body: bytes, content_type: str = TYPE) -> list[PartRequest]:
    return asyncio.run(read_requests(batch(body, content_type)))


def part_requests(*requests: tuple[str, str]) -> list[PartRequest]:
    return [PartRequest(*request, {}, b"", "") for request in requests]


def parts_of(exchange: Exchange, requests: Sequence[PartRequest], container: str) -> list[Exchange]:
    def name_of(part: Exchange) -> str | None:
        operation = find_operation(part)
        return None if operation is None else operation.name

    return batches.parts_of(exchange, requests, container, name_of)


def reason(exchange: Exchange, requests: Sequence[PartRequest], container: str = "") -> str:
    with pytest.raises(Refused) as refused:
        parts_of(exchange, requests, container)
    assert refused.value.refusal.code == "InvalidInput"
    return str(refused.value.refusal.facts["Reason"])


# Parsing


def test_the_parts_of_a_batch() -> None:
    body = part(*DELETE, "x-ms-date: now", content_id="a") + part(*TIER, content_id="b")
    first, second = requests_in(body + b"--batch_1--\r\n")
    assert first[:2] == DELETE
    assert first.headers == {"x-ms-date": "now", "content-length": "0"}
    assert second[:2] == TIER
    assert (first.content_id, second.content_id) == ("a", "b")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--batch_1--",
        part(*DELETE),
        part(*DELETE)[:-20] + b"--batch_2--",
        part("DELETE", "/a b") + b"--batch_1--",
        part(*DELETE, "no header") + b"--batch_1--",
        part(*DELETE).replace(b"application/http", b"text/plain") + b"--batch_1--",
        part(*DELETE).replace(b"binary", b"base64") + b"--batch_1--",
        b"\xff" * 100,
    ],
)
def test_malformed_batches(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        requests_in(body)
    assert refused.value.refusal.code == "InvalidInput"


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed", "x" * 2_000])
def test_invalid_content_types(content_type: str) -> None:
    with pytest.raises(Refused) as refused:
        requests_in(part(*DELETE) + b"--batch_1--", content_type)
    assert refused.value.refusal.code == "InvalidHeaderValue"


def test_a_batch_needs_a_content_type() -> None:
    with pytest.raises(Refused) as refused:
        requests_in(part(*DELETE) + b"--batch_1--", "")
    assert refused.value.refusal.code == "MissingRequiredHeader"


def test_at_most_256_parts() -> None:
    assert len(requests_in(part(*DELETE) * PARTS_MAX + b"--batch_1--")) == PARTS_MAX
    with pytest.raises(Refused) as refused:
        requests_in(part(*DELETE) * (PARTS_MAX + 1) + b"--batch_1--")
    assert refused.value.refusal.code == "ExceedsMaxBatchRequestCount"


def test_at_most_4_mib() -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(read_requests(batch(announced=BYTES_MAX + 1)))
    assert refused.value.refusal.code == "RequestBodyTooLarge"
    with pytest.raises(BodyTooLarge):
        asyncio.run(read_requests(batch(bytes(BYTES_MAX + 1))))


# Checks of the parts


def test_a_part_is_a_separate_request() -> None:
    outer = batch()
    request = PartRequest(
        "DELETE",
        f"/{ACCOUNT}/box/a%20b?snapshot=x&sig=y",
        {"x-ms-version": "2015-02-21", "host": "elsewhere", "x-ms-client-request-id": "mine"},
        b"",
        "",
    )
    (inner,) = parts_of(outer, [request], "box")
    assert inner.request.resource == ("box", "a b")
    assert inner.request.path == f"/{ACCOUNT}/box/a%20b"
    assert inner.parameter("snapshot") == "x"
    assert inner.header("host") == outer.header("host")
    assert inner.version == outer.version == "2021-12-02"
    assert inner.request_id != outer.request_id
    assert (b"x-ms-client-request-id", b"mine") in inner.common_headers()
    # A part is not authorized by the batch.
    assert not hasattr(inner, "principal")
    assert not hasattr(inner, "permit")
    assert isinstance(outer.principal, KeyOwner)


def test_a_part_names_its_account_like_the_batch() -> None:
    host = f"{ACCOUNT}.blob.localhost"
    (inner,) = parts_of(batch(host=host), part_requests(("DELETE", "/box/blob")), "box")
    assert inner.request.resource == ("box", "blob")


OTHER_ACCOUNT = "All requests of a batch must be for its account."
OTHER_CONTAINER = "All requests of a batch must be for its container."
OTHER_OPERATION = "A batch can delete blobs or set tiers."


@pytest.mark.parametrize(
    "target", ["/second/box/blob", "/box/blob", "//box/blob", "http://x/y/z", "*", "/"]
)
def test_parts_are_for_the_account_of_the_batch(target: str) -> None:
    assert reason(batch(), part_requests(DELETE, ("DELETE", target))) == OTHER_ACCOUNT


@pytest.mark.parametrize("path", ["other/blob", "boxes/blob", "blob", "%62oxes/blob", ""])
def test_parts_are_for_the_container_of_the_batch(path: str) -> None:
    request = "DELETE", f"/{ACCOUNT}/{path}"
    assert reason(batch(), part_requests(DELETE, request), "box") == OTHER_CONTAINER


@pytest.mark.parametrize(
    "request_",
    [
        ("GET", DELETE[1]),
        ("PUT", DELETE[1]),
        ("PUT", f"{DELETE[1]}?comp=metadata"),
        ("DELETE", f"/{ACCOUNT}/box?restype=container"),
        ("POST", f"/{ACCOUNT}?comp=batch"),
        ("DELETE", TIER[1]),
        ("OPTIONS", DELETE[1]),
        ("NONE", DELETE[1]),
        ("DELETE", f"/{ACCOUNT}/"),
    ],
)
def test_parts_must_delete_blobs_or_set_tiers(request_: tuple[str, str]) -> None:
    assert reason(batch(), part_requests(DELETE, request_)) == OTHER_OPERATION


def test_all_parts_have_the_same_operation() -> None:
    with pytest.raises(Refused) as refused:
        parts_of(batch(), part_requests(DELETE, TIER), "")
    assert refused.value.refusal.code == "AllBatchSubRequestsShouldBeSameApi"
    assert len(parts_of(batch(), part_requests(TIER, TIER), "box")) == 2


# Responses


def test_responses_have_the_order_and_content_ids_of_the_requests() -> None:
    names = ["0", "seven", ""]
    requests = [PartRequest(*DELETE, {}, b"", name) for name in names]
    responses = [
        Response(202, [(b"x-ms-request-id", b"first")]),
        Response(404, [(b"x-ms-error-code", b"BlobNotFound")], b"<Error />"),
        Response(200),
    ]
    response = answer(requests, responses)
    assert response.status == 202
    (content_type,) = [value for name, value in response.headers if name == b"Content-Type"]
    assert content_type.startswith(b"multipart/mixed; boundary=batchresponse_")
    assert isinstance(response.body, bytes)
    message = email.message_from_bytes(
        b"Content-Type: %b\r\n\r\n%b" % (content_type, response.body), policy=email.policy.HTTP
    )
    parts = list(message.iter_parts())
    assert [part["Content-ID"] for part in parts] == ["0", "seven", None]
    contents = [part.get_payload(decode=True) for part in parts]
    assert contents == [
        b"HTTP/1.1 202 Accepted\r\nx-ms-request-id: first\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nx-ms-error-code: BlobNotFound\r\nContent-Length: 9\r\n\r\n"
        b"<Error />",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ]
