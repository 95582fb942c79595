"""CREATE, byte by byte, and what it asks of the table of opens."""

from __future__ import annotations

import struct

import pytest

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.files import EntryPath
from etagere.model.shares import ShareRef
from etagere.nt_status import NtStatus
from etagere.opens.requests import Action, Disposition, EntryKind, OpenRequest
from etagere.protocol.smb.commands.create import create
from etagere.rules.caching import Caching
from etagere.rules.opens import EVERYTHING, Access, OpenMode
from tests.protocol.smb.fixture import (
    CLIENT_GUID,
    HANDLE_ID,
    SHARE,
    FakeRequest,
    FakeShare,
    entry,
    opened,
    run,
    status,
)

REQUEST = bytes.fromhex(
    "3900"  # structure size
    "00"  # security flags
    "09"  # oplock level: batch
    "02000000"  # impersonation level
    "0000000000000000"  # create flags
    "0000000000000000"  # reserved
    "89001200"  # desired access: GENERIC_READ
    "02000000"  # file attributes: hidden
    "03000000"  # share access: read, write
    "03000000"  # disposition: open if
    "40000000"  # options: not a directory
    "7800"  # offset of the name
    "0600"  # length of the name
    "80000000"  # offset of the contexts
    "18000000"  # length of the contexts
    "61005c006200"  # a\b
    "0000"  # padding
    "00000000"  # next context: none
    "1000"
    "0400"
    "0000"
    "0000"
    "00000000"
    "4d784163"  # MxAc
    "00000000"
)
RESPONSE = bytes.fromhex(
    "5900"  # structure size
    "00"  # oplock level
    "00"  # flags
    "02000000"  # action: created
    "01803ed5deb19d01"  # created
    "01803ed5deb19d01"  # accessed
    "02803ed5deb19d01"  # written
    "03803ed5deb19d01"  # changed
    "0010000000000000"  # allocation
    "0500000000000000"  # end of file
    "20000000"  # attributes
    "00000000"  # reserved
    "8877665544332211"  # file ID, persistent
    "8877665544332211"  # file ID, volatile
    "98000000"  # offset of the contexts
    "20000000"  # length of the contexts
    "00000000"  # next context: none
    "1000"
    "0400"
    "0000"
    "1800"
    "08000000"
    "4d784163"  # MxAc
    "00000000"
    "00000000"  # success
    "ff011f00"  # every right
)


def body(
    name: str = "a",
    *,
    access: int = 0x1F01FF,
    oplock: int = 0,
    impersonation: int = 2,
    attributes: int = 0,
    share: int = 7,
    disposition: int = 1,
    options: int = 0,
    contexts: bytes = b"",
) -> bytes:
    encoded = name.encode("utf-16-le")
    contexts_at = 120 + -(-len(encoded) // 8) * 8
    fixed = struct.pack(
        "<HBBI16xIIIIIHHII",
        57,
        0,
        oplock,
        impersonation,
        access,
        attributes,
        share,
        disposition,
        options,
        120,
        len(encoded),
        contexts_at if contexts else 0,
        len(contexts),
    )
    return (fixed + encoded).ljust(contexts_at - 64, b"\0") + contexts


ALLOCATION = struct.pack("<IHHHHI4s4xQ", 0, 16, 4, 0, 24, 8, b"AlSi", (1 << 64) - 1)


def asked(request_body: bytes) -> OpenRequest:
    share = FakeShare([opened()])
    run(create, FakeRequest(request_body, share))
    (request,) = share.opened
    return request


def test_bytes() -> None:
    share = FakeShare([opened(Action.CREATED)])
    request = FakeRequest(REQUEST, share)
    assert run(create, request).body == RESPONSE
    (open_request,) = share.opened
    caching = open_request.caching
    assert caching is not None
    assert open_request._replace(caching=None) == OpenRequest(
        EntryPath(ShareRef(SHARE), ("a", "b")),
        OpenMode(Access.READ, Access.READ | Access.WRITE),
        Disposition.OPEN_IF,
        EntryKind.FILE,
        attributes=0x2,
    )
    assert caching.wanted == Caching.READ | Caching.WRITE | Caching.HANDLE
    assert caching.lease_key is None
    assert caching.client == CLIENT_GUID + b"account"
    (registered,) = request.session.opens.values()
    assert (registered.id, registered.access, registered.options) == (HANDLE_ID, 0x120089, 0x40)


def test_root() -> None:
    assert asked(body("")).path == EntryPath(ShareRef(SHARE), ())


def test_lease() -> None:
    key = bytes(range(16, 32))
    lease = struct.pack("<IHHHHI4s4x", 0, 16, 4, 0, 24, 32, b"RqLs")
    lease += key + struct.pack("<IIQ", 7, 0, 0)
    request = asked(body(oplock=0xFF, contexts=lease))
    assert request.caching is not None
    assert request.caching.lease_key == key
    assert request.caching.wanted == Caching.READ | Caching.WRITE | Caching.HANDLE
    # Without the level, or without the context, there is none.
    assert asked(body(oplock=0, contexts=lease)).caching is None
    assert asked(body(oplock=0xFF)).caching is None
    # Directories get none, but the key must not be that of a file.
    assert asked(body(oplock=0xFF, contexts=lease, options=1)).caching is not None
    share = FakeShare([opened(shown=entry(is_directory=True))])
    reply = run(create, FakeRequest(body(oplock=0xFF, contexts=lease), share))
    assert reply.body[2] == 0
    assert len(reply.body) == 88


@pytest.mark.parametrize(
    ("options", "name", "kind"),
    [
        (0, "a", EntryKind.ANY),
        (0, "a\\", EntryKind.DIRECTORY),
        (0x1, "a", EntryKind.DIRECTORY),
        (0x40, "a", EntryKind.FILE),
        (0x00EF_8F3E, "a", EntryKind.ANY),
    ],
)
def test_kinds(options: int, name: str, kind: EntryKind) -> None:
    assert asked(body(name, options=options)).kind is kind


def test_dispositions() -> None:
    for value, disposition in enumerate(Disposition):
        assert asked(body(disposition=value)).disposition is disposition


def test_options_and_attributes() -> None:
    assert asked(body(options=0x1000)).deletes_on_close
    assert asked(body(access=0x10_0180)).is_attribute_only
    assert not asked(body(access=0x12_0089)).is_attribute_only
    assert asked(body(access=0x12_0180)).spares_leases
    assert not asked(body(access=0x12_0180)).is_attribute_only
    assert not asked(body(access=0x12_0089)).spares_leases
    assert asked(body(attributes=0x3FB7)).attributes == 0x3127
    assert asked(body(attributes=0x3FB7, options=1)).attributes == 0x3007


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        (body(impersonation=4), NtStatus.BAD_IMPERSONATION_LEVEL),
        (body(access=0), NtStatus.ACCESS_DENIED),
        (body(share=8), NtStatus.INVALID_PARAMETER),
        (body(disposition=6), NtStatus.INVALID_PARAMETER),
        (body(attributes=0x40), NtStatus.INVALID_PARAMETER),
        (body(attributes=0x8), NtStatus.INVALID_PARAMETER),
        (body(attributes=0x4000, disposition=3), NtStatus.ACCESS_DENIED),
        (body(options=0x0100_0000), NtStatus.INVALID_PARAMETER),
        (body(options=0x0000_0080), NtStatus.NOT_SUPPORTED),
        (body(options=0x0000_2000), NtStatus.NOT_SUPPORTED),
        (body(options=0x0010_0000), NtStatus.NOT_SUPPORTED),
        (body(options=0x41), NtStatus.INVALID_PARAMETER),
        (body(options=0x1, disposition=0), NtStatus.INVALID_PARAMETER),
        (body(options=0x1, disposition=4), NtStatus.INVALID_PARAMETER),
        (body(options=0x1, disposition=5), NtStatus.INVALID_PARAMETER),
        (body("a\\", options=0x40), NtStatus.OBJECT_NAME_INVALID),
        (body(options=0x1000, access=0x12_0089), NtStatus.INVALID_PARAMETER),
        (body("\\a"), NtStatus.INVALID_PARAMETER),
        (body(contexts=ALLOCATION), NtStatus.DISK_FULL),
        (body("@GMT-2023.11.14-22.13.20\\a", access=0x2), NtStatus.ACCESS_DENIED),
        (body("@GMT-1969.12.31-23.59.59\\a", access=0x1), NtStatus.OBJECT_NAME_NOT_FOUND),
        (
            body("@GMT-2023.11.14-22.13.20\\a", access=0x1, disposition=2),
            NtStatus.MEDIA_WRITE_PROTECTED,
        ),
        (body()[:55], NtStatus.INVALID_PARAMETER),
        # A name, and contexts, that leave the message or lie in its fixed part.
        (body()[:44] + struct.pack("<HH", 120, 10) + body()[48:], NtStatus.INVALID_PARAMETER),
        (body()[:44] + struct.pack("<HH", 100, 2) + body()[48:], NtStatus.INVALID_PARAMETER),
        (body()[:48] + struct.pack("<II", 120, 99) + body()[56:], NtStatus.INVALID_PARAMETER),
        (
            body()[:48] + struct.pack("<II", 0xFFFF_FFFF, 9) + body()[56:],
            NtStatus.INVALID_PARAMETER,
        ),
    ],
)
def test_refused_requests(request_body: bytes, expected: NtStatus) -> None:
    share = FakeShare()
    assert status(create, FakeRequest(request_body, share)) is expected
    assert not share.opened


def test_maximum_access_to_a_read_only_file() -> None:
    refused = Refused(Refusal("ReadOnlyAttribute"))
    share = FakeShare([refused, opened()])
    request = FakeRequest(body(access=0x0200_0001), share)
    run(create, request)
    modes = [one.mode.access for one in share.opened]
    assert modes == [EVERYTHING, Access.READ | Access.DELETE]
    (registered,) = request.session.opens.values()
    assert registered.access == 0x1F_01F9
    # Writing was asked for explicitly.
    for access in (0x0200_0002, 0x1F_01FF, 0x4200_0000):
        with pytest.raises(Refused):
            run(create, FakeRequest(body(access=access), FakeShare([refused])))


def test_snapshot_by_its_time() -> None:
    filetime = (1_700_000_000 * 10_000_000) + 116_444_736_000_000_000 + 5
    context = struct.pack("<IHHHHI4s4xQ", 0, 16, 4, 0, 24, 8, b"TWrp", filetime)
    request = asked(body(access=0x0200_0000, contexts=context, disposition=3))
    assert request.path.ref.snapshot == 1_700_000_000 * 10_000_000
    assert request.disposition is Disposition.OPEN


def test_security_descriptor() -> None:
    # Revision, control (self-relative, DACL present), no owner, group and SACL, the DACL; then an
    # ACL without entries.
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + struct.pack(
        "<BBHHH", 2, 0, 8, 0, 0
    )
    head = struct.pack("<IHHHHI4s4x", 0, 16, 4, 0, 24, len(descriptor), b"SecD")
    permission = asked(body(disposition=2, contexts=head + descriptor)).permission
    assert permission is not None
    assert len(permission.digest) == 32
    broken = FakeRequest(body(contexts=head + bytes(len(descriptor))), FakeShare())
    assert status(create, broken) is NtStatus.INVALID_SECURITY_DESCR
