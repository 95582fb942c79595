"""Windows security descriptors: who owns a file, and who may do what with it (MS-DTYP 2.4)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final
from uuid import UUID

from etagere.model.base import Part


class Control(IntEnum):
    """The control flags of a descriptor, each a bit (MS-DTYP 2.4.6)."""

    OWNER_DEFAULTED = 0x0001
    GROUP_DEFAULTED = 0x0002
    DACL_PRESENT = 0x0004
    DACL_DEFAULTED = 0x0008
    SACL_PRESENT = 0x0010
    SACL_DEFAULTED = 0x0020
    DACL_TRUSTED = 0x0040
    SERVER_SECURITY = 0x0080
    DACL_AUTO_INHERIT_REQUESTED = 0x0100
    SACL_AUTO_INHERIT_REQUESTED = 0x0200
    DACL_AUTO_INHERITED = 0x0400
    SACL_AUTO_INHERITED = 0x0800
    DACL_PROTECTED = 0x1000
    SACL_PROTECTED = 0x2000
    RESOURCE_MANAGER_CONTROL_VALID = 0x4000
    SELF_RELATIVE = 0x8000


class AceType(IntEnum):
    """The types of access control entries whose layout is known (MS-DTYP 2.4.4.1)."""

    ALLOWED = 0x00
    DENIED = 0x01
    AUDIT = 0x02
    ALARM = 0x03
    ALLOWED_OBJECT = 0x05
    DENIED_OBJECT = 0x06
    AUDIT_OBJECT = 0x07
    ALARM_OBJECT = 0x08
    ALLOWED_CALLBACK = 0x09
    DENIED_CALLBACK = 0x0A
    ALLOWED_CALLBACK_OBJECT = 0x0B
    DENIED_CALLBACK_OBJECT = 0x0C
    AUDIT_CALLBACK = 0x0D
    ALARM_CALLBACK = 0x0E
    AUDIT_CALLBACK_OBJECT = 0x0F
    ALARM_CALLBACK_OBJECT = 0x10
    MANDATORY_LABEL = 0x11
    RESOURCE_ATTRIBUTE = 0x12
    SCOPED_POLICY = 0x13
    PROCESS_TRUST_LABEL = 0x14
    ACCESS_FILTER = 0x15


class AceFlag(IntEnum):
    """The flags of an access control entry, each a bit (MS-DTYP 2.4.4.1)."""

    OBJECT_INHERIT = 0x01
    CONTAINER_INHERIT = 0x02
    NO_PROPAGATE = 0x04
    INHERIT_ONLY = 0x08
    INHERITED = 0x10
    CRITICAL = 0x20
    AUDIT_SUCCESS = 0x40
    AUDIT_FAILURE = 0x80


class Sid(Part, frozen=True):
    """A security identifier: an authority, and the path to an account below it."""

    authority: int
    """48 bits."""
    sub_authorities: tuple[int, ...]
    """1 to 15 numbers of 32 bits; the last one is the relative identifier (RID)."""


class Ace(Part, frozen=True, tag_field="layout", tag="known"):
    """An access control entry of a type whose layout is known."""

    type: AceType
    flags: int
    """A combination of `AceFlag`."""
    mask: int
    """The rights that the entry grants, denies or audits: 32 bits."""
    sid: Sid
    object_type: UUID | None = None
    """Only in object entries."""
    inherited_object_type: UUID | None = None
    """Only in object entries."""
    data: bytes = b""
    """The condition or the attribute that follows the SID, in types that have one."""


class CustomAce(Part, frozen=True, tag_field="layout", tag="custom"):
    """An access control entry of another type, kept as it is."""

    type: int
    flags: int
    body: bytes
    """What follows the header of four bytes."""


class Acl(Part, frozen=True):
    """An access control list."""

    entries: tuple[Ace | CustomAce, ...] | None
    """None is the null list, which in a DACL grants everyone everything; `()` grants nothing."""
    revision: int = 2
    """2; or 4 if there are object entries."""


NULL_ACL: Final = Acl(None)


class SecurityDescriptor(Part, frozen=True):
    """A security descriptor."""

    owner: Sid | None = None
    group: Sid | None = None
    dacl: Acl | None = None
    """The discretionary list: who may do what. None if there is none; see also `NULL_ACL`."""
    sacl: Acl | None = None
    """The system list: what is audited, and the integrity label."""
    control: int = 0
    """A combination of `Control`, without the flags that follow from the other fields."""
    resource_manager_control: int = 0
    """8 bits for the owner of the object; zero unless `control` says that it is valid."""


DERIVED_CONTROL: Final = Control.DACL_PRESENT | Control.SACL_PRESENT | Control.SELF_RELATIVE
"""The control flags that follow from the other fields of a descriptor and from its form."""
