"""Requests to the blob service."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Final

from tests.probes.client import Answer, Request, http_date, md5, shared_key
from tests.probes.parts import CONTENT_TYPE, batch
from tests.probes.tokens import service_token
from tests.recorded.cases import Catalogue, Scene, other_account, signer
from tests.recorded.queue_cases import (
    BARE_POLICY,
    POLICY,
    add_service_properties,
    metrics,
    properties,
)
from tests.sdk.server import ACCOUNT, KEY, SECOND_ACCOUNT

BLOB: Final = Catalogue("blob")
_VERSIONS: Final = "versions and soft delete are not served"
_KEYS: Final = "keys and encryption scopes of the caller are not served"
_HOLDS: Final = "immutability policies and legal holds are not served"
_TREES: Final = "hierarchical accounts are not served"
_LOAD: Final = "a fault of the moment"
NOT_COMPARED: Final = {
    ("Blob_Undelete", 0, ""): _VERSIONS,
    ("Blob_SetExpiry", 0, ""): _TREES,
    ("Blob_SetImmutabilityPolicy", 0, ""): _HOLDS,
    ("Blob_DeleteImmutabilityPolicy", 0, ""): _HOLDS,
    ("Blob_SetLegalHold", 0, ""): _HOLDS,
    ("Blob_Query", 0, ""): "Query Blob Contents is not served",
    ("Container_Restore", 0, ""): _VERSIONS,
    ("Container_Rename", 0, ""): "not documented, and not served",
    ("Service_GetUserDelegationKey", 0, ""): "OAuth is not served",
    ("AppendBlob_AppendBlock", 403, "RequestForbiddenByContainerEncryptionPolicy"): _KEYS,
    ("AppendBlob_AppendBlockFromUrl", 500, "InternalError"): _LOAD,
    ("Blob_Download", 409, "BlobUsesCustomerSpecifiedEncryption"): _KEYS,
    ("Blob_GetProperties", 409, "BlobUsesCustomerSpecifiedEncryption"): _KEYS,
    ("Blob_Delete", 409, "BlobImmutableDueToLegalHold"): _HOLDS,
    ("Blob_SetMetadata", 409, "BlobUsesCustomerSpecifiedEncryption"): _KEYS,
    ("Blob_CreateSnapshot", 409, "BlobUsesCustomerSpecifiedEncryption"): _KEYS,
    ("Blob_StartCopyFromUrl", 500, "OperationTimedOut"): _LOAD,
    ("BlockBlob_StageBlock", 400, "InvalidHeaderValue"): _KEYS,
    ("BlockBlob_CommitBlockList", 400, "InvalidHeaderValue"): _KEYS,
    ("BlockBlob_CommitBlockList", 409, "BlobUsesCustomerSpecifiedEncryption"): _KEYS,
    ("Container_Create", 409, "ContainerBeingDeleted"): "names of the deleted are free at once",
    ("Container_Create", 500, "OperationTimedOut"): _LOAD,
    ("Container_Create", 503, "ServerBusy"): _LOAD,
    ("Container_SubmitBatch > Blob_Delete", 409, "DirectoryNotEmpty"): _TREES,
    ("Service_GetProperties", 401, "InvalidAuthenticationInfo"): (
        "the same version was recorded with 400; the challenge is given from 2021-12-02 on"
    ),
}
"""What was recorded and is not asked for here, and why; status 0 stands for a whole operation."""

_BLOCK: Final = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
_APPEND: Final = {"x-ms-blob-type": "AppendBlob"}
_PAGE: Final = {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": "2048"}
_KINDS: Final = {"block": _BLOCK, "append": _APPEND, "page": _PAGE}
_CONTAINER: Final = {"restype": "container"}
_XML: Final = {"Content-Type": "application/xml"}
_CONTENT: Final = b"hello world"
_PAGES: Final = b"p" * 512
_RANGE: Final = {"x-ms-range": "bytes=0-511"}
_LEASE: Final = "11111111-2222-3333-4444-555555555555"
_OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
_BLOCK_ID: Final = base64.b64encode(b"block-0001").decode()
_BLOCK_LIST: Final = f"<BlockList><Latest>{_BLOCK_ID}</Latest></BlockList>"
_TAGS: Final = "<Tags><TagSet><Tag><Key>tag1</Key><Value>one</Value></Tag></TagSet></Tags>"
_WRONG_MD5: Final = md5(b"something else")
_NO_ETAG: Final = "0x111111111111111"
# As clients are sent to the server by the driver.
_HERE: Final = "http://127.0.0.1"
_COPY_HEADERS: Final = frozenset(
    f"x-ms-copy-{name}" for name in ("completion-time", "id", "progress", "source", "status")
)
_LEASE_HEADERS: Final = frozenset({"x-ms-lease-state", "x-ms-lease-status"})


# What is there before


def container(scene: Scene, **headers: str) -> str:
    scene.do("PUT", scene.name, _CONTAINER, headers)
    return scene.name


def put(scene: Scene, kind: str = "block", name: str = "blob", **headers: str) -> str:
    """The path of a blob in a new container, or in the one that is there."""
    if name == "blob":
        container(scene)
    path = f"{scene.name}/{name}"
    said = {key.replace("_", "-"): value for key, value in headers.items()}
    body = _CONTENT if kind == "block" else b""
    scene.do("PUT", path, {}, {**_KINDS[kind], **said}, body)
    return path


def tagged(scene: Scene) -> str:
    return put(scene, x_ms_tags="tag1=one")


def appended(scene: Scene) -> str:
    path = put(scene, "append")
    scene.do("PUT", path, {"comp": "appendblock"}, {}, _CONTENT)
    return path


def paged(scene: Scene) -> str:
    path = put(scene, "page")
    for start in (0, 1024):
        headers = {"x-ms-page-write": "update", "x-ms-range": f"bytes={start}-{start + 511}"}
        scene.do("PUT", path, {"comp": "page"}, headers, _PAGES)
    return path


def staged(scene: Scene) -> str:
    container(scene)
    path = f"{scene.name}/blob"
    scene.do("PUT", path, {"comp": "block", "blockid": _BLOCK_ID}, {}, _CONTENT)
    return path


def staged_again(scene: Scene) -> str:
    """A block for a blob that is there."""
    path = put(scene)
    scene.do("PUT", path, {"comp": "block", "blockid": _BLOCK_ID}, {}, _CONTENT)
    return path


def committed(scene: Scene) -> str:
    path = staged(scene)
    scene.do("PUT", path, {"comp": "blocklist"}, _XML, _BLOCK_LIST)
    return path


def leased(scene: Scene, duration: str = "-1") -> str:
    return lease(scene, put(scene), duration)


def lease(scene: Scene, path: str, duration: str = "-1") -> str:
    headers = {
        "x-ms-lease-action": "acquire",
        "x-ms-lease-duration": duration,
        "x-ms-proposed-lease-id": _LEASE,
    }
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **_CONTAINER}
    scene.do("PUT", path, query, headers)
    return path


def broken(scene: Scene, path: str) -> str:
    headers = {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **_CONTAINER}
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
        headers = {"x-ms-page-write": "update", **_RANGE}
        scene.do("PUT", f"{scene.name}/source", {"comp": "page"}, headers, _PAGES)
    return address(scene)


def address(scene: Scene, name: str = "source") -> str:
    token = service_token(ACCOUNT, KEY, scene.name, name, sv="2021-08-06")
    return f"{_HERE}/{ACCOUNT}/{scene.name}/{name}?{token}"


def private(scene: Scene) -> str:
    """The address of a blob of another account, without a token."""
    elsewhere = other_account(scene)
    elsewhere.do("PUT", elsewhere.name, _CONTAINER)
    elsewhere.do("PUT", f"{elsewhere.name}/source", {}, _BLOCK, _PAGES)
    return f"{_HERE}/{SECOND_ACCOUNT}/{elsewhere.name}/source"


def head(scene: Scene, path: str) -> Answer:
    return scene.do("HEAD", path)


# Put Blob and its like

Maker = Callable[[Scene, str, dict[str, str]], Request]


def upload(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**_BLOCK, **headers}, _CONTENT)


def new_append(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**_APPEND, **headers})


def new_page(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {}, {**_PAGE, **headers})


def append(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "appendblock"}, headers, _CONTENT)


def append_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-copy-source": address(scene), **headers}
    return scene.request("PUT", path, {"comp": "appendblock"}, said)


def upload_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": address(scene)}
    said["x-ms-copy-source-blob-properties"] = "true"
    return scene.request("PUT", path, {}, {**said, **headers})


def stage(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    query = {"comp": "block", "blockid": _BLOCK_ID}
    return scene.request("PUT", path, query, headers, _CONTENT)


def stage_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-copy-source": address(scene), "x-ms-source-range": "bytes=0-5", **headers}
    return scene.request("PUT", path, {"comp": "block", "blockid": _BLOCK_ID}, said)


def commit(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "blocklist"}, {**_XML, **headers}, _BLOCK_LIST)


def update_pages(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-page-write": "update", **_RANGE, **headers}
    return scene.request("PUT", path, {"comp": "page"}, said, _PAGES)


def update_pages_from(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    said = {"x-ms-page-write": "update", **_RANGE, "x-ms-source-range": "bytes=0-511"}
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
    said["x-ms-proposed-lease-id"] = _LEASE
    return scene.request("PUT", path, {"comp": "lease"}, {**said, **headers})


def take_snapshot(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "snapshot"}, headers)


def get_tags(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("GET", path, {"comp": "tags"}, headers)


def set_tags(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "tags"}, {**_XML, **headers}, _TAGS)


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


def with_source(
    prepare: Callable[[Scene], str], kind: str = "block"
) -> Callable[[Scene], str]:
    def both(scene: Scene) -> str:
        path = prepare(scene)
        source(scene, kind)
        return path

    return both


def empty_append(scene: Scene) -> str:
    return put(scene, "append")


def empty_page(scene: Scene) -> str:
    return put(scene, "page", x_ms_blob_sequence_number="10")


_MD5: Final = {"Content-MD5": md5(_CONTENT)}
_META: Final = {"x-ms-meta-hello": "world"}
_CRC: Final = ("x-ms-content-crc64",)

add("BlockBlob_Upload", 201, upload, fresh, headers={"If-None-Match": "*"})
add("BlockBlob_Upload", 201, upload, put, name="again")
add("BlockBlob_Upload", 201, upload, fresh, headers=_MD5, name="MD5", share=6)
add("BlockBlob_Upload", 201, upload, fresh, headers=_META, name="metadata", share=153)
add("BlockBlob_Upload", 201, upload, fresh, headers={"x-ms-tags": "a=b"}, name="tags", share=190)
add(
    "BlockBlob_Upload",
    201,
    upload,
    fresh,
    headers={"x-ms-access-tier": "Cool"},
    name="tier",
    share=31,
)
add(
    "BlockBlob_Upload",
    201,
    upload,
    leased,
    headers={"x-ms-lease-id": _LEASE, "If-None-Match": "*"},
    name="leased, If-None-Match: *",
    share=14,
)
add("AppendBlob_Create", 201, new_append, fresh)
add("AppendBlob_Create", 201, new_append, fresh, headers=_META, name="metadata", share=16)
add("AppendBlob_AppendBlock", 201, append, empty_append)
add("AppendBlob_AppendBlock", 201, append, empty_append, headers=_MD5, name="MD5", share=9)
add("AppendBlob_AppendBlockFromUrl", 201, append_from, with_source(empty_append), having=_CRC)
add(
    "AppendBlob_AppendBlockFromUrl",
    201,
    append_from,
    with_source(empty_append),
    headers={"x-ms-source-content-md5": md5(_CONTENT)},
    name="MD5",
    having={"Content-MD5"},
    share=4,
)
add("AppendBlob_Seal", 200, lambda s, p, h: s.request("PUT", p, {"comp": "seal"}, h), appended)
add("BlockBlob_StageBlock", 201, stage, fresh)
add("BlockBlob_StageBlock", 201, stage, fresh, headers=_MD5, name="MD5", share=50)
add(
    "BlockBlob_StageBlock",
    201,
    stage,
    leased,
    headers={"x-ms-lease-id": _LEASE},
    name="lease",
    share=46,
)
add("BlockBlob_StageBlockFromUrl", 201, stage_from, with_source(fresh))
add(
    "BlockBlob_StageBlockFromUrl",
    201,
    stage_from,
    with_source(fresh),
    headers={"x-ms-source-content-md5": md5(_CONTENT), "x-ms-source-range": "bytes=0-10"},
    name="MD5",
    share=4,
)
add("BlockBlob_CommitBlockList", 201, commit, staged, having=_CRC)
add(
    "BlockBlob_CommitBlockList",
    201,
    commit,
    staged,
    headers={**_META, "x-ms-tags": "a=b"},
    having=_CRC,
    name="metadata, tags",
    share=40,
)
for _version, _names in (("2019-02-02", _CRC), ("2021-08-06", ())):
    add(
        "BlockBlob_CommitBlockList",
        201,
        commit,
        staged,
        headers={"Content-MD5": md5(_BLOCK_LIST.encode())},
        having=_names,
        name=f"MD5 {_version}",
        share=4,
        versions=(_version,),
    )
add(
    "BlockBlob_CommitBlockList",
    201,
    commit,
    lambda scene: lease(scene, staged_again(scene)),
    headers={"x-ms-lease-id": _LEASE, "If-None-Match": "*"},
    having=_CRC,
    name="leased, If-None-Match: *",
    share=4,
)
add("BlockBlob_PutBlobFromUrl", 201, upload_from, with_source(fresh))
add(
    "BlockBlob_PutBlobFromUrl",
    201,
    upload_from,
    with_source(fresh),
    headers={"x-ms-source-content-md5": md5(_CONTENT)},
    name="MD5",
    share=4,
)
add(
    "BlockBlob_PutBlobFromUrl",
    201,
    upload_from,
    with_source(leased),
    headers={"x-ms-lease-id": _LEASE, "If-None-Match": "*"},
    name="leased, If-None-Match: *",
    share=4,
)
add("PageBlob_Create", 201, new_page, fresh)
add("PageBlob_Create", 201, new_page, fresh, headers=_META, name="metadata", share=32)
add("PageBlob_UploadPages", 201, update_pages, empty_page, having=_CRC)
add(
    "PageBlob_UploadPages",
    201,
    update_pages,
    empty_page,
    headers={"Content-MD5": md5(_PAGES)},
    having={"Content-MD5"},
    name="MD5",
    share=48,
)
add(
    "PageBlob_ClearPages",
    201,
    lambda s, p, h: s.request("PUT", p, {"comp": "page"}, {"x-ms-page-write": "clear", **_RANGE}),
    empty_page,
)
add(
    "PageBlob_UploadPagesFromUrl",
    201,
    update_pages_from,
    with_source(empty_page, "page"),
    having=_CRC,
)
add(
    "PageBlob_UploadPagesFromUrl",
    201,
    update_pages_from,
    with_source(empty_page, "page"),
    headers={"x-ms-source-content-md5": md5(_PAGES)},
    having={"Content-MD5"},
    name="MD5",
    share=4,
)
add(
    "PageBlob_Resize",
    200,
    lambda s, p, h: s.request("PUT", p, {"comp": "properties"}, {"x-ms-blob-content-length": "512"}),
    empty_page,
)

@BLOB.case("PageBlob_UpdateSequenceNumber", 200)
def update_sequence_number(scene: Scene) -> Request:
    headers = {"x-ms-blob-sequence-number": "6", "x-ms-sequence-number-action": "update"}
    return scene.request("PUT", put(scene, "page"), {"comp": "properties"}, headers)


@BLOB.case("PageBlob_CopyIncremental", 202)
def copy_incrementally(scene: Scene) -> Request:
    path = paged(scene)
    taken = snapshot(scene, path)
    token = service_token(ACCOUNT, KEY, scene.name, sv="2021-08-06")
    where = f"{_HERE}/{ACCOUNT}/{path}?snapshot={taken}&{token}"
    query = {"comp": "incrementalcopy"}
    return scene.request("PUT", f"{scene.name}/copy", query, {"x-ms-copy-source": where})


# Reads

_BLOCK_READ: Final = _LEASE_HEADERS | {"x-ms-blob-content-md5"}
add("Blob_Download", 206, get, put, having=_BLOCK_READ)
add("Blob_Download", 206, get, committed, having=_LEASE_HEADERS, name="of blocks", share=250)
add(
    "Blob_Download",
    206,
    get,
    put,
    headers={"x-ms-range": "bytes=0-3", "x-ms-range-get-content-md5": "true"},
    having=_BLOCK_READ,
    name="MD5 of the range",
    share="Content-MD5",
)
add(
    "Blob_Download",
    206,
    get,
    appended,
    having=_LEASE_HEADERS | {"x-ms-blob-committed-block-count"},
    name="append blob",
    share="x-ms-blob-committed-block-count",
)
add(
    "Blob_Download",
    206,
    get,
    paged,
    having=_LEASE_HEADERS | {"x-ms-blob-sequence-number"},
    name="page blob",
    share="x-ms-blob-sequence-number",
)
add(
    "Blob_Download",
    206,
    get,
    lambda scene: put(scene, x_ms_meta_hello="world"),
    having=_BLOCK_READ | {"x-ms-meta-*"},
    name="metadata",
    share="x-ms-meta-*",
)
add(
    "Blob_Download",
    206,
    get,
    leased,
    headers={"x-ms-lease-id": _LEASE},
    having=_BLOCK_READ,
    name="leased",
    share=22,
)
add(
    "Blob_Download",
    206,
    get,
    tagged,
    having=_BLOCK_READ | {"x-ms-tag-count"},
    name="tags",
    share="x-ms-tag-count",
)
add(
    "Blob_Download",
    206,
    get,
    copied,
    having=_BLOCK_READ | _COPY_HEADERS,
    name="copy",
    share="x-ms-copy-id",
)
add(
    "Blob_Download",
    206,
    get,
    lambda scene: put(
        scene, x_ms_blob_content_language="fr", x_ms_blob_content_disposition="inline"
    ),
    having=_BLOCK_READ | {"Content-Language", "Content-Disposition"},
    name="language, disposition",
    share=8,
)
for _name, _having in (("GET", {"x-ms-blob-content-md5"}), ("HEAD", set())):
    _operation = {"GET": "Blob_Download", "HEAD": "Blob_GetProperties"}[_name]
    _status = {"GET": 206, "HEAD": 200}[_name]
    _more = {
        "GET": _having,
        "HEAD": {"Content-MD5", "Content-Type", "x-ms-access-tier", "x-ms-access-tier-inferred"},
    }[_name]

    @BLOB.case(
        _operation,
        _status,
        name="snapshot",
        having=_more,
        lacking=_LEASE_HEADERS,
        share={"GET": 83, "HEAD": 25}[_name],
    )
    def read_snapshot(scene: Scene, method: str = _name) -> Request:
        path = put(scene)
        headers = {"x-ms-range": "bytes=0-3"} if method == "GET" else {}
        return scene.request(method, path, {"snapshot": snapshot(scene, path)}, headers)


_WHOLE: Final = {"x-ms-lease-state", "Content-MD5"}


def get_whole(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("GET", path, {}, headers)


add("Blob_Download", 200, get_whole, put, having=_WHOLE)
add("Blob_Download", 200, get_whole, lambda s: put(s, "append"), name="append blob", share=4,
    having={"x-ms-lease-state", "x-ms-blob-committed-block-count"})  # fmt: skip
add("Blob_Download", 200, get_whole, lambda s: put(s, "page"), name="page blob", share=4,
    having={"x-ms-lease-state", "x-ms-blob-sequence-number"})  # fmt: skip
add("Blob_Download", 200, get_whole, copied, name="copy", share="x-ms-copy-id",
    having=_WHOLE | _COPY_HEADERS, lacking={"x-ms-or-policy-id"})  # fmt: skip


@BLOB.case(
    "Blob_Download",
    200,
    name="headers of the token",
    signs=False,
    share=2,
    having=_WHOLE | {"Content-Disposition"},
)
def get_as_told(scene: Scene) -> Request:
    path = put(scene)
    options = {"rscc": "no-cache", "rscd": "inline", "rsce": "utf-8", "rscl": "fr", "rsct": "text"}
    token = service_token(ACCOUNT, KEY, scene.name, "blob", sv="2021-08-06", **options)
    return token.put_on(scene.request("GET", path))


_LOOK: Final = _LEASE_HEADERS | {
    "Content-MD5", "Content-Type", "x-ms-access-tier", "x-ms-access-tier-inferred",
}  # fmt: skip
_OTHER_LOOK: Final = _LEASE_HEADERS | {"Content-Type"}


def tiered(scene: Scene) -> str:
    path = put(scene)
    scene.do("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Cool"})
    return path


def sealed(scene: Scene) -> str:
    path = appended(scene)
    scene.do("PUT", path, {"comp": "seal"})
    return path


add("Blob_GetProperties", 200, look, put, having=_LOOK)
add("Blob_GetProperties", 200, look, committed, having=_LOOK - {"Content-MD5"}, name="of blocks",
    share=250)  # fmt: skip
add("Blob_GetProperties", 200, look, appended, having=_OTHER_LOOK, name="append blob",
    share="x-ms-blob-committed-block-count")  # fmt: skip
add("Blob_GetProperties", 200, look, paged, having=_OTHER_LOOK, name="page blob",
    share="x-ms-blob-sequence-number")  # fmt: skip
add("Blob_GetProperties", 200, look, leased, having=_LOOK, name="leased", share=40)
add("Blob_GetProperties", 200, look, lambda s: put(s, x_ms_meta_hello="world"),
    having=_LOOK | {"x-ms-meta-*"}, name="metadata", share="x-ms-meta-*")  # fmt: skip
add("Blob_GetProperties", 200, look, tagged, having=_LOOK | {"x-ms-tag-count"}, name="tags",
    share="x-ms-tag-count")  # fmt: skip
add("Blob_GetProperties", 200, look, copied, having=_LOOK | _COPY_HEADERS, name="copy",
    share="x-ms-copy-id")  # fmt: skip
add("Blob_GetProperties", 200, look, tiered, name="tier",
    having=(_LOOK | {"x-ms-access-tier-change-time"}) - {"x-ms-access-tier-inferred"},
    share="x-ms-access-tier-change-time")  # fmt: skip
add("Blob_GetProperties", 200, look, sealed, having=_OTHER_LOOK | {"x-ms-blob-sealed"},
    name="sealed", share="x-ms-blob-sealed")  # fmt: skip
add("Blob_GetProperties", 200, look,
    lambda s: put(s, x_ms_blob_content_language="fr", x_ms_blob_content_disposition="inline"),
    having=_LOOK | {"Content-Language", "Content-Disposition"}, name="language, disposition",
    share="Content-Disposition")  # fmt: skip


@BLOB.case(
    "Blob_GetProperties",
    200,
    name="incremental copy",
    share=2,
    having=_OTHER_LOOK | _COPY_HEADERS | {"x-ms-incremental-copy", "x-ms-copy-destination-snapshot"},
)
def look_at_incremental_copy(scene: Scene) -> Request:
    request = copy_incrementally(scene)
    scene.do_request(request)
    return scene.request("HEAD", f"{scene.name}/copy")


add("Blob_GetTags", 200, get_tags, tagged)
add("Blob_SetTags", 204, set_tags, put)
add("Blob_SetTags", 204, set_tags, leased, headers={"x-ms-lease-id": _LEASE}, name="leased",
    share=3)  # fmt: skip

_BLOCKS: Final = ("ETag", "Last-Modified", "x-ms-blob-content-length")
add("BlockBlob_GetBlockList", 200, get_blocks, committed, having=_BLOCKS, share=26)
add("BlockBlob_GetBlockList", 200, get_blocks, staged, name="uncommitted", share=13)
for _type in ("committed", "uncommitted"):

    @BLOB.case("BlockBlob_GetBlockList", 200, name=f"{_type} only", share=4,
               having=_BLOCKS)  # fmt: skip
    def get_some_blocks(scene: Scene, kind: str = _type) -> Request:
        query = {"comp": "blocklist", "blocklisttype": kind}
        return scene.request("GET", staged_again(scene), query)


add("PageBlob_GetPageRanges", 200, get_ranges, paged)
add("PageBlob_GetPageRanges", 200, get_ranges, empty_page, name="empty", share=20)


@BLOB.case("PageBlob_GetPageRanges", 200, name="maxresults", share=8,
           versions=("2020-10-02", "2021-08-06"))  # fmt: skip
def get_some_ranges(scene: Scene) -> Request:
    query = {"comp": "pagelist", "maxresults": "1"}
    return scene.request("GET", paged(scene), query)


def _changed(scene: Scene) -> tuple[str, str]:
    path = put(scene, "page")
    write = {"x-ms-page-write": "update", "x-ms-range": "bytes=0-2047"}
    scene.do("PUT", path, {"comp": "page"}, write, _PAGES * 4)
    taken = snapshot(scene, path)
    scene.do("PUT", path, {"comp": "page"}, {"x-ms-page-write": "update", **_RANGE}, _PAGES)
    clear = {"x-ms-page-write": "clear", "x-ms-range": "bytes=512-1023"}
    scene.do("PUT", path, {"comp": "page"}, clear)
    return path, taken


@BLOB.case("PageBlob_GetPageRangesDiff", 200, elements=("!PageList/NextMarker",))
def get_changes(scene: Scene) -> Request:
    path, taken = _changed(scene)
    return scene.request("GET", path, {"comp": "pagelist", "prevsnapshot": taken})


@BLOB.case("PageBlob_GetPageRangesDiff", 200, name="maxresults", share=8,
           versions=("2020-10-02", "2021-08-06"),
           elements=("PageList/NextMarker",))  # fmt: skip
def get_some_changes(scene: Scene) -> Request:
    path, taken = _changed(scene)
    query = {"comp": "pagelist", "prevsnapshot": taken, "maxresults": "2"}
    return scene.request("GET", path, query)


# Other operations on blobs

add("Blob_Delete", 202, delete, put, values={"x-ms-delete-type-permanent": "true"})
add("Blob_SetHttpHeaders", 200, set_headers, put)
add("Blob_SetMetadata", 200, set_metadata, put)
add("Blob_AcquireLease", 201, acquire, put)
add("Blob_CreateSnapshot", 201, take_snapshot, put,
    values={"x-ms-request-server-encrypted": "false"})  # fmt: skip
add("Blob_StartCopyFromUrl", 202, copy, with_source(fresh))
add("Blob_CopyFromUrl", 202, copy_at_once, with_source(fresh),
    values={"x-ms-request-server-encrypted": "true"})  # fmt: skip

for _place in ("Blob", "Container"):
    for _action, _status, _headers in (
        ("Release", 200, {"x-ms-lease-id": _LEASE}),
        ("Renew", 200, {"x-ms-lease-id": _LEASE}),
        ("Change", 200, {"x-ms-lease-id": _LEASE, "x-ms-proposed-lease-id": _OTHER_LEASE}),
        ("Break", 202, {}),
        ("Break", 202, {"x-ms-lease-break-period": "5"}),
    ):

        @BLOB.case(f"{_place}_{_action}Lease", _status, name=" ".join(_headers))
        def lease_action(
            scene: Scene,
            place: str = _place,
            action: str = _action,
            headers: dict[str, str] = _headers,
        ) -> Request:
            path = put(scene) if place == "Blob" else container(scene)
            query = {"comp": "lease", **({} if place == "Blob" else _CONTAINER)}
            said = {"x-ms-lease-action": action.lower(), **headers}
            return scene.request("PUT", lease(scene, path), query, said)


@BLOB.case("Blob_AbortCopyFromUrl", 204)
def abort_copy(scene: Scene) -> Request:
    begun = scene.do("PUT", fresh(scene), {}, {"x-ms-copy-source": scene.endless})
    query = {"comp": "copy", "copyid": begun.headers["x-ms-copy-id"]}
    return scene.request("PUT", f"{scene.name}/blob", query, {"x-ms-copy-action": "abort"})


@BLOB.case("Blob_AbortCopyFromUrl", 409, "NoPendingCopyOperation")
def abort_ended_copy(scene: Scene) -> Request:
    copied(scene)
    copy_id = head(scene, f"{scene.name}/blob").headers["x-ms-copy-id"]
    query = {"comp": "copy", "copyid": copy_id}
    return scene.request("PUT", f"{scene.name}/blob", query, {"x-ms-copy-action": "abort"})


@BLOB.case("Blob_SetTier", 200)
def set_tier(scene: Scene) -> Request:
    return scene.request("PUT", put(scene), {"comp": "tier"}, {"x-ms-access-tier": "Cool"})


@BLOB.case("Blob_SetTier", 202)
def rehydrate(scene: Scene) -> Request:
    path = put(scene)
    scene.do("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Archive"})
    return scene.request("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Hot"})


for _operation in ("Blob_GetAccountInfo", "Container_GetAccountInfo", "Service_GetAccountInfo"):

    # Which kind of account was recorded says nothing about ours.
    @BLOB.case(_operation, 200, values={"x-ms-sku-name": "<text>"})
    def account_info(scene: Scene, operation: str = _operation) -> Request:
        path = {"B": put, "C": container}.get(operation[0], lambda _: "")(scene)
        return scene.request("GET", path, {"restype": "account", "comp": "properties"})


# Containers


@BLOB.case("Container_Create", 201)
def create(scene: Scene) -> Request:
    return scene.request("PUT", scene.name, _CONTAINER)


@BLOB.case("Container_Create", 201, name="metadata, access", share=30)
def create_described(scene: Scene) -> Request:
    headers = {"x-ms-meta-hello": "world", "x-ms-blob-public-access": "container"}
    return scene.request("PUT", scene.name, _CONTAINER, headers)


_SCOPE: Final = {"x-ms-default-encryption-scope", "x-ms-deny-encryption-scope-override"}


@BLOB.case("Container_GetProperties", 200, having=_SCOPE)
def get_container(scene: Scene) -> Request:
    return scene.request("GET", container(scene), _CONTAINER)


@BLOB.case("Container_GetProperties", 200, having=_SCOPE | {"x-ms-meta-*"}, name="metadata",
           share="x-ms-meta-*")  # fmt: skip
def get_described_container(scene: Scene) -> Request:
    return scene.request("GET", container(scene, **{"x-ms-meta-hello": "world"}), _CONTAINER)


@BLOB.case("Container_GetProperties", 200, having=_SCOPE | {"x-ms-lease-duration"},
           name="leased", share=16)  # fmt: skip
def get_leased_container(scene: Scene) -> Request:
    return scene.request("GET", lease(scene, container(scene)), _CONTAINER)


@BLOB.case("Container_Delete", 202)
def delete_container(scene: Scene) -> Request:
    return scene.request("DELETE", container(scene), _CONTAINER)


@BLOB.case("Container_SetMetadata", 200)
def set_container_metadata(scene: Scene) -> Request:
    query = {**_CONTAINER, "comp": "metadata"}
    return scene.request("PUT", container(scene), query, {"x-ms-meta-hello": "world"})


_ACL: Final = {**_CONTAINER, "comp": "acl"}
_NO_POLICY: Final = "<SignedIdentifiers />"


@BLOB.case("Container_GetAccessPolicy", 200, share=14)
def get_no_policy(scene: Scene) -> Request:
    return scene.request("GET", container(scene), _ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="policy")
def get_policy(scene: Scene) -> Request:
    scene.do("PUT", container(scene), _ACL, _XML, POLICY)
    return scene.request("GET", scene.name, _ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="bare policy", share=4,
           elements=("!SignedIdentifiers/SignedIdentifier/AccessPolicy",))  # fmt: skip
def get_bare_policy(scene: Scene) -> Request:
    scene.do("PUT", container(scene), _ACL, _XML, BARE_POLICY)
    return scene.request("GET", scene.name, _ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="public", share="x-ms-blob-public-access",
           having={"x-ms-blob-public-access"})  # fmt: skip
def get_public_policy(scene: Scene) -> Request:
    container(scene, **{"x-ms-blob-public-access": "container"})
    return scene.request("GET", scene.name, _ACL)


@BLOB.case("Container_SetAccessPolicy", 200)
def set_policy(scene: Scene) -> Request:
    return scene.request("PUT", container(scene), _ACL, _XML, POLICY)


@BLOB.case("Container_AcquireLease", 201)
def acquire_container(scene: Scene) -> Request:
    return _acquire_container(scene, {})


def _acquire_container(scene: Scene, headers: dict[str, str]) -> Request:
    said = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    said |= {"x-ms-proposed-lease-id": _LEASE, **headers}
    path = container(scene)
    return scene.request("PUT", path, {"comp": "lease", **_CONTAINER}, said)


# Lists

_LIST: Final = {**_CONTAINER, "comp": "list"}
_ROW: Final = "EnumerationResults/Blobs/Blob"
_CRC64: Final = f"{_ROW}/Properties/Content-CRC64"


def _list_case(name: str, share: int | str = "", elements: tuple[str, ...] = (), **query: str):  # type: ignore[no-untyped-def]
    """Two cases: metadata of replication are told from 2021-08-06 on."""

    def two(prepare: Callable[[Scene], str]) -> Callable[[Scene], str]:
        def make(scene: Scene) -> Request:
            prepare(scene)
            said = {key: value.replace("<name>", scene.name) for key, value in query.items()}
            return scene.request("GET", scene.name, {**_LIST, **said})

        for version, replication in (("2019-02-02", "!"), ("2021-08-06", "")):
            BLOB.add(
                "Container_ListBlobFlatSegment",
                200,
                make=make,
                name=name,
                share=share / 2 if isinstance(share, int) else share,
                versions=(version,),
                elements=(*elements, f"{replication}{_ROW}/OrMetadata"),
            )
        return prepare

    return two


_list_case("", elements=(_CRC64,))(put)
_list_case("append blob", 4, (_CRC64,))(appended)
_list_case("page blob", 9, (_CRC64,))(paged)
_list_case("leased", 5, (f"{_ROW}/Properties/LeaseDuration",))(leased)
_list_case("tier", 22, (f"{_ROW}/Properties/AccessTierChangeTime",))(tiered)
_list_case("sealed", 6, (f"{_ROW}/Properties/Sealed",))(sealed)
_list_case("metadata", 20, (f"{_ROW}/Metadata",), include="metadata")(
    lambda s: put(s, x_ms_meta_hello="world")
)
_list_case("no metadata", 12, (f"{_ROW}/Metadata",), include="metadata")(put)
_list_case("tags", 6, (f"{_ROW}/Tags",), include="tags")(tagged)
_list_case("copy", 5, (f"{_ROW}/Properties/CopyId",), include="copy", prefix="blob")(copied)
_list_case("uncommitted", 4, (
    f"!{_ROW}/Properties/Creation-Time", f"!{_ROW}/Properties/Last-Modified",
    f"!{_ROW}/Properties/Etag", f"!{_ROW}/Properties/Content-Type", f"!{_CRC64}",
    f"{_ROW}/Properties/AccessTier", f"{_ROW}/Properties/AccessTierInferred",
    f"{_ROW}/Properties/LeaseState",
), include="uncommittedblobs")(staged)  # fmt: skip
_list_case("prefix, page", 8, prefix="b", maxresults="2")(put)
_list_case("strange prefix", 2, prefix="<name>")(put)


@BLOB.case("Container_ListBlobFlatSegment", 200, name="empty", share=22)
def list_nothing(scene: Scene) -> Request:
    return scene.request("GET", container(scene), _LIST)


@BLOB.case("Container_ListBlobFlatSegment", 200, name="marker", share=6)
def list_from_marker(scene: Scene) -> Request:
    put(scene)
    put(scene, name="blob2")
    query = {**_LIST, "maxresults": "1"}
    found = scene.do("GET", scene.name, query).body.decode()
    marker = found.partition("<NextMarker>")[2].partition("<")[0]
    return scene.request("GET", scene.name, {**query, "marker": marker})


@BLOB.case("Container_ListBlobFlatSegment", 200, name="snapshots", share=100,
           elements=(f"{_ROW}/Snapshot",))  # fmt: skip
def list_snapshots(scene: Scene) -> Request:
    path = put(scene)
    snapshot(scene, path)
    return scene.request("GET", scene.name, {**_LIST, "include": "snapshots"})


@BLOB.case("Container_ListBlobHierarchySegment", 200)
def list_tree(scene: Scene) -> Request:
    put(scene)
    put(scene, name="a/blob")
    return scene.request("GET", scene.name, {**_LIST, "delimiter": "/"})


@BLOB.case("Container_ListBlobHierarchySegment", 200, name="prefix", share=22)
def list_branch(scene: Scene) -> Request:
    put(scene)
    put(scene, name="a/blob")
    return scene.request("GET", scene.name, {**_LIST, "delimiter": "/", "prefix": "a/"})


_CONTAINER_ROW: Final = "EnumerationResults/Containers/Container"
_CONTAINER_SCOPE: Final = (
    f"{_CONTAINER_ROW}/Properties/DefaultEncryptionScope",
    f"{_CONTAINER_ROW}/Properties/DenyEncryptionScopeOverride",
)


@BLOB.case("Service_ListContainersSegment", 200, elements=_CONTAINER_SCOPE, signs=False,
           cors=False)  # fmt: skip
def list_containers(scene: Scene) -> Request:
    """Those of the account that has few."""
    other = other_account(scene)
    container(other)
    request = other.request("GET", "", {"comp": "list", "include": ""})
    return signer("blob", SECOND_ACCOUNT)(request)


@BLOB.case("Service_ListContainersSegment", 200, name="prefix, metadata", share=12,
           elements=(*_CONTAINER_SCOPE, f"{_CONTAINER_ROW}/Metadata"))  # fmt: skip
def list_described_containers(scene: Scene) -> Request:
    container(scene, **{"x-ms-meta-hello": "world"})
    return scene.request("GET", "", {"comp": "list", "prefix": scene.name, "include": "metadata"})


@BLOB.case("Service_ListContainersSegment", 200, name="public, leased", share=8,
           elements=(*_CONTAINER_SCOPE, f"{_CONTAINER_ROW}/Properties/PublicAccess",
                     f"{_CONTAINER_ROW}/Properties/LeaseDuration"))  # fmt: skip
def list_public_containers(scene: Scene) -> Request:
    lease(scene, container(scene, **{"x-ms-blob-public-access": "container"}))
    return scene.request("GET", "", {"comp": "list", "prefix": scene.name})


@BLOB.case("Service_ListContainersSegment", 200, name="pages", share=20)
def list_some_containers(scene: Scene) -> Request:
    for letter in "ab":
        scene.do("PUT", scene.name + letter, _CONTAINER)
    query = {"comp": "list", "prefix": scene.name, "maxresults": "1"}
    found = scene.do("GET", "", query).body.decode()
    marker = found.partition("<NextMarker>")[2].partition("<")[0]
    return scene.request("GET", "", {**query, "marker": marker})


for _operation, _query in (
    ("Service_FilterBlobs", {"comp": "blobs"}),
    ("Container_FilterBlobs", {"comp": "blobs", **_CONTAINER}),
):
    # Service_FilterBlobs had another shape before 2020-04-08, when it was new.
    @BLOB.case(_operation, 200, versions=("2020-06-12", "2021-08-06"))
    def find(
        scene: Scene, operation: str = _operation, query: dict[str, str] = _query
    ) -> Request:
        put(scene, x_ms_tags=f"owner={scene.name}")
        path = scene.name if operation[0] == "C" else ""
        said = {"where": f"\"owner\"='{scene.name}'", "maxresults": "2"}
        return scene.request("GET", path, {**query, **said})

    @BLOB.case(_operation, 200, name="marker", versions=("2020-06-12", "2021-08-06"),
               share={"S": 8, "C": 4}[_operation[0]])  # fmt: skip
    def find_more(
        scene: Scene, operation: str = _operation, query: dict[str, str] = _query
    ) -> Request:
        put(scene, x_ms_tags=f"owner={scene.name}")
        for number in range(3):
            put(scene, name=f"blob{number}", x_ms_tags=f"owner={scene.name}")
        path = scene.name if operation[0] == "C" else ""
        said = {**query, "where": f"\"owner\"='{scene.name}'", "maxresults": "2"}
        found = scene.do("GET", path, said).body.decode()
        marker = found.partition("<NextMarker>")[2].partition("<")[0]
        return scene.request("GET", path, {**said, "marker": marker})


# Conditions

_PAST: Final = http_date(-900)
_FUTURE: Final = http_date(900)
_UNMET: Final = {
    "If-Match": {"If-Match": _NO_ETAG},
    "If-None-Match": {"If-None-Match": "<etag>"},
    "If-Modified-Since": {"If-Modified-Since": _FUTURE},
    "If-Unmodified-Since": {"If-Unmodified-Since": _PAST},
    "x-ms-if-tags": {"x-ms-if-tags": "\"tag1\"='two'"},
}
_ETAGS: Final = tuple(_UNMET)[:4]
_ALL: Final = tuple(_UNMET)
_DATES: Final = ("If-Modified-Since", "If-Unmodified-Since")
_ONLY_TAGS: Final = ("x-ms-if-tags",)
_WRITES: Final[tuple[tuple[str, Maker, Callable[[Scene], str], tuple[str, ...]], ...]] = (
    ("AppendBlob_AppendBlock", append, empty_append, _ALL[1:]),
    ("AppendBlob_AppendBlockFromUrl", append_from, with_source(empty_append), _ALL),
    ("Blob_Delete", delete, put, _ALL),
    ("Blob_SetHttpHeaders", set_headers, put, _ALL),
    ("Blob_SetMetadata", set_metadata, put, _ALL),
    ("Blob_AcquireLease", acquire, put, _ALL),
    ("Blob_CreateSnapshot", take_snapshot, put, _ETAGS),
    ("Blob_StartCopyFromUrl", copy, with_source(put), _ONLY_TAGS),
    ("Blob_GetTags", get_tags, tagged, _ONLY_TAGS),
    ("Blob_SetTags", set_tags, tagged, _ONLY_TAGS),
    ("BlockBlob_Upload", upload, put, _ALL),
    ("BlockBlob_PutBlobFromUrl", upload_from, with_source(put), _DATES),
    ("BlockBlob_CommitBlockList", commit, staged_again, _ALL),
    ("BlockBlob_GetBlockList", get_blocks, tagged, _ONLY_TAGS),
    ("PageBlob_UploadPages", update_pages, empty_page, _ALL),
    ("PageBlob_UploadPagesFromUrl", update_pages_from, with_source(empty_page, "page"), _ETAGS),
)
for _operation, _maker, _prepare, _conditions in _WRITES:
    for _condition in _conditions:
        add(_operation, 412, _maker, _prepare, "ConditionNotMet", _UNMET[_condition],
            name=_condition)  # fmt: skip
for _operation, _maker, _prepare in (
    ("Blob_Download", get, put),
    ("Blob_GetProperties", look, put),
    ("PageBlob_GetPageRanges", get_ranges, paged),
):
    for _condition in ("If-Match", "If-Unmodified-Since"):
        add(_operation, 412, _maker, _prepare, "ConditionNotMet", _UNMET[_condition],
            name=_condition)  # fmt: skip
    for _condition in ("If-None-Match", "If-Modified-Since"):
        add(_operation, 304, _maker, _prepare, "ConditionNotMet", _UNMET[_condition],
            name=_condition, lacking={"Content-Type"})  # fmt: skip
for _operation, _maker in (("Blob_Download", get), ("Blob_GetProperties", look)):
    add(_operation, 412, _maker, put, "ConditionNotMet", _UNMET["x-ms-if-tags"],
        name="x-ms-if-tags")  # fmt: skip
add("AppendBlob_AppendBlock", 400, append, empty_append, "OutOfRangeInput", _UNMET["If-Match"])
add("Blob_StartCopyFromUrl", 412, copy, with_source(put), "ConditionNotMet",
    {"x-ms-source-if-tags": "\"tag1\"='two'"}, name="x-ms-source-if-tags")  # fmt: skip

for _operation, _maker, _prepare, _code, _headers in (
    ("AppendBlob_AppendBlockFromUrl", append_from, with_source(empty_append),
     "AppendPositionConditionNotMet", {"x-ms-blob-condition-appendpos": "1"}),
    ("AppendBlob_AppendBlockFromUrl", append_from, with_source(empty_append),
     "MaxBlobSizeConditionNotMet", {"x-ms-blob-condition-maxsize": "5"}),
    ("AppendBlob_Seal", lambda s, p, h: s.request("PUT", p, {"comp": "seal"}, h), appended,
     "AppendPositionConditionNotMet", {"x-ms-blob-condition-appendpos": "1"}),
    *((f"PageBlob_UploadPages{suffix}", maker, prepare, "SequenceNumberConditionNotMet",
       {f"x-ms-if-sequence-number-{kind}": number})
      for suffix, maker, prepare in (("", update_pages, empty_page),
                                     ("FromUrl", update_pages_from,
                                      with_source(empty_page, "page")))
      for kind, number in (("le", "9"), ("lt", "10"), ("eq", "11"))),
):  # fmt: skip
    add(_operation, 412, _maker, _prepare, _code, _headers, name=" ".join(_headers))

# Sources

_FROM_URL: Final[tuple[tuple[str, Maker, Callable[[Scene], str]], ...]] = (
    ("AppendBlob_AppendBlockFromUrl", append_from, with_source(empty_append)),
    ("BlockBlob_PutBlobFromUrl", upload_from, with_source(fresh)),
    ("PageBlob_UploadPagesFromUrl", update_pages_from, with_source(empty_page, "page")),
    ("BlockBlob_StageBlockFromUrl", stage_from, with_source(fresh)),
    ("Blob_CopyFromUrl", copy_at_once, with_source(fresh)),
    ("Blob_StartCopyFromUrl", copy, with_source(fresh)),
)
for _operation, _maker, _prepare in _FROM_URL[:3]:
    for _status, _condition in (
        (304, {"x-ms-source-if-modified-since": _FUTURE}),
        (412, {"x-ms-source-if-unmodified-since": _PAST}),
        (304, {"x-ms-source-if-none-match": "<source>"}),
        (412, {"x-ms-source-if-match": _NO_ETAG}),
    ):
        _is_etag = "match" in next(iter(_condition))
        if not (_is_etag and _operation == "BlockBlob_PutBlobFromUrl"):
            add(_operation, _status, _maker, _prepare, "CannotVerifyCopySource", _condition,
                name=next(iter(_condition)))  # fmt: skip
for _operation, _maker, _prepare in _FROM_URL[:4]:
    add(_operation, 400, _maker, _prepare, "Md5Mismatch",
        {"x-ms-source-content-md5": _WRONG_MD5})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 400, upload_from, with_source(put), "Md5Mismatch",
    {"x-ms-source-content-md5": _WRONG_MD5, "If-None-Match": "*"},
    name="before If-None-Match")  # fmt: skip
for _operation, _maker, _prepare in _FROM_URL:

    # Before these versions the source was absent to those without a token.
    @BLOB.case(_operation, 401, "CannotVerifyCopySource", versions=("2020-10-02", "2021-08-06"))
    def from_private(
        scene: Scene, make: Maker = _maker, prepare: Callable[[Scene], str] = _prepare
    ) -> Request:
        path = prepare(scene)
        return make(scene, path, {"x-ms-copy-source": private(scene)})


@BLOB.case("Blob_CopyFromUrl", 404, "CannotVerifyCopySource")
def copy_nothing(scene: Scene) -> Request:
    return copy_at_once(scene, fresh(scene), {})


# Refusals of single operations

add("AppendBlob_AppendBlock", 404, append, fresh, "BlobNotFound")
add("AppendBlob_AppendBlock", 409, append, sealed, "BlobIsSealed")
add("Blob_Download", 404, get, fresh, "BlobNotFound")
add("Blob_Download", 416, get, lambda s: put(s, "append"), "InvalidRange")
add("Blob_GetProperties", 404, look, fresh, "BlobNotFound")
add("Blob_GetProperties", 404, look, lambda s: f"{s.name}/blob", "ContainerNotFound")
add("Blob_GetProperties", 412, look, leased, "LeaseIdMismatchWithBlobOperation",
    {"x-ms-lease-id": _OTHER_LEASE})  # fmt: skip
add("Blob_Delete", 404, delete, fresh, "BlobNotFound")
add("Blob_Delete", 412, delete, leased, "LeaseIdMissing")
add("Blob_AcquireLease", 409, acquire, leased, "LeaseAlreadyPresent",
    {"x-ms-proposed-lease-id": _OTHER_LEASE})  # fmt: skip
add("Blob_GetTags", 400, get_tags, leased, "InvalidHeaderValue",
    {"x-ms-lease-id": f"'{_LEASE}'"})  # fmt: skip
add("Blob_SetTags", 412, set_tags, leased, "LeaseIdMissing")
add("BlockBlob_Upload", 400, upload, fresh, "InvalidMetadata", {"x-ms-meta-tes-t": "test"})
add("BlockBlob_Upload", 400, upload, fresh, "Md5Mismatch",
    {"x-ms-blob-content-md5": _WRONG_MD5})  # fmt: skip
add("BlockBlob_Upload", 409, upload, put, "BlobAlreadyExists", {"If-None-Match": "*"})
add("BlockBlob_Upload", 412, upload, lambda s: broken(s, put(s)), "LeaseLost",
    {"x-ms-lease-id": _LEASE})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 409, upload_from, with_source(put), "BlobAlreadyExists",
    {"If-None-Match": "*"})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 412, upload_from, with_source(leased),
    "LeaseIdMismatchWithBlobOperation", {"x-ms-lease-id": _OTHER_LEASE})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 412, upload_from, with_source(leased), "LeaseIdMissing",
    {"If-None-Match": "*"})  # fmt: skip
add("BlockBlob_CommitBlockList", 400, commit, fresh, "InvalidBlockList")
add("BlockBlob_CommitBlockList", 409, commit, staged_again, "BlobAlreadyExists",
    {"If-None-Match": "*"})  # fmt: skip
add("PageBlob_Create", 400, new_page, fresh, "InvalidHeaderValue",
    {"x-ms-blob-content-length": str(2**43 + 1)})  # fmt: skip
add("PageBlob_Create", 409, new_page, put, "BlobAlreadyExists", {"If-None-Match": "*"})


@BLOB.case("Blob_GetProperties", 400)
def look_at_no_time(scene: Scene) -> Request:
    return scene.request("HEAD", put(scene), {"snapshot": "1"})


@BLOB.case("Blob_Download", 403, "AuthorizationPermissionMismatch", signs=False)
def get_without_permission(scene: Scene) -> Request:
    path = put(scene)
    token = service_token(ACCOUNT, KEY, scene.name, "blob", sv="2021-08-06", permissions="w")
    return token.put_on(scene.request("GET", path))


@BLOB.case("Blob_Download", 404, "ResourceNotFound", signs=False, versions=("",))
def get_anonymously(scene: Scene) -> Request:
    scene.version = "2021-08-06"
    path = put(scene)
    scene.version = ""
    return scene.request("GET", path)


@BLOB.case("Container_Create", 400, "InvalidResourceName")
def create_of_bad_name(scene: Scene) -> Request:
    return scene.request("PUT", "啊齄丂狛狜", _CONTAINER)


for _operation, _method, _query in (
    ("Container_Create", "PUT", _CONTAINER),
    ("Service_GetProperties", "GET", {"restype": "service", "comp": "properties"}),
):

    @BLOB.case(_operation, 400, "InvalidAuthenticationInfo", signs=False,
               versions=("2020-02-10", "2021-08-06"))  # fmt: skip
    def with_malformed_token(
        scene: Scene, method: str = _method, query: dict[str, str] = _query
    ) -> Request:
        path = scene.name if method == "PUT" else ""
        return scene.request(method, path, query, {"Authorization": "Bearer token"})


@BLOB.case("Container_Create", 409, "ContainerAlreadyExists")
def create_again(scene: Scene) -> Request:
    return scene.request("PUT", container(scene), _CONTAINER)


for _operation, _method, _query, _headers in (
    ("Container_GetProperties", "GET", _CONTAINER, {}),
    ("Container_Delete", "DELETE", _CONTAINER, {}),
    ("Container_SetMetadata", "PUT", {**_CONTAINER, "comp": "metadata"}, _META),
):

    @BLOB.case(_operation, 404, "ContainerNotFound")
    def no_container(
        scene: Scene,
        method: str = _method,
        query: dict[str, str] = _query,
        headers: dict[str, str] = _headers,
    ) -> Request:
        return scene.request(method, scene.name, query, headers)


for _operation, _method, _query, _body, _conditions in (
    ("Container_Delete", "DELETE", _CONTAINER, "", _DATES),
    ("Container_SetMetadata", "PUT", {**_CONTAINER, "comp": "metadata"}, "", _DATES[:1]),
    ("Container_SetAccessPolicy", "PUT", _ACL, POLICY, _DATES),
):
    for _condition in _conditions:

        @BLOB.case(_operation, 412, "ConditionNotMet", name=_condition)
        def container_unmet(
            scene: Scene,
            method: str = _method,
            query: dict[str, str] = _query,
            body: str = _body,
            condition: str = _condition,
        ) -> Request:
            headers = {**_UNMET[condition], **(_XML if body else {})}
            return scene.request(method, container(scene), query, headers, body)


for _condition in _DATES:

    @BLOB.case("Container_AcquireLease", 412, "ConditionNotMet", name=_condition)
    def acquire_unmet(scene: Scene, condition: str = _condition) -> Request:
        return _acquire_container(scene, _UNMET[condition])


@BLOB.case("Container_AcquireLease", 409, "LeaseAlreadyPresent")
def acquire_leased(scene: Scene) -> Request:
    path = lease(scene, container(scene))
    said = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    said["x-ms-proposed-lease-id"] = _OTHER_LEASE
    return scene.request("PUT", path, {"comp": "lease", **_CONTAINER}, said)


@BLOB.case("Container_BreakLease", 409, "LeaseNotPresentWithLeaseOperation")
def break_released(scene: Scene) -> Request:
    path = lease(scene, container(scene))
    query = {"comp": "lease", **_CONTAINER}
    scene.do("PUT", path, query, {"x-ms-lease-action": "release", "x-ms-lease-id": _LEASE})
    return scene.request("PUT", path, query, {"x-ms-lease-action": "break"})


@BLOB.case("Container_Delete", 412, "LeaseIdMissing")
def delete_leased(scene: Scene) -> Request:
    return scene.request("DELETE", lease(scene, container(scene)), _CONTAINER)


@BLOB.case("Container_Delete", 412, "LeaseLost")
def delete_broken(scene: Scene) -> Request:
    path = broken(scene, container(scene))
    return scene.request("DELETE", path, _CONTAINER, {"x-ms-lease-id": _LEASE})


@BLOB.case("Service_ListContainersSegment", 400, "InvalidHeaderValue", versions=("12.0.0b1",))
def list_of_no_version(scene: Scene) -> Request:
    return scene.request("GET", "", {"comp": "list"})


# Batches


def _batch(scene: Scene, place: str, *parts: Request) -> Request:
    sign = shared_key(ACCOUNT, KEY)
    signed = [
        sign(part.lacking("x-ms-version").lacking("x-ms-client-request-id")) for part in parts
    ]
    query = {"comp": "batch", **(_CONTAINER if place == "Container" else {})}
    path = scene.name if place == "Container" else ""
    return scene.request("POST", path, query, {"Content-Type": CONTENT_TYPE}, batch(signed))


def _tier(scene: Scene, path: str, headers: dict[str, str]) -> Request:
    return scene.request("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Cool", **headers})


def _with_snapshot(scene: Scene) -> str:
    path = put(scene)
    snapshot(scene, path)
    return path


for _place in ("Service", "Container"):
    for _operation, _status, _code, _maker, _prepare, _headers in (
        ("Blob_Delete", 202, "", delete, put, {}),
        ("Blob_Delete", 404, "BlobNotFound", delete, fresh, {}),
        ("Blob_Delete", 409, "SnapshotsPresent", delete, _with_snapshot, {}),
        ("Blob_Delete", 412, "ConditionNotMet", delete, tagged, _UNMET["x-ms-if-tags"]),
        ("Blob_SetTier", 200, "", _tier, put, {}),
        ("Blob_SetTier", 412, "ConditionNotMet", _tier, tagged, _UNMET["x-ms-if-tags"]),
    ):

        @BLOB.case(f"{_place}_SubmitBatch > {_operation}", _status, _code)
        def in_batch(
            scene: Scene,
            place: str = _place,
            make: Maker = _maker,
            prepare: Callable[[Scene], str] = _prepare,
            headers: dict[str, str] = _headers,
        ) -> Request:
            return _batch(scene, place, make(scene, prepare(scene), headers))

    @BLOB.case(f"{_place}_SubmitBatch", 202)
    def submit(scene: Scene, place: str = _place) -> Request:
        return _batch(scene, place, delete(scene, put(scene), {}))


# Service

add_service_properties(BLOB)
_SERVICE: Final = {"restype": "service", "comp": "properties"}
_WEBSITE: Final = (
    "<StaticWebsite><Enabled>true</Enabled><IndexDocument>index.html</IndexDocument>"
    "<ErrorDocument404Path>errors/404.html</ErrorDocument404Path></StaticWebsite>"
)
_NO_WEBSITE: Final = "<StaticWebsite><Enabled>false</Enabled></StaticWebsite>"
_RETENTION: Final = (
    "<DeleteRetentionPolicy><Enabled>true</Enabled><Days>{}</Days></DeleteRetentionPolicy>"
)
_NO_RETENTION: Final = "<DeleteRetentionPolicy><Enabled>false</Enabled></DeleteRetentionPolicy>"
_DEFAULT_VERSION: Final = "<DefaultServiceVersion>2014-02-14</DefaultServiceVersion>"


@BLOB.case("Service_SetProperties", 202, name="website, retention", share=130)
def set_website(scene: Scene) -> Request:
    usual = properties(_NO_WEBSITE, _NO_RETENTION)
    scene.afterwards.append(scene.request("PUT", "", _SERVICE, _XML, usual))
    body = properties(_WEBSITE, _RETENTION.format(5))
    return scene.request("PUT", "", _SERVICE, _XML, body)


@BLOB.case("Service_SetProperties", 400, "InvalidXmlDocument", name="retention of 366 days")
def set_long_retention(scene: Scene) -> Request:
    return scene.request("PUT", "", _SERVICE, _XML, properties(_RETENTION.format(366)))


@BLOB.case("Service_SetProperties", 400, "InvalidXmlDocument", name="retention of 0 days")
def set_no_retention(scene: Scene) -> Request:
    return scene.request("PUT", "", _SERVICE, _XML, properties(_RETENTION.format(0)))


@BLOB.case("Service_GetProperties", 200, name="website, retention, version", share=40, cors=False)
def get_website(scene: Scene) -> Request:
    usual = properties(_NO_WEBSITE, _NO_RETENTION)
    scene.afterwards.append(scene.request("PUT", "", _SERVICE, _XML, usual))
    parts = (metrics("HourMetrics"), _DEFAULT_VERSION, _WEBSITE, _RETENTION.format(5))
    scene.do("PUT", "", _SERVICE, _XML, properties(*parts))
    return scene.request("GET", "", _SERVICE)
