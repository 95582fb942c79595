"""Requests to the blob service without a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from etagere.auth.permissions import Permit
from etagere.auth.principal import KeyOwner
from etagere.engine.interface import Refused
from etagere.model.blobs import BlobName
from etagere.model.containers import ContainerName
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.flows import CompleteBodyFlow

ACCOUNT: Final = "account"
CONTAINER: Final = ContainerName(ACCOUNT, "box")
BLOB: Final = BlobName(CONTAINER, "dir/blob")
VERSION: Final = "2024-05-04"


def exchange(
    headers: dict[str, str] | None = None,
    query: str = "",
    *,
    path: str = "/box/dir/blob",
    method: str = "PUT",
    version: str = VERSION,
    body: bytes | None = b"",
) -> Exchange:
    """Returns an authorized request. A body of None is sent in chunks of unknown length."""
    fields = {b"host": b"127.0.0.1:10000", b"x-ms-version": version.encode()}
    fields |= {name.encode(): value.encode() for name, value in (headers or {}).items()}
    sent = RequestBody(CompleteBodyFlow(), None if body is None else len(body))
    if body:
        sent.feed(body)
    if body is not None:
        sent.feed_end()
    target = f"/{ACCOUNT}{path}?{query}".encode()
    created = Exchange("blob", Request(method, target, [], fields, sent))
    created.principal, created.permit = KeyOwner(ACCOUNT), Permit()
    return created


def refusal_code(decode: Callable[[Exchange], object], request: Exchange) -> str:
    """Returns the code with which the decoder refuses the request."""
    with pytest.raises(Refused) as caught:
        decode(request)
    return caught.value.refusal.code
