"""Every operation of the server, as a request that succeeds if its sender may send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.probes.client import VERSION, Pairs, Request
from tests.sdk.server import ACCOUNT

LEASE: Final = "11111111-2222-3333-4444-555555555555"
OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
POLICIES: Final = (
    b"<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy>"
    b"<Expiry>2099-01-01T00:00:00Z</Expiry><Permission>r</Permission></AccessPolicy>"
    b"</SignedIdentifier></SignedIdentifiers>"
)
PROPERTIES: Final = (
    b"<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete>"
    b"<Read>false</Read><Write>false</Write><RetentionPolicy><Enabled>false</Enabled>"
    b"</RetentionPolicy></Logging></StorageServiceProperties>"
)


class Place(NamedTuple):
    """A container that is there, with a blob; names that are free; and whether both are leased."""

    container: str
    blob: str = "shelf/book"
    leased: bool = False
    account: str = ACCOUNT

    @property
    def free_container(self) -> str:
        return f"{self.container}-new"

    @property
    def free_blob(self) -> str:
        return f"{self.blob}-new"


@dataclass(frozen=True)
class Operation:
    """One row: a form of request, and the row of the table of permissions that it needs."""

    name: str
    row: str
    method: str
    level: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    creates: bool = False
    """Its target is a name that is free."""
    needs_lease: bool = False
    secondary: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"}

    def request(self, place: Place) -> Request:
        container = place.free_container if self.creates else place.container
        blob = place.free_blob if self.creates else place.blob
        path = f"/{place.account}{'-secondary' if self.secondary else ''}/"
        if self.level == "container":
            path += container
        elif self.level == "blob":
            path += f"{place.container}/{blob}"
        headers = (("x-ms-version", VERSION), *self.headers)
        return Request(self.method, path, self.query, headers, self.body)


def _of_service(row: str, comp: str, restype: str = "service", method: str = "GET") -> Operation:
    query = (("restype", restype), ("comp", comp)) if restype else (("comp", comp),)
    return Operation(row, row, method, "service", query)


def _of_container(row: str, method: str, comp: str = "", *headers: tuple[str, str]) -> Operation:
    query: Pairs = (("restype", "container"),)
    query += (("comp", comp),) if comp else ()
    return Operation(row, row, method, "container", query, headers)


def _leases(of: Callable[..., Operation], what: str) -> Iterator[Operation]:
    """All actions on the lease of a container or a blob."""
    held, proposed = ("x-ms-lease-id", LEASE), ("x-ms-proposed-lease-id", OTHER_LEASE)
    for action, headers in {
        "acquire": (("x-ms-lease-duration", "-1"),),
        "renew": (held,),
        "change": (held, proposed),
        "release": (held,),
        "break": (("x-ms-lease-break-period", "0"),),
    }.items():
        row = f"{action}_{what}_lease"
        made = of(row, "PUT", "lease", ("x-ms-lease-action", action), *headers)
        yield replace(made, needs_lease=action != "acquire")


def _of_blob(row: str, method: str, comp: str = "", *headers: tuple[str, str]) -> Operation:
    return Operation(row, row, method, "blob", (("comp", comp),) if comp else (), headers)


_META = ("x-ms-meta-author", "nobody")
_BLOCK_BLOB = ("x-ms-blob-type", "BlockBlob")
_PUT = replace(_of_blob("put_blob", "PUT", "", _BLOCK_BLOB, _META), body=b"another content")
_PUT_BLOCK = replace(
    _of_blob("put_block", "PUT"),
    query=(("comp", "block"), ("blockid", "YWFh")),
    body=b"a block",
)
_PUT_BLOCK_LIST = replace(
    _of_blob("put_block_list", "PUT", "blocklist", _META), body=b"<BlockList></BlockList>"
)
_INFORMATION = "get_account_information"
_OF_ACCOUNT = (("restype", "account"), ("comp", "properties"))

_FORMS: Final = (
    _of_service("list_containers", "list", ""),
    _of_service("get_blob_service_properties", "properties"),
    replace(
        _of_service("set_blob_service_properties", "properties", method="PUT"), body=PROPERTIES
    ),
    replace(_of_service("get_blob_service_stats", "stats"), secondary=True),
    *(
        Operation(f"{_INFORMATION}_of_{level}", _INFORMATION, "GET", level, _OF_ACCOUNT)
        for level in ("service", "container", "blob")
    ),
    replace(_of_container("create_container", "PUT", "", _META), creates=True),
    _of_container("get_container_properties", "GET"),
    _of_container("delete_container", "DELETE"),
    _of_container("get_container_metadata", "GET", "metadata"),
    _of_container("set_container_metadata", "PUT", "metadata", _META),
    _of_container("get_container_acl", "GET", "acl"),
    replace(
        _of_container("set_container_acl", "PUT", "acl", ("x-ms-blob-public-access", "container")),
        body=POLICIES,
    ),
    *_leases(_of_container, "container"),
    _of_container("list_blobs", "GET", "list"),
    replace(_PUT, name="put_blob_over_another"),
    replace(_PUT, name="put_blob_as_new", creates=True),
    _of_blob("get_blob", "GET"),
    replace(_of_blob("get_blob", "GET", "", ("x-ms-range", "bytes=1-3")), name="get_blob_range"),
    _of_blob("get_blob_properties", "HEAD"),
    _of_blob("get_blob_metadata", "GET", "metadata"),
    _of_blob("set_blob_metadata", "PUT", "metadata", _META),
    _of_blob("set_blob_properties", "PUT", "properties", ("x-ms-blob-content-type", "text/odd")),
    *_leases(_of_blob, "blob"),
    _of_blob("snapshot_blob", "PUT", "snapshot", _META),
    replace(_PUT_BLOCK, name="put_block_for_another"),
    replace(_PUT_BLOCK, name="put_block_for_a_new_blob", creates=True),
    replace(_PUT_BLOCK_LIST, name="put_block_list_over_another"),
    replace(_PUT_BLOCK_LIST, name="put_block_list_as_new", creates=True),
    replace(
        _of_blob("get_block_list", "GET"), query=(("comp", "blocklist"), ("blocklisttype", "all"))
    ),
    _of_blob("delete_blob", "DELETE"),
)
_HEADS: Final = tuple(
    replace(form, name=f"head_of_{form.name}", method="HEAD")
    for form in _FORMS
    if form.method == "GET" and form.row != "get_blob"
)

OPERATIONS: Final = (*_FORMS, *_HEADS)
