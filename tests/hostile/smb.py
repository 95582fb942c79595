"""SMB clients of hostile tests. They send their requests themselves, many of them at once."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import NO_MESSAGE_ID, Command
from tests.protocol.smb.frames import ECHO, Response, SocketClient

DIRECTORY, FILE = 0x1, 0x40
ALL_ACCESS: Final = 0x001F_01FF
SHARE_ALL: Final = 7
OPEN_IF: Final = 3
LOCK_EXCLUSIVE, UNLOCK, FAIL_IMMEDIATELY = 0x2, 0x4, 0x10
_CREDITS: Final = 8_000
_AT_ONCE: Final = 200


async def log_on(endpoint: str, share: str) -> SocketClient:
    """Returns a client that is connected to a share, and has all credits."""
    port = int(endpoint.rpartition(":")[2])
    client = SocketClient(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))
    await client.negotiate([0x311])
    assert (await client.log_on())[-1].status == NtStatus.SUCCESS
    assert (await client.connect_tree(rf"\\server\{share}")).status == NtStatus.SUCCESS
    await client.ask(Command.ECHO, ECHO, credits=_CREDITS)
    return client


async def ask_all(
    client: SocketClient, command: Command, bodies: Sequence[bytes], charge: int = 1
) -> list[Response]:
    """Sends requests, many of them at once; returns the first response to each."""
    answers: list[Response] = []
    sent = 0
    while len(answers) < len(bodies):
        while sent < len(bodies) and sent - len(answers) < _AT_ONCE // charge:
            client.give(client.message(command, bodies[sent], charge=charge, credits=charge))
            sent += 1
        (frame,) = await client.settle()
        answers += [one for one in frame if one.header.message_id != NO_MESSAGE_ID]
    return answers


def create_body(name: str, options: int, share_access: int = SHARE_ALL) -> bytes:
    encoded = name.encode("utf-16-le")
    fixed = (57, 0, 0, 2, 0, 0, ALL_ACCESS, 0, share_access, OPEN_IF, options, 120, len(encoded))
    return struct.pack("<HBBIQQIIIIIHHII", *fixed, 0, 0) + (encoded or bytes(2))


def close_body(file_id: int) -> bytes:
    return struct.pack("<HHIQQ", 24, 0, 0, file_id, file_id)


def read_body(file_id: int, offset: int, length: int) -> bytes:
    return struct.pack(
        "<HBBIQQQIIIHHB", 49, 80, 0, length, offset, file_id, file_id, 0, 0, 0, 0, 0, 0
    )


def write_body(file_id: int, offset: int, data: bytes) -> bytes:
    fixed = (49, 112, len(data), offset, file_id, file_id, 0, 0, 0, 0, 0)
    return struct.pack("<HHIQQQIIHHI", *fixed) + data


def lock_body(file_id: int, ranges: Sequence[tuple[int, int]], flags: int) -> bytes:
    elements = b"".join(struct.pack("<QQII", start, count, flags, 0) for start, count in ranges)
    return struct.pack("<HHIQQ", 48, len(ranges), 0, file_id, file_id) + elements


def query_directory_body(file_id: int, pattern: str, length: int) -> bytes:
    encoded = pattern.encode("utf-16-le")
    fixed = (33, 37, 1, 0, file_id, file_id, 96, len(encoded), length)
    return struct.pack("<HBBIQQHHI", *fixed) + encoded


def notify_body(file_id: int) -> bytes:
    return struct.pack("<HHIQQII", 32, 1, 1_000, file_id, file_id, 0xFFF, 0)


def file_id_of(answer: Response) -> int:
    assert answer.status == NtStatus.SUCCESS, answer.status.name
    (file_id,) = struct.unpack_from("<Q", answer.body, 64)
    return int(file_id)


async def open_all(client: SocketClient, names: Sequence[str], options: int = FILE) -> list[int]:
    answers = await ask_all(client, Command.CREATE, [create_body(one, options) for one in names])
    return [file_id_of(one) for one in answers]


class SmbReader:
    """A client that reads a file."""

    def __init__(self, client: SocketClient, file_id: int) -> None:
        self.client = client
        self._file_id = file_id

    @classmethod
    async def open(cls, endpoint: str, share: str, name: str) -> SmbReader:
        client = await log_on(endpoint, share)
        (file_id,) = await open_all(client, [name])
        return cls(client, file_id)

    async def read(self, length: int) -> None:
        answer = await self.client.ask(Command.READ, read_body(self._file_id, 0, length))
        assert answer.status == NtStatus.SUCCESS
