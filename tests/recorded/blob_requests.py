"""What the cases of the blob service prepare and send."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from tests.probes.client import Answer, Request, http_date, md5
from tests.probes.tokens import service_token
from tests.recorded.cases import Catalogue, Scene, other_account
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
# As clients are sent to the server by the driver.
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

# What is there before


def container(scene: Scene, **headers: str) -> str:
    scene.do("PUT", scene.name, CONTAINER, headers)
    return scene.name


def put(scene: Scene, kind: str = "block", name: str = "blob", **headers: str) -> str:
    """The path of a blob in a new container, or in the one that is there."""
    if name == "blob":
        container(scene)
    path = f"{scene.name}/{name}"
    said = {key.replace("_", "-"): value for key, value in headers.items()}
    body = CONTENT if kind == "block" else b""
    scene.do("PUT", path, {}, {**KINDS[kind], **said}, body)
    return path


def tagged(scene: Scene) -> str:
    return put(scene, x_ms_tags="tag1=one")


def appended(scene: Scene) -> str:
    path = put(scene, "append")
    scene.do("PUT", path, {"comp": "appendblock"}, {}, CONTENT)
    return path


def paged(scene: Scene) -> str:
    path = put(scene, "page")
    for start in (0, 1024):
        headers = {"x-ms-page-write": "update", "x-ms-range": f"bytes={start}-{start + 511}"}
        scene.do("PUT", path, {"comp": "page"}, headers, PAGES)
    return path


def staged(scene: Scene) -> str:
    container(scene)
    path = f"{scene.name}/blob"
    scene.do("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, {}, CONTENT)
    return path


def staged_again(scene: Scene) -> str:
    """A block for a blob that is there."""
    path = put(scene)
    scene.do("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, {}, CONTENT)
    return path


def committed(scene: Scene) -> str:
    path = staged(scene)
    scene.do("PUT", path, {"comp": "blocklist"}, XML, BLOCK_LIST)
    return path


def sealed(scene: Scene) -> str:
    path = appended(scene)
    scene.do("PUT", path, {"comp": "seal"})
    return path


def leased(scene: Scene, duration: str = "-1") -> str:
    return lease(scene, put(scene), duration)


def lease(scene: Scene, path: str, duration: str = "-1") -> str:
    headers = {
        "x-ms-lease-action": "acquire",
        "x-ms-lease-duration": duration,
        "x-ms-proposed-lease-id": LEASE,
    }
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **CONTAINER}
    scene.do("PUT", path, query, headers)
    return path


def broken(scene: Scene, path: str) -> str:
    headers = {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **CONTAINER}
    scene.do("PUT", lease(scene, path), query, headers)
    return path


def snapshot(scene: Scene, path: str) -> str:
    return scene.do("PUT", path, {"comp": "snapshot"}).headers["x-ms-snapshot"]


def copied(scene: Scene) -> str:
    path = put(scene)
    scene.do("PUT", path, {}, {"x-ms-copy-source": source(scene)})
    return path


def source(scene: Scene, kind: str = "block") -> str:
    """The address of another blob of the container, with a token."""
    put(scene, kind, "source")
    if kind == "page":
        headers = {"x-ms-page-write": "update", **RANGE}
        scene.do("PUT", f"{scene.name}/source", {"comp": "page"}, headers, PAGES)
    return address(scene)


def address(scene: Scene, name: str = "source") -> str:
    token = service_token(ACCOUNT, KEY, scene.name, name, sv="2021-08-06")
    return f"{HERE}/{ACCOUNT}/{scene.name}/{name}?{token}"


def private(scene: Scene) -> str:
    """The address of a blob of another account, without a token."""
    elsewhere = other_account(scene)
    elsewhere.do("PUT", elsewhere.name, CONTAINER)
    elsewhere.do("PUT", f"{elsewhere.name}/source", {}, BLOCK, PAGES)
    return f"{HERE}/{SECOND_ACCOUNT}/{elsewhere.name}/source"


def head(scene: Scene, path: str) -> Answer:
    return scene.do("HEAD", path)


# Put Blob and its like

Maker = Callable[[Scene, str, dict[str, str]], Request]


def upload(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**BLOCK, **headers}, CONTENT)


def new_append(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**APPEND, **headers})


def new_page(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**PAGE, **headers})


def append(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "appendblock"}, headers, CONTENT)


def append_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-copy-source": address(scene), **headers}
    return scene.request("PUT", path, {"comp": "appendblock"}, said)


def upload_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": address(scene)}
    said["x-ms-copy-source-blob-properties"] = "true"
    return scene.request("PUT", path, {}, {**said, **headers})


def stage(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    query = {"comp": "block", "blockid": BLOCK_ID}
    return scene.request("PUT", path, query, headers, CONTENT)


def stage_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-copy-source": address(scene), "x-ms-source-range": "bytes=0-5", **headers}
    return scene.request("PUT", path, {"comp": "block", "blockid": BLOCK_ID}, said)


def commit(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "blocklist"}, {**XML, **headers}, BLOCK_LIST)


def update_pages(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-page-write": "update", **RANGE, **headers}
    return scene.request("PUT", path, {"comp": "page"}, said, PAGES)


def update_pages_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-page-write": "update", **RANGE, "x-ms-source-range": "bytes=0-511"}
    said["x-ms-copy-source"] = address(scene)
    return scene.request("PUT", path, {"comp": "page"}, {**said, **headers})


def get(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("GET", path, {}, {"x-ms-range": "bytes=0-33554431", **headers})


def look(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("HEAD", path, {}, headers)


def delete(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("DELETE", path, {}, headers)


def copy(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-copy-source": address(scene), **headers}
    return scene.request("PUT", path, {}, said)


def copy_at_once(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return copy(scene, path, {"x-ms-requires-sync": "True", **headers})


def set_headers(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-blob-content-language": "spanish", **headers}
    return scene.request("PUT", path, {"comp": "properties"}, said)


def set_metadata(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-meta-hello": "world", **headers}
    return scene.request("PUT", path, {"comp": "metadata"}, said)


def acquire(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    said["x-ms-proposed-lease-id"] = LEASE
    return scene.request("PUT", path, {"comp": "lease"}, {**said, **headers})


def take_snapshot(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "snapshot"}, headers)


def get_tags(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("GET", path, {"comp": "tags"}, headers)


def set_tags(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "tags"}, {**XML, **headers}, TAGS)


def get_blocks(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    query = {"comp": "blocklist", "blocklisttype": "all"}
    return scene.request("GET", path, query, headers)


def get_ranges(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("GET", path, {"comp": "pagelist"}, headers)


def add(
    operation: str,
    status: int,
    make: Maker,
    prepare: Callable[[Scene], str],
    code: str = "",
    headers: dict[str, str] | None = None,
    **options: object,
) -> None:
    """A case of a request to what `prepare` leaves. In the headers `<etag>` and `<source>` stand
    for the current ETags of the blob and of its source."""

    def made(scene: Scene) -> Request:
        path = prepare(scene)
        said = dict(headers or {})
        for name, value in said.items():
            for mark, where in (("<etag>", path), ("<source>", f"{scene.name}/source")):
                if mark in value:
                    etag = head(scene, where).headers["etag"].strip('"')
                    said[name] = value.replace(mark, etag)
        return make(scene, path, said)

    BLOB.add(operation, status, code, make=made, **options)  # type: ignore[arg-type]


def fresh(scene: Scene) -> str:
    """A name that is free, in a new container."""
    return f"{container(scene)}/blob"


def with_source(prepare: Callable[[Scene], str], kind: str = "block") -> Callable[[Scene], str]:
    def both(scene: Scene) -> str:
        path = prepare(scene)
        source(scene, kind)
        return path

    return both


def empty_append(scene: Scene) -> str:
    return put(scene, "append")


def empty_page(scene: Scene) -> str:
    return put(scene, "page", x_ms_blob_sequence_number="10")


def acquire_container(scene: Scene, headers: dict[str, str]) -> Request:
    said = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    said |= {"x-ms-proposed-lease-id": LEASE, **headers}
    path = container(scene)
    return scene.request("PUT", path, {"comp": "lease", **CONTAINER}, said)
