"""Create contexts, byte by byte."""

from __future__ import annotations

import struct

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.create_contexts import (
    CreateContexts,
    LeaseRequest,
    pack_contexts,
    pack_disk_id,
    pack_lease,
    pack_maximal_access,
    parse_contexts,
)
from etagere.protocol.smb.status import SmbError
from etagere.rules.caching import Caching

R, W, H = Caching.READ, Caching.WRITE, Caching.HANDLE
KEY = bytes(range(16))
PARENT = bytes(range(16, 32))

MAXIMAL_ACCESS = bytes.fromhex(
    "18000000"  # next
    "1000"  # offset of the name
    "0400"  # length of the name
    "0000"  # reserved
    "0000"  # offset of the data
    "00000000"  # length of the data
    "4d784163"  # MxAc
    "00000000"  # padding
)
LEASE_V2 = bytes.fromhex(
    "00000000"  # next: none
    "1000"
    "0400"
    "0000"
    "1800"  # offset of the data
    "34000000"  # length of the data
    "52714c73"  # RqLs
    "00000000"
    "000102030405060708090a0b0c0d0e0f"  # key
    "07000000"  # read, handle, write
    "04000000"  # there is a parent key
    "0000000000000000"  # duration
    "101112131415161718191a1b1c1d1e1f"  # parent key
    "2a00"  # epoch
    "0000"  # reserved
)


def context(tag: bytes, data: bytes) -> bytes:
    return struct.pack("<IHHHHI", 0, 16, len(tag), 0, 24, len(data)) + tag.ljust(8, b"\0") + data


def parse(chain: bytes, *, has_lease_v2: bool = True) -> CreateContexts:
    return parse_contexts(memoryview(chain), has_lease_v2=has_lease_v2)


def test_chain() -> None:
    assert parse(MAXIMAL_ACCESS + LEASE_V2) == CreateContexts(
        LeaseRequest(KEY, R | W | H, True, PARENT, 42), asks_maximal_access=True
    )


def test_no_contexts() -> None:
    assert parse(b"") == CreateContexts()


def test_lease_of_the_first_version() -> None:
    data = KEY + struct.pack("<IIQ", 0x3, 0, 0)
    assert parse(context(b"RqLs", data)).lease == LeaseRequest(KEY, R | H)


def test_dialect_without_leases_of_the_second_version() -> None:
    assert parse(LEASE_V2, has_lease_v2=False).lease == LeaseRequest(KEY, R | W | H)


def test_numbers_and_descriptors() -> None:
    assert parse(context(b"AlSi", struct.pack("<Q", 4096))).allocation == 4096
    assert parse(context(b"TWrp", struct.pack("<Q", 10_000))).snapshot == 10_000
    assert parse(context(b"SecD", b"descriptor")).descriptor == b"descriptor"
    assert parse(context(b"QFid", b"")).asks_disk_id


@pytest.mark.parametrize("tag", [b"DHnQ", b"DH2Q", b"AAPL", b"FooO", bytes(16)])
def test_ignored_contexts(tag: bytes) -> None:
    assert parse(struct.pack("<IHHHHI", 0, 16, len(tag), 0, 0, 0) + tag) == CreateContexts()


@pytest.mark.parametrize(
    ("chain", "status"),
    [
        (context(b"ExtA", b"x"), NtStatus.EAS_NOT_SUPPORTED),
        (context(b"DHnC", bytes(16)), NtStatus.OBJECT_NAME_NOT_FOUND),
        (context(b"DH2C", bytes(36)), NtStatus.OBJECT_NAME_NOT_FOUND),
        (context(b"RqLs", bytes(31)), NtStatus.INVALID_PARAMETER),
        (context(b"MxAc", bytes(4)), NtStatus.INVALID_PARAMETER),
        (context(b"AlSi", bytes(4)), NtStatus.INVALID_PARAMETER),
        (context(b"TWrp", bytes(9)), NtStatus.INVALID_PARAMETER),
        (context(b"xxx", b""), NtStatus.INVALID_PARAMETER),
        (bytes(15), NtStatus.INVALID_PARAMETER),
        # Chains that do not move on, or leave the buffer.
        (struct.pack("<I", 8) + MAXIMAL_ACCESS[4:], NtStatus.INVALID_PARAMETER),
        (struct.pack("<I", 12) + MAXIMAL_ACCESS[4:], NtStatus.INVALID_PARAMETER),
        (struct.pack("<I", 32) + MAXIMAL_ACCESS[4:], NtStatus.INVALID_PARAMETER),
        (MAXIMAL_ACCESS, NtStatus.INVALID_PARAMETER),
        # Parts that leave their context, or lie in its head.
        (struct.pack("<IHHHHI", 0, 16, 9, 0, 0, 0) + bytes(8), NtStatus.INVALID_PARAMETER),
        (struct.pack("<IHHHHI", 0, 8, 4, 0, 0, 0) + bytes(8), NtStatus.INVALID_PARAMETER),
        (
            struct.pack("<IHHHHI", 0, 16, 4, 0, 24, 0xFFFF_FFFF) + b"SecD" + bytes(4),
            NtStatus.INVALID_PARAMETER,
        ),
    ],
)
def test_refused_contexts(chain: bytes, status: NtStatus) -> None:
    with pytest.raises(SmbError) as raised:
        parse(chain)
    assert raised.value.status is status


def test_responses() -> None:
    lease = pack_lease(
        LeaseRequest(KEY, R | W | H, True, PARENT, 42), R | H, is_breaking=True, epoch=43
    )
    assert lease == bytes.fromhex(
        "000102030405060708090a0b0c0d0e0f"
        "03000000"  # read, handle
        "06000000"  # a break is in progress, there is a parent key
        "0000000000000000"
        "101112131415161718191a1b1c1d1e1f"
        "2b00"  # epoch
        "0000"
    )
    assert pack_lease(LeaseRequest(KEY, R), R, is_breaking=False, epoch=1) == bytes.fromhex(
        "000102030405060708090a0b0c0d0e0f01000000000000000000000000000000"
    )
    chain = pack_contexts([(b"MxAc", pack_maximal_access(0x1F01FF)), (b"QFid", pack_disk_id(5, 6))])
    assert chain == bytes.fromhex(
        "20000000"  # next
        "1000"
        "0400"
        "0000"
        "1800"
        "08000000"
        "4d784163"  # MxAc
        "00000000"
        "00000000"  # success
        "ff011f00"
        "00000000"  # next: none
        "1000"
        "0400"
        "0000"
        "1800"
        "20000000"
        "51466964"  # QFid
        "00000000"
        "0500000000000000"  # file
        "0600000000000000"  # volume
        "00000000000000000000000000000000"
    )
    assert pack_contexts([]) == b""
