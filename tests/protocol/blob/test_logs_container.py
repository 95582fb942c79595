"""The container $logs: which operations on it are refused."""

from __future__ import annotations

from typing import Final

import pytest

from etagere.auth.principal import KeyOwner
from etagere.engine.interface import Refused
from etagere.protocol.blob.operations import OPERATIONS, BlobOperation, Level, refuse_unaccepted
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import Route
from tests.protocol.flows import CompleteBodyFlow

ALLOWED: Final = {
    "blob_batch_in_container",
    "delete_blob",
    "find_blobs_by_tags_in_container",
    "get_account_information",
    "get_blob",
    "get_blob_metadata",
    "get_blob_properties",
    "get_blob_tags",
    "get_block_list",
    "get_container_acl",
    "get_container_metadata",
    "get_container_properties",
    "get_page_ranges",
    "list_blobs",
}
ROUTES: Final = [
    pytest.param(operation, route, id=f"{operation.name}-{number}")
    for operation in OPERATIONS
    for number, route in enumerate(operation.routes)
    if route.level is not Level.SERVICE
]


def refusal_of(operation: BlobOperation, route: Route, container: str) -> str:
    target = f"/account/{container}"
    target += "/blob" if route.level is Level.BLOB else "?restype=container"
    body = RequestBody(CompleteBodyFlow(), 0)
    exchange = Exchange("blob", Request(route.method, target.encode(), [], {}, body))
    exchange.principal = KeyOwner("account")
    try:
        refuse_unaccepted(operation, exchange)
    except Refused as refused:
        return refused.refusal.code
    return ""


@pytest.mark.parametrize(("operation", "route"), ROUTES)
@pytest.mark.parametrize("container", ["$logs", "%24logs"])
def test_only_reads_and_deletes_of_blobs_are_allowed(
    operation: BlobOperation, route: Route, container: str
) -> None:
    expected = "" if operation.name in ALLOWED else "InsufficientAccountPermissions"
    assert refusal_of(operation, route, container) == expected


@pytest.mark.parametrize(("operation", "route"), ROUTES)
def test_other_containers_are_not_concerned(operation: BlobOperation, route: Route) -> None:
    for container in ("box", "$web", "$root"):
        assert refusal_of(operation, route, container) == ""
