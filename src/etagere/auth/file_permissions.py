"""Permissions for shares, directories and files.

The reference has no row for leases of shares, handles, links and renames; their letters follow from
what the operations do.
"""

from __future__ import annotations

from typing import Final

from etagere.auth.permissions import RIGHTS_BY_LETTERS, Permission, on_service_properties
from etagere.auth.roles import Right

MANAGED_BY_USERS_SINCE: Final = "2024-11-04"
"""The first version in which users may manage the service and its shares."""
_SHARE: Final = frozenset({"s"})
_SHARE_OR_FILE: Final = frozenset({"s", "f"})


def on_file_service_properties(letters: str) -> Permission:
    return on_service_properties(letters)._replace(users_since=MANAGED_BY_USERS_SINCE)


def on_shares(letters: str) -> Permission:
    """For the list of shares."""
    return Permission("s", letters, Right.SHARES, users_since=MANAGED_BY_USERS_SINCE)


def on_share(letters: str | None) -> Permission:
    """Service tokens are never enough, nor are roles for the files in it."""
    return Permission("c", letters, Right.SHARES, users_since=MANAGED_BY_USERS_SINCE)


def on_share_permissions(letters: str) -> Permission:
    """For the security descriptors that a share stores."""
    return Permission("c", letters, RIGHTS_BY_LETTERS[letters], letters, _SHARE)


def on_list_of_files(letters: str) -> Permission:
    """The list of a directory, for which an account token needs the resource type of shares."""
    return Permission("c", letters, RIGHTS_BY_LETTERS[letters], letters, _SHARE)


def on_handles(letters: str) -> Permission:
    """The handles of a directory or a file, and of everything below it."""
    return Permission("co", letters, RIGHTS_BY_LETTERS[letters], letters, _SHARE)


def on_directory(letters: str, *, if_absent: str | None = None) -> Permission:
    """A token for a file is never enough, even if it has the path of the directory."""
    return Permission("o", letters, RIGHTS_BY_LETTERS[letters], letters, _SHARE, if_absent)


def on_file(letters: str, *, if_absent: str | None = None) -> Permission:
    return Permission("o", letters, RIGHTS_BY_LETTERS[letters], letters, _SHARE_OR_FILE, if_absent)


def on_hard_link() -> Permission:
    """A hard link gives a file another name, so a token for one name is not enough. Without `r`, a
    caller could give a file that he may only write a name under which he may read it."""
    return Permission("o", "rw", RIGHTS_BY_LETTERS["rw"], "rw", _SHARE)


READ_FILE: Final = on_file("r")
"""Also needed for the source of a copy."""
RENAME_FILE_SOURCE: Final = on_file("rw")
"""Needed for the old path of a file. Without `r`, a caller with only write permission
could move a file to a place where it can be read."""
RENAME_DIRECTORY_SOURCE: Final = on_directory("rw")
