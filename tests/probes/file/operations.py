"""Every operation of the file service, as a request that succeeds if its sender is authorized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple
from urllib.parse import quote

import pytest

from tests.probes.client import Pairs, Request
from tests.probes.service import KEYS, POLICIES, Operation
from tests.probes.token_kinds import ACCOUNT_KIND, TokenKind
from tests.probes.tokens import FILE_LETTERS, SHARE_LETTERS, Token, share_token
from tests.server import ACCOUNT, KEY

VERSION: Final = "2026-10-06"
"""Links and the lease of a rename are younger than the version of the other services' probes."""
LEASE: Final = "11111111-2222-3333-4444-555555555555"
OTHER_LEASE: Final = "99999999-8888-7777-6666-555555555555"
SDDL: Final = (
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751"
    "G:S-1-5-21-2127521184-1604012920-1887927527-513D:AI(A;;FA;;;SY)(A;;FA;;;BA)"
)
PERMISSION: Final = b'{"permission": "%b"}' % SDDL.encode()
SERVER_URL: Final = "http://127.0.0.1"
"""The URL of the server in sources: the Host header that the probes send."""
PROPERTIES: Final = (
    b"<StorageServiceProperties><HourMetrics><Version>1.0</Version><Enabled>false</Enabled>"
    b"<RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy></HourMetrics>"
    b"</StorageServiceProperties>"
)
_INVISIBLE: Final = {
    "renew_share_lease", "change_share_lease", "change_file_lease", "create_permission",
    "force_close_handles",
}  # fmt: skip
"""Renewing an infinite lease, changing its id and creating a permission that exists show in no
answer. There are no handles to close."""


class FileTarget(NamedTuple):
    """An existing share with directories and files, and names that are free."""

    share: str
    account: str = ACCOUNT
    directory: str = "crate"
    """An empty directory."""
    file: str = "shelf/book"
    link: str = "shelf/link"
    """A symbolic link, in NFS shares."""
    source: str = "shelf/source"
    """The file or directory that operations with a source copy or rename, if they need one."""
    permission_key: str = ""
    """The key of a permission, for the operation that reads it."""
    copy_id: str = ""
    """The id of the pending copy, for the operation that aborts one."""
    deleted_version: str = ""
    """The version of the deleted share, for the operation that restores it."""

    @property
    def free_share(self) -> str:
        return f"{self.share}-new"

    @property
    def free_directory(self) -> str:
        return f"{self.directory}-new"

    @property
    def free_file(self) -> str:
        return f"{self.file}-new"

    def source_address(self, permissions: str, *, of_share: bool = False) -> str:
        """Returns the URL of the source, with a token for it or for its share."""
        path = "" if of_share else self.source
        token = share_token(
            self.account, KEYS[self.account], self.share, path, permissions=permissions
        )
        return f"{SERVER_URL}/{self.account}/{self.share}/{self.source}?{token}"


@dataclass(frozen=True)
class FileOperation(Operation[FileTarget]):
    """An operation of the file service."""

    service: ClassVar[str] = "file"

    level: str
    """The kind of resource in its URL: service, share, root, directory, file or link."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    creates: bool = False
    """Whether its target is a name that is free."""
    needs_lease: bool = False
    needs_nfs: bool = False
    """Whether it needs an NFS share."""
    source: str = ""
    """The kind of source that it needs: a file to copy, or a file or directory to rename."""
    aborts: bool = False
    """Whether it needs a pending copy."""
    restores: bool = False
    """Whether it needs a deleted share."""
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
        return self.creates and self.level in {"directory", "file"}

    def path(self, target: FileTarget) -> str:
        """Returns the path below the share."""
        match self.level:
            case "directory":
                return target.free_directory if self.creates else target.directory
            case "file":
                return target.free_file if self.creates else target.file
            case "link":
                return target.link
            case _:
                return ""

    def request(self, target: FileTarget) -> Request:
        path = f"/{target.account}/"
        if self.level != "service":
            is_new_share = self.creates and self.level == "share"
            path += target.free_share if is_new_share else target.share
        if below := self.path(target):
            path += f"/{below}"
        request = Request(
            self.method, path, self.query, (("x-ms-version", VERSION), *self.headers), self.body
        )
        if self.source == "file to copy":
            request = request.having(("x-ms-copy-source", target.source_address("r")))
        elif self.source:
            is_directory = self.source == "directory to rename"
            source = target.source_address("rw", of_share=is_directory)
            request = request.having(("x-ms-file-rename-source", source))
        if self.aborts:
            request = request.asking(("copyid", target.copy_id))
        if self.row == "get_permission":
            request = request.having(("x-ms-file-permission-key", target.permission_key))
        if self.restores:
            request = request.having(
                ("x-ms-deleted-share-name", target.share),
                ("x-ms-deleted-share-version", target.deleted_version),
            )
        return request


def _of_service(row: str, method: str, *query: tuple[str, str]) -> FileOperation:
    return FileOperation(row, row, method, "service", query)


def _of_share(row: str, method: str, comp: str = "", *headers: tuple[str, str]) -> FileOperation:
    return FileOperation(row, row, method, "share", _query("share", comp), headers)


def _of_directory(
    row: str, method: str, comp: str = "", *headers: tuple[str, str]
) -> FileOperation:
    return FileOperation(row, row, method, "directory", _query("directory", comp), headers)


def _of_file(row: str, method: str, comp: str = "", *headers: tuple[str, str]) -> FileOperation:
    return FileOperation(row, row, method, "file", _query("", comp), headers)


def _query(restype: str, comp: str) -> Pairs:
    pairs = (("restype", restype), ("comp", comp))
    return tuple(pair for pair in pairs if pair[1])


def _leases(
    of: Callable[..., FileOperation], what: str, actions: tuple[str, ...]
) -> Iterator[FileOperation]:
    lease_id, proposed = ("x-ms-lease-id", LEASE), ("x-ms-proposed-lease-id", OTHER_LEASE)
    headers = {
        "acquire": (("x-ms-lease-duration", "-1"),),
        "renew": (lease_id,),
        "change": (lease_id, proposed),
        "release": (lease_id,),
        "break": (),
    }
    for action in actions:
        row = f"{action}_{what}_lease"
        operation = of(row, "PUT", "lease", ("x-ms-lease-action", action), *headers[action])
        yield replace(
            operation,
            needs_lease=action != "acquire",
            is_redundant=action not in {"acquire", "break"},
        )


_META = ("x-ms-meta-author", "nobody")
_PRESERVED: Final = (
    ("x-ms-file-permission", "preserve"),
    ("x-ms-file-creation-time", "preserve"),
    ("x-ms-file-last-write-time", "preserve"),
)
_NEW: Final = (
    ("x-ms-file-permission", "inherit"),
    ("x-ms-file-attributes", "none"),
    ("x-ms-file-creation-time", "now"),
    ("x-ms-file-last-write-time", "now"),
)
_SERVICE = ("restype", "service")
_COMP_PROPERTIES = ("comp", "properties")
_FOUR_BYTES = ("x-ms-range", "bytes=0-3")
_UPDATE = ("x-ms-write", "update")
_CREATE_FILE = _of_file(
    "create_file", "PUT", "", ("x-ms-type", "file"), ("x-ms-content-length", "9"), *_NEW
)
_COPY = replace(_of_file("copy_file", "PUT", "", _META), source="file to copy")
_RENAME = replace(_of_file("rename_file", "PUT", "rename"), source="file to rename")
_HANDLES = _of_file("list_handles", "GET", "listhandles", ("x-ms-recursive", "false"))
_CLOSE = _of_file("force_close_handles", "PUT", "forceclosehandles", ("x-ms-handle-id", "*"))
_LIST = _of_directory("list_directories_and_files", "GET", "list")
_GET_DIRECTORY = _of_directory("get_directory_properties", "GET")

_BASIC_OPERATIONS: Final = (
    _of_service("list_shares", "GET", ("comp", "list")),
    _of_service("get_file_service_properties", "GET", _SERVICE, _COMP_PROPERTIES),
    replace(
        _of_service("set_file_service_properties", "PUT", _SERVICE, _COMP_PROPERTIES),
        body=PROPERTIES,
    ),
    # Shares
    replace(_of_share("create_share", "PUT", "", _META), creates=True),
    _of_share("get_share_properties", "GET"),
    _of_share("delete_share", "DELETE"),
    _of_share("set_share_properties", "PUT", "properties", ("x-ms-share-quota", "7")),
    replace(_of_share("get_share_metadata", "GET", "metadata"), is_redundant=True),
    _of_share("set_share_metadata", "PUT", "metadata", _META),
    _of_share("get_share_acl", "GET", "acl"),
    replace(_of_share("set_share_acl", "PUT", "acl"), body=POLICIES),
    _of_share("get_share_stats", "GET", "stats"),
    *_leases(_of_share, "share", ("acquire", "renew", "change", "release", "break")),
    _of_share("snapshot_share", "PUT", "snapshot", _META),
    replace(_of_share("restore_share", "PUT", "undelete"), restores=True),
    replace(
        _of_share(
            "create_permission", "PUT", "filepermission", ("Content-Type", "application/json")
        ),
        body=PERMISSION,
    ),
    _of_share("get_permission", "GET", "filepermission"),
    # Directories
    replace(_of_directory("create_directory", "PUT", "", *_NEW, _META), creates=True),
    _GET_DIRECTORY,
    replace(_GET_DIRECTORY, name="get_properties_of_the_root", level="root", is_redundant=True),
    _of_directory("delete_directory", "DELETE"),
    _of_directory(
        "set_directory_properties",
        "PUT",
        "properties",
        ("x-ms-file-attributes", "Hidden|Directory"),
        *_PRESERVED,
    ),
    replace(_of_directory("get_directory_metadata", "GET", "metadata"), is_redundant=True),
    _of_directory("set_directory_metadata", "PUT", "metadata", _META),
    _LIST,
    replace(_LIST, name="list_the_root", level="root"),
    replace(
        _of_directory("rename_directory", "PUT", "rename"),
        source="directory to rename",
        creates=True,
    ),
    # Files
    replace(_CREATE_FILE, name="create_file_over_another"),
    replace(_CREATE_FILE, name="create_file_as_new", creates=True),
    _of_file("get_file", "GET"),
    replace(
        _of_file("get_file", "GET", "", ("x-ms-range", "bytes=1-3")),
        name="get_file_range",
        is_redundant=True,
    ),
    _of_file("get_file_properties", "HEAD"),
    _of_file("delete_file", "DELETE"),
    _of_file(
        "set_file_properties",
        "PUT",
        "properties",
        ("x-ms-content-type", "text/odd"),
        ("x-ms-file-attributes", "preserve"),
        *_PRESERVED,
    ),
    replace(_of_file("get_file_metadata", "GET", "metadata"), is_redundant=True),
    _of_file("set_file_metadata", "PUT", "metadata", _META),
    *_leases(_of_file, "file", ("acquire", "change", "release", "break")),
    replace(
        _RENAME,
        name="rename_file_over_another",
        headers=(("x-ms-file-rename-replace-if-exists", "true"),),
    ),
    replace(_RENAME, name="rename_file_to_a_free_name", creates=True),
    replace(_of_file("put_range", "PUT", "range", _FOUR_BYTES, _UPDATE), body=b"four"),
    replace(
        _of_file("put_range", "PUT", "range", _FOUR_BYTES, ("x-ms-write", "clear")),
        name="clear_range",
        is_redundant=True,
    ),
    _of_file("list_ranges", "GET", "rangelist"),
    replace(
        _of_file(
            "put_range_from_url",
            "PUT",
            "range",
            _FOUR_BYTES,
            _UPDATE,
            ("x-ms-source-range", _FOUR_BYTES[1]),
        ),
        source="file to copy",
    ),
    replace(_COPY, name="copy_file_over_another"),
    replace(_COPY, name="copy_file_as_new", creates=True),
    replace(_of_file("abort_copy_file", "PUT", "copy", ("x-ms-copy-action", "abort")), aborts=True),
    # Links
    FileOperation(
        "create_symbolic_link",
        "create_symbolic_link",
        "PUT",
        "file",
        (("restype", "symboliclink"),),
        (("x-ms-link-text", quote("shelf/book")),),
        creates=True,
        needs_nfs=True,
    ),
    FileOperation(
        "get_symbolic_link",
        "get_symbolic_link",
        "GET",
        "link",
        (("restype", "symboliclink"),),
        needs_nfs=True,
    ),
    FileOperation(
        "create_hard_link",
        "create_hard_link",
        "PUT",
        "file",
        (("restype", "hardlink"),),
        (("x-ms-type", "file"), ("x-ms-file-target-file", "/shelf/book")),
        creates=True,
        needs_nfs=True,
    ),
    # Handles
    replace(_HANDLES, name="list_handles_of_a_file"),
    replace(_HANDLES, name="list_handles_of_a_directory", level="directory"),
    replace(_HANDLES, name="list_handles_of_the_root", level="root"),
    replace(_CLOSE, name="close_handles_of_a_file"),
    replace(_CLOSE, name="close_handles_of_a_directory", level="directory", is_redundant=True),
    replace(_CLOSE, name="close_handles_of_the_root", level="root"),
)
_HEADS: Final = tuple(
    replace(form, name=f"head_of_{form.name}", method="HEAD", is_redundant=True)
    for form in _BASIC_OPERATIONS
    if form.method == "GET" and form.row != "get_file"
)

OPERATIONS: Final = (*_BASIC_OPERATIONS, *_HEADS)


# Tokens


def _share_token(
    operation: FileOperation,
    target: FileTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    creates = operation.creates and operation.level == "share"
    return share_token(account, key, target.free_share if creates else target.share, **options)


def _file_token(
    operation: FileOperation,
    target: FileTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    """Returns a token for the path of the operation, even if that is a directory."""
    path = operation.path(target) or target.file
    return share_token(account, key, target.share, path, **options)


SHARE_KIND: Final = TokenKind(
    "share",
    SHARE_LETTERS,
    _share_token,
    "s",
    has_policies=True,
)
FILE_KIND: Final = TokenKind(
    "file",
    FILE_LETTERS,
    _file_token,
    "f",
)
TOKEN_KINDS: Final = (ACCOUNT_KIND, SHARE_KIND, FILE_KIND)
