"""Setup and requests of the cases of the blob service."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from tests.probes.client import Answer, Request, http_date, md5
from tests.probes.tokens import service_token
from tests.recorded.cases import CaseContext, Catalogue, other_account
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT

BLOB: Final = Catalogue("blob")
BLOCK: Final = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
APPEND: Final = {"x-ms-blob-type": "AppendBlob"}
PAGE: Final = {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": "2048"}
KINDS: Final = {"block": BLOCK, "append": APPEND, "page": PAGE}
CONTAINER: Final = {"restype": "container"}
XML: Final = {"Content-Type": "application/xml"}
CONTENT: Final = b"hello world"
PAGES: Final = b"p" * 512
RANGE: Final = {"x-ms-range": "bytes=0-511"}
LEASE: Final = "11111111-2222-3333-4444-555555555555"
OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
BLOCK_ID: Final = base64.b64encode(b"block-0001").decode()
BLOCK_LIST: Final = f"<BlockList><Latest>{BLOCK_ID}</Latest></BlockList>"
TAGS: Final = "<Tags><TagSet><Tag><Key>tag1</Key><Value>one</Value></Tag></TagSet></Tags>"
WRONG_MD5: Final = md5(b"something else")
NO_ETAG: Final = "0x111111111111111"
# The host of source URLs, which the requests of the driver name too.
HERE: Final = "http://127.0.0.1"
COPY_HEADERS: Final = frozenset(
    f"x-ms-copy-{name}" for name in ("completion-time", "id", "progress", "source", "status")
)
LEASE_HEADERS: Final = frozenset({"x-ms-lease-state", "x-ms-lease-status"})


ACL: Final = {**CONTAINER, "comp": "acl"}
META: Final = {"x-ms-meta-hello": "world"}
PAST: Final = http_date(-900)
FUTURE: Final = http_date(900)
UNMET: Final = {
    "If-Match": {"If-Match": NO_ETAG},
    "If-None-Match": {"If-None-Match": "<etag>"},
    "If-Modified-Since": {"If-Modified-Since": FUTURE},
    "If-Unmodified-Since": {"If-Unmodified-Since": PAST},
    "x-ms-if-tags": {"x-ms-if-tags": "\"tag1\"='two'"},
}

# Setup


def container(context: CaseContext, **headers: str) -> str:
    context.do("PUT", context.name, CONTAINER, headers)
    return context.name


def put(context: CaseContext, kind: str = "block", name: str = "blob", **headers: str) -> str:
    """Returns the path of a blob in a new container, or in an existing one."""
    if name == "blob":
        container(context)
    path = f"{context.name}/{name}"
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    body = CONTENT if kind == "block" else b""
    context.do("PUT", path, {}, {**KINDS[kind], **sent}, body)
    return path


def tagged(context: CaseContext) -> str:
    return put(context, x_ms_tags="tag1=one")


def appended(context: CaseContext) -> str:
    path = put(context, "append")
    context.do("PUT", path, {"comp": "appendblock"}, {}, CONTENT)
    return path


def paged(context: CaseContext) -> str:
    path = put(context, "page")
    for start in (0, 1024):
        headers = {"x-ms-page-write": "update", "x-ms-range": f"bytes={start}-{start + 511}"}
        context.do("PUT", path, {"comp": "page"}, headers, PAGES)
    return path


def staged(context: CaseContext) -> str:
    container(context)
    path = f"{context.name}/blob"
    context.do("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, {}, CONTENT)
    return path


def staged_again(context: CaseContext) -> str:
    """Stages a block for an existing blob."""
    path = put(context)
    context.do("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, {}, CONTENT)
    return path


def committed(context: CaseContext) -> str:
    path = staged(context)
    context.do("PUT", path, {"comp": "blocklist"}, XML, BLOCK_LIST)
    return path


def sealed(context: CaseContext) -> str:
    path = appended(context)
    context.do("PUT", path, {"comp": "seal"})
    return path


def leased(context: CaseContext, duration: str = "-1") -> str:
    return lease(context, put(context), duration)


def lease(context: CaseContext, path: str, duration: str = "-1") -> str:
    headers = {
        "x-ms-lease-action": "acquire",
        "x-ms-lease-duration": duration,
        "x-ms-proposed-lease-id": LEASE,
    }
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **CONTAINER}
    context.do("PUT", path, query, headers)
    return path


def broken(context: CaseContext, path: str) -> str:
    headers = {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **CONTAINER}
    context.do("PUT", lease(context, path), query, headers)
    return path


def snapshot(context: CaseContext, path: str) -> str:
    return context.do("PUT", path, {"comp": "snapshot"}).headers["x-ms-snapshot"]


def copied(context: CaseContext) -> str:
    path = put(context)
    context.do("PUT", path, {}, {"x-ms-copy-source": source(context)})
    return path


def source(context: CaseContext, kind: str = "block") -> str:
    """Returns the URL of another blob of the container, with a token."""
    put(context, kind, "source")
    if kind == "page":
        headers = {"x-ms-page-write": "update", **RANGE}
        context.do("PUT", f"{context.name}/source", {"comp": "page"}, headers, PAGES)
    return address(context)


def address(context: CaseContext, name: str = "source") -> str:
    token = service_token(ACCOUNT, KEY, context.name, name, sv="2021-08-06")
    return f"{HERE}/{ACCOUNT}/{context.name}/{name}?{token}"


def private(context: CaseContext) -> str:
    """Returns the URL of a blob of another account, without a token."""
    elsewhere = other_account(context)
    elsewhere.do("PUT", elsewhere.name, CONTAINER)
    elsewhere.do("PUT", f"{elsewhere.name}/source", {}, BLOCK, PAGES)
    return f"{HERE}/{SECOND_ACCOUNT}/{elsewhere.name}/source"


def head(context: CaseContext, path: str) -> Answer:
    return context.do("HEAD", path)


# Requests

Maker = Callable[[CaseContext, str, dict[str, str]], Request]


def upload(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {}, {**BLOCK, **headers}, CONTENT)


def new_append(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {}, {**APPEND, **headers})


def new_page(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {}, {**PAGE, **headers})


def append(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {"comp": "appendblock"}, headers, CONTENT)


def append_from(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-copy-source": address(context), **headers}
    return context.request("PUT", path, {"comp": "appendblock"}, sent)


def upload_from(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": address(context)}
    sent["x-ms-copy-source-blob-properties"] = "true"
    return context.request("PUT", path, {}, {**sent, **headers})


def stage(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    query = {"comp": "block", "blockid": BLOCK_ID}
    return context.request("PUT", path, query, headers, CONTENT)


def stage_from(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-copy-source": address(context), "x-ms-source-range": "bytes=0-5", **headers}
    return context.request("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, sent)


def commit(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {"comp": "blocklist"}, {**XML, **headers}, BLOCK_LIST)


def update_pages(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-page-write": "update", **RANGE, **headers}
    return context.request("PUT", path, {"comp": "page"}, sent, PAGES)


def update_pages_from(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-page-write": "update", **RANGE, "x-ms-source-range": "bytes=0-511"}
    sent["x-ms-copy-source"] = address(context)
    return context.request("PUT", path, {"comp": "page"}, {**sent, **headers})


def get(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("GET", path, {}, {"x-ms-range": "bytes=0-33554431", **headers})


def look(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("HEAD", path, {}, headers)


def delete(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("DELETE", path, {}, headers)


def copy(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-copy-source": address(context), **headers}
    return context.request("PUT", path, {}, sent)


def copy_at_once(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return copy(context, path, {"x-ms-requires-sync": "True", **headers})


def set_headers(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-blob-content-language": "spanish", **headers}
    return context.request("PUT", path, {"comp": "properties"}, sent)


def set_metadata(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-meta-hello": "world", **headers}
    return context.request("PUT", path, {"comp": "metadata"}, sent)


def acquire(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    sent = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    sent["x-ms-proposed-lease-id"] = LEASE
    return context.request("PUT", path, {"comp": "lease"}, {**sent, **headers})


def take_snapshot(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {"comp": "snapshot"}, headers)


def get_tags(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("GET", path, {"comp": "tags"}, headers)


def set_tags(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {"comp": "tags"}, {**XML, **headers}, TAGS)


def get_blocks(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    query = {"comp": "blocklist", "blocklisttype": "all"}
    return context.request("GET", path, query, headers)


def get_ranges(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("GET", path, {"comp": "pagelist"}, headers)


def add(
    operation: str,
    status: int,
    make: Maker,
    prepare: Callable[[CaseContext], str],
    code: str = "",
    headers: dict[str, str] | None = None,
    **options: object,
) -> None:
    """Adds a case of a request after `prepare`. In headers, `<etag>` and `<source>` stand for the
    current ETags of the blob and of its source."""

    def build(context: CaseContext) -> Request:
        path = prepare(context)
        sent = dict(headers or {})
        for name, value in sent.items():
            for mark, where in (("<etag>", path), ("<source>", f"{context.name}/source")):
                if mark in value:
                    etag = head(context, where).headers["etag"].strip('"')
                    sent[name] = value.replace(mark, etag)
        return make(context, path, sent)

    BLOB.add(operation, status, code, make=build, **options)  # type: ignore[arg-type]


def fresh(context: CaseContext) -> str:
    """Returns a free name in a new container."""
    return f"{container(context)}/blob"


def with_source(
    prepare: Callable[[CaseContext], str], kind: str = "block"
) -> Callable[[CaseContext], str]:
    def both(context: CaseContext) -> str:
        path = prepare(context)
        source(context, kind)
        return path

    return both


def empty_append(context: CaseContext) -> str:
    return put(context, "append")


def empty_page(context: CaseContext) -> str:
    return put(context, "page", x_ms_blob_sequence_number="10")


def acquire_container(context: CaseContext, headers: dict[str, str]) -> Request:
    sent = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    sent |= {"x-ms-proposed-lease-id": LEASE, **headers}
    path = container(context)
    return context.request("PUT", path, {"comp": "lease", **CONTAINER}, sent)
