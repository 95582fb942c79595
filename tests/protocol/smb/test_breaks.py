"""Break notifications and acknowledgements, byte by byte."""

from __future__ import annotations

import asyncio

import pytest

from etagere.nt_status import NtStatus
from etagere.opens.caches import CacheGrant
from etagere.protocol.smb.commands.breaks import BreakNotifier, oplock_break
from etagere.rules.caching import Caching
from tests.protocol.smb.fixture import (
    CLIENT_GUID,
    HANDLE_ID,
    FakeRequest,
    FakeShare,
    new_open,
    run,
    status,
)

R, W, H = Caching.READ, Caching.WRITE, Caching.HANDLE
KEY = bytes(range(16))
OPLOCK = bytes.fromhex(
    "1800"  # structure size
    "01"  # level II
    "00"
    "00000000"
    "8877665544332211"  # file ID, persistent
    "8877665544332211"  # file ID, volatile
)
LEASE = bytes.fromhex(
    "2400"  # structure size
    "0000"
    "00000000"  # flags
    "000102030405060708090a0b0c0d0e0f"  # key
    "03000000"  # read, handle
    "0000000000000000"  # duration
)


def test_acknowledgement_of_an_oplock_break() -> None:
    share = FakeShare()
    assert run(oplock_break, FakeRequest(OPLOCK, share, new_open())).body == OPLOCK
    assert share.calls == [("acknowledge", HANDLE_ID, R)]
    none = OPLOCK[:2] + b"\0" + OPLOCK[3:]
    assert run(oplock_break, FakeRequest(none, share, new_open())).body == none
    assert share.calls[1:] == [("acknowledge", HANDLE_ID, Caching.NONE)]


def test_acknowledgement_of_a_lease_break() -> None:
    share = FakeShare()
    assert run(oplock_break, FakeRequest(LEASE, share)).body == LEASE
    assert share.calls == [("acknowledge", CLIENT_GUID + b"account", KEY, R | H)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", NtStatus.INVALID_PARAMETER),
        (b"\x18", NtStatus.INVALID_PARAMETER),
        (b"\x19\0" + bytes(40), NtStatus.INVALID_PARAMETER),
        (OPLOCK[:-1], NtStatus.INVALID_PARAMETER),
        (LEASE[:-1], NtStatus.INVALID_PARAMETER),
        (OPLOCK[:2] + b"\x08" + OPLOCK[3:], NtStatus.INVALID_PARAMETER),
        (OPLOCK[:2] + b"\xff" + OPLOCK[3:], NtStatus.INVALID_PARAMETER),
        (OPLOCK[:8] + bytes(16), NtStatus.FILE_CLOSED),
    ],
)
def test_invalid_acknowledgements(body: bytes, expected: NtStatus) -> None:
    assert status(oplock_break, FakeRequest(body, FakeShare(), new_open())) is expected


def test_notification_of_an_oplock_break() -> None:
    sent: list[bytes] = []
    notifier = BreakNotifier(sent.append)

    async def open_and_break() -> None:
        notifier.start(HANDLE_ID)
        notifier(CacheGrant(R | W | H, {}), R, True)

    asyncio.run(open_and_break())
    assert sent == [OPLOCK]


def test_notification_of_a_lease_break() -> None:
    sent: list[bytes] = []
    notifier = BreakNotifier(sent.append)

    async def break_and_open() -> None:
        # Before the client has got the response to its CREATE.
        grant = CacheGrant(R | W | H, {}, (CLIENT_GUID, KEY), epoch=5, is_v2=True)
        notifier(grant, R | H, True)
        assert not sent
        notifier.start(HANDLE_ID)
        assert not sent
        await asyncio.sleep(0)
        notifier(CacheGrant(R, {}, (CLIENT_GUID, KEY), epoch=5), Caching.NONE, False)

    asyncio.run(break_and_open())
    assert sent == [
        bytes.fromhex(
            "2c00"  # structure size
            "0500"  # epoch
            "01000000"  # flags: to be acknowledged
            "000102030405060708090a0b0c0d0e0f"  # key
            "07000000"  # current state
            "03000000"  # new state
            "00000000"  # reason
            "00000000"  # access mask hint
            "00000000"  # share mask hint
        ),
        bytes.fromhex(
            "2c00"
            "0000"  # leases of the first version have no epoch
            "00000000"
            "000102030405060708090a0b0c0d0e0f"
            "01000000"
            "00000000"
            "00000000"
            "00000000"
            "00000000"
        ),
    ]
