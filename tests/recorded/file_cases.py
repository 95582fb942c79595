"""Recorded requests for directories and files."""

from __future__ import annotations

import re
from typing import Final

from etagere.rules.opens import Access
from tests.probes.client import Request, md5
from tests.probes.tokens import share_token
from tests.recorded.cases import VERSIONS, CaseContext
from tests.recorded.file_requests import (
    BACKUP,
    CONTENT,
    DIRECTORY,
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
    create_directory,
    create_file,
    delete_directory,
    delete_file,
    directory,
    empty,
    fresh,
    get_directory,
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
    rename,
    request,
    set_directory,
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
_READ_ONLY: Final = {"x-ms-file-attributes": "ReadOnly"}

# Directories

add("Directory_Create", 201, create_directory, fresh, headers=NEW)
add("Directory_Create", 201, create_directory, fresh, headers={**NEW, **META}, name="metadata",
    share=24)  # fmt: skip
add("Directory_Create", 201, create_directory, fresh, name="times, attributes, permission", share=4,
    headers={**TIMES, "x-ms-file-permission": SDDL, "x-ms-file-attributes": "ReadOnly|Directory"},
    values={"x-ms-file-attributes": "ReadOnly | Directory"}, versions=NEWER)  # fmt: skip
add("Directory_Create", 201, create_directory, lambda s: f"{share(s)}/dotted.", name="trailing dot",
    headers={**NEW, **DOTS, **BACKUP}, share=18, versions=TRAILING_DOTS)  # fmt: skip
add("Directory_Create", 409, create_directory, directory, "ResourceAlreadyExists", NEW)


def dotted_directory(context: CaseContext) -> str:
    share(context)
    return directory(context, "dotted.", x_ms_allow_trailing_dot="true")


add("Directory_GetProperties", 200, get_directory, directory)
add("Directory_GetProperties", 200, get_directory, lambda s: directory(s, x_ms_meta_hello="world"),
    having={"x-ms-meta-*"}, name="metadata", share="x-ms-meta-*")  # fmt: skip
add("Directory_GetProperties", 200, get_directory, dotted_directory, headers=DOTS, share=6,
    name="trailing dot", versions=TRAILING_DOTS)  # fmt: skip
add("Directory_GetProperties", 404, get_directory, lambda s: f"{share(s)}/none/entry",
    "ParentNotFound")  # fmt: skip
add("Directory_GetProperties", 404, get_directory, fresh, "ResourceNotFound")


@FILE.case("Directory_GetProperties", 200, name="snapshot", share=20)
def get_directory_of_snapshot(context: CaseContext) -> Request:
    path = directory(context)
    return context.request("GET", path, {**DIRECTORY, "sharesnapshot": take_snapshot(context)})


@FILE.case("Directory_GetProperties", 404, "ResourceNotFound", name="snapshot", share=12)
def get_directory_not_in_snapshot(context: CaseContext) -> Request:
    share(context)
    query = {**DIRECTORY, "sharesnapshot": take_snapshot(context)}
    return context.request("GET", directory(context, "later"), query)


add("Directory_Delete", 202, delete_directory, directory)
add("Directory_Delete", 202, delete_directory, dotted_directory, headers=DOTS, share=2,
    name="trailing dot", versions=TRAILING_DOTS)  # fmt: skip
add("Directory_Delete", 404, delete_directory, fresh, "ResourceNotFound")

_UNCHANGED: Final = {**PRESERVED, "x-ms-file-attributes": "None"}
add("Directory_SetProperties", 200, set_directory, directory, headers=_UNCHANGED)
add("Directory_SetProperties", 200, set_directory, directory, headers={**_UNCHANGED, **TIMES},
    name="times", share=8)  # fmt: skip
add("Directory_SetProperties", 200, set_directory, dotted_directory, share=2, name="trailing dot",
    headers={**_UNCHANGED, **DOTS}, versions=TRAILING_DOTS)  # fmt: skip


@FILE.case("Directory_SetProperties", 200, name="permission key", share=6)
def set_directory_permission(context: CaseContext) -> Request:
    path = directory(context)
    key = context.do("PUT", context.name, {"comp": "filepermission", **SHARE},
                     {"Content-Type": "application/json"},
                     f'{{"permission": "{SDDL}"}}').headers["x-ms-file-permission-key"]  # fmt: skip
    headers = {**_UNCHANGED, "x-ms-file-permission": "", "x-ms-file-permission-key": key}
    return context.request("PUT", path, {"comp": "properties", **DIRECTORY}, headers)


add("Directory_SetMetadata", 200, request("PUT", {"comp": "metadata", **DIRECTORY}), directory,
    headers=META)  # fmt: skip


# Lists

_LIST: Final = {"comp": "list", **DIRECTORY}
_EXTENDED: Final = "timestamps,Etag,Attributes,PermissionKey"


def populated(context: CaseContext) -> str:
    path = directory(context)
    for name in ("a", "c", "d"):
        directory(context, f"directory/{name}")
    for name in ("b", "e"):
        put(context, f"directory/{name}")
    return path


add("Directory_ListFilesAndDirectoriesSegment", 200, request("GET", _LIST), populated)
add("Directory_ListFilesAndDirectoriesSegment", 200, request("GET", _LIST), share, name="root")
add("Directory_ListFilesAndDirectoriesSegment", 200, share=14, name="prefix", prepare=populated,
    make=request("GET", {**_LIST, "prefix": "b"}))  # fmt: skip
add("Directory_ListFilesAndDirectoriesSegment", 200, share=12, name="pages", prepare=populated,
    make=request("GET", {**_LIST, "maxresults": "2"}))  # fmt: skip
add("Directory_ListFilesAndDirectoriesSegment", 200, share=4, name="everything", prepare=populated,
    make=request("GET", {**_LIST, "include": _EXTENDED}, x_ms_file_extended_info="true"),
    versions=NEWER)  # fmt: skip
add("Directory_ListFilesAndDirectoriesSegment", 200, share=2, name="trailing dot",
    make=request("GET", _LIST, x_ms_allow_trailing_dot="true"), prepare=dotted_directory,
    versions=TRAILING_DOTS)  # fmt: skip


@FILE.case("Directory_ListFilesAndDirectoriesSegment", 200, name="marker", share=6)
def list_from_marker(context: CaseContext) -> Request:
    path, query = populated(context), {**_LIST, "maxresults": "2"}
    found = re.search("<NextMarker>(.*?)<", context.do("GET", path, query).body.decode())
    assert found is not None
    return context.request("GET", path, {**query, "marker": found[1]})


@FILE.case("Directory_ListFilesAndDirectoriesSegment", 200, name="snapshot", share=12)
def list_snapshot(context: CaseContext) -> Request:
    path = populated(context)
    return context.request("GET", path, {**_LIST, "sharesnapshot": take_snapshot(context)})


@FILE.case("Directory_ListFilesAndDirectoriesSegment", 200, name="encoded", share=4, versions=NEWER)
def list_encoded(context: CaseContext) -> Request:
    """Lists names with characters that XML cannot contain."""
    path = directory(context, "directory")
    nested = f"{path}/\ufffe"
    context.do("PUT", nested, DIRECTORY, NEW)
    put(context, "directory/\ufffe/\uffff")
    return context.request("GET", nested, {**_LIST, "prefix": "\uffff"})


# Handles


def opened(context: CaseContext) -> str:
    """Opens a directory, a directory in it and a file in that one, and turns to the front end that
    knows their handles."""
    path = directory(context)
    directory(context, "directory/inner")
    put(context, "directory/inner/file")
    context.use_opens()
    for name in ("", "/inner", "/inner/file"):
        context.open(f"directory{name}")
    return path


_RECURSIVE: Final = {"x-ms-recursive": "true"}
_HANDLES: Final = {"comp": "listhandles"}
_CLOSE: Final = {"comp": "forceclosehandles"}
_OF_HANDLES: Final = ("2018-11-09", "2021-06-08")

add("Directory_ListHandles", 200, request("GET", _HANDLES), opened, headers=_RECURSIVE)
add("Directory_ListHandles", 200, request("GET", _HANDLES), opened, name="of the directory itself",
    headers={"x-ms-recursive": "False"}, share=4)  # fmt: skip
add("Directory_ListHandles", 200, request("GET", _HANDLES), directory, name="none",
    headers=_RECURSIVE, share=3)  # fmt: skip
add("Directory_ListHandles", 200, request("GET", {**_HANDLES, "maxresults": "1"}), opened,
    name="pages", headers=_RECURSIVE, share=3)  # fmt: skip
add("Directory_ListHandles", 404, request("GET", _HANDLES), lambda s: f"{s.name}/directory",
    "ShareNotFound", _RECURSIVE)  # fmt: skip
add("Directory_ListHandles", 200, request("GET", _HANDLES), name="root",
    prepare=lambda s: opened(s).partition("/")[0], headers=_RECURSIVE, share=4)  # fmt: skip


@FILE.case("Directory_ListHandles", 200, name="marker", share=3)
def list_handles_from_marker(context: CaseContext) -> Request:
    path, query = opened(context), {**_HANDLES, "maxresults": "1"}
    body = context.do("GET", path, query, _RECURSIVE).body.decode()
    found = re.search("<NextMarker>(.*?)<", body)
    assert found is not None
    return context.request("GET", path, {**_HANDLES, "marker": found[1]}, _RECURSIVE)


add("Directory_ForceCloseHandles", 200, request("PUT", _CLOSE), opened, versions=_OF_HANDLES,
    headers={"x-ms-handle-id": "*", **_RECURSIVE},
    values={"x-ms-number-of-handles-closed": "3"})  # fmt: skip


@FILE.case("Directory_ForceCloseHandles", 200, name="one", share=5, versions=_OF_HANDLES)
def close_one_handle(context: CaseContext) -> Request:
    path = opened(context)
    body = context.do("GET", path, _HANDLES).body.decode()
    found = re.search("<HandleId>(.*?)<", body)
    assert found is not None
    return context.request("PUT", path, _CLOSE, {"x-ms-handle-id": found[1]})


def opened_file(context: CaseContext) -> str:
    path = put(context)
    context.use_opens()
    context.open("file", Access.WRITE)
    return path


add("File_ListHandles", 200, request("GET", _HANDLES), opened_file)
add("File_ListHandles", 200, request("GET", _HANDLES), opened_file, name="access rights", share=2,
    versions=("2023-01-03",))  # fmt: skip
add("File_ListHandles", 404, request("GET", _HANDLES), lambda s: f"{s.name}/file",
    "ShareNotFound")  # fmt: skip


# Renames

_REPLACE: Final = {"x-ms-file-rename-replace-if-exists": "true"}


def with_directory(context: CaseContext) -> str:
    path = fresh(context)
    directory(context, "source")
    return path


def with_file(context: CaseContext) -> str:
    path = fresh(context)
    put(context, "source")
    return path


for _kind, _operation, _with_source in (
    ("directory", "Directory_Rename", with_directory),
    ("file", "File_Rename", with_file),
):
    _attributes = {"directory": "ReadOnly|Directory", "file": "ReadOnly|Archive"}[_kind]
    add(_operation, 200, rename(_kind), _with_source, versions=RENAMES)
    add(_operation, 200, rename(_kind), _with_source, versions=RENAMES, share=4,
        name="times, attributes, permission",
        headers={**TIMES, "x-ms-file-attributes": _attributes, "x-ms-file-permission": SDDL},
        values={"x-ms-file-attributes": _attributes.replace("|", " | ")})  # fmt: skip

    def over_file(
        context: CaseContext, kind: str = _kind, attributes: str = "none", lease_it: bool = False
    ) -> str:
        path = put(context, content=b"", x_ms_file_attributes=attributes)
        (put if kind == "file" else directory)(context, "source")
        return lease(context, path) if lease_it else path

    add(_operation, 200, rename(_kind), over_file, versions=RENAMES, headers=_REPLACE, share=4,
        name="over a file")  # fmt: skip
    add(_operation, 200, rename(_kind), versions=RENAMES, share=4, name="over a read-only file",
        headers={**_REPLACE, "x-ms-file-rename-ignore-readonly": "true"},
        prepare=lambda s, over=over_file: over(s, attributes="ReadOnly"))  # fmt: skip
    add(_operation, 200, rename(_kind), versions=RENAMES, share=4, name="over a leased file",
        headers={**_REPLACE, "x-ms-destination-lease-id": LEASE},
        prepare=lambda s, over=over_file: over(s, lease_it=True))  # fmt: skip

add("Directory_Rename", 200, rename("directory"), versions=TRAILING_DOTS, share=2,
    name="trailing dot", headers={**DOTS, "x-ms-source-allow-trailing-dot": "true"},
    prepare=with_directory)  # fmt: skip


@FILE.case("File_Rename", 200, name="leased source", share=4, versions=RENAMES)
def rename_leased(context: CaseContext) -> Request:
    path = with_file(context)
    lease(context, f"{context.name}/source")
    return rename("file")(context, path, {"x-ms-source-lease-id": LEASE})


@FILE.case("File_Rename", 200, name="content type", share=4, versions=RENAMES)
def rename_with_content_type(context: CaseContext) -> Request:
    return rename("file")(context, with_file(context), {"x-ms-content-type": "text/plain"})


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
    path, stored = put(context), {"x-ms-content-md5": md5(CONTENT), "x-ms-content-type": "text"}
    context.do("PUT", path, {"comp": "properties"},
               {**PRESERVED, **stored, "x-ms-content-type": "application/octet-stream"})  # fmt: skip
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
    add("File_UploadRangeFromUrl", 201, put_range_from, headers={"x-ms-file-last-write-time": _time},
        prepare=with_source(lambda s: put(s, content=SECTORS)), name=_time, share=4,
        versions=NEWER)  # fmt: skip
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


@FILE.case("File_GetRangeList", 200, name="difference", share=16, versions=NEWER)
def list_changed_ranges(context: CaseContext) -> Request:
    path = put(context, content=SECTORS * 2)
    moment = take_snapshot(context)
    write(context, path, SECTORS[:512])
    clear(context, path, 512, 512)
    return context.request("GET", path, {"comp": "rangelist", "prevsharesnapshot": moment})


@FILE.case("File_GetRangeList", 200, name="snapshot", share=10)
def list_ranges_of_snapshot(context: CaseContext) -> Request:
    path = with_hole(context)
    return context.request("GET", path,
                           {"comp": "rangelist", "sharesnapshot": take_snapshot(context)})  # fmt: skip


# Copies

add("File_StartCopy", 202, copy, with_source(fresh), values={"x-ms-copy-status": "success"})
add("File_StartCopy", 202, copy, with_source(fresh), name="times, attributes, permission", share=7,
    headers={**TIMES, "x-ms-file-attributes": "Temporary|NoScrubData", "x-ms-file-permission": SDDL,
             "x-ms-file-permission-copy-mode": "override"}, versions=NEWER)  # fmt: skip
add("File_StartCopy", 202, copy, with_source(fresh), name="permission of the source", share=6,
    headers={"x-ms-file-permission-copy-mode": "source"}, versions=NEWER)  # fmt: skip
add("File_StartCopy", 202, copy, name="over a read-only file", share=8, versions=NEWER,
    headers={"x-ms-file-copy-ignore-readonly": "true"},
    prepare=with_source(lambda s: put(s, content=b"", x_ms_file_attributes="ReadOnly")))  # fmt: skip
add("File_StartCopy", 202, copy, with_source(leased), headers=WITH_LEASE, name="leased", share=6,
    versions=FILE_LEASES)  # fmt: skip
add("File_StartCopy", 409, copy, code="ReadOnlyAttribute", versions=RENAMES,
    prepare=with_source(lambda s: put(s, content=b"", x_ms_file_attributes="ReadOnly")))  # fmt: skip
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



