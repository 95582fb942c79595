"""Recorded requests to the blob service that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.probes.client import Request
from tests.probes.tokens import service_token
from tests.recorded.blob_requests import (
    ACL,
    BLOB,
    CONTAINER,
    FUTURE,
    LEASE,
    META,
    NO_ETAG,
    OTHER_LEASE,
    PAST,
    UNMET,
    WRONG_MD5,
    XML,
    Maker,
    acquire,
    acquire_container,
    add,
    append,
    append_from,
    appended,
    broken,
    commit,
    container,
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
    lease,
    leased,
    look,
    new_page,
    paged,
    private,
    put,
    sealed,
    set_headers,
    set_metadata,
    set_tags,
    stage_from,
    staged_again,
    tagged,
    take_snapshot,
    update_pages,
    update_pages_from,
    upload,
    upload_from,
    with_source,
)
from tests.recorded.cases import CaseContext
from tests.recorded.queue_cases import POLICY
from tests.server import ACCOUNT, KEY

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
    ("Service_GetUserDelegationKey", 0, ""): "only users get keys, not the account key",
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
}
"""Recorded responses without a case, and why; status 0 stands for a whole operation."""


# Conditions

_ETAGS: Final = tuple(UNMET)[:4]
_ALL: Final = tuple(UNMET)
_DATES: Final = ("If-Modified-Since", "If-Unmodified-Since")
_ONLY_TAGS: Final = ("x-ms-if-tags",)
_WRITES: Final[tuple[tuple[str, Maker, Callable[[CaseContext], str], tuple[str, ...]], ...]] = (
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
        add(_operation, 412, _maker, _prepare, "ConditionNotMet", UNMET[_condition],
            name=_condition)  # fmt: skip
for _operation, _maker, _prepare in (
    ("Blob_Download", get, put),
    ("Blob_GetProperties", look, put),
    ("PageBlob_GetPageRanges", get_ranges, paged),
):
    for _condition in ("If-Match", "If-Unmodified-Since"):
        add(_operation, 412, _maker, _prepare, "ConditionNotMet", UNMET[_condition],
            name=_condition)  # fmt: skip
    # Some front ends of 2019 had it; the version does not decide.
    _lacking = {"Content-Type"} if _operation == "PageBlob_GetPageRanges" else set()
    for _condition in ("If-None-Match", "If-Modified-Since"):
        add(_operation, 304, _maker, _prepare, "ConditionNotMet", UNMET[_condition],
            name=_condition, lacking=_lacking)  # fmt: skip
for _operation, _maker in (("Blob_Download", get), ("Blob_GetProperties", look)):
    add(_operation, 412, _maker, put, "ConditionNotMet", UNMET["x-ms-if-tags"],
        name="x-ms-if-tags")  # fmt: skip
add("AppendBlob_AppendBlock", 400, append, empty_append, "OutOfRangeInput", UNMET["If-Match"])
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

_FROM_URL: Final[tuple[tuple[str, Maker, Callable[[CaseContext], str]], ...]] = (
    ("AppendBlob_AppendBlockFromUrl", append_from, with_source(empty_append)),
    ("BlockBlob_PutBlobFromUrl", upload_from, with_source(fresh)),
    ("PageBlob_UploadPagesFromUrl", update_pages_from, with_source(empty_page, "page")),
    ("BlockBlob_StageBlockFromUrl", stage_from, with_source(fresh)),
    ("Blob_CopyFromUrl", copy_at_once, with_source(fresh)),
    ("Blob_StartCopyFromUrl", copy, with_source(fresh)),
)
for _operation, _maker, _prepare in _FROM_URL[:3]:
    for _status, _headers in (
        (304, {"x-ms-source-if-modified-since": FUTURE}),
        (412, {"x-ms-source-if-unmodified-since": PAST}),
        (304, {"x-ms-source-if-none-match": "<source>"}),
        (412, {"x-ms-source-if-match": NO_ETAG}),
    ):
        _name = next(iter(_headers))
        if not (_name.endswith("-match") and _operation == "BlockBlob_PutBlobFromUrl"):
            add(_operation, _status, _maker, _prepare, "CannotVerifyCopySource", _headers,
                name=_name)  # fmt: skip
for _operation, _maker, _prepare in _FROM_URL[:4]:
    add(_operation, 400, _maker, _prepare, "Md5Mismatch",
        {"x-ms-source-content-md5": WRONG_MD5})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 400, upload_from, with_source(put), "Md5Mismatch",
    {"x-ms-source-content-md5": WRONG_MD5, "If-None-Match": "*"},
    name="before If-None-Match")  # fmt: skip
for _operation, _maker, _prepare in _FROM_URL:
    # Before these versions, a source without a token was reported as missing.
    @BLOB.case(_operation, 401, "CannotVerifyCopySource", versions=("2020-10-02", "2021-08-06"))
    def from_private(
        context: CaseContext, make: Maker = _maker, prepare: Callable[[CaseContext], str] = _prepare
    ) -> Request:
        path = prepare(context)
        return make(context, path, {"x-ms-copy-source": private(context)})


@BLOB.case("Blob_CopyFromUrl", 404, "CannotVerifyCopySource")
def copy_nothing(context: CaseContext) -> Request:
    return copy_at_once(context, fresh(context), {})


# Errors of single operations

add("AppendBlob_AppendBlock", 404, append, fresh, "BlobNotFound")
add("AppendBlob_AppendBlock", 409, append, sealed, "BlobIsSealed")
add("Blob_Download", 404, get, fresh, "BlobNotFound")
add("Blob_Download", 416, get, lambda s: put(s, "append"), "InvalidRange")
add("Blob_GetProperties", 404, look, fresh, "BlobNotFound")
add("Blob_GetProperties", 404, look, lambda s: f"{s.name}/blob", "ContainerNotFound")
add("Blob_GetProperties", 412, look, leased, "LeaseIdMismatchWithBlobOperation",
    {"x-ms-lease-id": OTHER_LEASE})  # fmt: skip
add("Blob_Delete", 404, delete, fresh, "BlobNotFound")
add("Blob_Delete", 412, delete, leased, "LeaseIdMissing")
add("Blob_AcquireLease", 409, acquire, leased, "LeaseAlreadyPresent",
    {"x-ms-proposed-lease-id": OTHER_LEASE})  # fmt: skip
add("Blob_GetTags", 400, get_tags, leased, "InvalidHeaderValue",
    {"x-ms-lease-id": f"'{LEASE}'"})  # fmt: skip
add("Blob_SetTags", 412, set_tags, leased, "LeaseIdMissing")
add("BlockBlob_Upload", 400, upload, fresh, "InvalidMetadata", {"x-ms-meta-tes-t": "test"})
add("BlockBlob_Upload", 400, upload, fresh, "Md5Mismatch",
    {"x-ms-blob-content-md5": WRONG_MD5})  # fmt: skip
add("BlockBlob_Upload", 409, upload, put, "BlobAlreadyExists", {"If-None-Match": "*"})
add("BlockBlob_Upload", 412, upload, lambda s: broken(s, put(s)), "LeaseLost",
    {"x-ms-lease-id": LEASE})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 409, upload_from, with_source(put), "BlobAlreadyExists",
    {"If-None-Match": "*"})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 412, upload_from, with_source(leased),
    "LeaseIdMismatchWithBlobOperation", {"x-ms-lease-id": OTHER_LEASE})  # fmt: skip
add("BlockBlob_PutBlobFromUrl", 412, upload_from, with_source(leased), "LeaseIdMissing",
    {"If-None-Match": "*"})  # fmt: skip
add("BlockBlob_CommitBlockList", 400, commit, fresh, "InvalidBlockList")
add("BlockBlob_CommitBlockList", 409, commit, staged_again, "BlobAlreadyExists",
    {"If-None-Match": "*"})  # fmt: skip
add("PageBlob_Create", 400, new_page, fresh, "InvalidHeaderValue",
    {"x-ms-blob-content-length": str(2**43 + 1)})  # fmt: skip
add("PageBlob_Create", 409, new_page, put, "BlobAlreadyExists", {"If-None-Match": "*"})


@BLOB.case("Blob_GetProperties", 400)
def look_at_no_time(context: CaseContext) -> Request:
    return context.request("HEAD", put(context), {"snapshot": "1"})


@BLOB.case("Blob_Download", 403, "AuthorizationPermissionMismatch", signs=False)
def get_without_permission(context: CaseContext) -> Request:
    path = put(context)
    token = service_token(ACCOUNT, KEY, context.name, "blob", sv="2021-08-06", permissions="w")
    return token.put_on(context.request("GET", path))


@BLOB.case("Blob_Download", 404, "ResourceNotFound", signs=False, versions=("",))
def get_anonymously(context: CaseContext) -> Request:
    context.version = "2021-08-06"
    path = put(context)
    context.version = ""
    return context.request("GET", path)


@BLOB.case("Container_Create", 400, "InvalidResourceName")
def create_of_bad_name(context: CaseContext) -> Request:
    return context.request("PUT", "啊齄丂狛狜", CONTAINER)


for _operation, _method, _query in (
    ("Container_Create", "PUT", CONTAINER),
    ("Service_GetProperties", "GET", {"restype": "service", "comp": "properties"}),
):

    @BLOB.case(_operation, 400, "InvalidAuthenticationInfo", signs=False,
               versions=("2020-02-10", "2021-08-06"))  # fmt: skip
    def with_several_words(
        context: CaseContext, method: str = _method, query: dict[str, str] = _query
    ) -> Request:
        path = context.name if method == "PUT" else ""
        return context.request(method, path, query, {"Authorization": "Bearer NOT A TOKEN"})


@BLOB.case("Service_GetProperties", 401, "InvalidAuthenticationInfo", signs=False,
           versions=("2021-08-06",))  # fmt: skip
def with_malformed_token(context: CaseContext) -> Request:
    query = {"restype": "service", "comp": "properties"}
    return context.request("GET", "", query, {"Authorization": "Bearer token"})


@BLOB.case("Container_Create", 409, "ContainerAlreadyExists")
def create_again(context: CaseContext) -> Request:
    return context.request("PUT", container(context), CONTAINER)


for _operation, _method, _query, _headers in (
    ("Container_GetProperties", "GET", CONTAINER, {}),
    ("Container_Delete", "DELETE", CONTAINER, {}),
    ("Container_SetMetadata", "PUT", {**CONTAINER, "comp": "metadata"}, META),
):

    @BLOB.case(_operation, 404, "ContainerNotFound")
    def no_container(
        context: CaseContext,
        method: str = _method,
        query: dict[str, str] = _query,
        headers: dict[str, str] = _headers,
    ) -> Request:
        return context.request(method, context.name, query, headers)


for _operation, _method, _query, _body, _conditions in (
    ("Container_Delete", "DELETE", CONTAINER, "", _DATES),
    ("Container_SetMetadata", "PUT", {**CONTAINER, "comp": "metadata"}, "", _DATES[:1]),
    ("Container_SetAccessPolicy", "PUT", ACL, POLICY, _DATES),
):
    for _condition in _conditions:

        @BLOB.case(_operation, 412, "ConditionNotMet", name=_condition)
        def container_unmet(
            context: CaseContext,
            method: str = _method,
            query: dict[str, str] = _query,
            body: str = _body,
            condition: str = _condition,
        ) -> Request:
            headers = {**UNMET[condition], **(XML if body else {})}
            return context.request(method, container(context), query, headers, body)


for _condition in _DATES:

    @BLOB.case("Container_AcquireLease", 412, "ConditionNotMet", name=_condition)
    def acquire_unmet(context: CaseContext, condition: str = _condition) -> Request:
        return acquire_container(context, UNMET[condition])


@BLOB.case("Container_AcquireLease", 409, "LeaseAlreadyPresent")
def acquire_leased(context: CaseContext) -> Request:
    path = lease(context, container(context))
    sent = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    sent["x-ms-proposed-lease-id"] = OTHER_LEASE
    return context.request("PUT", path, {"comp": "lease", **CONTAINER}, sent)


@BLOB.case("Container_BreakLease", 409, "LeaseNotPresentWithLeaseOperation")
def break_released(context: CaseContext) -> Request:
    path = lease(context, container(context))
    query = {"comp": "lease", **CONTAINER}
    context.do("PUT", path, query, {"x-ms-lease-action": "release", "x-ms-lease-id": LEASE})
    return context.request("PUT", path, query, {"x-ms-lease-action": "break"})


@BLOB.case("Container_Delete", 412, "LeaseIdMissing")
def delete_leased(context: CaseContext) -> Request:
    return context.request("DELETE", lease(context, container(context)), CONTAINER)


@BLOB.case("Container_Delete", 412, "LeaseLost")
def delete_broken(context: CaseContext) -> Request:
    path = broken(context, container(context))
    return context.request("DELETE", path, CONTAINER, {"x-ms-lease-id": LEASE})


@BLOB.case("Service_ListContainersSegment", 400, "InvalidHeaderValue", versions=("12.0.0b1",))
def list_of_no_version(context: CaseContext) -> Request:
    return context.request("GET", "", {"comp": "list"})
