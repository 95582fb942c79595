"""The binary form of security descriptors against bytes written out by field."""

from __future__ import annotations

import random
import struct
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.model.security_descriptors import (
    NULL_ACL,
    Ace,
    AceType,
    Acl,
    Control,
    CustomAce,
    SecurityDescriptor,
    Sid,
)
from etagere.rules.security_descriptors import (
    DESCRIPTOR_BYTES_MAX,
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
    encode_sid,
    encoded_ace_size,
    revision_for,
)
from etagere.rules.sids import SID_ALIASES
from tests.rules.descriptors import aces, descriptors

SYSTEM = SID_ALIASES["SY"]
ADMINISTRATORS = SID_ALIASES["BA"]
EVERYONE = SID_ALIASES["WD"]
GUID = UUID("bf967aba-0de6-11d0-a285-00aa003049e2")

SYSTEM_BYTES = bytes.fromhex(
    "01"  # revision
    "01"  # number of sub-authorities
    "000000000005"  # authority, the only big-endian field
    "12000000"  # 18
)
ADMINISTRATORS_BYTES = bytes.fromhex("01 02 000000000005 20000000 20020000")
EVERYONE_BYTES = bytes.fromhex("01 01 000000000001 00000000")

FULL_BYTES = bytes.fromhex(
    "01"  # revision
    "00"
    "1494"  # self-relative, DACL protected and auto-inherited, SACL and DACL present
    "7c000000"  # owner at 124
    "8c000000"  # group at 140
    "14000000"  # SACL at 20
    "30000000"  # DACL at 48
    # SACL
    "02 00 1c00 0100 0000"  # revision 2, 28 bytes, 1 entry
    "02 c0 1400"  # audit, success and failure, 20 bytes
    "00000100"  # delete
    "01 01 000000000001 00000000"
    # DACL
    "04 00 4c00 0200 0000"  # revision 4, 76 bytes, 2 entries
    "00 03 1800"  # allowed, object and container inherit, 24 bytes
    "ff011f00"  # all rights on files
    "01 02 000000000005 20000000 20020000"
    "05 00 2c00"  # allowed object, 44 bytes
    "00010000"
    "01000000"  # only the object type is present
    "ba7a96bf e60d d011 a285 00aa003049e2"
    "01 02 000000000005 20000000 20020000"
    "01 02 000000000005 20000000 20020000"  # owner
    "01 01 000000000005 12000000"  # group
)
FULL = SecurityDescriptor(
    owner=ADMINISTRATORS,
    group=SYSTEM,
    dacl=Acl(
        (
            Ace(AceType.ALLOWED, 3, 0x1F01FF, ADMINISTRATORS),
            Ace(AceType.ALLOWED_OBJECT, 0, 0x100, ADMINISTRATORS, GUID),
        ),
        4,
    ),
    sacl=Acl((Ace(AceType.AUDIT, 0xC0, 0x10000, EVERYONE),)),
    control=Control.DACL_PROTECTED | Control.DACL_AUTO_INHERITED,
)
EMPTY_BYTES = bytes.fromhex("01 00 0080 00000000 00000000 00000000 00000000")


@pytest.mark.parametrize(
    ("sid", "expected"),
    [
        (SYSTEM, SYSTEM_BYTES),
        (ADMINISTRATORS, ADMINISTRATORS_BYTES),
        (EVERYONE, EVERYONE_BYTES),
        (Sid(0x123456789ABC, (1,)), bytes.fromhex("01 01 123456789abc 01000000")),
        (Sid(5, tuple(range(15))), b"\x01\x0f\0\0\0\0\0\x05" + struct.pack("<15I", *range(15))),
    ],
)
def test_binary_form_of_a_sid(sid: Sid, expected: bytes) -> None:
    assert encode_sid(sid) == expected


@pytest.mark.parametrize(
    ("descriptor", "data"),
    [
        (SecurityDescriptor(), EMPTY_BYTES),
        (FULL, FULL_BYTES),
        # The null DACL is present without an offset; the empty one is a header.
        (SecurityDescriptor(dacl=NULL_ACL), b"\x01\0\x04\x80" + bytes(16)),
        (SecurityDescriptor(sacl=NULL_ACL), b"\x01\0\x10\x80" + bytes(16)),
        (
            SecurityDescriptor(dacl=Acl(())),
            b"\x01\0\x04\x80" + bytes(12) + b"\x14\0\0\0" + b"\x02\0\x08\0\0\0\0\0",
        ),
        (
            SecurityDescriptor(
                control=Control.RESOURCE_MANAGER_CONTROL_VALID, resource_manager_control=7
            ),
            b"\x01\x07\x00\xc0" + bytes(16),
        ),
        # An entry of an unknown type is kept as it is.
        (
            SecurityDescriptor(dacl=Acl((CustomAce(0x99, 1, b"abcd"),))),
            b"\x01\0\x04\x80" + bytes(12) + b"\x14\0\0\0"
            b"\x02\0\x10\0\x01\0\0\0" + b"\x99\x01\x08\0abcd",
        ),
        # The condition of a conditional entry follows the SID.
        (
            SecurityDescriptor(
                dacl=Acl((Ace(AceType.ALLOWED_CALLBACK, 0, 1, EVERYONE, data=b"artx\1\2\3\4"),))
            ),
            b"\x01\0\x04\x80" + bytes(12) + b"\x14\0\0\0"
            b"\x02\0\x24\0\x01\0\0\0"
            b"\x09\0\x1c\0\x01\0\0\0" + EVERYONE_BYTES + b"artx\1\2\3\4",
        ),
    ],
)
def test_binary_form_of_a_descriptor(descriptor: SecurityDescriptor, data: bytes) -> None:
    assert encode_descriptor(descriptor) == data
    assert decode_descriptor(data) == descriptor


@given(descriptors)
def test_every_descriptor_survives_its_binary_form(descriptor: SecurityDescriptor) -> None:
    data = encode_descriptor(descriptor)
    assert decode_descriptor(data) == descriptor
    assert encode_descriptor(decode_descriptor(data)) == data


@given(aces(list(AceType)))
def test_size_of_an_entry_is_known_beforehand(ace: Ace) -> None:
    entry = SecurityDescriptor(dacl=Acl((ace,)))
    assert encoded_ace_size(ace) == len(encode_descriptor(entry)) - 28


def test_data_is_padded_to_four_bytes() -> None:
    ace = Ace(AceType.RESOURCE_ATTRIBUTE, 0, 0, EVERYONE, data=b"12345")
    data = encode_descriptor(SecurityDescriptor(sacl=Acl((ace,))))
    assert data.endswith(b"12345\0\0\0")
    assert encoded_ace_size(ace) == 28


def test_parts_in_any_order_and_shared() -> None:
    sid_at = 20 + 8
    shared = (
        struct.pack("<BBHIIII", 1, 0, 0x8014, sid_at, sid_at, 20, 20)
        + b"\x02\0\x08\0\0\0\0\0"
        + SYSTEM_BYTES
    )
    expected = SecurityDescriptor(SYSTEM, SYSTEM, Acl(()), Acl(()))
    assert decode_descriptor(shared) == expected
    assert decode_descriptor(encode_descriptor(expected)) == expected


def test_list_without_its_control_flag_is_absent() -> None:
    without = bytearray(FULL_BYTES)
    struct.pack_into("<H", without, 2, 0x8000)
    assert decode_descriptor(bytes(without)) == SecurityDescriptor(ADMINISTRATORS, SYSTEM)


def test_bytes_after_the_sid_are_dropped_where_they_mean_nothing() -> None:
    entry = b"\0\0\x18\0" + b"\x01\0\0\0" + EVERYONE_BYTES + b"more"
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(entry), 1, 0) + entry
    data = struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl
    expected = Acl((Ace(AceType.ALLOWED, 0, 1, EVERYONE),))
    assert decode_descriptor(data).dacl == expected


def damaged(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(FULL_BYTES)
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


def test_parts_are_aligned() -> None:
    for padding in range(8):
        offset = 20 + padding
        data = struct.pack("<BBHIIII", 1, 0, 0x8000, offset, 0, 0, 0) + bytes(padding)
        if padding % 4:
            with pytest.raises(InvalidDescriptorError):
                decode_descriptor(data + SYSTEM_BYTES)
        else:
            assert decode_descriptor(data + SYSTEM_BYTES).owner == SYSTEM


SACL_AT = 20
DACL_AT = 48
OWNER_AT = 124


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(EMPTY_BYTES[:-1], id="header cut short"),
        pytest.param(EMPTY_BYTES + bytes(DESCRIPTOR_BYTES_MAX - 19), id="too long"),
        pytest.param(damaged(0, "<B", 2), id="revision"),
        pytest.param(damaged(2, "<H", 0x1414), id="not self-relative"),
        pytest.param(damaged(4, "<I", 19), id="owner in the header"),
        pytest.param(damaged(4, "<I", 4), id="owner in the header, aligned"),
        pytest.param(damaged(4, "<I", 22), id="owner not aligned"),
        pytest.param(damaged(4, "<I", 0xFFFFFFFC), id="owner far out"),
        pytest.param(damaged(4, "<I", len(FULL_BYTES)), id="owner at the end"),
        pytest.param(damaged(8, "<I", len(FULL_BYTES) - 8), id="group cut short"),
        pytest.param(damaged(OWNER_AT, "<B", 2), id="revision of a SID"),
        pytest.param(damaged(OWNER_AT + 1, "<B", 0), id="SID without sub-authorities"),
        pytest.param(damaged(OWNER_AT + 1, "<B", 16), id="SID with 16 sub-authorities"),
        pytest.param(damaged(12, "<I", 16), id="SACL in the header"),
        pytest.param(damaged(12, "<I", 49), id="SACL not aligned"),
        pytest.param(damaged(16, "<I", len(FULL_BYTES) - 4), id="DACL cut short"),
        pytest.param(damaged(SACL_AT, "<B", 1), id="revision of a list too low"),
        pytest.param(damaged(SACL_AT, "<B", 5), id="revision of a list too high"),
        pytest.param(damaged(DACL_AT + 2, "<H", 200), id="list past the end"),
        pytest.param(damaged(DACL_AT + 2, "<H", 4), id="list smaller than its header"),
        pytest.param(damaged(DACL_AT + 2, "<H", 72), id="entry past its list"),
        pytest.param(damaged(DACL_AT + 4, "<H", 3), id="fewer entries than counted"),
        pytest.param(damaged(DACL_AT + 4, "<H", 0xFFFF), id="far fewer entries than counted"),
        pytest.param(damaged(DACL_AT + 10, "<H", 0), id="entry without a size"),
        pytest.param(damaged(DACL_AT + 10, "<H", 22), id="size of an entry not a multiple of 4"),
        pytest.param(damaged(DACL_AT + 10, "<H", 4), id="entry without a mask"),
        pytest.param(damaged(DACL_AT + 10, "<H", 20), id="entry shorter than its SID"),
        pytest.param(damaged(DACL_AT + 17, "<B", 3), id="SID past its entry"),
        pytest.param(damaged(DACL_AT + 40, "<I", 3), id="entry too short for a second GUID"),
    ],
)
def test_damaged_descriptor_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidDescriptorError):
        decode_descriptor(data)


@pytest.mark.parametrize("size", [4, 8, 12, 24, 40])
def test_object_entry_cut_short_is_refused(size: int) -> None:
    entry = struct.pack("<BBHII", 5, 0, size, 0, 3) + GUID.bytes_le + GUID.bytes_le
    entry = (entry + SYSTEM_BYTES)[:size]
    acl = struct.pack("<BBHHH", 4, 0, 8 + len(entry), 1, 0) + entry
    data = struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl + bytes(100)
    with pytest.raises(InvalidDescriptorError):
        decode_descriptor(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    decode_or_refuse(data)
    decode_or_refuse(b"\x01\0\x14\x80" + data)


@given(descriptors, st.data())
def test_damaged_bytes_are_decoded_or_refused(
    descriptor: SecurityDescriptor, data: st.DataObject
) -> None:
    encoded = bytearray(encode_descriptor(descriptor))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    decode_or_refuse(bytes(encoded))


def test_many_damaged_descriptors() -> None:
    draw = random.Random(20)
    for _ in range(20_000):
        data = bytearray(FULL_BYTES)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 4, 20, 0x80, 0xFF))
        decode_or_refuse(bytes(data))


def decode_or_refuse(data: bytes) -> None:
    """What is decoded can be encoded again, to the same descriptor, unless it grows too long."""
    try:
        descriptor = decode_descriptor(data)
        encoded = encode_descriptor(descriptor)
    except InvalidDescriptorError:
        return
    assert decode_descriptor(encoded) == descriptor


# Sizes


def test_largest_descriptor() -> None:
    entry = Ace(AceType.ALLOWED, 0, 1, EVERYONE)
    fits = (DESCRIPTOR_BYTES_MAX - 20 - 8) // 20
    descriptor = SecurityDescriptor(dacl=Acl((entry,) * fits))
    assert decode_descriptor(encode_descriptor(descriptor)) == descriptor
    for entries in ((entry,) * (fits + 1), (entry,) * 10_000):
        with pytest.raises(InvalidDescriptorError):
            encode_descriptor(SecurityDescriptor(dacl=Acl(entries)))


def test_lists_are_too_long_together() -> None:
    acl = Acl((Ace(AceType.AUDIT, 0, 1, EVERYONE),) * 1700)
    assert len(encode_descriptor(SecurityDescriptor(sacl=acl))) < DESCRIPTOR_BYTES_MAX
    with pytest.raises(InvalidDescriptorError):
        encode_descriptor(SecurityDescriptor(dacl=acl, sacl=acl))


def test_entry_too_long_is_refused() -> None:
    for ace in (
        CustomAce(0x99, 0, bytes(0x10000)),
        Ace(AceType.ALLOWED_CALLBACK, 0, 1, EVERYONE, data=bytes(0x10000)),
    ):
        with pytest.raises(InvalidDescriptorError):
            encode_descriptor(SecurityDescriptor(dacl=Acl((ace,))))


def test_overlapping_lists_of_the_most_entries_take_little_time() -> None:
    entries = b"\x99\0\x04\0" * 16_000
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(entries), 16_000, 0) + entries
    data = struct.pack("<BBHIIII", 1, 0, 0x8014, 0, 0, 20, 20) + acl
    started = time.process_time()
    descriptor = decode_descriptor(data)
    assert time.process_time() - started < 1
    assert descriptor.dacl == descriptor.sacl
    with pytest.raises(InvalidDescriptorError):
        encode_descriptor(descriptor)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], 2),
        ([AceType.ALLOWED, AceType.MANDATORY_LABEL, AceType.ALLOWED_CALLBACK], 2),
        ([AceType.ALLOWED, AceType.ALLOWED_OBJECT], 4),
        ([AceType.ALARM_CALLBACK_OBJECT], 4),
    ],
)
def test_revision_of_a_list(types: list[AceType], expected: int) -> None:
    assert revision_for([Ace(ace_type, 0, 0, EVERYONE) for ace_type in types]) == expected
