"""Which operation a request to the blob service asks for.

One row per form of request: the method, what the address names, `restype` and `comp`. Operations
are named as in the table of permissions.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Level(enum.Enum):
    """What the address of a request names."""

    SERVICE = enum.auto()
    CONTAINER = enum.auto()
    BLOB = enum.auto()


class Route(NamedTuple):
    """A form of request."""

    method: str
    level: Level
    restype: str = ""
    comp: str = ""


SERVICE, CONTAINER, BLOB = Level.SERVICE, Level.CONTAINER, Level.BLOB

ROUTES: Final[dict[Route, str]] = {
    Route("GET", SERVICE, "", "list"): "list_containers",
    Route("GET", SERVICE, "service", "properties"): "get_blob_service_properties",
    Route("PUT", SERVICE, "service", "properties"): "set_blob_service_properties",
    Route("GET", SERVICE, "", "blobs"): "find_blobs_by_tags",
    Route("POST", SERVICE, "", "batch"): "blob_batch",
    # As the JavaScript SDK asks an account for it that stands in the path: it takes that for a
    # container.
    Route("POST", SERVICE, "container", "batch"): "blob_batch",
    Route("GET", SERVICE, "service", "stats"): "get_blob_service_stats",
    Route("PUT", CONTAINER, "container"): "create_container",
    Route("GET", CONTAINER, "container"): "get_container_properties",
    Route("DELETE", CONTAINER, "container"): "delete_container",
    Route("GET", CONTAINER, "container", "metadata"): "get_container_metadata",
    Route("PUT", CONTAINER, "container", "metadata"): "set_container_metadata",
    Route("GET", CONTAINER, "container", "acl"): "get_container_acl",
    Route("PUT", CONTAINER, "container", "acl"): "set_container_acl",
    Route("PUT", CONTAINER, "container", "lease"): "lease_container",
    Route("GET", CONTAINER, "container", "list"): "list_blobs",
    Route("GET", CONTAINER, "container", "blobs"): "find_blobs_by_tags_in_container",
    Route("POST", CONTAINER, "container", "batch"): "blob_batch_in_container",
    Route("PUT", BLOB): "put_blob",
    Route("GET", BLOB): "get_blob",
    Route("DELETE", BLOB): "delete_blob",
    Route("GET", BLOB, "", "metadata"): "get_blob_metadata",
    Route("PUT", BLOB, "", "metadata"): "set_blob_metadata",
    Route("PUT", BLOB, "", "properties"): "set_blob_properties",
    Route("PUT", BLOB, "", "lease"): "lease_blob",
    Route("PUT", BLOB, "", "snapshot"): "snapshot_blob",
    Route("PUT", BLOB, "", "block"): "put_block",
    Route("PUT", BLOB, "", "blocklist"): "put_block_list",
    Route("GET", BLOB, "", "blocklist"): "get_block_list",
    Route("PUT", BLOB, "", "appendblock"): "append_block",
    Route("PUT", BLOB, "", "seal"): "append_blob_seal",
    Route("PUT", BLOB, "", "page"): "put_page",
    Route("GET", BLOB, "", "pagelist"): "get_page_ranges",
    Route("PUT", BLOB, "", "incrementalcopy"): "incremental_copy_blob",
    Route("PUT", BLOB, "", "copy"): "abort_copy_blob",
    Route("PUT", BLOB, "", "tier"): "set_blob_tier",
    Route("GET", BLOB, "", "tags"): "get_blob_tags",
    Route("PUT", BLOB, "", "tags"): "set_blob_tags",
}

_FROM_SOURCE: Final = {
    "put_block": "put_block_from_url",
    "put_page": "put_page_from_url",
    "append_block": "append_block_from_url",
}
"""What an operation is called that takes its bytes from elsewhere."""


def find_route(
    method: str, container: str, blob: str, restype: str, comp: str
) -> tuple[Level, str | None]:
    """What is asked for, and of what; None if there is no such operation."""
    level = BLOB if blob else CONTAINER if container else SERVICE
    if restype.lower() == "account" and comp.lower() == "properties":
        return level, "get_account_information" if method in ("GET", "HEAD") else None
    # A HEAD is a GET whose answer has no body, but for blobs, where it is an operation.
    if method == "HEAD" and level is BLOB and not comp:
        return level, "get_blob_properties"
    method = "GET" if method == "HEAD" else method
    return level, ROUTES.get(Route(method, level, restype.lower(), comp.lower()))


def from_source(operation: str, *, has_kind: bool, at_once: bool) -> str:
    """What is asked for where a request names a source. A blob of a kind is put, as if its bytes
    had been sent; without one a copy is made of all that the source is."""
    if operation != "put_blob":
        return _FROM_SOURCE.get(operation, operation)
    if has_kind:
        return "put_blob_from_url"
    return "copy_blob_from_url" if at_once else "copy_blob"
