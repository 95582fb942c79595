"""The text form of security descriptors: SDDL (MS-DTYP 2.5.1).

The parser accepts what Windows accepts: the parts in any order, upper and lower case inside an
entry, spaces before most fields, rights as letters or as a number. Unlike Windows, it refuses
numbers that do not fit instead of replacing them by the largest number. The formatter prints what
Windows prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from etagere.model.security_descriptors import (
    NULL_ACL,
    Ace,
    AceFlag,
    AceType,
    Acl,
    Control,
    CustomAce,
    SecurityDescriptor,
    Sid,
)
from etagere.rules.security_descriptors import (
    ACL_BYTES_MAX,
    DATA_TYPES,
    OBJECT_TYPES,
    InvalidDescriptorError,
    encoded_ace_size,
    revision_for,
)
from etagere.rules.sids import ascii_upper, format_sid, parse_sid

SDDL_LENGTH_MAX: Final = 256 * 1024
"""The longest text that is parsed. A descriptor of 64 KiB is rarely longer in canonical form."""
_SPACES = " \t\r\n"


class NoSddlFormError(Exception):
    """A descriptor has an entry that SDDL cannot express."""


# Rights

_RIGHT_BITS: Final[Mapping[str, int]] = {
    "CC": 0x00000001,
    "DC": 0x00000002,
    "LC": 0x00000004,
    "SW": 0x00000008,
    "RP": 0x00000010,
    "WP": 0x00000020,
    "DT": 0x00000040,
    "LO": 0x00000080,
    "CR": 0x00000100,
    "SD": 0x00010000,
    "RC": 0x00020000,
    "WD": 0x00040000,
    "WO": 0x00080000,
    "GA": 0x10000000,
    "GX": 0x20000000,
    "GW": 0x40000000,
    "GR": 0x80000000,
}
"""Single rights, in the order in which they are printed."""
_RIGHT_SETS: Final[Mapping[str, int]] = {
    "FA": 0x001F01FF,
    "FR": 0x00120089,
    "FW": 0x00120116,
    "FX": 0x001200A0,
    "KA": 0x000F003F,
    "KR": 0x00020019,
    "KW": 0x00020006,
    "KX": 0x00020019,
}
"""Sets of rights on files and registry keys, printed only if the mask is exactly that set."""
_LABEL_BITS: Final[Mapping[str, int]] = {"NW": 0x1, "NR": 0x2, "NX": 0x4}
"""What an integrity label forbids to processes of a lower level."""

_RIGHTS = {**_RIGHT_BITS, **_RIGHT_SETS, **_LABEL_BITS}
# KX is KR, and is printed as KR.
_SET_OF_MASK = {mask: name for name, mask in _RIGHT_SETS.items() if name != "KX"}
_RIGHTS_NUMBER = re.compile(r"0[xX]([0-9A-Fa-f]{1,16})|0([0-7]{1,16})|(0|[1-9][0-9]{0,15})")


def parse_rights(text: str) -> int:
    """Returns the mask of `FA`, `CCDC` or `0x1301bf`, or raises InvalidDescriptorError."""
    if (known := _RIGHTS.get(text)) is not None:
        return known
    text = text.lstrip(_SPACES)
    match = _RIGHTS_NUMBER.fullmatch(text)
    if match is None:
        return _parse_pairs(text, _RIGHTS, "a right")
    hexadecimal, octal, decimal = match.groups()
    if hexadecimal is not None:
        mask = int(hexadecimal, 16)
    elif octal is not None:
        mask = int(octal, 8)
    else:
        mask = int(decimal)
    if mask >= 1 << 32:
        raise InvalidDescriptorError("a number of rights is too large")
    return mask


def format_rights(mask: int, ace_type: AceType = AceType.ALLOWED) -> str:
    """Returns a mask as letters if they cover it, and as a hexadecimal number otherwise."""
    bits = _RIGHT_BITS
    if ace_type is AceType.MANDATORY_LABEL:
        bits = _LABEL_BITS
    elif (name := _SET_OF_MASK.get(mask)) is not None:
        return name
    return _format_pairs(mask, bits) or (f"{mask:#x}" if mask else "")


_PAIRS_LENGTH_MAX = 128
"""Longer than all names together; bounds the work for names that are repeated."""


def _parse_pairs(text: str, values: Mapping[str, int], what: str) -> int:
    """Returns the combined values of names of two letters."""
    if not text:
        return 0
    if len(text) > _PAIRS_LENGTH_MAX:
        raise InvalidDescriptorError(f"{what} is repeated too often")
    text = ascii_upper(text)
    found = 0
    for start in range(0, len(text), 2):
        value = values.get(text[start : start + 2])
        if value is None:
            raise InvalidDescriptorError(f"{what} is unknown")
        found |= value
    return found


def _format_pairs(number: int, values: Mapping[str, int]) -> str:
    """Returns the names of the bits of a number, or nothing if some bit has no name."""
    names = []
    for name, value in values.items():
        if number & value:
            names.append(name)
            number &= ~value
    return "" if number else "".join(names)


# Entries

_DACL_TYPES: Final[Mapping[str, AceType]] = {
    "A": AceType.ALLOWED,
    "D": AceType.DENIED,
    "OA": AceType.ALLOWED_OBJECT,
    "OD": AceType.DENIED_OBJECT,
    "XA": AceType.ALLOWED_CALLBACK,
    "XD": AceType.DENIED_CALLBACK,
    "ZA": AceType.ALLOWED_CALLBACK_OBJECT,
}
_SACL_TYPES: Final[Mapping[str, AceType]] = {
    "AU": AceType.AUDIT,
    "AL": AceType.ALARM,
    "OU": AceType.AUDIT_OBJECT,
    "OL": AceType.ALARM_OBJECT,
    "XU": AceType.AUDIT_CALLBACK,
    "ML": AceType.MANDATORY_LABEL,
    "RA": AceType.RESOURCE_ATTRIBUTE,
    "SP": AceType.SCOPED_POLICY,
    "TL": AceType.PROCESS_TRUST_LABEL,
    "FL": AceType.ACCESS_FILTER,
}
_DACL_NAMES = {ace_type: name for name, ace_type in _DACL_TYPES.items()}
_SACL_NAMES = {ace_type: name for name, ace_type in _SACL_TYPES.items()}

_ACE_FLAGS: Final[Mapping[str, int]] = {
    "OI": AceFlag.OBJECT_INHERIT,
    "CI": AceFlag.CONTAINER_INHERIT,
    "NP": AceFlag.NO_PROPAGATE,
    "IO": AceFlag.INHERIT_ONLY,
    "ID": AceFlag.INHERITED,
    "CR": AceFlag.CRITICAL,
    "SA": AceFlag.AUDIT_SUCCESS,
    "FA": AceFlag.AUDIT_FAILURE,
}

_GUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_ACE = re.compile(r"[ \t\r\n]*\(([^()]*)\)")
_ACE_FIELDS = 6


def _parse_ace(text: str, types: Mapping[str, AceType], domain: Sid | None) -> Ace:
    fields = text.split(";")
    if len(fields) != _ACE_FIELDS:
        raise InvalidDescriptorError("an entry does not have six fields")
    name, flags, rights, object_type, inherited_object_type, account = fields
    ace_type = types.get(name)
    if ace_type is None:
        ace_type = types.get(ascii_upper(name.strip(_SPACES)))
    if ace_type is None:
        raise InvalidDescriptorError("a type of entry is unknown in this list")
    if ace_type in DATA_TYPES:
        raise InvalidDescriptorError("conditions and attributes are only accepted in binary form")
    guids = (_parse_guid(object_type), _parse_guid(inherited_object_type))
    if ace_type not in OBJECT_TYPES and guids != (None, None):
        raise InvalidDescriptorError("only object entries have GUIDs")
    return Ace(
        ace_type,
        _parse_pairs(flags.strip(_SPACES), _ACE_FLAGS, "a flag of an entry"),
        parse_rights(rights),
        _parse_spaced_sid(account, domain),
        *guids,
    )


def _parse_guid(text: str) -> UUID | None:
    if not text or not text.strip(_SPACES):
        return None
    if _GUID.fullmatch(text) is None:
        raise InvalidDescriptorError("a GUID is malformed")
    return UUID(text)


def _parse_spaced_sid(text: str, domain: Sid | None) -> Sid:
    return parse_sid(text.strip(_SPACES), domain)


def _format_ace(ace: Ace | CustomAce, names: Mapping[AceType, str], domain: Sid | None) -> str:
    if isinstance(ace, CustomAce):
        raise NoSddlFormError("SDDL has no name for the type of an entry")
    name = names.get(ace.type)
    if name is None or ace.type in DATA_TYPES:
        raise NoSddlFormError("SDDL cannot express an entry of this type in this list")
    return ";".join(
        (
            f"({name}",
            _format_pairs(ace.flags, _ACE_FLAGS),
            format_rights(ace.mask, ace.type),
            str(ace.object_type or ""),
            str(ace.inherited_object_type or ""),
            f"{format_sid(ace.sid, domain)})",
        )
    )


# Lists

_NULL_ACL_NAME = "NO_ACCESS_CONTROL"
_ACL_FLAGS_MAX = 64
"""Flags may be repeated, as in Windows, but not without end."""
_FLAGS_OF_ACL = re.compile(
    rf"(?:[ \t\r\n]*(?:P|AR|AI|{_NULL_ACL_NAME})){{0,{_ACL_FLAGS_MAX}}}[ \t\r\n]*"
)
"""No name contains another one, so that each can be looked for in the whole match."""
_DACL_FLAGS: Final[Mapping[str, int]] = {
    "P": Control.DACL_PROTECTED,
    "AR": Control.DACL_AUTO_INHERIT_REQUESTED,
    "AI": Control.DACL_AUTO_INHERITED,
}
_SACL_FLAGS: Final[Mapping[str, int]] = {
    "P": Control.SACL_PROTECTED,
    "AR": Control.SACL_AUTO_INHERIT_REQUESTED,
    "AI": Control.SACL_AUTO_INHERITED,
}


def _parse_acl(
    text: str,
    start: int,
    flags: Mapping[str, int],
    types: Mapping[str, AceType],
    domain: Sid | None,
) -> tuple[Acl, int, int]:
    """Returns the list that starts there, its control flags, and where it ends."""
    match = _FLAGS_OF_ACL.match(text, start)
    names = match[0] if match is not None else ""
    start += len(names)
    control = sum(flag for name, flag in flags.items() if name in names)
    entries = []
    known: dict[str, Ace] = {}  # an entry may be repeated hundreds of times
    size = 8
    while (match := _ACE.match(text, start)) is not None:
        written = match[1]
        ace = known.get(written)
        if ace is None:
            ace = known[written] = _parse_ace(written, types, domain)
        size += encoded_ace_size(ace)
        if size > ACL_BYTES_MAX:
            raise InvalidDescriptorError("a list is too long")
        entries.append(ace)
        start = match.end()
    if _NULL_ACL_NAME in names:
        if entries:
            raise InvalidDescriptorError("the null list has no entries")
        return NULL_ACL, control, start
    return Acl(tuple(entries), revision_for(entries)), control, start


def _format_acl(
    acl: Acl,
    control: int,
    flags: Mapping[str, int],
    names: Mapping[AceType, str],
    domain: Sid | None,
) -> str:
    parts = [name for name, flag in flags.items() if control & flag]
    if acl.entries is None:
        parts.append(_NULL_ACL_NAME)
    else:
        parts.extend(_format_ace(ace, names, domain) for ace in acl.entries)
    return "".join(parts)


# Descriptors

_TAG = re.compile(r"[ \t\r\n]*([OGDS]):")


def parse_sddl(text: str, domain: Sid | None = None) -> SecurityDescriptor:
    """Returns the descriptor of a text such as `O:SYG:SYD:(A;;FA;;;BA)`.

    Raises InvalidDescriptorError. Conditional entries and resource attributes are refused: they
    are only accepted in binary form.
    """
    if len(text) > SDDL_LENGTH_MAX:
        raise InvalidDescriptorError("the text is too long")
    text = text.rstrip(_SPACES)
    sids: dict[str, Sid] = {}
    acls: dict[str, Acl] = {}
    control = 0
    start = 0
    while start < len(text):
        match = _TAG.match(text, start)
        if match is None:
            raise InvalidDescriptorError("a part does not start with O:, G:, D: or S:")
        tag, start = match[1], match.end()
        if tag in sids or tag in acls:
            raise InvalidDescriptorError("a part is given twice")
        if tag in ("O", "G"):
            # A SID ends before the letter of the next colon: in S-1-2-0x200D: the D is a tag.
            colon = text.find(":", start)
            end = len(text) if colon < 0 else colon - 1
            sids[tag] = _parse_spaced_sid(text[start:end], domain)
            start = end
        else:
            flags, types = (_DACL_FLAGS, _DACL_TYPES) if tag == "D" else (_SACL_FLAGS, _SACL_TYPES)
            acls[tag], acl_control, start = _parse_acl(text, start, flags, types, domain)
            control |= acl_control
    return SecurityDescriptor(sids.get("O"), sids.get("G"), acls.get("D"), acls.get("S"), control)


def format_sddl(descriptor: SecurityDescriptor, domain: Sid | None = None) -> str:
    """Returns the descriptor as Windows prints it, or raises NoSddlFormError."""
    parts: list[str] = []
    if descriptor.owner is not None:
        parts += ("O:", format_sid(descriptor.owner, domain))
    if descriptor.group is not None:
        parts += ("G:", format_sid(descriptor.group, domain))
    control = descriptor.control
    if descriptor.dacl is not None:
        parts += ("D:", _format_acl(descriptor.dacl, control, _DACL_FLAGS, _DACL_NAMES, domain))
    if descriptor.sacl is not None:
        parts += ("S:", _format_acl(descriptor.sacl, control, _SACL_FLAGS, _SACL_NAMES, domain))
    return "".join(parts)
