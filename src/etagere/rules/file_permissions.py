"""Rules for the permissions of files and directories, which are security descriptors.

The File service calls a stored descriptor a permission and names it by a key. The descriptors of
entries that are created without a permission were taken from public tests of the service: a
directory at the root of a share gets `DEFAULT_DIRECTORY_SDDL`, and a file below it what inheritance
makes of that.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

import msgspec

from etagere.model.security_descriptors import (
    NULL_ACL,
    Ace,
    AceFlag,
    Acl,
    Control,
    CustomAce,
    SecurityDescriptor,
    Sid,
)
from etagere.rules.sddl import parse_sddl
from etagere.rules.security_descriptors import InvalidDescriptorError, encode_descriptor
from etagere.rules.sids import SID_ALIASES

INLINE_PERMISSION_BYTES_MAX: Final = 8 * 1024
"""The longest permission in a header; longer ones are created first and named by their key."""

PERMISSIONS_BYTES_MAX: Final = 1 << 30
"""What the permissions of a share may take together. They do not count towards its quota, and are
kept until the share is deleted."""
_INDEX_BYTES: Final = 256
"""What a permission takes besides its descriptor, with some reserve."""

DEFAULT_DIRECTORY_SDDL: Final = (
    "O:SYG:SYD:"
    "(A;OICI;FA;;;BA)"
    "(A;OICI;FA;;;SY)"
    "(A;;0x1200a9;;;BU)(A;OICIIO;GXGR;;;BU)"
    "(A;OICI;0x1301bf;;;AU)"
    "(A;;FA;;;SY)(A;OICIIO;GA;;;CO)"
)
"""The permission of the root of a share, and of directories below it that inherit."""
DEFAULT_DIRECTORY_DESCRIPTOR: Final = parse_sddl(DEFAULT_DIRECTORY_SDDL)


# Permissions


def check_permission(descriptor: SecurityDescriptor) -> SecurityDescriptor:
    """Returns a client's permission as it is stored, or raises InvalidDescriptorError.

    A permission has an owner, a group and a DACL. Where it has no SACL the service stores the null
    SACL, so that it ends in `S:NO_ACCESS_CONTROL` when it is read.
    """
    if descriptor.owner is None or descriptor.group is None or descriptor.dacl is None:
        raise InvalidDescriptorError("a permission needs an owner, a group and a DACL")
    if descriptor.sacl is None:
        return msgspec.structs.replace(descriptor, sacl=NULL_ACL)
    return descriptor


def stored_length(descriptor: bytes) -> int:
    """Returns how many bytes of `PERMISSIONS_BYTES_MAX` a permission takes."""
    return len(descriptor) + _INDEX_BYTES


# Inheritance

_CREATOR_OWNER = SID_ALIASES["CO"]
_CREATOR_GROUP = SID_ALIASES["CG"]
_INHERITANCE_FLAGS = (
    AceFlag.OBJECT_INHERIT
    | AceFlag.CONTAINER_INHERIT
    | AceFlag.NO_PROPAGATE
    | AceFlag.INHERIT_ONLY
    | AceFlag.INHERITED
)
_GENERIC_RIGHTS: Final = {
    0x80000000: 0x00120089,  # read
    0x40000000: 0x00120116,  # write
    0x20000000: 0x001200A0,  # execute
    0x10000000: 0x001F01FF,  # all
}
"""What the generic rights mean for files and directories."""


def inherit(
    parent: SecurityDescriptor, owner: Sid, group: Sid, *, directory: bool
) -> SecurityDescriptor:
    """Returns the descriptor of a new entry in a directory (MS-DTYP 2.5.3.4).

    The owner and the group take the place of "creator owner" and "creator group", and the generic
    rights become the rights of files. Directories keep an entry that differs from its effective
    form as well, for what is created in them. The entries of a list are marked as inherited if
    those of the parent are kept up to date (`AUTO_INHERITED`): otherwise clients that change the
    parent would take them for the entry's own.
    """
    control = parent.control & (Control.DACL_AUTO_INHERITED | Control.SACL_AUTO_INHERITED)
    return SecurityDescriptor(
        owner,
        group,
        _inherit_acl(
            parent.dacl, owner, group, directory, bool(control & Control.DACL_AUTO_INHERITED)
        ),
        _inherit_acl(
            parent.sacl, owner, group, directory, bool(control & Control.SACL_AUTO_INHERITED)
        ),
        control,
    )


def _inherit_acl(
    acl: Acl | None, owner: Sid, group: Sid, directory: bool, mark_inherited: bool
) -> Acl | None:
    if acl is None or acl.entries is None:
        return acl
    mark = AceFlag.INHERITED if mark_inherited else 0
    entries: list[Ace | CustomAce] = []
    for ace in acl.entries:
        # Nobody knows which bytes of a custom entry are rights, so it is not inherited.
        if isinstance(ace, Ace):
            entries.extend(_inherit_ace(ace, owner, group, directory, mark))
    return Acl(tuple(entries), acl.revision)


def _inherit_ace(ace: Ace, owner: Sid, group: Sid, directory: bool, mark: int) -> list[Ace]:
    """Returns the entries that a new file or directory gets from one entry of its parent."""
    wanted = AceFlag.CONTAINER_INHERIT if directory else AceFlag.OBJECT_INHERIT
    own_flags = ace.flags & ~_INHERITANCE_FLAGS | mark
    passed_on = 0
    if directory and not ace.flags & AceFlag.NO_PROPAGATE:
        passed_on = ace.flags & (AceFlag.OBJECT_INHERIT | AceFlag.CONTAINER_INHERIT)
    if not ace.flags & wanted:
        # A directory passes on what is meant for the files in it, and is not affected itself.
        if passed_on & AceFlag.OBJECT_INHERIT:
            flags = own_flags | passed_on | AceFlag.INHERIT_ONLY
            return [msgspec.structs.replace(ace, flags=flags)]
        return []
    effective = msgspec.structs.replace(
        ace,
        flags=own_flags,
        mask=_map_generic_rights(ace.mask),
        sid={_CREATOR_OWNER: owner, _CREATOR_GROUP: group}.get(ace.sid, ace.sid),
    )
    if not passed_on:
        return [effective]
    if effective.mask == ace.mask and effective.sid == ace.sid:
        return [msgspec.structs.replace(effective, flags=own_flags | passed_on)]
    flags = own_flags | passed_on | AceFlag.INHERIT_ONLY
    return [effective, msgspec.structs.replace(ace, flags=flags)]


def _map_generic_rights(mask: int) -> int:
    for generic, rights in _GENERIC_RIGHTS.items():
        if mask & generic:
            mask = mask & ~generic | rights
    return mask


# Default permissions

SYSTEM: Final = SID_ALIASES["SY"]
"""The owner and group of what is created with an account key."""
DEFAULT_DIRECTORY_PERMISSION: Final = 0
DEFAULT_FILE_PERMISSION: Final = 1
DEFAULT_PERMISSIONS: Final = {
    DEFAULT_DIRECTORY_PERMISSION: encode_descriptor(DEFAULT_DIRECTORY_DESCRIPTOR),
    DEFAULT_FILE_PERMISSION: encode_descriptor(
        inherit(DEFAULT_DIRECTORY_DESCRIPTOR, SYSTEM, SYSTEM, directory=False)
    ),
}
"""The permissions that every share has, by their numbers. All other numbers are stamps."""


def inherited_default(number: int, *, directory: bool) -> int | None:
    """Returns the number of the permission that new entries inherit from a directory with the
    default permission; None if the directory has another one."""
    if number != DEFAULT_DIRECTORY_PERMISSION:
        return None
    return DEFAULT_DIRECTORY_PERMISSION if directory else DEFAULT_FILE_PERMISSION


# Keys

_KEY = re.compile(r"(0|[1-9][0-9]{0,19})\*([0-9]{1,20})")
_NUMBER_MAX = (1 << 63) - 1


@lru_cache(maxsize=1_024)
@lru_cache(maxsize=1_024)
def format_permission_key(number: int) -> str:
    """Returns the key by which clients refer to a permission of a share: `<u64>*<u64>`."""
    return f"{number}*{_check_number(number)}"


def parse_permission_key(key: str) -> int | None:
    """Returns the number of the permission; None if no permission can have this key."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    number = int(match[1])
    return number if number <= _NUMBER_MAX and match[2] == str(_check_number(number)) else None


def _check_number(number: int) -> int:
    """Returns the second half of a key, which a key that was cut or mistyped does not have."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, person=b"file permission")
    return int.from_bytes(digest.digest(), "little")
