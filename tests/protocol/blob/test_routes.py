"""Every request of the protocol is routed to its operation, or is known to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from etagere.protocol.blob.operations import BlobOperation, find_operation
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.flows import CompleteBodyFlow

DATA: Final = Path(__file__).parents[2] / "data"
REQUESTS: Final[list[dict[str, str]]] = json.loads((DATA / "blob_requests.json").read_text("utf-8"))
OPERATIONS: Final[dict[str, list[str]]] = json.loads((DATA / "operations.json").read_text("utf-8"))[
    "blob"
]

MISSING: Final = {
    "Blob_DeleteImmutabilityPolicy",
    "Blob_Query",
    "Blob_SetExpiry",
    "Blob_SetImmutabilityPolicy",
    "Blob_SetLegalHold",
    "Blob_Undelete",
    "Container_Rename",
    "Container_Restore",
}
"""Requests without a route."""
SOURCE: Final = {"x-ms-copy-source": "http://127.0.0.1/account/box/other"}
FROM_SOURCE: Final[dict[str, dict[str, str]]] = {
    "AppendBlob_AppendBlockFromUrl": SOURCE,
    "Blob_CopyFromUrl": SOURCE | {"x-ms-requires-sync": "true"},
    "Blob_StartCopyFromUrl": SOURCE,
    "BlockBlob_PutBlobFromUrl": SOURCE | {"x-ms-blob-type": "BlockBlob"},
    "BlockBlob_StageBlockFromUrl": SOURCE,
    "PageBlob_UploadPagesFromUrl": SOURCE,
}
"""Requests that are distinguished by their headers."""
PATHS: Final = {"service": "", "container": "/box", "blob": "/box/blob"}


def names_of(request: dict[str, str]) -> set[str]:
    """Returns the operations of the catalogue that a request may ask for."""
    return {name for name, ids in OPERATIONS.items() if request["id"] in ids}


def route(
    method: str, level: str, query: str = "", headers: dict[str, str] | None = None
) -> BlobOperation | None:
    fields = {name.encode(): value.encode() for name, value in (headers or {}).items()}
    body = RequestBody(CompleteBodyFlow(), 0)
    target = f"/account{PATHS[level]}?{query}".encode()
    return find_operation(Exchange("blob", Request(method, target, [], fields, body)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["id"])
def test_requests_are_routed_to_their_operations(request_: dict[str, str]) -> None:
    query = f"restype={request_['restype']}&comp={request_['comp']}"
    if not request_["restype"]:
        query = f"comp={request_['comp']}"
    headers = FROM_SOURCE.get(request_["id"])
    operation = route(request_["method"], request_["level"], query, headers)
    if request_["id"] in MISSING:
        assert operation is None
        return
    assert operation is not None
    rows = set(operation.permissions)
    assert rows & names_of(request_)
    if operation.break_permission is not None:
        assert names_of(request_) <= rows


def test_missing_requests_are_in_the_protocol() -> None:
    assert {request["id"] for request in REQUESTS} >= MISSING | FROM_SOURCE.keys()


@pytest.mark.parametrize("method", ["POST", "PATCH", "TRACE", "COPY"])
@pytest.mark.parametrize("level", PATHS)
def test_unsupported_methods(method: str, level: str) -> None:
    assert route(method, level, "restype=container" if level == "container" else "") is None


@pytest.mark.parametrize("level", PATHS)
def test_account_information_at_every_level(level: str) -> None:
    for method in ("GET", "HEAD"):
        operation = route(method, level, "restype=Account&comp=Properties")
        assert operation is not None
        assert operation.name == "get_account_information"
    assert route("PUT", level, "restype=account&comp=properties") is None
