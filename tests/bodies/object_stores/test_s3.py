"""The S3 driver: addresses, keys and failures."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etagere.bodies.objects import s3
from etagere.bodies.objects.addresses import InvalidStore
from etagere.bodies.objects.opening import open_object_store
from etagere.bodies.objects.s3 import Keys, S3Address, S3ObjectStore, parse_s3_url
from etagere.engine.interface import Fault, FaultReason
from tests.clusters.s3 import S3Server

SECRET = "do-not-show-this"
KEYS = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket", S3Address("bucket")),
        ("s3://bucket/", S3Address("bucket")),
        ("s3://bucket/a/b.c", S3Address("bucket", "a/b.c")),
        (
            "s3://bucket/p?endpoint=http://127.0.0.1:8333&region=eu-1",
            S3Address("bucket", "p", "http://127.0.0.1:8333", "eu-1"),
        ),
        (
            "s3://bucket?credentials=/etc/keys&profile=store&addressing=virtual&overwrite=yes",
            S3Address("bucket", "", None, None, Path("/etc/keys"), "store", True, True),
        ),
        ("s3://bucket?addressing=path", S3Address("bucket", is_virtual_hosted=False)),
    ],
)
def test_addresses(url: str, address: S3Address) -> None:
    assert parse_s3_url(url) == address


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://bucket", "s3://BUCKET"),
        ("s3://", "bucket name"),
        ("s3://b", "bucket name"),
        ("s3://buck et", "bucket name"),
        (f"s3://key:{SECRET}@bucket", "must not contain keys"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/a%00b", "prefix"),
        ("s3://bucket/" + "a" * 600, "prefix"),
        (f"s3://bucket?secret={SECRET}", "unknown option"),
        ("s3://bucket?region=a&region=b", "twice"),
        ("s3://bucket?endpoint", "s3://BUCKET"),
        ("s3://bucket?endpoint=ftp://host", "endpoint"),
        (f"s3://bucket?endpoint=http://me:{SECRET}@host", "endpoint"),
        ("s3://bucket?endpoint=http://host:99999", "endpoint"),
        ("s3://bucket?addressing=other", "addressing"),
        ("s3://bucket?overwrite=maybe", "overwrite"),
        ("s3://bucket#part", "s3://BUCKET"),
    ],
)
def test_invalid_addresses(url: str, message: str) -> None:
    with pytest.raises(InvalidStore, match=re.escape(message)) as raised:
        parse_s3_url(url)
    assert SECRET not in str(raised.value)


def test_unknown_schemes() -> None:
    with pytest.raises(ValueError, match="s3://"):
        open_object_store("ftp://host/path")


def test_keys_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    address = S3Address("bucket")
    assert s3.read_keys(address, {}) is None
    assert s3.read_keys(address, KEYS) == Keys("key-id", SECRET)
    assert s3.read_keys(address, {**KEYS, "AWS_SESSION_TOKEN": "t"}) == Keys("key-id", SECRET, "t")
    assert SECRET not in repr(s3.read_keys(address, KEYS))
    with pytest.raises(InvalidStore, match="without"):
        s3.read_keys(address, {"AWS_ACCESS_KEY_ID": "key-id"})
    path = tmp_path / "keys"
    path.write_text("[store]\naws_access_key_id = other\naws_secret_access_key = 100%\n")
    in_file = S3Address("bucket", credentials=path, profile="store")
    assert s3.read_keys(in_file, KEYS) == Keys("other", "100%")
    with pytest.raises(InvalidStore, match="no profile"):
        s3.read_keys(S3Address("bucket", credentials=path), KEYS)
    path.write_text(f"aws_secret_access_key = {SECRET}")
    with pytest.raises(InvalidStore, match="no profile") as raised:
        s3.read_keys(in_file, KEYS)
    assert SECRET not in str(raised.value)
    with pytest.raises(InvalidStore, match="cannot be read"):
        s3.read_keys(S3Address("bucket", credentials=tmp_path / "none"), KEYS)


def store_at(endpoint: str) -> S3ObjectStore:
    return S3ObjectStore(S3Address("bucket", endpoint=endpoint), KEYS)


async def fault_of(store: S3ObjectStore) -> Fault:
    with pytest.raises(Fault) as raised:
        await store.put("name", [b"data"])
    assert SECRET not in str(raised.value)
    return raised.value


def test_a_store_that_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens on this port; another process may take one that was just closed.
    fault = asyncio.run(fault_of(store_at("http://127.0.0.1:1")))
    assert fault.reason is FaultReason.UNAVAILABLE


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_CALL_SECONDS_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fault = asyncio.run(fault_of(store_at(f"http://127.0.0.1:{listener.getsockname()[1]}")))
    assert (fault.reason, "in time" in fault.detail) == (FaultReason.UNAVAILABLE, True)


@contextmanager
def responding(*responses: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Runs a server that answers each request with the next of these responses (empty: closes the
    connection); yields its endpoint and the requests."""
    requests: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for response in responses:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(65_536))
                connection.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def response(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", body]).encode()


def error(code: str) -> str:
    return f"<Error><Code>{code}</Code><Signature>{SECRET}</Signature></Error>"


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        ("403 Forbidden", "SignatureDoesNotMatch", FaultReason.FAILED),
        ("503 Slow Down", "SlowDown", FaultReason.UNAVAILABLE),
        ("500 Internal Server Error", "InternalError", FaultReason.UNAVAILABLE),
        ("507 Insufficient Storage", "XMinioStorageFull", FaultReason.DISK_FULL),
    ],
)
def test_errors_of_stores(status: str, code: str, reason: FaultReason) -> None:
    with responding(*[response(status, error(code))] * 4) as (endpoint, _):
        fault = asyncio.run(fault_of(store_at(endpoint)))
    assert fault.reason is reason
    assert code in fault.detail


def test_a_put_is_retried() -> None:
    stored = response("200 OK", "", 'ETag: "e"')
    with responding(response("503 Busy", error("SlowDown")), stored) as (endpoint, requests):
        asyncio.run(store_at(endpoint).put("name", [b"data"]))
    assert len(requests) == 2
    assert all(b"if-none-match: *" in request.lower() for request in requests)


def test_an_object_of_an_earlier_attempt_is_not_reported() -> None:
    """The answer to the first attempt was lost."""
    exists = response("412 Precondition Failed", error("PreconditionFailed"))
    dated = "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT"
    found = response("200 OK", "", 'ETag: "e"', dated).replace(b"Length: 0", b"Length: 4")
    with responding(b"", exists, found) as (endpoint, requests):
        asyncio.run(store_at(endpoint).put("name", [b"data"]))
    assert [request.split()[0] for request in requests] == [b"PUT", b"PUT", b"HEAD"]


def test_wrong_keys(s3_store: S3Server) -> None:
    environment = {**s3_store.environment, "AWS_SECRET_ACCESS_KEY": SECRET}
    store = S3ObjectStore(S3Address("etagere", "wrong"), environment)
    fault = asyncio.run(fault_of(store))
    assert fault.reason is FaultReason.FAILED
