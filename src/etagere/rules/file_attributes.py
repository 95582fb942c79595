"""Attributes of files and directories, as sets of flags with the values of Windows."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Final

from etagere.errors import Refusal


class FileAttributes(enum.IntFlag):
    """The attributes that REST clients can set and see."""

    NONE = 0
    READ_ONLY = 0x1
    HIDDEN = 0x2
    SYSTEM = 0x4
    DIRECTORY = 0x10
    ARCHIVE = 0x20
    TEMPORARY = 0x100
    OFFLINE = 0x1000
    NOT_CONTENT_INDEXED = 0x2000
    NO_SCRUB_DATA = 0x20000


_NAMES: Final = {
    FileAttributes.READ_ONLY: "ReadOnly",
    FileAttributes.HIDDEN: "Hidden",
    FileAttributes.SYSTEM: "System",
    FileAttributes.DIRECTORY: "Directory",
    FileAttributes.ARCHIVE: "Archive",
    FileAttributes.TEMPORARY: "Temporary",
    FileAttributes.OFFLINE: "Offline",
    FileAttributes.NOT_CONTENT_INDEXED: "NotContentIndexed",
    FileAttributes.NO_SCRUB_DATA: "NoScrubData",
}
"""In the order in which responses list them."""
_BY_NAME: Final = {name.lower(): flag for flag, name in _NAMES.items()} | {
    "none": FileAttributes.NONE
}
_DIRECTORIES_LACK: Final = FileAttributes.ARCHIVE | FileAttributes.TEMPORARY
_KEPT: Final = FileAttributes.HIDDEN | FileAttributes.SYSTEM
_ALL: Final = FileAttributes(sum(_NAMES))


def parse_attributes(written: str) -> FileAttributes | None:
    """Parses names that are separated by "|", in any case; returns None for anything else."""
    found = FileAttributes.NONE
    for name in written.split("|"):
        flag = _BY_NAME.get(name.strip().lower())
        if flag is None:
            return None
        found |= flag
    return found


@lru_cache(maxsize=256)
def format_attributes(attributes: int) -> str:
    """Returns the names of attributes. Few combinations are common."""
    names = [name for flag, name in _NAMES.items() if flag & attributes]
    return " | ".join(names) or "None"


def attributes_of_new(
    asked: FileAttributes, *, is_directory: bool, restores: bool = False
) -> FileAttributes | Refusal:
    """Returns the attributes of a file or directory that is created with those asked for.

    A new file always has `Archive`, unless it restores another one, and a directory always
    `Directory`.
    """
    if is_directory:
        if asked & _DIRECTORIES_LACK:
            return _invalid(asked)
        return asked | FileAttributes.DIRECTORY
    if asked & FileAttributes.DIRECTORY:
        return _invalid(asked)
    return asked if restores else asked | FileAttributes.ARCHIVE


def changed_attributes(asked: FileAttributes, *, is_directory: bool) -> FileAttributes | Refusal:
    """Returns the attributes after a request that sets them; `None` clears those of a file."""
    if is_directory:
        return attributes_of_new(asked, is_directory=True)
    if asked & FileAttributes.DIRECTORY:
        return _invalid(asked)
    return asked


def settable_attributes(asked: int, *, is_directory: bool) -> FileAttributes:
    """Returns the attributes that an SMB client can set, of those that it asks for. Others, such as
    `normal` or `compressed`, are ignored."""
    lacking = _DIRECTORIES_LACK if is_directory else FileAttributes.DIRECTORY
    return FileAttributes(asked & _ALL & ~lacking)


def check_overwrite(old: FileAttributes, asked: FileAttributes) -> Refusal | None:
    """Refuses to overwrite a hidden file or a system file, unless the new attributes say so,
    too."""
    return Refusal("AuthorizationFailure") if old & _KEPT & ~asked else None


def check_writable(attributes: FileAttributes) -> Refusal | None:
    return Refusal("ReadOnlyAttribute") if attributes & FileAttributes.READ_ONLY else None


def _invalid(attributes: FileAttributes) -> Refusal:
    facts: dict[str, str | int] = {
        "HeaderName": "x-ms-file-attributes",
        "HeaderValue": format_attributes(attributes),
    }
    return Refusal("InvalidHeaderValue", facts)
