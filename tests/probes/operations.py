"""Every operation of the server, as a request that succeeds if its sender may send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from urllib.parse import quote

import pytest

from tests.probes.client import VERSION, Pairs, Request, shared_key
from tests.probes.parts import CONTENT_TYPE, batch
from tests.probes.tokens import service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS

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
TAGS: Final = b"<Tags><TagSet><Tag><Key>kind</Key><Value>tome</Value></Tag></TagSet></Tags>"
WHERE: Final = quote("kind='book'")
KEYS: Final = {ACCOUNT: KEY, SECOND_ACCOUNT: SECOND_KEYS[0]}
PAGE: Final = 512
# As clients are sent to the server by the probes.
HERE: Final = "http://127.0.0.1"


class Place(NamedTuple):
    """A container that is there, with a blob; names that are free; and whether both are leased."""

    container: str
    blob: str = "shelf/book"
    leased: bool = False
    account: str = ACCOUNT
    source: str = "shelf/source"
    """Another blob, where an operation needs one to read from."""
    snapshot: str = ""
    """Of the source, where it is to be read as it was."""
    copy_id: str = ""
    """Of the copy that is still being made of what is elsewhere."""

    @property
    def free_container(self) -> str:
        return f"{self.container}-new"

    @property
    def free_blob(self) -> str:
        return f"{self.blob}-new"

    @property
    def source_address(self) -> str:
        """With the right to read it."""
        query = f"snapshot={quote(self.snapshot)}&" if self.snapshot else ""
        token = service_token(
            self.account, KEYS[self.account], self.container, self.source, permissions="r"
        )
        return f"{HERE}/{self.account}/{self.container}/{self.source}?{query}{token}"


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
    kind: str = "BlockBlob"
    """What the blob is that it is done to."""
    source: str = ""
    """What the blob is that it reads; empty if it reads none."""
    aborts: bool = False
    """There is a copy under way."""
    parts: tuple[Operation, ...] = ()
    """A batch of these, each signed by the owner."""
    is_twin: bool = False
    """Another form needs the same, and nearly asks for the same: it is probed in the long run."""

    def __str__(self) -> str:
        return self.name

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """Of the tests that take each form by itself."""
        return (pytest.mark.long,) if self.is_twin else ()

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
        request = Request(
            self.method, path, self.query, (("x-ms-version", VERSION), *self.headers), self.body
        )
        if self.source:
            request = request.having(("x-ms-copy-source", place.source_address))
        if self.aborts:
            request = request.asking(("copyid", place.copy_id))
        if self.parts:
            sign = shared_key(place.account, KEYS[place.account])
            body = batch([sign(part.request(place)) for part in self.parts])
            return replace(request.having(("Content-Type", CONTENT_TYPE)), body=body)
        return request


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
_APPEND = replace(_of_blob("append_block", "PUT", "appendblock"), kind="AppendBlob")
_PAGES = ("x-ms-range", f"bytes=0-{PAGE - 1}")
_UPDATE = ("x-ms-page-write", "update")
_PUT_PAGE = replace(_of_blob("put_page", "PUT", "page", _PAGES, _UPDATE), kind="PageBlob")
_COPY = replace(_of_blob("copy_blob", "PUT", "", _META), source="BlockBlob")
_COPY_AT_ONCE = replace(
    _of_blob("copy_blob_from_url", "PUT", "", _META, ("x-ms-requires-sync", "true")),
    source="BlockBlob",
)
_TIER = _of_blob("set_blob_tier", "PUT", "tier", ("x-ms-access-tier", "Cool"))
_DELETE = _of_blob("delete_blob", "DELETE")
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
    _DELETE,
    # Of other kinds
    replace(_APPEND, body=b"a line"),
    replace(_of_blob("append_blob_seal", "PUT", "seal"), kind="AppendBlob"),
    replace(_PUT_PAGE, body=b"p" * PAGE),
    replace(_of_blob("get_page_ranges", "GET", "pagelist"), kind="PageBlob"),
    # From sources
    replace(
        _of_blob("put_blob_from_url", "PUT", "", _BLOCK_BLOB, _META),
        name="put_blob_from_url_over_another",
        source="BlockBlob",
        is_twin=True,
    ),
    replace(
        _of_blob("put_blob_from_url", "PUT", "", _BLOCK_BLOB, _META),
        name="put_blob_from_url_as_new",
        source="BlockBlob",
        creates=True,
    ),
    replace(
        _PUT_BLOCK,
        name="put_block_from_url",
        row="put_block_from_url",
        source="BlockBlob",
        body=b"",
    ),
    replace(_APPEND, name="append_block_from_url", row="append_block_from_url", source="BlockBlob"),
    replace(
        _PUT_PAGE,
        name="put_page_from_url",
        row="put_page_from_url",
        headers=(_PAGES, _UPDATE, ("x-ms-source-range", _PAGES[1])),
        source="BlockBlob",
    ),
    replace(_COPY, name="copy_blob_over_another"),
    replace(_COPY, name="copy_blob_as_new", creates=True),
    replace(_COPY_AT_ONCE, name="copy_blob_from_url_over_another", is_twin=True),
    replace(_COPY_AT_ONCE, name="copy_blob_from_url_as_new", creates=True),
    replace(
        _of_blob("incremental_copy_blob", "PUT", "incrementalcopy"), source="PageBlob", creates=True
    ),
    replace(_of_blob("abort_copy_blob", "PUT", "copy", ("x-ms-copy-action", "abort")), aborts=True),
    # Tiers and tags
    _TIER,
    _of_blob("get_blob_tags", "GET", "tags"),
    replace(_of_blob("set_blob_tags", "PUT", "tags"), body=TAGS),
    replace(
        _of_service("find_blobs_by_tags", "blobs", ""), query=(("comp", "blobs"), ("where", WHERE))
    ),
    replace(
        _of_container("find_blobs_by_tags_in_container", "GET"),
        query=(("restype", "container"), ("comp", "blobs"), ("where", WHERE)),
    ),
    # Batches
    replace(_of_service("blob_batch", "batch", "", "POST"), parts=(_DELETE,)),
    replace(_of_container("blob_batch_in_container", "POST", "batch"), parts=(_TIER,)),
)
_READ_AS_OTHERS_ARE: Final = {
    "get_page_ranges",
    "get_blob_tags",
    "find_blobs_by_tags",
    "find_blobs_by_tags_in_container",
}
_HEADS: Final = tuple(
    replace(
        form, name=f"head_of_{form.name}", method="HEAD", is_twin=form.row in _READ_AS_OTHERS_ARE
    )
    for form in _FORMS
    if form.method == "GET" and form.row != "get_blob"
)

OPERATIONS: Final = (*_FORMS, *_HEADS)
each_operation: Final = pytest.mark.parametrize(
    "operation", [pytest.param(form, id=str(form), marks=form.marks) for form in OPERATIONS]
)
