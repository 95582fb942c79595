"""Setup and requests of the cases of the file service."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tests.probes.client import Answer, Request
from tests.probes.tokens import share_token
from tests.recorded.cases import CaseContext, Catalogue, other_account, signer
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT

FILE: Final = Catalogue("file")
SHARE: Final = {"restype": "share"}
DIRECTORY: Final = {"restype": "directory"}
RANGE: Final = {"comp": "range"}
XML: Final = {"Content-Type": "application/xml"}
META: Final = {"x-ms-meta-hello": "world", "x-ms-meta-number": "42"}
DOTS: Final = {"x-ms-allow-trailing-dot": "true"}
BACKUP: Final = {"x-ms-file-request-intent": "backup"}
NEW: Final = {
    "x-ms-file-attributes": "none",
    "x-ms-file-creation-time": "now",
    "x-ms-file-last-write-time": "now",
    "x-ms-file-permission": "Inherit",
}
PRESERVED: Final = {
    "x-ms-file-attributes": "preserve",
    "x-ms-file-creation-time": "preserve",
    "x-ms-file-last-write-time": "preserve",
    "x-ms-file-permission": "preserve",
}
TIMES: Final = {
    "x-ms-file-creation-time": "2019-05-10T17:21:36.1234567Z",
    "x-ms-file-last-write-time": "2019-05-11T17:21:36.7654321Z",
    "x-ms-file-change-time": "2019-05-12T17:21:36.0000001Z",
}
SDDL: Final = (
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751"
    "G:S-1-5-21-2127521184-1604012920-1887927527-513"
    "D:AI(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;"
    "S-1-5-21-397955417-626881126-188441444-3053964)S:NO_ACCESS_CONTROL"
)
CONTENT: Final = b"hello world"
SECTORS: Final = b"abcdefgh" * 128
LEASE: Final = "11111111-2222-3333-4444-555555555555"
OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
WITH_LEASE: Final = {"x-ms-lease-id": LEASE}
# The host of source URLs, which the requests of the driver name too.
HERE: Final = "http://127.0.0.1"

# The versions in which the recorded requests were sent, if not in all of `VERSIONS`.
FILE_LEASES: Final = ("2019-07-07", "2021-06-08")
SHARE_LEASES: Final = ("2020-02-10", "2021-06-08")
RENAMES: Final = ("2021-04-10", "2021-06-08")
TRAILING_DOTS: Final = ("2022-11-02",)
NEWER: Final = ("2021-06-08",)

# Setup


def share(context: CaseContext, **headers: str) -> str:
    context.do("PUT", context.name, SHARE, named(headers))
    return context.name


def named(headers: dict[str, str]) -> dict[str, str]:
    """Returns headers whose names are written as those of keyword arguments."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def fresh(context: CaseContext) -> str:
    """Returns a free path in a new share."""
    return f"{share(context)}/entry"


def directory(context: CaseContext, name: str = "directory", **headers: str) -> str:
    """Returns the path of a directory in a new share, or in the existing one if it has another
    name."""
    if name == "directory":
        share(context)
    path = f"{context.name}/{name}"
    context.do("PUT", path, DIRECTORY, {**NEW, **named(headers)})
    return path


def put(context: CaseContext, name: str = "file", content: bytes = CONTENT, **headers: str) -> str:
    """Returns the path of a file in a new share, or in the existing one if it has another name."""
    if name == "file":
        share(context)
    path = f"{context.name}/{name}"
    length = {"x-ms-type": "file", "x-ms-content-length": str(len(content))}
    context.do("PUT", path, {}, {**NEW, **length, **named(headers)})
    if content:
        write(context, path, content)
    return path


def empty(context: CaseContext) -> str:
    return put(context, content=b"")


def write(
    context: CaseContext, path: str, content: bytes, start: int = 0, **headers: str
) -> Answer:
    sent = {"x-ms-write": "update", "x-ms-range": f"bytes={start}-{start + len(content) - 1}"}
    return context.do("PUT", path, RANGE, {**sent, **named(headers)}, content)


def clear(context: CaseContext, path: str, start: int, length: int) -> Answer:
    sent = {"x-ms-write": "clear", "x-ms-range": f"bytes={start}-{start + length - 1}"}
    return context.do("PUT", path, RANGE, sent)


def lease(context: CaseContext, path: str, duration: str = "-1", snapshot: str = "") -> str:
    """Leases a file, a share or a snapshot of one."""
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **SHARE}
    if snapshot:
        query["sharesnapshot"] = snapshot
    sent = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": duration}
    context.do("PUT", path, query, {**sent, "x-ms-proposed-lease-id": LEASE})
    return path


def break_lease(context: CaseContext, path: str, **headers: str) -> Answer:
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **SHARE}
    sent = {"x-ms-lease-action": "break", **named(headers)}
    return context.do("PUT", path, query, sent)


def leased(context: CaseContext) -> str:
    return lease(context, put(context))


def leased_share(context: CaseContext) -> str:
    return lease(context, share(context))


def take_snapshot(context: CaseContext) -> str:
    """Returns the time of a new snapshot of the share."""
    query = {"comp": "snapshot", **SHARE}
    return context.do("PUT", context.name, query).headers["x-ms-snapshot"]


def head(context: CaseContext, path: str, **query: str) -> dict[str, str]:
    """Returns the headers of a file."""
    return context.do("HEAD", path, query).headers


def look(context: CaseContext, path: str, **query: str) -> dict[str, str]:
    """Returns the headers of a directory."""
    return context.do("GET", path, {**DIRECTORY, **query}).headers


def address(context: CaseContext, name: str = "source") -> str:
    """Returns the URL of a file of the share, with a token."""
    token = share_token(ACCOUNT, KEY, context.name, name, sv="2021-06-08")
    return f"{HERE}/{ACCOUNT}/{context.name}/{name}?{token}"


def with_source(prepare: Callable[[CaseContext], str]) -> Callable[[CaseContext], str]:
    def both(context: CaseContext) -> str:
        path = prepare(context)
        put(context, "source", SECTORS)
        return path

    return both


def private(context: CaseContext) -> str:
    """Returns the URL of a file of another account, without a token."""
    elsewhere = other_account(context)
    put(elsewhere, content=SECTORS)
    return f"{HERE}/{SECOND_ACCOUNT}/{elsewhere.name}/file"


def private_blob(context: CaseContext) -> str:
    """Returns the URL of a blob, without a token."""
    blobs = CaseContext(context.target, "blob", "2021-08-06")
    blobs.do("PUT", blobs.name, {"restype": "container"})
    blobs.do("PUT", f"{blobs.name}/blob", {}, {"x-ms-blob-type": "BlockBlob"}, SECTORS)
    return f"{context.target.server.url('blob')}/{blobs.name}/blob"


def copied(context: CaseContext) -> str:
    path = with_source(put)(context)
    context.do("PUT", path, {}, {"x-ms-copy-source": address(context)})
    return path


# Accounts in which deleted shares are kept


def keeping(context: CaseContext) -> CaseContext:
    """Returns the context of the second account, whose deleted shares can be restored."""
    elsewhere = other_account(context)
    policy = "<Enabled>true</Enabled><Days>7</Days>"
    document = (
        "<StorageServiceProperties><ShareDeleteRetentionPolicy>"
        f"{policy}</ShareDeleteRetentionPolicy></StorageServiceProperties>"
    )
    query = {"restype": "service", "comp": "properties"}
    elsewhere.do("PUT", "", query, XML, document)
    return elsewhere


def deleted_version(context: CaseContext) -> str:
    """Deletes a new share, and returns the version that identifies it."""
    context.do("DELETE", share(context), SHARE)
    query = {"comp": "list", "include": "deleted", "prefix": context.name}
    found = re.search("<Version>(.*?)<", context.do("GET", "", query).body.decode())
    assert found is not None
    return found[1]


def signed_elsewhere(request: Request) -> Request:
    return signer("file", SECOND_ACCOUNT)(request)


# Cases

Maker = Callable[[CaseContext, str, dict[str, str]], Request]


def request(
    method: str, query: dict[str, str] | None = None, body: bytes | str = b"", **fixed: str
) -> Maker:
    """Returns a maker of requests with a fixed method, query, body and headers."""

    def make(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
        return context.request(method, path, query, {**named(fixed), **headers}, body)

    return make


def add(
    operation: str,
    status: int,
    make: Maker,
    prepare: Callable[[CaseContext], str],
    code: str = "",
    headers: dict[str, str] | None = None,
    **options: object,
) -> None:
    """Adds a case of a request after `prepare`, which returns its path."""

    def build(context: CaseContext) -> Request:
        return make(context, prepare(context), headers or {})

    FILE.add(operation, status, code, make=build, **options)  # type: ignore[arg-type]


create_directory: Final = request("PUT", DIRECTORY)
get_directory: Final = request("GET", DIRECTORY)
delete_directory: Final = request("DELETE", DIRECTORY)
set_directory: Final = request("PUT", {"comp": "properties", **DIRECTORY})
create_file: Final = request("PUT", x_ms_type="file", x_ms_content_length="1024")
get_file: Final = request("GET")
get_range: Final = request("GET", x_ms_range="bytes=0-33554431")
get_properties: Final = request("HEAD")
delete_file: Final = request("DELETE")
set_file: Final = request("PUT", {"comp": "properties"})
set_metadata: Final = request("PUT", {"comp": "metadata"})
put_range: Final = request(
    "PUT", RANGE, CONTENT, x_ms_write="update", x_ms_range=f"bytes=0-{len(CONTENT) - 1}"
)
list_ranges: Final = request("GET", {"comp": "rangelist"})
get_share: Final = request("GET", SHARE)
delete_share: Final = request("DELETE", SHARE)


def put_range_from(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    whole = f"bytes=0-{len(SECTORS) - 1}"
    sent = {"x-ms-write": "update", "x-ms-range": whole, "x-ms-source-range": whole}
    sent |= {"x-ms-copy-source": address(context), "Content-Type": "application/xml"}
    return context.request("PUT", path, RANGE, {**sent, **headers})


def copy(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {}, {"x-ms-copy-source": address(context), **headers})


def rename(kind: str) -> Maker:
    """Returns a maker of requests that rename the entry `source` of the share."""
    query = {"comp": "rename", **(DIRECTORY if kind == "directory" else {})}

    def make(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
        source = f"{HERE}/{ACCOUNT}/{context.name}/source"
        return context.request("PUT", path, query, {"x-ms-file-rename-source": source, **headers})

    return make


def lease_action(action: str, **fixed: str) -> Maker:
    """Returns a maker of lease actions on a file or a share."""

    def make(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
        query = {"comp": "lease"} if "/" in path else {"comp": "lease", **SHARE}
        sent = {"x-ms-lease-action": action, **named(fixed), **headers}
        return context.request("PUT", path, query, sent)

    return make
