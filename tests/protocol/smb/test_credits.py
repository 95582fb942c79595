"""The sequence window, and what requests are charged."""

from __future__ import annotations

import asyncio
import struct

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.credits import (
    CREDITS_MAX,
    SequenceWindow,
    needed_charge,
    payload_bytes,
)
from etagere.protocol.smb.header import Command
from etagere.protocol.smb.requests import Reply
from tests.protocol.smb.frames import ECHO, SmbFixture, replace_command


def test_window_begins_with_one_id() -> None:
    window = SequenceWindow()
    assert not window.take(1, 1)
    assert window.take(0, 1)
    assert not window.take(0, 1)
    assert window.grant(1, 1) == 1
    assert window.take(1, 1)


def test_each_id_is_used_once_in_any_order() -> None:
    window = SequenceWindow()
    assert window.take(0, 1)
    assert window.grant(10, 1) == 10
    assert window.take(5, 2)
    assert not window.take(6, 1)
    assert not window.take(4, 2)
    assert window.take(1, 4)
    assert not window.take(3, 1)
    assert window.take(7, 4)
    assert not window.take(11, 1)


def test_grants_are_limited() -> None:
    window = SequenceWindow()
    assert window.take(0, 1)
    assert window.grant(65_535, 1) == CREDITS_MAX
    assert window.grant(65_535, 1) == 0
    assert window.take(1, 3)
    assert window.grant(1, 3) == 3


def test_window_does_not_grow_beyond_an_id_that_is_left_out() -> None:
    window = SequenceWindow()
    assert window.take(0, 1)
    granted = window.grant(CREDITS_MAX, 1)
    for message_id in range(2, CREDITS_MAX + 1):
        assert window.take(message_id, 1)
        assert window.grant(1, 1) == 0
    assert granted == CREDITS_MAX
    assert not window.take(CREDITS_MAX + 1, 1)
    assert window.take(1, 1)
    assert window.grant(CREDITS_MAX, 1) == CREDITS_MAX


def test_end_of_the_message_ids() -> None:
    window = SequenceWindow()
    window._low = window._end = 0xFFFF_FFFF_FFFF_FFF0
    assert window.grant(100, 1) == 14
    assert window.take(0xFFFF_FFFF_FFFF_FFF0, 14)
    assert window.grant(100, 14) == 0


@pytest.mark.parametrize(
    ("payload", "charge"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1 << 20, 16)]
)
def test_charge(payload: int, charge: int) -> None:
    assert needed_charge(payload) == charge


@pytest.mark.parametrize(
    ("command", "body", "expected"),
    [
        (Command.READ, struct.pack("<HBBI", 49, 0, 0, 7), (0, 7)),
        (Command.WRITE, struct.pack("<HHI", 49, 112, 7), (7, 0)),
        (Command.QUERY_DIRECTORY, bytes(28) + struct.pack("<I", 7), (0, 7)),
        (Command.CHANGE_NOTIFY, struct.pack("<HHI", 32, 0, 7), (0, 7)),
        (Command.QUERY_INFO, struct.pack("<HBBIHHI", 41, 0, 0, 7, 0, 0, 9), (9, 7)),
        (Command.SET_INFO, struct.pack("<HBBI", 33, 0, 0, 7), (7, 0)),
        (Command.IOCTL, bytes(24) + struct.pack("<6I", 0, 1, 2, 0, 4, 8), (5, 10)),
        (Command.CREATE, bytes(60), (0, 0)),
    ],
)
def test_payload(command: int, body: bytes, expected: tuple[int, int]) -> None:
    assert payload_bytes(command, memoryview(body)) == expected


# On a connection


def test_credits_of_responses() -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        assert (await client.negotiate([0x311])).header.credits == 1
        assert (await client.ask(Command.ECHO, ECHO, credits=0)).header.credits == 1
        assert (await client.ask(Command.ECHO, ECHO, credits=8_192)).header.credits == 8_192
        assert (await client.ask(Command.ECHO, ECHO, credits=8_192)).header.credits == 1
        assert (await client.ask(Command.ECHO, ECHO, credits=1, charge=5)).header.credits == 5

    asyncio.run(run())


@pytest.mark.parametrize("message_id", [0, 1, 12, 0xFFFF_FFFF_FFFF_FFFF])
def test_id_outside_the_window_disconnects(message_id: int) -> None:
    async def run() -> None:
        client = SmbFixture().connect()
        await client.negotiate([0x311])
        await client.ask(Command.ECHO, ECHO, credits=10)
        client.give(client.message(Command.ECHO, ECHO, message_id=message_id))
        assert client.is_aborted
        assert await client.settle() == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("length", "charge", "status"),
    [
        (65_536, 0, NtStatus.SUCCESS),
        (65_536, 1, NtStatus.SUCCESS),
        (65_537, 0, NtStatus.INVALID_PARAMETER),
        (65_537, 1, NtStatus.INVALID_PARAMETER),
        (65_537, 2, NtStatus.SUCCESS),
        (1 << 20, 16, NtStatus.SUCCESS),
        ((1 << 20) + 1, 17, NtStatus.INVALID_PARAMETER),
        (0xFFFF_FFFF, 17, NtStatus.INVALID_PARAMETER),
    ],
)
def test_payload_is_paid_for(
    length: int, charge: int, status: NtStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_: object) -> Reply:
        return Reply(b"")

    replace_command(monkeypatch, Command.READ, read, 49)

    async def run() -> None:
        client = await SmbFixture().log_on()
        await client.connect_tree(r"\\s\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=100)
        body = struct.pack("<HBBI", 49, 0, 0, length) + bytes(41)
        assert (await client.ask(Command.READ, body, charge=charge)).status == status

    asyncio.run(run())
