"""The binary form of security descriptors: self-relative, little-endian (MS-DTYP 2.4.6)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from uuid import UUID

from etagere.model.security_descriptors import (
    DERIVED_CONTROL,
    NULL_ACL,
    Ace,
    AceType,
    Acl,
    Control,
    CustomAce,
    SecurityDescriptor,
    Sid,
)

DESCRIPTOR_BYTES_MAX: Final = 64 * 1024
"""The largest descriptor that is accepted in either form, counted in binary form."""
ACL_BYTES_MAX: Final = 0xFFFF
"""The size of a list is a field of 16 bits."""
SUB_AUTHORITIES_MAX: Final = 15

OBJECT_TYPES: Final = frozenset(
    {
        AceType.ALLOWED_OBJECT,
        AceType.DENIED_OBJECT,
        AceType.AUDIT_OBJECT,
        AceType.ALARM_OBJECT,
        AceType.ALLOWED_CALLBACK_OBJECT,
        AceType.DENIED_CALLBACK_OBJECT,
        AceType.AUDIT_CALLBACK_OBJECT,
        AceType.ALARM_CALLBACK_OBJECT,
    }
)
"""The types whose entries may have GUIDs."""
DATA_TYPES: Final = frozenset(
    {
        AceType.ALLOWED_CALLBACK,
        AceType.DENIED_CALLBACK,
        AceType.ALLOWED_CALLBACK_OBJECT,
        AceType.DENIED_CALLBACK_OBJECT,
        AceType.AUDIT_CALLBACK,
        AceType.ALARM_CALLBACK,
        AceType.AUDIT_CALLBACK_OBJECT,
        AceType.ALARM_CALLBACK_OBJECT,
        AceType.RESOURCE_ATTRIBUTE,
        AceType.ACCESS_FILTER,
    }
)
"""The types whose entries have data after the SID."""
_EXTENDED_TYPES: Final = OBJECT_TYPES | DATA_TYPES

_DESCRIPTOR_REVISION = 1
_SID_REVISION = 1
_ACL_REVISION = 2
_ACL_REVISION_DS = 4
_ACL_REVISIONS = range(2, 5)
_OBJECT_TYPE_PRESENT = 0x1
_INHERITED_OBJECT_TYPE_PRESENT = 0x2

_DESCRIPTOR_HEADER = struct.Struct("<BBHIIII")
_ACL_HEADER = struct.Struct("<BBHHH")
_ACE_HEADER = struct.Struct("<BBH")
_PLAIN_ACE = struct.Struct("<BBHI")
"""The header and the mask of an entry without GUIDs and data, whose SID follows."""
_SID_HEADER = struct.Struct(">BBHI")
"""Revision, count, and the authority in two parts; alone in the format it is big-endian."""
_WORD = struct.Struct("<I")
_GUID_SIZE = 16
_SUB_AUTHORITIES = tuple(struct.Struct(f"<{n}I") for n in range(SUB_AUTHORITIES_MAX + 1))
_KNOWN_TYPES = {int(ace_type): ace_type for ace_type in AceType}


class InvalidDescriptorError(Exception):
    """A text or bytes that are not a security descriptor, or one that is too large."""


# Decoding


def decode_descriptor(data: bytes) -> SecurityDescriptor:
    """Returns the descriptor in self-relative form, or raises InvalidDescriptorError.

    Parts may overlap and may lie in any order, as in Windows. Bytes between the parts are
    ignored. Offsets and sizes are multiples of four.
    """
    if not _DESCRIPTOR_HEADER.size <= len(data) <= DESCRIPTOR_BYTES_MAX:
        raise InvalidDescriptorError("the descriptor is too short or too long")
    revision, rm_control, control, owner, group, sacl, dacl = _DESCRIPTOR_HEADER.unpack_from(data)
    if revision != _DESCRIPTOR_REVISION or not control & Control.SELF_RELATIVE:
        raise InvalidDescriptorError("not a self-relative descriptor of revision 1")
    return SecurityDescriptor(
        owner=_decode_part_sid(data, owner),
        group=_decode_part_sid(data, group),
        dacl=_decode_acl(data, dacl) if control & Control.DACL_PRESENT else None,
        sacl=_decode_acl(data, sacl) if control & Control.SACL_PRESENT else None,
        control=control & ~DERIVED_CONTROL,
        resource_manager_control=(
            rm_control if control & Control.RESOURCE_MANAGER_CONTROL_VALID else 0
        ),
    )


def _check_offset(offset: int) -> None:
    if offset < _DESCRIPTOR_HEADER.size or offset % 4:
        raise InvalidDescriptorError("a part is inside the header or not aligned")


def _decode_part_sid(data: bytes, offset: int) -> Sid | None:
    if offset == 0:
        return None
    _check_offset(offset)
    sid, _end = _decode_sid(data, offset, len(data))
    return sid


def _decode_sid(data: bytes, start: int, end: int) -> tuple[Sid, int]:
    """Returns the SID at `start` and where it ends, which is not past `end`."""
    if start + _SID_HEADER.size > end:
        raise InvalidDescriptorError("a SID is cut short")
    revision, count, high, low = _SID_HEADER.unpack_from(data, start)
    if revision != _SID_REVISION or not 1 <= count <= SUB_AUTHORITIES_MAX:
        raise InvalidDescriptorError("a SID has a wrong revision or number of sub-authorities")
    start += _SID_HEADER.size
    layout = _SUB_AUTHORITIES[count]
    if start + layout.size > end:
        raise InvalidDescriptorError("a SID is cut short")
    return Sid(high << 32 | low, layout.unpack_from(data, start)), start + layout.size


def _decode_acl(data: bytes, offset: int) -> Acl:
    if offset == 0:
        return NULL_ACL
    _check_offset(offset)
    if offset + _ACL_HEADER.size > len(data):
        raise InvalidDescriptorError("a list is cut short")
    revision, _, size, count, _ = _ACL_HEADER.unpack_from(data, offset)
    end = offset + size
    if revision not in _ACL_REVISIONS or end > len(data):
        raise InvalidDescriptorError("a list has a wrong revision or size")
    offset += _ACL_HEADER.size
    entries = []
    for _ in range(count):
        # Every entry takes at least its header, so a large count ends at the end of the list.
        if offset + _ACE_HEADER.size > end:
            raise InvalidDescriptorError("a list has fewer entries than it says")
        ace_type, flags, ace_size = _ACE_HEADER.unpack_from(data, offset)
        ace_end = offset + ace_size
        if ace_size < _ACE_HEADER.size or ace_size % 4 or ace_end > end:
            raise InvalidDescriptorError("an entry has a wrong size")
        entries.append(_decode_ace(data, ace_type, flags, offset + _ACE_HEADER.size, ace_end))
        offset = ace_end
    return Acl(tuple(entries), revision)


def _decode_ace(data: bytes, number: int, flags: int, start: int, end: int) -> Ace | CustomAce:
    ace_type = _KNOWN_TYPES.get(number)
    if ace_type is None:
        return CustomAce(number, flags, bytes(data[start:end]))
    if start + _WORD.size > end:
        raise InvalidDescriptorError("an entry is cut short")
    (mask,) = _WORD.unpack_from(data, start)
    start += _WORD.size
    object_type = inherited_object_type = None
    if ace_type in OBJECT_TYPES:
        if start + _WORD.size > end:
            raise InvalidDescriptorError("an entry is cut short")
        (present,) = _WORD.unpack_from(data, start)
        start += _WORD.size
        if present & _OBJECT_TYPE_PRESENT:
            object_type, start = _decode_guid(data, start, end)
        if present & _INHERITED_OBJECT_TYPE_PRESENT:
            inherited_object_type, start = _decode_guid(data, start, end)
    sid, start = _decode_sid(data, start, end)
    # The types without data ignore what follows the SID, so it is not kept.
    rest = bytes(data[start:end]) if ace_type in DATA_TYPES else b""
    return Ace(ace_type, flags, mask, sid, object_type, inherited_object_type, rest)


def _decode_guid(data: bytes, start: int, end: int) -> tuple[UUID, int]:
    if start + _GUID_SIZE > end:
        raise InvalidDescriptorError("an entry is cut short")
    return UUID(bytes_le=bytes(data[start : start + _GUID_SIZE])), start + _GUID_SIZE


# Encoding


def encode_descriptor(descriptor: SecurityDescriptor) -> bytes:
    """Returns the descriptor in self-relative form, or raises InvalidDescriptorError.

    The parts follow the header in the order in which the service returns them: SACL, DACL, owner,
    group. The header lists their offsets in another order.
    """
    control = descriptor.control & ~DERIVED_CONTROL | Control.SELF_RELATIVE
    if descriptor.dacl is not None:
        control |= Control.DACL_PRESENT
    if descriptor.sacl is not None:
        control |= Control.SACL_PRESENT
    size = _DESCRIPTOR_HEADER.size
    offsets = []
    parts = (
        _encode_acl(descriptor.sacl),
        _encode_acl(descriptor.dacl),
        encode_sid(descriptor.owner) if descriptor.owner is not None else b"",
        encode_sid(descriptor.group) if descriptor.group is not None else b"",
    )
    for part in parts:
        offsets.append(size if part else 0)
        size += len(part)
    if size > DESCRIPTOR_BYTES_MAX:
        raise InvalidDescriptorError("the descriptor is too long")
    rm_control = descriptor.resource_manager_control
    sacl, dacl, owner, group = offsets
    header = _DESCRIPTOR_HEADER.pack(
        _DESCRIPTOR_REVISION, rm_control, control, owner, group, sacl, dacl
    )
    return b"".join((header, *parts))


@lru_cache(maxsize=1_024)
def encode_sid(sid: Sid) -> bytes:
    """Returns the binary form of a SID."""
    count = len(sid.sub_authorities)
    header = _SID_HEADER.pack(_SID_REVISION, count, sid.authority >> 32, sid.authority & 0xFFFFFFFF)
    return header + _SUB_AUTHORITIES[count].pack(*sid.sub_authorities)


def _encode_acl(acl: Acl | None) -> bytes:
    if acl is None or acl.entries is None:
        return b""
    known: dict[int, bytes] = {}  # by identity: repeated entries are often the same object
    entries: list[bytes] = []
    for ace in acl.entries:
        encoded = known.get(id(ace))
        if encoded is None:
            encoded = known[id(ace)] = _encode_ace(ace)
        entries.append(encoded)
    size = _ACL_HEADER.size + sum(map(len, entries))
    if size > ACL_BYTES_MAX:
        raise InvalidDescriptorError("a list is too long")
    return b"".join((_ACL_HEADER.pack(acl.revision, 0, size, len(entries), 0), *entries))


def _encode_ace(ace: Ace | CustomAce) -> bytes:
    if isinstance(ace, CustomAce):
        body = ace.body
    elif ace.type not in _EXTENDED_TYPES:
        sid = encode_sid(ace.sid)
        return _PLAIN_ACE.pack(ace.type, ace.flags, _PLAIN_ACE.size + len(sid), ace.mask) + sid
    else:
        parts = [_WORD.pack(ace.mask)]
        if ace.type in OBJECT_TYPES:
            present = 0
            guids = b""
            if ace.object_type is not None:
                present |= _OBJECT_TYPE_PRESENT
                guids += ace.object_type.bytes_le
            if ace.inherited_object_type is not None:
                present |= _INHERITED_OBJECT_TYPE_PRESENT
                guids += ace.inherited_object_type.bytes_le
            parts += (_WORD.pack(present), guids)
        parts.append(encode_sid(ace.sid))
        if ace.type in DATA_TYPES:
            parts.append(ace.data)
        body = b"".join(parts)
    body += bytes(-len(body) % 4)
    size = _ACE_HEADER.size + len(body)
    if size > ACL_BYTES_MAX:
        raise InvalidDescriptorError("an entry is too long")
    return _ACE_HEADER.pack(ace.type, ace.flags, size) + body


def encoded_ace_size(ace: Ace) -> int:
    """Returns the size of an entry in binary form."""
    size = _ACE_HEADER.size + _WORD.size + _SID_HEADER.size + 4 * len(ace.sid.sub_authorities)
    if ace.type in OBJECT_TYPES:
        guids = (ace.object_type is not None) + (ace.inherited_object_type is not None)
        size += _WORD.size + _GUID_SIZE * guids
    return size + len(ace.data) + -len(ace.data) % 4


def revision_for(entries: Iterable[Ace]) -> int:
    """Returns the revision of a list: object entries need a higher one (MS-DTYP 2.4.5)."""
    return _ACL_REVISION_DS if any(ace.type in OBJECT_TYPES for ace in entries) else _ACL_REVISION
