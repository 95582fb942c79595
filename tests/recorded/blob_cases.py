"""Recorded requests to the blob service that succeed, and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.probes.blob.batches import CONTENT_TYPE, batch
from tests.probes.client import Request, md5, shared_key
from tests.probes.tokens import service_token
from tests.recorded.blob_requests import (
    ACL,
    BLOB,
    BLOCK_LIST,
    CONTAINER,
    CONTENT,
    COPY_HEADERS,
    HERE,
    LEASE,
    LEASE_HEADERS,
    META,
    OTHER_LEASE,
    PAGES,
    RANGE,
    UNMET,
    XML,
    Maker,
    acquire,
    acquire_container,
    add,
    append,
    append_from,
    appended,
    commit,
    committed,
    container,
    copied,
    copy,
    copy_at_once,
    delete,
    empty_append,
    empty_page,
    fresh,
    get,
    get_blocks,
    get_ranges,
    get_tags,
    head,
    lease,
    leased,
    look,
    new_append,
    new_page,
    paged,
    put,
    sealed,
    set_headers,
    set_metadata,
    set_tags,
    snapshot,
    stage,
    stage_from,
    staged,
    staged_again,
    tagged,
    take_snapshot,
    update_pages,
    update_pages_from,
    upload,
    upload_from,
    with_source,
)
from tests.recorded.cases import CaseContext, other_account, signer
from tests.recorded.queue_cases import (
    BARE_POLICY,
    POLICY,
    add_service_properties,
    metrics,
    properties,
)
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT

_MD5: Final = {"Content-MD5": md5(CONTENT)}
_CRC: Final = ("x-ms-content-crc64",)

add("BlockBlob_Upload", 201, upload, fresh, headers={"If-None-Match": "*"})
add("BlockBlob_Upload", 201, upload, put, name="again")
add("BlockBlob_Upload", 201, upload, fresh, headers=_MD5, name="MD5", share=6)
add("BlockBlob_Upload", 201, upload, fresh, headers=META, name="metadata", share=153)
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
    headers={"x-ms-lease-id": LEASE, "If-None-Match": "*"},
    name="leased, If-None-Match: *",
    share=14,
)
add("AppendBlob_Create", 201, new_append, fresh)
add("AppendBlob_Create", 201, new_append, fresh, headers=META, name="metadata", share=16)
add("AppendBlob_AppendBlock", 201, append, empty_append)
add("AppendBlob_AppendBlock", 201, append, empty_append, headers=_MD5, name="MD5", share=9)
add("AppendBlob_AppendBlockFromUrl", 201, append_from, with_source(empty_append), having=_CRC)
add(
    "AppendBlob_AppendBlockFromUrl",
    201,
    append_from,
    with_source(empty_append),
    headers={"x-ms-source-content-md5": md5(CONTENT)},
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
    headers={"x-ms-lease-id": LEASE},
    name="lease",
    share=46,
)
add("BlockBlob_StageBlockFromUrl", 201, stage_from, with_source(fresh))
add(
    "BlockBlob_StageBlockFromUrl",
    201,
    stage_from,
    with_source(fresh),
    headers={"x-ms-source-content-md5": md5(CONTENT), "x-ms-source-range": "bytes=0-10"},
    name="MD5",
    share=4,
)
add("BlockBlob_CommitBlockList", 201, commit, staged, having=_CRC)
add(
    "BlockBlob_CommitBlockList",
    201,
    commit,
    staged,
    headers={**META, "x-ms-tags": "a=b"},
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
        headers={"Content-MD5": md5(BLOCK_LIST.encode())},
        having=_names,
        name=f"MD5 {_version}",
        share=4,
        versions=(_version,),
    )
add(
    "BlockBlob_CommitBlockList",
    201,
    commit,
    lambda context: lease(context, staged_again(context)),
    headers={"x-ms-lease-id": LEASE, "If-None-Match": "*"},
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
    headers={"x-ms-source-content-md5": md5(CONTENT)},
    name="MD5",
    share=4,
)
add(
    "BlockBlob_PutBlobFromUrl",
    201,
    upload_from,
    with_source(leased),
    headers={"x-ms-lease-id": LEASE, "If-None-Match": "*"},
    name="leased, If-None-Match: *",
    share=4,
)
add("PageBlob_Create", 201, new_page, fresh)
add("PageBlob_Create", 201, new_page, fresh, headers=META, name="metadata", share=32)
add("PageBlob_UploadPages", 201, update_pages, empty_page, having=_CRC)
add(
    "PageBlob_UploadPages",
    201,
    update_pages,
    empty_page,
    headers={"Content-MD5": md5(PAGES)},
    having={"Content-MD5"},
    name="MD5",
    share=48,
)
add(
    "PageBlob_ClearPages",
    201,
    lambda s, p, h: s.request("PUT", p, {"comp": "page"}, {"x-ms-page-write": "clear", **RANGE}),
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
    headers={"x-ms-source-content-md5": md5(PAGES)},
    having={"Content-MD5"},
    name="MD5",
    share=4,
)
add(
    "PageBlob_Resize",
    200,
    lambda s, p, h: s.request(
        "PUT", p, {"comp": "properties"}, {"x-ms-blob-content-length": "512"}
    ),
    empty_page,
)


@BLOB.case("PageBlob_UpdateSequenceNumber", 200)
def update_sequence_number(context: CaseContext) -> Request:
    headers = {"x-ms-blob-sequence-number": "6", "x-ms-sequence-number-action": "update"}
    return context.request("PUT", put(context, "page"), {"comp": "properties"}, headers)


@BLOB.case("PageBlob_CopyIncremental", 202)
def copy_incrementally(context: CaseContext) -> Request:
    path = paged(context)
    moment = snapshot(context, path)
    token = service_token(ACCOUNT, KEY, context.name, sv="2021-08-06")
    where = f"{HERE}/{ACCOUNT}/{path}?snapshot={moment}&{token}"
    query = {"comp": "incrementalcopy"}
    return context.request("PUT", f"{context.name}/copy", query, {"x-ms-copy-source": where})


# Reads

_BLOCK_READ: Final = LEASE_HEADERS | {"x-ms-blob-content-md5"}
add("Blob_Download", 206, get, put, having=_BLOCK_READ)
add("Blob_Download", 206, get, committed, having=LEASE_HEADERS, name="of blocks", share=250)
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
    having=LEASE_HEADERS | {"x-ms-blob-committed-block-count"},
    name="append blob",
    share="x-ms-blob-committed-block-count",
)
add(
    "Blob_Download",
    206,
    get,
    paged,
    having=LEASE_HEADERS | {"x-ms-blob-sequence-number"},
    name="page blob",
    share="x-ms-blob-sequence-number",
)
add(
    "Blob_Download",
    206,
    get,
    lambda context: put(context, x_ms_meta_hello="world"),
    having=_BLOCK_READ | {"x-ms-meta-*"},
    name="metadata",
    share="x-ms-meta-*",
)
add(
    "Blob_Download",
    206,
    get,
    leased,
    headers={"x-ms-lease-id": LEASE},
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
    having=_BLOCK_READ | COPY_HEADERS,
    name="copy",
    share="x-ms-copy-id",
)
add(
    "Blob_Download",
    206,
    get,
    lambda context: put(
        context, x_ms_blob_content_language="fr", x_ms_blob_content_disposition="inline"
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
        lacking=LEASE_HEADERS,
        share={"GET": 83, "HEAD": 25}[_name],
    )
    def read_snapshot(context: CaseContext, method: str = _name) -> Request:
        path = put(context)
        headers = {"x-ms-range": "bytes=0-3"} if method == "GET" else {}
        return context.request(method, path, {"snapshot": snapshot(context, path)}, headers)


_WHOLE: Final = {"x-ms-lease-state", "Content-MD5"}


def get_whole(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("GET", path, {}, headers)


add("Blob_Download", 200, get_whole, put, having=_WHOLE)
add("Blob_Download", 200, get_whole, lambda s: put(s, "append"), name="append blob", share=4,
    having={"x-ms-lease-state", "x-ms-blob-committed-block-count"})  # fmt: skip
add("Blob_Download", 200, get_whole, lambda s: put(s, "page"), name="page blob", share=4,
    having={"x-ms-lease-state", "x-ms-blob-sequence-number"})  # fmt: skip
add("Blob_Download", 200, get_whole, copied, name="copy", share="x-ms-copy-id",
    having=_WHOLE | COPY_HEADERS, lacking={"x-ms-or-policy-id"})  # fmt: skip


@BLOB.case(
    "Blob_Download",
    200,
    name="headers of the token",
    signs=False,
    share=2,
    having=_WHOLE | {"Content-Disposition"},
)
def get_as_told(context: CaseContext) -> Request:
    path = put(context)
    options = {"rscc": "no-cache", "rscd": "inline", "rsce": "utf-8", "rscl": "fr", "rsct": "text"}
    token = service_token(ACCOUNT, KEY, context.name, "blob", sv="2021-08-06", **options)
    return token.put_on(context.request("GET", path))


_LOOK: Final = LEASE_HEADERS | {
    "Content-MD5", "Content-Type", "x-ms-access-tier", "x-ms-access-tier-inferred",
}  # fmt: skip
_OTHER_LOOK: Final = LEASE_HEADERS | {"Content-Type"}


def tiered(context: CaseContext) -> str:
    path = put(context)
    context.do("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Cool"})
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
add("Blob_GetProperties", 200, look, copied, having=_LOOK | COPY_HEADERS, name="copy",
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
    having=_OTHER_LOOK | COPY_HEADERS | {"x-ms-incremental-copy", "x-ms-copy-destination-snapshot"},
)
def look_at_incremental_copy(context: CaseContext) -> Request:
    request = copy_incrementally(context)
    context.do_request(request)
    return context.request("HEAD", f"{context.name}/copy")


add("Blob_GetTags", 200, get_tags, tagged)
add("Blob_SetTags", 204, set_tags, put)
add("Blob_SetTags", 204, set_tags, leased, headers={"x-ms-lease-id": LEASE}, name="leased",
    share=3)  # fmt: skip

_BLOCKS: Final = ("ETag", "Last-Modified", "x-ms-blob-content-length")
add("BlockBlob_GetBlockList", 200, get_blocks, committed, having=_BLOCKS, share=26)
add("BlockBlob_GetBlockList", 200, get_blocks, staged, name="uncommitted", share=13)
for _type in ("committed", "uncommitted"):

    @BLOB.case("BlockBlob_GetBlockList", 200, name=f"{_type} only", share=4,
               having=_BLOCKS)  # fmt: skip
    def get_some_blocks(context: CaseContext, kind: str = _type) -> Request:
        query = {"comp": "blocklist", "blocklisttype": kind}
        return context.request("GET", staged_again(context), query)


add("PageBlob_GetPageRanges", 200, get_ranges, paged)
add("PageBlob_GetPageRanges", 200, get_ranges, empty_page, name="empty", share=20)


@BLOB.case("PageBlob_GetPageRanges", 200, name="maxresults", share=8,
           versions=("2020-10-02", "2021-08-06"))  # fmt: skip
def get_some_ranges(context: CaseContext) -> Request:
    query = {"comp": "pagelist", "maxresults": "1"}
    return context.request("GET", paged(context), query)


def _changed(context: CaseContext) -> tuple[str, str]:
    path = put(context, "page")
    write = {"x-ms-page-write": "update", "x-ms-range": "bytes=0-2047"}
    context.do("PUT", path, {"comp": "page"}, write, PAGES * 4)
    moment = snapshot(context, path)
    context.do("PUT", path, {"comp": "page"}, {"x-ms-page-write": "update", **RANGE}, PAGES)
    clear = {"x-ms-page-write": "clear", "x-ms-range": "bytes=512-1023"}
    context.do("PUT", path, {"comp": "page"}, clear)
    return path, moment


@BLOB.case("PageBlob_GetPageRangesDiff", 200, elements=("!PageList/NextMarker",))
def get_changes(context: CaseContext) -> Request:
    path, moment = _changed(context)
    return context.request("GET", path, {"comp": "pagelist", "prevsnapshot": moment})


@BLOB.case("PageBlob_GetPageRangesDiff", 200, name="maxresults", share=8,
           versions=("2020-10-02", "2021-08-06"),
           elements=("PageList/NextMarker",))  # fmt: skip
def get_some_changes(context: CaseContext) -> Request:
    path, moment = _changed(context)
    query = {"comp": "pagelist", "prevsnapshot": moment, "maxresults": "2"}
    return context.request("GET", path, query)


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

for _level in ("Blob", "Container"):
    for _action, _status, _headers in (
        ("Release", 200, {"x-ms-lease-id": LEASE}),
        ("Renew", 200, {"x-ms-lease-id": LEASE}),
        ("Change", 200, {"x-ms-lease-id": LEASE, "x-ms-proposed-lease-id": OTHER_LEASE}),
        ("Break", 202, {}),
        ("Break", 202, {"x-ms-lease-break-period": "5"}),
    ):

        @BLOB.case(f"{_level}_{_action}Lease", _status, name=" ".join(_headers))
        def lease_action(
            context: CaseContext,
            level: str = _level,
            action: str = _action,
            headers: dict[str, str] = _headers,
        ) -> Request:
            path = put(context) if level == "Blob" else container(context)
            query = {"comp": "lease", **({} if level == "Blob" else CONTAINER)}
            sent = {"x-ms-lease-action": action.lower(), **headers}
            return context.request("PUT", lease(context, path), query, sent)


@BLOB.case("Blob_AbortCopyFromUrl", 204)
def abort_copy(context: CaseContext) -> Request:
    begun = context.do("PUT", fresh(context), {}, {"x-ms-copy-source": context.endless})
    query = {"comp": "copy", "copyid": begun.headers["x-ms-copy-id"]}
    return context.request("PUT", f"{context.name}/blob", query, {"x-ms-copy-action": "abort"})


@BLOB.case("Blob_AbortCopyFromUrl", 409, "NoPendingCopyOperation")
def abort_ended_copy(context: CaseContext) -> Request:
    copied(context)
    copy_id = head(context, f"{context.name}/blob").headers["x-ms-copy-id"]
    query = {"comp": "copy", "copyid": copy_id}
    return context.request("PUT", f"{context.name}/blob", query, {"x-ms-copy-action": "abort"})


@BLOB.case("Blob_SetTier", 200)
def set_tier(context: CaseContext) -> Request:
    return context.request("PUT", put(context), {"comp": "tier"}, {"x-ms-access-tier": "Cool"})


@BLOB.case("Blob_SetTier", 202)
def rehydrate(context: CaseContext) -> Request:
    path = put(context)
    context.do("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Archive"})
    return context.request("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Hot"})


for _operation in ("Blob_GetAccountInfo", "Container_GetAccountInfo", "Service_GetAccountInfo"):
    # The kind of the recorded account says nothing about ours.
    @BLOB.case(_operation, 200, values={"x-ms-sku-name": "<text>"})
    def account_info(context: CaseContext, operation: str = _operation) -> Request:
        path = {"B": put, "C": container}.get(operation[0], lambda _: "")(context)
        return context.request("GET", path, {"restype": "account", "comp": "properties"})


# Containers


@BLOB.case("Container_Create", 201)
def create(context: CaseContext) -> Request:
    return context.request("PUT", context.name, CONTAINER)


@BLOB.case("Container_Create", 201, name="metadata, access", share=30)
def create_described(context: CaseContext) -> Request:
    headers = {"x-ms-meta-hello": "world", "x-ms-blob-public-access": "container"}
    return context.request("PUT", context.name, CONTAINER, headers)


_SCOPE: Final = {"x-ms-default-encryption-scope", "x-ms-deny-encryption-scope-override"}


@BLOB.case("Container_GetProperties", 200, having=_SCOPE)
def get_container(context: CaseContext) -> Request:
    return context.request("GET", container(context), CONTAINER)


@BLOB.case("Container_GetProperties", 200, having=_SCOPE | {"x-ms-meta-*"}, name="metadata",
           share="x-ms-meta-*")  # fmt: skip
def get_described_container(context: CaseContext) -> Request:
    return context.request("GET", container(context, **{"x-ms-meta-hello": "world"}), CONTAINER)


@BLOB.case("Container_GetProperties", 200, having=_SCOPE | {"x-ms-lease-duration"},
           name="leased", share=16)  # fmt: skip
def get_leased_container(context: CaseContext) -> Request:
    return context.request("GET", lease(context, container(context)), CONTAINER)


@BLOB.case("Container_Delete", 202)
def delete_container(context: CaseContext) -> Request:
    return context.request("DELETE", container(context), CONTAINER)


@BLOB.case("Container_SetMetadata", 200)
def set_container_metadata(context: CaseContext) -> Request:
    query = {**CONTAINER, "comp": "metadata"}
    return context.request("PUT", container(context), query, {"x-ms-meta-hello": "world"})


_NO_POLICY: Final = "<SignedIdentifiers />"


@BLOB.case("Container_GetAccessPolicy", 200, share=14)
def get_no_policy(context: CaseContext) -> Request:
    return context.request("GET", container(context), ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="policy")
def get_policy(context: CaseContext) -> Request:
    context.do("PUT", container(context), ACL, XML, POLICY)
    return context.request("GET", context.name, ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="bare policy", share=4,
           elements=("!SignedIdentifiers/SignedIdentifier/AccessPolicy",))  # fmt: skip
def get_bare_policy(context: CaseContext) -> Request:
    context.do("PUT", container(context), ACL, XML, BARE_POLICY)
    return context.request("GET", context.name, ACL)


@BLOB.case("Container_GetAccessPolicy", 200, name="public", share="x-ms-blob-public-access",
           having={"x-ms-blob-public-access"})  # fmt: skip
def get_public_policy(context: CaseContext) -> Request:
    container(context, **{"x-ms-blob-public-access": "container"})
    return context.request("GET", context.name, ACL)


@BLOB.case("Container_SetAccessPolicy", 200)
def set_policy(context: CaseContext) -> Request:
    return context.request("PUT", container(context), ACL, XML, POLICY)


@BLOB.case("Container_AcquireLease", 201)
def acquire_free_container(context: CaseContext) -> Request:
    return acquire_container(context, {})


# Lists

_LIST: Final = {**CONTAINER, "comp": "list"}
_ROW: Final = "EnumerationResults/Blobs/Blob"
_CRC64: Final = f"{_ROW}/Properties/Content-CRC64"


def _list_case(name: str, share: int | str = "", elements: tuple[str, ...] = (), **query: str):  # type: ignore[no-untyped-def]
    """Adds two cases: replication metadata is returned from 2021-08-06 on."""

    def two(prepare: Callable[[CaseContext], str]) -> Callable[[CaseContext], str]:
        def make(context: CaseContext) -> Request:
            prepare(context)
            return context.request("GET", context.name, {**_LIST, **query})

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


@BLOB.case("Container_ListBlobFlatSegment", 200, name="empty", share=22)
def list_nothing(context: CaseContext) -> Request:
    return context.request("GET", container(context), _LIST)


@BLOB.case("Container_ListBlobFlatSegment", 200, name="marker", share=6)
def list_from_marker(context: CaseContext) -> Request:
    put(context)
    put(context, name="blob2")
    query = {**_LIST, "maxresults": "1"}
    page = context.do("GET", context.name, query).body.decode()
    marker = page.partition("<NextMarker>")[2].partition("<")[0]
    return context.request("GET", context.name, {**query, "marker": marker})


@BLOB.case("Container_ListBlobFlatSegment", 200, name="snapshots", share=100,
           elements=(f"{_ROW}/Snapshot",))  # fmt: skip
def list_snapshots(context: CaseContext) -> Request:
    path = put(context)
    snapshot(context, path)
    return context.request("GET", context.name, {**_LIST, "include": "snapshots"})


@BLOB.case("Container_ListBlobHierarchySegment", 200)
def list_tree(context: CaseContext) -> Request:
    put(context)
    put(context, name="a/blob")
    return context.request("GET", context.name, {**_LIST, "delimiter": "/"})


@BLOB.case("Container_ListBlobHierarchySegment", 200, name="prefix", share=22)
def list_branch(context: CaseContext) -> Request:
    put(context)
    put(context, name="a/blob")
    return context.request("GET", context.name, {**_LIST, "delimiter": "/", "prefix": "a/"})


_CONTAINER_ROW: Final = "EnumerationResults/Containers/Container"
_CONTAINER_SCOPE: Final = (
    f"{_CONTAINER_ROW}/Properties/DefaultEncryptionScope",
    f"{_CONTAINER_ROW}/Properties/DenyEncryptionScopeOverride",
)


@BLOB.case("Service_ListContainersSegment", 200, elements=_CONTAINER_SCOPE, signs=False,
           cors=False)  # fmt: skip
def list_containers(context: CaseContext) -> Request:
    """Lists the containers of the account that has few."""
    other = other_account(context)
    container(other)
    request = other.request("GET", "", {"comp": "list", "include": ""})
    return signer("blob", SECOND_ACCOUNT)(request)


@BLOB.case("Service_ListContainersSegment", 200, name="prefix, metadata", share=12,
           elements=(*_CONTAINER_SCOPE, f"{_CONTAINER_ROW}/Metadata"))  # fmt: skip
def list_described_containers(context: CaseContext) -> Request:
    container(context, **{"x-ms-meta-hello": "world"})
    return context.request(
        "GET", "", {"comp": "list", "prefix": context.name, "include": "metadata"}
    )


@BLOB.case("Service_ListContainersSegment", 200, name="public, leased", share=8,
           elements=(*_CONTAINER_SCOPE, f"{_CONTAINER_ROW}/Properties/PublicAccess",
                     f"{_CONTAINER_ROW}/Properties/LeaseDuration"))  # fmt: skip
def list_public_containers(context: CaseContext) -> Request:
    lease(context, container(context, **{"x-ms-blob-public-access": "container"}))
    return context.request("GET", "", {"comp": "list", "prefix": context.name})


@BLOB.case("Service_ListContainersSegment", 200, name="pages", share=20)
def list_some_containers(context: CaseContext) -> Request:
    for letter in "ab":
        context.do("PUT", context.name + letter, CONTAINER)
    query = {"comp": "list", "prefix": context.name, "maxresults": "1"}
    page = context.do("GET", "", query).body.decode()
    marker = page.partition("<NextMarker>")[2].partition("<")[0]
    return context.request("GET", "", {**query, "marker": marker})


for _operation, _query in (
    ("Service_FilterBlobs", {"comp": "blobs"}),
    ("Container_FilterBlobs", {"comp": "blobs", **CONTAINER}),
):
    # Service_FilterBlobs had another shape before 2020-04-08, when it was new.
    @BLOB.case(_operation, 200, versions=("2020-06-12", "2021-08-06"))
    def find(
        context: CaseContext, operation: str = _operation, query: dict[str, str] = _query
    ) -> Request:
        put(context, x_ms_tags=f"owner={context.name}")
        path = context.name if operation[0] == "C" else ""
        sent = {"where": f"\"owner\"='{context.name}'", "maxresults": "2"}
        return context.request("GET", path, {**query, **sent})

    @BLOB.case(_operation, 200, name="marker", versions=("2020-06-12", "2021-08-06"),
               share={"S": 8, "C": 4}[_operation[0]])  # fmt: skip
    def find_more(
        context: CaseContext, operation: str = _operation, query: dict[str, str] = _query
    ) -> Request:
        put(context, x_ms_tags=f"owner={context.name}")
        for number in range(3):
            put(context, name=f"blob{number}", x_ms_tags=f"owner={context.name}")
        path = context.name if operation[0] == "C" else ""
        sent = {**query, "where": f"\"owner\"='{context.name}'", "maxresults": "2"}
        page = context.do("GET", path, sent).body.decode()
        marker = page.partition("<NextMarker>")[2].partition("<")[0]
        return context.request("GET", path, {**sent, "marker": marker})


# Batches


def _batch(context: CaseContext, level: str, *parts: Request) -> Request:
    sign = shared_key(ACCOUNT, KEY)
    signed = [
        sign(part.lacking("x-ms-version").lacking("x-ms-client-request-id")) for part in parts
    ]
    query = {"comp": "batch", **(CONTAINER if level == "Container" else {})}
    path = context.name if level == "Container" else ""
    return context.request("POST", path, query, {"Content-Type": CONTENT_TYPE}, batch(signed))


def _tier(context: CaseContext, path: str, headers: dict[str, str]) -> Request:
    return context.request("PUT", path, {"comp": "tier"}, {"x-ms-access-tier": "Cool", **headers})


def _with_snapshot(context: CaseContext) -> str:
    path = put(context)
    snapshot(context, path)
    return path


for _level in ("Service", "Container"):
    for _operation, _status, _code, _maker, _prepare, _headers in (
        ("Blob_Delete", 202, "", delete, put, {}),
        ("Blob_Delete", 404, "BlobNotFound", delete, fresh, {}),
        ("Blob_Delete", 409, "SnapshotsPresent", delete, _with_snapshot, {}),
        ("Blob_Delete", 412, "ConditionNotMet", delete, tagged, UNMET["x-ms-if-tags"]),
        ("Blob_SetTier", 200, "", _tier, put, {}),
        ("Blob_SetTier", 412, "ConditionNotMet", _tier, tagged, UNMET["x-ms-if-tags"]),
    ):

        @BLOB.case(f"{_level}_SubmitBatch > {_operation}", _status, _code)
        def in_batch(
            context: CaseContext,
            level: str = _level,
            make: Maker = _maker,
            prepare: Callable[[CaseContext], str] = _prepare,
            headers: dict[str, str] = _headers,
        ) -> Request:
            return _batch(context, level, make(context, prepare(context), headers))

    @BLOB.case(f"{_level}_SubmitBatch", 202)
    def submit(context: CaseContext, level: str = _level) -> Request:
        return _batch(context, level, delete(context, put(context), {}))


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
def set_website(context: CaseContext) -> Request:
    usual = properties(_NO_WEBSITE, _NO_RETENTION)
    context.afterwards.append(context.request("PUT", "", _SERVICE, XML, usual))
    body = properties(_WEBSITE, _RETENTION.format(5))
    return context.request("PUT", "", _SERVICE, XML, body)


@BLOB.case("Service_SetProperties", 400, "InvalidXmlDocument", name="retention of 366 days")
def set_long_retention(context: CaseContext) -> Request:
    return context.request("PUT", "", _SERVICE, XML, properties(_RETENTION.format(366)))


@BLOB.case("Service_SetProperties", 400, "InvalidXmlDocument", name="retention of 0 days")
def set_no_retention(context: CaseContext) -> Request:
    return context.request("PUT", "", _SERVICE, XML, properties(_RETENTION.format(0)))


@BLOB.case("Service_GetProperties", 200, name="website, retention, version", share=40, cors=False)
def get_website(context: CaseContext) -> Request:
    usual = properties(_NO_WEBSITE, _NO_RETENTION)
    context.afterwards.append(context.request("PUT", "", _SERVICE, XML, usual))
    parts = (metrics("HourMetrics"), _DEFAULT_VERSION, _WEBSITE, _RETENTION.format(5))
    context.do("PUT", "", _SERVICE, XML, properties(*parts))
    return context.request("GET", "", _SERVICE)
