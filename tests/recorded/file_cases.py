"""Recorded requests for files."""

from __future__ import annotations

from typing import Final

from tests.probes.client import Request, md5
from tests.probes.tokens import share_token
from tests.recorded.cases import VERSIONS, CaseContext
from tests.recorded.file_requests import (
    CONTENT,
    DOTS,
    FILE,
    FILE_LEASES,
    LEASE,
    META,
    NEW,
    NEWER,
    OTHER_LEASE,
    PRESERVED,
    RANGE,
    RENAMES,
    SDDL,
    SECTORS,
    SHARE,
    TIMES,
    TRAILING_DOTS,
    WITH_LEASE,
    add,
    address,
    clear,
    copied,
    copy,
    create_file,
    delete_file,
    empty,
    fresh,
    get_file,
    get_properties,
    get_range,
    lease,
    lease_action,
    leased,
    list_ranges,
    private,
    private_blob,
    put,
    put_range,
    put_range_from,
    request,
    set_file,
    set_metadata,
    share,
    take_snapshot,
    with_source,
    write,
)
from tests.server import ACCOUNT, KEY

LEASE_HEADERS: Final = frozenset({"x-ms-lease-state", "x-ms-lease-status"})
COPY_HEADERS: Final = frozenset(
    f"x-ms-copy-{name}" for name in ("completion-time", "id", "progress", "source", "status")
)

# Files

add("File_Create", 201, create_file, fresh, headers=NEW)
add("File_Create", 201, create_file, fresh, headers={**NEW, **META}, name="metadata", share=9)
add("File_Create", 201, create_file, fresh, name="times, attributes, permission", share=4,
    headers={**TIMES, "x-ms-file-permission": SDDL, "x-ms-file-attributes": "ReadOnly|Archive"},
    values={"x-ms-file-attributes": "ReadOnly | Archive"}, versions=NEWER)  # fmt: skip
for _sent, _shown in (("ReadOnly", "ReadOnly | Archive"), ("Temporary", "Archive | Temporary"),
                      ("hidden", "Hidden | Archive")):  # fmt: skip
    add("File_Create", 201, create_file, fresh, headers={**NEW, "x-ms-file-attributes": _sent},
        values={"x-ms-file-attributes": _shown}, name=_sent, share=8)  # fmt: skip
add("File_Create", 201, create_file, leased, headers={**NEW, **WITH_LEASE}, name="leased", share=17,
    versions=FILE_LEASES)  # fmt: skip
add("File_Create", 201, create_file, lambda s: f"{share(s)}/dotted.", headers={**NEW, **DOTS},
    name="trailing dot", share=30, versions=TRAILING_DOTS)  # fmt: skip
add("File_Create", 400, create_file, fresh, "FileInvalidPermission",
    {**NEW, "x-ms-file-permission": "abcde"})  # fmt: skip
add("File_Create", 412, create_file, leased, "LeaseIdMismatchWithFileOperation",
    {**NEW, "x-ms-lease-id": OTHER_LEASE}, versions=FILE_LEASES)  # fmt: skip
add("File_Create", 412, create_file, leased, "LeaseIdMissing", NEW, versions=FILE_LEASES)

_MD5_WANTED: Final = {"x-ms-range": "bytes=0-4", "x-ms-range-get-content-md5": "true"}


def typed(context: CaseContext) -> str:
    """Sets the MD5 and the type of a file."""
    path, stored = put(context), {"x-ms-content-type": "application/octet-stream"}
    stored["x-ms-content-md5"] = md5(CONTENT)
    context.do("PUT", path, {"comp": "properties"}, {**PRESERVED, **stored})
    return path


add("File_Download", 206, get_range, put, having=LEASE_HEADERS)
add("File_Download", 206, get_range, put, name="MD5 of the range", headers=_MD5_WANTED,
    having=LEASE_HEADERS, share="Content-MD5")  # fmt: skip
add("File_Download", 206, get_range, typed, name="stored MD5", share="x-ms-content-md5",
    having=LEASE_HEADERS | {"x-ms-content-md5"})  # fmt: skip
add("File_Download", 206, get_range, copied, name="copy", share="x-ms-copy-id",
    having=LEASE_HEADERS | COPY_HEADERS)  # fmt: skip
add("File_Download", 206, get_range, leased, name="leased", share="x-ms-lease-duration",
    having=LEASE_HEADERS | {"x-ms-lease-duration"}, versions=FILE_LEASES,
    values={"x-ms-lease-state": "leased", "x-ms-lease-status": "locked"})  # fmt: skip
_OLD: Final = "before leases were shown"
add("File_Download", 206, get_range, put, lacking=LEASE_HEADERS, name=_OLD, share=88,
    versions=VERSIONS["file"][:1])  # fmt: skip


@FILE.case("File_Download", 206, name="snapshot", share=189, lacking=LEASE_HEADERS)
def get_of_snapshot(context: CaseContext) -> Request:
    path, headers = put(context), {"x-ms-range": "bytes=0-33554431"}
    return context.request("GET", path, {"sharesnapshot": take_snapshot(context)}, headers)


add("File_Download", 200, get_file, put, having=LEASE_HEADERS)
add("File_Download", 200, get_file, empty, having=LEASE_HEADERS, name="empty", share=6)
add("File_Download", 200, get_file, put, lacking=LEASE_HEADERS, name=_OLD, share=2,
    versions=VERSIONS["file"][:1])  # fmt: skip


@FILE.case("File_Download", 200, name="headers of the token", signs=False, share=2,
           having=LEASE_HEADERS)  # fmt: skip
def get_as_told(context: CaseContext) -> Request:
    path = put(context)
    options = {"rscc": "no-cache", "rscd": "inline", "rsce": "utf-8", "rscl": "fr", "rsct": "text"}
    token = share_token(ACCOUNT, KEY, context.name, "file", sv="2021-06-08", **options)
    return token.put_on(context.request("GET", path))


add("File_Download", 404, get_range, fresh, "ResourceNotFound")
add("File_Download", 416, get_range, empty, "InvalidRange")

_LOOK: Final = LEASE_HEADERS | {"Content-Type"}


def described(context: CaseContext) -> str:
    path = put(context)
    stored = {"x-ms-content-language": "spanish", "x-ms-content-disposition": "inline"}
    context.do("PUT", path, {"comp": "properties"}, {**PRESERVED, **stored})
    return path


add("File_GetProperties", 200, get_properties, put, having=_LOOK)
add("File_GetProperties", 200, get_properties, lambda s: put(s, x_ms_meta_hello="world"),
    name="metadata", share="x-ms-meta-*", having=_LOOK | {"x-ms-meta-*"})  # fmt: skip
add("File_GetProperties", 200, get_properties, described, name="language, disposition", share=17,
    having=LEASE_HEADERS | {"Content-Language", "Content-Disposition"})  # fmt: skip
add("File_GetProperties", 200, get_properties, copied, name="copy", share=18,
    having=_LOOK | COPY_HEADERS)  # fmt: skip
add("File_GetProperties", 200, get_properties, leased, name="leased", share="x-ms-lease-duration",
    having=_LOOK | {"x-ms-lease-duration"}, versions=FILE_LEASES)  # fmt: skip
add("File_GetProperties", 200, get_properties, put, lacking=LEASE_HEADERS, having={"Content-Type"},
    name=_OLD, share=23, versions=VERSIONS["file"][:1])  # fmt: skip


@FILE.case("File_GetProperties", 200, name="pending copy", share=1,
           having=_LOOK | COPY_HEADERS - {"x-ms-copy-completion-time"})  # fmt: skip
def get_properties_of_pending_copy(context: CaseContext) -> Request:
    path = put(context)
    started = context.do("PUT", path, {}, {"x-ms-copy-source": context.endless})
    abort = {"comp": "copy", "copyid": started.headers["x-ms-copy-id"]}
    context.afterwards.append(context.request("PUT", path, abort, {"x-ms-copy-action": "abort"}))
    return context.request("HEAD", path)


@FILE.case("File_GetProperties", 200, name="snapshot", share=28, having={"Content-Type"},
           lacking=LEASE_HEADERS)  # fmt: skip
def get_properties_of_snapshot(context: CaseContext) -> Request:
    path = put(context)
    return context.request("HEAD", path, {"sharesnapshot": take_snapshot(context)})


add("File_GetProperties", 404, get_properties, lambda s: f"{share(s)}/none/file", "ParentNotFound")
add("File_GetProperties", 404, get_properties, fresh, "ResourceNotFound")
add("File_GetProperties", 404, get_properties, lambda s: f"{s.name}/file", "ShareNotFound")
add("File_GetProperties", 412, get_properties, leased, "LeaseIdMismatchWithFileOperation",
    {"x-ms-lease-id": OTHER_LEASE}, versions=FILE_LEASES)  # fmt: skip
add("File_GetProperties", 412, get_properties, put, "LeaseNotPresentWithFileOperation", WITH_LEASE,
    versions=FILE_LEASES)  # fmt: skip

add("File_Delete", 202, delete_file, put)
add("File_Delete", 202, delete_file, leased, headers=WITH_LEASE, name="leased", share=7,
    versions=FILE_LEASES)  # fmt: skip
add("File_Delete", 404, delete_file, fresh, "ResourceNotFound")
add("File_Delete", 404, delete_file, lambda s: f"{s.name}/file", "ShareNotFound")
add("File_Delete", 412, delete_file, leased, "LeaseIdMissing", versions=FILE_LEASES)

_LANGUAGE: Final = {"x-ms-content-language": "spanish", "x-ms-content-disposition": "inline"}
add("File_SetHttpHeaders", 200, set_file, put, headers={**PRESERVED, **_LANGUAGE})
add("File_SetHttpHeaders", 200, set_file, put, name="length", share=17,
    headers={**PRESERVED, "x-ms-content-length": "5"})  # fmt: skip
add("File_SetHttpHeaders", 200, set_file, put, name="times, attributes", share=4, versions=NEWER,
    headers={**PRESERVED, **TIMES, "x-ms-file-attributes": "Archive|Temporary"},
    values={"x-ms-file-attributes": "Archive | Temporary"})  # fmt: skip
add("File_SetHttpHeaders", 412, set_file, leased, "LeaseIdMissing", {**PRESERVED, **_LANGUAGE},
    versions=FILE_LEASES)  # fmt: skip
add("File_SetMetadata", 200, set_metadata, put, headers=META)
add("File_SetMetadata", 412, set_metadata, leased, "LeaseIdMissing", META, versions=FILE_LEASES)

# Leases

_ACQUIRE: Final = {"x_ms_lease_duration": "-1", "x_ms_proposed_lease_id": LEASE}
add("File_AcquireLease", 201, lease_action("acquire", **_ACQUIRE), put, versions=FILE_LEASES)
add("File_ChangeLease", 200, lease_action("change", x_ms_lease_id=LEASE,
    x_ms_proposed_lease_id=OTHER_LEASE), leased, versions=FILE_LEASES)  # fmt: skip
add("File_BreakLease", 202, lease_action("break"), leased, versions=FILE_LEASES)

# Ranges

add("File_UploadRange", 201, put_range, put)
add("File_UploadRange", 201, put_range, put, headers={"Content-MD5": md5(CONTENT)}, name="MD5",
    share=64)  # fmt: skip
add("File_UploadRange", 201, request("PUT", RANGE, x_ms_write="clear", x_ms_range="bytes=0-10"),
    put, name="clear", share=15)  # fmt: skip
add("File_UploadRange", 201, put_range, leased, headers=WITH_LEASE, name="leased", share=5,
    versions=FILE_LEASES)  # fmt: skip
for _time in ("Now", "Preserve"):
    add("File_UploadRange", 201, put_range, put, headers={"x-ms-file-last-write-time": _time},
        name=_time, share=4, versions=NEWER)  # fmt: skip
    add("File_UploadRangeFromUrl", 201, put_range_from, name=_time, share=4, versions=NEWER,
        headers={"x-ms-file-last-write-time": _time},
        prepare=with_source(lambda s: put(s, content=SECTORS)))  # fmt: skip
add("File_UploadRange", 412, put_range, leased, "LeaseIdMissing", versions=FILE_LEASES)


def sectors(context: CaseContext) -> str:
    return put(context, content=SECTORS)


def leased_sectors(context: CaseContext) -> str:
    return lease(context, sectors(context))


add("File_UploadRangeFromUrl", 201, put_range_from, with_source(sectors))
add("File_UploadRangeFromUrl", 412, put_range_from, with_source(leased_sectors), "LeaseIdMissing",
    versions=FILE_LEASES)  # fmt: skip


@FILE.case("File_UploadRangeFromUrl", 401, "CannotVerifyCopySource", versions=RENAMES)
def put_from_private_blob(context: CaseContext) -> Request:
    path = sectors(context)
    return put_range_from(context, path, {"x-ms-copy-source": private_blob(context)})


@FILE.case("File_UploadRangeFromUrl", 403, "CannotVerifyCopySource")
def put_with_bad_token(context: CaseContext) -> Request:
    path, elsewhere = with_source(sectors)(context), address(context, "other")
    token = elsewhere.partition("?")[2]
    there = f"{address(context).partition('?')[0]}?{token}"
    return put_range_from(context, path, {"x-ms-copy-source": there})


def with_hole(context: CaseContext) -> str:
    path = put(context, content=SECTORS * 2)
    clear(context, path, 512, 512)
    return path


add("File_GetRangeList", 200, list_ranges, with_hole)
add("File_GetRangeList", 200, list_ranges, empty, name="empty", share=27)
add("File_GetRangeList", 412, list_ranges, leased, "LeaseIdMismatchWithFileOperation",
    {"x-ms-lease-id": OTHER_LEASE}, versions=FILE_LEASES)  # fmt: skip


@FILE.case("File_GetRangeList", 200, name="difference", share=16, versions=NEWER,
           elements=("Ranges/Range", "Ranges/ClearRange"))  # fmt: skip
def list_changed_ranges(context: CaseContext) -> Request:
    path = put(context, content=SECTORS * 2)
    moment = take_snapshot(context)
    write(context, path, SECTORS[:512])
    clear(context, path, 512, 512)
    return context.request("GET", path, {"comp": "rangelist", "prevsharesnapshot": moment})


@FILE.case("File_GetRangeList", 200, name="snapshot", share=10)
def list_ranges_of_snapshot(context: CaseContext) -> Request:
    path = with_hole(context)
    query = {"comp": "rangelist", "sharesnapshot": take_snapshot(context)}
    return context.request("GET", path, query)


# Copies


def read_only(context: CaseContext) -> str:
    return put(context, content=b"", x_ms_file_attributes="ReadOnly")


add("File_StartCopy", 202, copy, with_source(fresh), values={"x-ms-copy-status": "success"})
add("File_StartCopy", 202, copy, with_source(fresh), name="times, attributes, permission", share=7,
    headers={**TIMES, "x-ms-file-attributes": "Temporary|NoScrubData", "x-ms-file-permission": SDDL,
             "x-ms-file-permission-copy-mode": "override"}, versions=NEWER)  # fmt: skip
add("File_StartCopy", 202, copy, with_source(fresh), name="permission of the source", share=6,
    headers={"x-ms-file-permission-copy-mode": "source"}, versions=NEWER)  # fmt: skip
add("File_StartCopy", 202, copy, name="over a read-only file", share=8, versions=NEWER,
    headers={"x-ms-file-copy-ignore-readonly": "true"},
    prepare=with_source(read_only))  # fmt: skip
add("File_StartCopy", 202, copy, with_source(leased), headers=WITH_LEASE, name="leased", share=6,
    versions=FILE_LEASES)  # fmt: skip
add("File_StartCopy", 409, copy, code="ReadOnlyAttribute", versions=RENAMES,
    prepare=with_source(read_only))  # fmt: skip
add("File_StartCopy", 412, copy, with_source(leased), "LeaseIdMissing", versions=FILE_LEASES)


@FILE.case("File_StartCopy", 404, "CannotVerifyCopySource", versions=NEWER)
def copy_private(context: CaseContext) -> Request:
    return copy(context, fresh(context), {"x-ms-copy-source": private(context)})


@FILE.case("File_StartCopy", 202, name="pending", share=2, versions=NEWER,
           values={"x-ms-copy-status": "pending"})  # fmt: skip
def copy_slowly(context: CaseContext) -> Request:
    path = fresh(context)
    context.afterwards.append(context.request("DELETE", context.name, SHARE))
    return copy(context, path, {"x-ms-copy-source": context.endless})


@FILE.case("File_AbortCopy", 409, "NoPendingCopyOperation")
def abort_ended_copy(context: CaseContext) -> Request:
    path = with_source(fresh)(context)
    ended = context.do("PUT", path, {}, {"x-ms-copy-source": address(context)})
    query = {"comp": "copy", "copyid": ended.headers["x-ms-copy-id"]}
    return context.request("PUT", path, query, {"x-ms-copy-action": "abort"})
