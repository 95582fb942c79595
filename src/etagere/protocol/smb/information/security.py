"""The parts of security descriptors that clients read and set ([MS-SMB2] 2.2.37, 2.2.39)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from etagere.config import KIB
from etagere.model.files import NewPermission
from etagere.model.security_descriptors import Control, SecurityDescriptor
from etagere.nt_status import NtStatus
from etagere.protocol.smb.status import SmbError
from etagere.rules.file_permissions import SYSTEM, check_permission
from etagere.rules.security_descriptors import (
    DESCRIPTOR_BYTES_MAX,
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)

T = TypeVar("T")

_CONVERTED_AT_ONCE_BYTES_MAX: Final = 4 * KIB
"""Longer security descriptors are converted in a thread: the longest takes 50 ms."""

OWNER: Final = 0x0000_0001
GROUP: Final = 0x0000_0002
DACL: Final = 0x0000_0004
SACL: Final = 0x0000_0008

_DACL_CONTROL: Final = (
    Control.DACL_DEFAULTED
    | Control.DACL_AUTO_INHERITED
    | Control.DACL_AUTO_INHERIT_REQUESTED
    | Control.DACL_PROTECTED
    | Control.DACL_TRUSTED
    | Control.SERVER_SECURITY
)
_SACL_CONTROL: Final = (
    Control.SACL_DEFAULTED
    | Control.SACL_AUTO_INHERITED
    | Control.SACL_AUTO_INHERIT_REQUESTED
    | Control.SACL_PROTECTED
)
_INHERITANCE: Final = (
    (Control.DACL_AUTO_INHERITED, Control.DACL_AUTO_INHERIT_REQUESTED),
    (Control.SACL_AUTO_INHERITED, Control.SACL_AUTO_INHERIT_REQUESTED),
)


def _control_of(parts: int) -> int:
    """Returns the control flags that belong to the parts of a descriptor."""
    control = 0
    if parts & OWNER:
        control |= Control.OWNER_DEFAULTED
    if parts & GROUP:
        control |= Control.GROUP_DEFAULTED
    if parts & DACL:
        control |= _DACL_CONTROL
    if parts & SACL:
        control |= _SACL_CONTROL
    return control


def select_parts(descriptor: SecurityDescriptor, parts: int) -> SecurityDescriptor:
    """Returns a descriptor with nothing but the parts that a client asks for."""
    return SecurityDescriptor(
        owner=descriptor.owner if parts & OWNER else None,
        group=descriptor.group if parts & GROUP else None,
        dacl=descriptor.dacl if parts & DACL else None,
        sacl=descriptor.sacl if parts & SACL else None,
        control=descriptor.control & _control_of(parts),
    )


def replace_parts(
    old: SecurityDescriptor, new: SecurityDescriptor, parts: int
) -> SecurityDescriptor:
    """Returns a descriptor in which these parts are those of another one."""
    control = _control_of(parts)
    return replace(
        old,
        owner=new.owner if parts & OWNER else old.owner,
        group=new.group if parts & GROUP else old.group,
        dacl=new.dacl if parts & DACL else old.dacl,
        sacl=new.sacl if parts & SACL else old.sacl,
        control=old.control & ~control | _inheritance(new.control) & control,
    )


def _inheritance(control: int) -> int:
    """Returns the control flags as Windows stores them: an ACL is marked as inherited only if that
    is requested, and the request is not stored."""
    for inherited, requested in _INHERITANCE:
        if not control & requested:
            control &= ~inherited
        control &= ~requested
    return control


# Permissions that clients set


async def permission_of_new(descriptor: bytes) -> NewPermission | None:
    """Returns the permission of an entry that is created with a security descriptor; None: it is
    inherited."""
    if len(descriptor) > DESCRIPTOR_BYTES_MAX:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return await _convert(len(descriptor), partial(_permission_of_new, descriptor))


async def changed_permission(old: bytes, sent: bytes, parts: int) -> NewPermission:
    """Returns a permission in which these parts of the security descriptor are replaced."""
    return await _convert(len(old) + len(sent), partial(_changed_permission, old, sent, parts))


async def _convert(count: int, convert: Callable[[], T]) -> T:
    """Converts security descriptors of this many bytes, in a thread if that takes long."""
    try:
        if count <= _CONVERTED_AT_ONCE_BYTES_MAX:
            return convert()
        return await asyncio.to_thread(convert)
    except InvalidDescriptorError:
        raise SmbError(NtStatus.INVALID_SECURITY_DESCR) from None


def _permission_of_new(data: bytes) -> NewPermission | None:
    descriptor = decode_descriptor(data)
    if descriptor.dacl is None:
        return None
    owner, group = descriptor.owner or SYSTEM, descriptor.group or SYSTEM
    return _permission(replace(descriptor, owner=owner, group=group))


def _changed_permission(old: bytes, sent: bytes, parts: int) -> NewPermission:
    return _permission(replace_parts(decode_descriptor(old), decode_descriptor(sent), parts))


def _permission(descriptor: SecurityDescriptor) -> NewPermission:
    stored = encode_descriptor(check_permission(descriptor))
    return NewPermission(stored, hashlib.sha256(stored).digest())
