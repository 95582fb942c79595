"""When relayed requests can have changed something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from etagere.protocol.http.messages import Request
from etagere.protocol.relay.effects import Effect, effect_of


def sent(
    method: str, target: bytes, length: int | None = 5, fields: dict[bytes, bytes] | None = None
) -> Request:
    body = SimpleNamespace(length=length)
    request = SimpleNamespace(method=method, target=target, fields=fields or {}, body=body)
    return cast("Request", request)


@pytest.mark.parametrize(
    ("service", "method", "target", "is_safe"),
    [
        ("blob", "GET", b"/a/c/messages", True),
        ("queue", "GET", b"/a/q?comp=metadata", True),
        ("queue", "GET", b"/a/q/messages", False),
        ("queue", "GET", b"/a/q/Messages?numofmessages=2", False),
        ("queue", "GET", b"/a/q/m%65ssages", False),
        ("queue", "HEAD", b"/a?comp=list&prefix=%2F", True),
        ("queue", "PUT", b"/a/q", False),
    ],
)
def test_requests_that_change_nothing(
    service: str, method: str, target: bytes, is_safe: bool
) -> None:
    effect = effect_of(service, sent(method, target, 0))
    assert (effect is Effect.NONE) is is_safe


@pytest.mark.parametrize(
    ("service", "method", "target", "headers", "needs_body"),
    [
        ("blob", "PUT", b"/a/c/b?comp=block&blockid=YQ%3D%3D", {}, True),
        ("blob", "PUT", b"/a/c/b?Comp=%62lock", {}, True),
        ("blob", "PUT", b"/a/c/b?comp=block", {b"x-ms-copy-source": b"http://x"}, False),
        ("blob", "PUT", b"/a/c/b?comp=block&comp=lease", {}, False),
        ("blob", "PUT", b"/a/c/b?comp=lease", {b"x-ms-blob-type": b"BlockBlob"}, False),
        ("blob", "PUT", b"/a/c/b?sig=x", {b"x-ms-blob-type": b"BlockBlob"}, True),
        ("blob", "PUT", b"/a/c/b", {b"x-ms-blob-type": b"AppendBlob"}, False),
        ("blob", "PUT", b"/a/c?restype=container", {b"x-ms-blob-type": b"BlockBlob"}, False),
        ("blob", "DELETE", b"/a/c/b", {b"x-ms-blob-type": b"BlockBlob"}, False),
        ("blob", "DELETE", b"/a/c/b?comp=block", {}, False),
        ("file", "PUT", b"/a/s/f?comp=range", {}, True),
        ("file", "PUT", b"/a/s/f", {b"x-ms-blob-type": b"BlockBlob"}, False),
        ("queue", "POST", b"/a/q/messages", {}, True),
        ("queue", "PUT", b"/a/q", {}, False),
        ("queue", "GET", b"/a/q/messages", {}, False),
        ("table", "POST", b"/a/t", {}, True),
        ("table", "POST", b"/a/t", {b"x-http-method": b"DELETE"}, False),
        ("table", "MERGE", b"/a/t(PartitionKey='a',RowKey='b')", {}, True),
        ("table", "DELETE", b"/a/t(PartitionKey='a',RowKey='b')", {}, False),
    ],
)
def test_requests_that_need_their_bodies(
    service: str, method: str, target: bytes, headers: dict[bytes, bytes], needs_body: bool
) -> None:
    effect = effect_of(service, sent(method, target, fields=headers))
    assert effect is (Effect.AFTER_BODY if needs_body else Effect.AT_ONCE)


def test_a_body_of_unknown_length_may_be_ignored() -> None:
    """Pages are cleared without a body, and the address is that of writing pages."""
    request = sent("PUT", b"/a/c/b?comp=page", None)
    assert effect_of("blob", request) is Effect.AT_ONCE
