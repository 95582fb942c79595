"""Recorded requests for directories and open handles, and renames."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from etagere.rules.opens import Access
from tests.probes.client import Request
from tests.recorded.cases import CaseContext
from tests.recorded.file_requests import (
    BACKUP,
    DIRECTORY,
    DOTS,
    FILE,
    LEASE,
    META,
    NEW,
    NEWER,
    PRESERVED,
    RENAMES,
    SDDL,
    SHARE,
    TIMES,
    TRAILING_DOTS,
    add,
    create_directory,
    delete_directory,
    directory,
    fresh,
    get_directory,
    lease,
    put,
    rename,
    request,
    set_directory,
    share,
    take_snapshot,
)

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


def over_file(
    kind: str, *, attributes: str = "none", is_leased: bool = False
) -> Callable[[CaseContext], str]:
    """Returns the setup of a rename to the name of a file."""

    def prepare(context: CaseContext) -> str:
        path = put(context, content=b"", x_ms_file_attributes=attributes)
        (put if kind == "file" else directory)(context, "source")
        return lease(context, path) if is_leased else path

    return prepare


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

    add(_operation, 200, rename(_kind), over_file(_kind), versions=RENAMES, headers=_REPLACE,
        share=4, name="over a file")  # fmt: skip
    add(_operation, 200, rename(_kind), versions=RENAMES, share=4, name="over a read-only file",
        headers={**_REPLACE, "x-ms-file-rename-ignore-readonly": "true"},
        prepare=over_file(_kind, attributes="ReadOnly"))  # fmt: skip
    add(_operation, 200, rename(_kind), versions=RENAMES, share=4, name="over a leased file",
        headers={**_REPLACE, "x-ms-destination-lease-id": LEASE},
        prepare=over_file(_kind, is_leased=True))  # fmt: skip

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
