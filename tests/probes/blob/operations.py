"""Every operation of the blob service, as a request that succeeds if its sender is authorized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple
from urllib.parse import quote

import pytest

from tests.probes.blob.batches import CONTENT_TYPE, batch
from tests.probes.client import VERSION, Pairs, Request, shared_key
from tests.probes.service import KEYS, POLICIES, PROPERTIES, Operation
from tests.probes.token_kinds import ACCOUNT_KIND, TokenKind
from tests.probes.tokens import BLOB_LETTERS, CONTAINER_LETTERS, Token, service_token
from tests.server import ACCOUNT, KEY

_INVISIBLE: Final = {
    "renew_container_lease", "change_container_lease", "renew_blob_lease", "change_blob_lease",
}  # fmt: skip
"""Renewing an infinite lease, and changing its id, show in no answer."""
_UNCONDITIONAL: Final = {
    "put_block", "put_block_from_url", "get_block_list", "set_blob_tier", "get_blob_tags",
    "set_blob_tags", "abort_copy_blob", "create_container", "get_container_properties",
    "get_container_metadata", "get_container_acl", "list_blobs", "list_containers",
    "find_blobs_by_tags", "find_blobs_by_tags_in_container", "blob_batch",
    "blob_batch_in_container", "get_account_information", "get_blob_service_properties",
    "set_blob_service_properties", "get_blob_service_stats",
}  # fmt: skip
"""Rows of operations that refuse conditions, or ignore them."""
LEASE: Final = "11111111-2222-3333-4444-555555555555"
OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
TAGS: Final = b"<Tags><TagSet><Tag><Key>kind</Key><Value>tome</Value></Tag></TagSet></Tags>"
WHERE: Final = quote("kind='book'")
PAGE: Final = 512
SERVER_URL: Final = "http://127.0.0.1"
"""The URL of the server in copy sources: the Host header that the probes send."""


class BlobTarget(NamedTuple):
    """An existing container with a blob, and names that are free."""

    container: str
    blob: str = "shelf/book"
    leased: bool = False
    """Whether both are leased, under `LEASE`."""
    account: str = ACCOUNT
    source: str = "shelf/source"
    """The name of the blob that operations with a source copy from."""
    snapshot: str = ""
    """The snapshot of the source, for operations that copy from one."""
    copy_id: str = ""
    """The id of the pending copy, for the operation that aborts one."""

    @property
    def free_container(self) -> str:
        return f"{self.container}-new"

    @property
    def free_blob(self) -> str:
        return f"{self.blob}-new"

    @property
    def source_address(self) -> str:
        """The URL of the source, with a token to read it."""
        query = f"snapshot={quote(self.snapshot)}&" if self.snapshot else ""
        token = service_token(
            self.account, KEYS[self.account], self.container, self.source, permissions="r"
        )
        return f"{SERVER_URL}/{self.account}/{self.container}/{self.source}?{query}{token}"


@dataclass(frozen=True)
class BlobOperation(Operation[BlobTarget]):
    """An operation of the blob service."""

    service: ClassVar[str] = "blob"

    level: str
    """The kind of resource in its URL: service, container or blob."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    creates: bool = False
    """Whether its target is a name that is free."""
    needs_lease: bool = False
    secondary: bool = False
    """Whether it is sent to the secondary endpoint."""
    kind: str = "BlockBlob"
    """The type of the blob that it is applied to."""
    source: str = ""
    """The type of the blob that it copies from, if any."""
    aborts: bool = False
    """Whether it needs a pending copy."""
    parts: tuple[BlobOperation, ...] = ()
    """The operations in a batch, each signed by the owner."""
    is_redundant: bool = False
    """Whether another operation needs the same rights; then it is probed in the long run only."""

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.long,) if self.is_redundant else ()

    @property
    def changes_state(self) -> bool:
        return self.method not in {"GET", "HEAD"} and self.row not in _INVISIBLE

    @property
    def creates_object(self) -> bool:
        return self.creates and self.level == "blob"

    @property
    def is_conditional(self) -> bool:
        return self.row not in _UNCONDITIONAL

    def neutral_headers(self, request: Request) -> dict[str, str]:
        headers = super().neutral_headers(request)
        if self.row in _UNCONDITIONAL:
            return headers
        headers |= {
            "If-Modified-Since": "Sat, 01 Jan 2000 00:00:00 GMT",
            "If-None-Match": '"0x1"',
            "If-Unmodified-Since": "Thu, 01 Jan 2099 00:00:00 GMT",
        }
        return headers if self.creates else headers | {"If-Match": "*"}

    def request(self, target: BlobTarget) -> Request:
        container = target.free_container if self.creates else target.container
        blob = target.free_blob if self.creates else target.blob
        path = f"/{target.account}{'-secondary' if self.secondary else ''}/"
        if self.level == "container":
            path += container
        elif self.level == "blob":
            path += f"{target.container}/{blob}"
        request = Request(
            self.method, path, self.query, (("x-ms-version", VERSION), *self.headers), self.body
        )
        if self.source:
            request = request.having(("x-ms-copy-source", target.source_address))
        if self.aborts:
            request = request.asking(("copyid", target.copy_id))
        if self.parts:
            sign = shared_key(target.account, KEYS[target.account])
            body = batch([sign(part.request(target)) for part in self.parts])
            return replace(request.having(("Content-Type", CONTENT_TYPE)), body=body)
        return request


def _of_service(
    row: str, comp: str, restype: str = "service", method: str = "GET"
) -> BlobOperation:
    query = (("restype", restype), ("comp", comp)) if restype else (("comp", comp),)
    return BlobOperation(row, row, method, "service", query)


def _of_container(
    row: str, method: str, comp: str = "", *headers: tuple[str, str]
) -> BlobOperation:
    query: Pairs = (("restype", "container"),)
    query += (("comp", comp),) if comp else ()
    return BlobOperation(row, row, method, "container", query, headers)


def _leases(of: Callable[..., BlobOperation], what: str) -> Iterator[BlobOperation]:
    """The five actions on the lease of a container or a blob."""
    lease_id, proposed = ("x-ms-lease-id", LEASE), ("x-ms-proposed-lease-id", OTHER_LEASE)
    for action, headers in {
        "acquire": (("x-ms-lease-duration", "-1"),),
        "renew": (lease_id,),
        "change": (lease_id, proposed),
        "release": (lease_id,),
        "break": (("x-ms-lease-break-period", "0"),),
    }.items():
        row = f"{action}_{what}_lease"
        operation = of(row, "PUT", "lease", ("x-ms-lease-action", action), *headers)
        yield replace(operation, needs_lease=action != "acquire")


def _of_blob(row: str, method: str, comp: str = "", *headers: tuple[str, str]) -> BlobOperation:
    return BlobOperation(row, row, method, "blob", (("comp", comp),) if comp else (), headers)


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

_BASIC_OPERATIONS: Final = (
    _of_service("list_containers", "list", ""),
    _of_service("get_blob_service_properties", "properties"),
    replace(
        _of_service("set_blob_service_properties", "properties", method="PUT"), body=PROPERTIES
    ),
    replace(_of_service("get_blob_service_stats", "stats"), secondary=True),
    *(
        BlobOperation(f"{_INFORMATION}_of_{level}", _INFORMATION, "GET", level, _OF_ACCOUNT)
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
    # Append and page blobs
    replace(_APPEND, body=b"a line"),
    replace(_of_blob("append_blob_seal", "PUT", "seal"), kind="AppendBlob"),
    replace(_PUT_PAGE, body=b"p" * PAGE),
    replace(_of_blob("get_page_ranges", "GET", "pagelist"), kind="PageBlob"),
    # From a source URL
    replace(
        _of_blob("put_blob_from_url", "PUT", "", _BLOCK_BLOB, _META),
        name="put_blob_from_url_over_another",
        source="BlockBlob",
        is_redundant=True,
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
    replace(_COPY_AT_ONCE, name="copy_blob_from_url_over_another", is_redundant=True),
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
_REDUNDANT_READS: Final = {
    "get_page_ranges",
    "get_blob_tags",
    "find_blobs_by_tags",
    "find_blobs_by_tags_in_container",
}
_HEADS: Final = tuple(
    replace(
        form, name=f"head_of_{form.name}", method="HEAD", is_redundant=form.row in _REDUNDANT_READS
    )
    for form in _BASIC_OPERATIONS
    if form.method == "GET" and form.row != "get_blob"
)

OPERATIONS: Final = (*_BASIC_OPERATIONS, *_HEADS)


# Tokens


def _container_token(
    operation: BlobOperation,
    target: BlobTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    creates = operation.creates and operation.level == "container"
    container = target.free_container if creates else target.container
    return service_token(account, key, container, **options)


def _blob_token(
    operation: BlobOperation,
    target: BlobTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    blob = target.free_blob if operation.creates else target.blob
    return service_token(account, key, target.container, blob, **options)


CONTAINER_KIND: Final = TokenKind(
    "container",
    CONTAINER_LETTERS,
    _container_token,
    "c",
    has_policies=True,
)
BLOB_KIND: Final = TokenKind(
    "blob",
    BLOB_LETTERS,
    _blob_token,
    "b",
)
TOKEN_KINDS: Final = (ACCOUNT_KIND, CONTAINER_KIND, BLOB_KIND)
