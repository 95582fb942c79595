"""Hypothesis strategies for security descriptors."""

from __future__ import annotations

from hypothesis import strategies as st

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
from etagere.rules.security_descriptors import DATA_TYPES, OBJECT_TYPES, revision_for
from etagere.rules.sids import SID_ALIASES

DACL_TYPES = [
    AceType.ALLOWED,
    AceType.DENIED,
    AceType.ALLOWED_OBJECT,
    AceType.DENIED_OBJECT,
]
SACL_TYPES = [
    AceType.AUDIT,
    AceType.ALARM,
    AceType.AUDIT_OBJECT,
    AceType.ALARM_OBJECT,
    AceType.MANDATORY_LABEL,
    AceType.SCOPED_POLICY,
    AceType.PROCESS_TRUST_LABEL,
]

words = st.integers(0, 0xFFFFFFFF)
octets = st.integers(0, 0xFF)
sids = st.sampled_from(list(SID_ALIASES.values())) | st.builds(
    Sid,
    st.integers(0, 20) | st.integers(0, (1 << 48) - 1),
    st.lists(words, min_size=1, max_size=15).map(tuple),
)
masks = words | st.sampled_from([0, 0x1F01FF, 0x1301BF, 0x1200A9, 0x20019, 0xF003F, 0xE0010000])
_data = st.binary(max_size=40).map(lambda data: data + bytes(-len(data) % 4))


def aces(types: list[AceType]) -> st.SearchStrategy[Ace]:
    return st.sampled_from(types).flatmap(_aces_of)


def _aces_of(ace_type: AceType) -> st.SearchStrategy[Ace]:
    guids = st.none() | st.uuids() if ace_type in OBJECT_TYPES else st.none()
    data = _data if ace_type in DATA_TYPES else st.just(b"")
    return st.builds(Ace, st.just(ace_type), octets, masks, sids, guids, guids, data)


custom_aces = st.builds(
    CustomAce,
    octets.filter(lambda number: number not in set(AceType)),
    octets,
    _data,
)


def text_acls(types: list[AceType]) -> st.SearchStrategy[Acl | None]:
    """Lists that have a text form, with the revision that parsing the text gives them."""
    listed = st.lists(aces(types), max_size=6).map(
        lambda entries: Acl(tuple(entries), revision_for(entries))
    )
    return st.none() | st.just(NULL_ACL) | listed


_binary_acls = (
    st.none()
    | st.just(NULL_ACL)
    | st.builds(
        Acl,
        st.lists(aces(list(AceType)) | custom_aces, max_size=6).map(tuple),
        st.integers(2, 4),
    )
)


def _consistent(descriptor: SecurityDescriptor) -> bool:
    valid = bool(descriptor.control & Control.RESOURCE_MANAGER_CONTROL_VALID)
    return valid or not descriptor.resource_manager_control


descriptors = st.builds(
    SecurityDescriptor,
    st.none() | sids,
    st.none() | sids,
    _binary_acls,
    _binary_acls,
    st.integers(0, 0xFFFF).map(lambda control: control & ~DERIVED_CONTROL),
    st.just(0) | octets,
).filter(_consistent)
"""Descriptors that have a binary form, which is nearly all."""

_DACL_CONTROL = (
    Control.DACL_PROTECTED | Control.DACL_AUTO_INHERITED | Control.DACL_AUTO_INHERIT_REQUESTED
)
_SACL_CONTROL = (
    Control.SACL_PROTECTED | Control.SACL_AUTO_INHERITED | Control.SACL_AUTO_INHERIT_REQUESTED
)


def _printed_control(descriptor: SecurityDescriptor) -> bool:
    printed = 0
    if descriptor.dacl is not None:
        printed |= _DACL_CONTROL
    if descriptor.sacl is not None:
        printed |= _SACL_CONTROL
    return not descriptor.control & ~printed


text_descriptors = st.builds(
    SecurityDescriptor,
    st.none() | sids,
    st.none() | sids,
    text_acls(DACL_TYPES),
    text_acls(SACL_TYPES),
    st.just(0) | words.map(lambda number: number & (_DACL_CONTROL | _SACL_CONTROL)),
).filter(_printed_control)
"""Descriptors that SDDL expresses without loss."""
