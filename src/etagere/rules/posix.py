"""Owner, group and mode of the entries of NFS shares."""

from __future__ import annotations

import re
from typing import Final

from etagere.errors import Refusal
from etagere.model.files import PosixChange, PosixOwner
from etagere.model.shares import ShareProtocol
from etagere.rules.file_attributes import FileAttributes

FILE_MODE: Final = PosixOwner().mode
DIRECTORY_MODE: Final = 0o755
SYMBOLIC_LINK_MODE: Final = 0o777
"""The mode of every symbolic link. It restricts nobody: that of the target counts."""
LINK_TEXT_BYTES_MAX: Final = 2_048

_MODE: Final = re.compile(r"[0-7]{3,4}", re.ASCII)
_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_ID_MAX: Final = (1 << 32) - 1
_NOTHING_ASKED: Final = PosixChange()
_ATTRIBUTES_OF_NEW: Final = FileAttributes.ARCHIVE | FileAttributes.DIRECTORY
"""What every new entry has. Clients may send it without knowing the protocol of the share."""


def parse_mode(written: str) -> int | None:
    """Parses the octal digits of a mode; returns None for anything else."""
    return int(written, 8) if _MODE.fullmatch(written) else None


def format_mode(mode: int) -> str:
    return f"{mode:04o}"


def is_id(written: str) -> bool:
    """Returns whether this is the number of a user or group."""
    return _ID.fullmatch(written) is not None and int(written) <= _ID_MAX


def default_owner(mode: int, protocol: ShareProtocol) -> PosixOwner | None:
    return PosixOwner(mode=mode) if protocol is ShareProtocol.NFS else None


def owner_of_new(
    asked: PosixChange, default_mode: int, protocol: ShareProtocol
) -> PosixOwner | Refusal | None:
    """Returns owner, group and mode of a new entry; None in SMB shares, which have none."""
    return changed_owner(default_owner(default_mode, protocol), asked)


def changed_owner(old: PosixOwner | None, asked: PosixChange) -> PosixOwner | Refusal | None:
    """Returns owner, group and mode after a request that sets some of them."""
    if asked == _NOTHING_ASKED:
        return old
    if old is None:
        return Refusal("UnsupportedHeader", {"HeaderName": _first_header(asked)})
    return PosixOwner(
        old.owner if asked.owner is None else asked.owner,
        old.group if asked.group is None else asked.group,
        old.mode if asked.mode is None else asked.mode,
    )


def _first_header(asked: PosixChange) -> str:
    if asked.owner is not None:
        return "x-ms-owner"
    return "x-ms-mode" if asked.group is None else "x-ms-group"


def check_attributes(owner: PosixOwner | None, asked: FileAttributes) -> Refusal | None:
    """Refuses attributes of an entry that has an owner and a mode instead: responses would not show
    what makes it read-only."""
    if owner is None or not asked & ~_ATTRIBUTES_OF_NEW:
        return None
    return Refusal("UnsupportedHeader", {"HeaderName": "x-ms-file-attributes"})


def check_permission(owner: PosixOwner | None) -> Refusal | None:
    """Refuses the permission of an entry that has an owner and a mode instead."""
    if owner is None:
        return None
    return Refusal("UnsupportedHeader", {"HeaderName": "x-ms-file-permission"})
