"""Every form of request that the protocol has leads to its operation, or is known to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from etagere.auth.permissions import NEEDS
from etagere.protocol.blob.handlers import Handlers
from etagere.protocol.blob.routes import ROUTES, find_route, from_source
from etagere.protocol.blob.service import LEASED

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
    "Service_GetUserDelegationKey",
}
"""What has no route yet."""
FROM_SOURCE: Final = {
    "AppendBlob_AppendBlockFromUrl": {},
    "Blob_CopyFromUrl": {"at_once": True},
    "Blob_StartCopyFromUrl": {},
    "BlockBlob_PutBlobFromUrl": {"has_kind": True},
    "BlockBlob_StageBlockFromUrl": {},
    "PageBlob_UploadPagesFromUrl": {},
}
"""What is told apart by its headers: there is a source."""


def names_of(request: dict[str, str]) -> set[str]:
    """The rows of the table of permissions that a request may need."""
    return {name for name, ids in OPERATIONS.items() if request["id"] in ids}


def routed(request: dict[str, str]) -> str | None:
    container = "" if request["level"] == "service" else "box"
    blob = "blob" if request["level"] == "blob" else ""
    _, name = find_route(request["method"], container, blob, request["restype"], request["comp"])
    return name


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["id"])
def test_requests_lead_to_their_operations(request_: dict[str, str]) -> None:
    found = routed(request_)
    if request_["id"] in MISSING:
        assert found is None
        return
    assert found is not None
    if request_["id"] in FROM_SOURCE:
        told = {"has_kind": False, "at_once": False} | FROM_SOURCE[request_["id"]]
        found = from_source(found, **told)
    if found in LEASED:
        assert names_of(request_) <= {
            f"{verb}_{LEASED[found]}_lease"
            for verb in ("acquire", "renew", "change", "release", "break")
        }
    else:
        assert found in names_of(request_)


def test_no_route_leads_nowhere() -> None:
    for name in ROUTES.values():
        assert "_service_" in name or callable(getattr(Handlers, name))
        assert name in LEASED or f"blob.{name}" in NEEDS


def test_what_is_missing_is_in_the_protocol() -> None:
    assert {request["id"] for request in REQUESTS} >= MISSING | FROM_SOURCE.keys()


@pytest.mark.parametrize("method", ["POST", "PATCH", "TRACE", "COPY"])
@pytest.mark.parametrize("level", [("", ""), ("box", ""), ("box", "blob")])
def test_methods_that_nothing_takes(method: str, level: tuple[str, str]) -> None:
    assert find_route(method, *level, "", "")[1] is None
