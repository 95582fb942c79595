"""Messages of a hostile client: valid ones with a few bytes changed."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Final

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import NO_MESSAGE_ID, Command, Flags
from tests.protocol.smb.frames import (
    ECHO,
    Response,
    SocketClient,
    tree_body,
)
from tests.server import Server

_NUMBERS: Final = (0, 1, 2, 7, 8, 63, 64, 112, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_LARGE_NUMBERS: Final = (0x10000, 0x10_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_HUGE_NUMBERS: Final = (1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_NAMES: Final = ("file", "directory", "new", "x" * 300, "a:b", "*", "..", "")
UNEXPECTED: Final = (NtStatus.INTERNAL_ERROR, NtStatus.UNEXPECTED_IO_ERROR)
"""The statuses of failures of the server."""


class Fuzzer:
    """Sends changed messages, one after the other."""

    def __init__(self, client: SocketClient, share: str, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.file = self.directory = 0
        self.statuses: dict[int, int] = {}
        self.bodies: dict[Command, Callable[[], bytes]] = {
            Command.CREATE: lambda: create_body(self.random.choice(_NAMES)),
            Command.CLOSE: lambda: struct.pack("<HHIQQ", 24, 1, 0, *self.any_file()),
            Command.FLUSH: lambda: struct.pack("<HHIQQ", 24, 0, 0, *self.any_file()),
            Command.READ: self.read_body,
            Command.WRITE: self.write_body,
            Command.LOCK: self.lock_body,
            Command.IOCTL: self.ioctl_body,
            Command.QUERY_DIRECTORY: self.query_directory_body,
            Command.CHANGE_NOTIFY: lambda: struct.pack(
                "<HHIQQII", 32, 1, 1_000, self.directory, self.directory, 0xFFF, 0
            ),
            Command.QUERY_INFO: self.query_info_body,
            Command.SET_INFO: self.set_info_body,
            Command.OPLOCK_BREAK: lambda: self.random.choice(
                (
                    struct.pack("<HBBIQQ", 24, 1, 0, 0, *self.any_file()),
                    struct.pack("<HHI16sIQ", 36, 0, 0, bytes(16), 1, 0),
                )
            ),
            Command.TREE_CONNECT: lambda: tree_body(rf"\\server\{share}"),
            Command.ECHO: lambda: ECHO,
        }

    def any_file(self) -> tuple[int, int]:
        chosen = self.random.choice((self.file, self.file, self.directory))
        return chosen, chosen

    def read_body(self) -> bytes:
        return struct.pack("<HBBIQQQIIIHHB", 49, 80, 0, 100, 0, *self.any_file(), 0, 0, 0, 0, 0, 0)

    def write_body(self) -> bytes:
        data = b"data"
        fixed = struct.pack("<HHIQQQIIHHI", 49, 112, len(data), 0, *self.any_file(), 0, 0, 0, 0, 0)
        return fixed + data

    def lock_body(self) -> bytes:
        flags = self.random.choice((1, 2, 4, 0x11, 0x12))
        return struct.pack("<HHIQQQQII", 48, 1, 0, *self.any_file(), 0, 10, flags, 0)

    def ioctl_body(self) -> bytes:
        code = self.random.choice(
            (
                0x0014_4064,
                0x0014_0078,
                0x0014_40F2,
                0x0014_01FC,
                0x0006_0194,
                0x0009_40CF,
                0x0009_80C8,
                0x0011_C017,
                0x0009_00A8,
            )
        )
        data = bytes(self.random.randrange(256) for _ in range(48))
        return (
            struct.pack(
                "<HHIQQIIIIIIII", 57, 0, code, *self.any_file(), 120, 48, 0, 0, 0, 4_096, 1, 0
            )
            + data
        )

    def query_directory_body(self) -> bytes:
        pattern = self.random.choice(("*", "f*", '<."?', "")).encode("utf-16-le")
        kind = self.random.choice((1, 2, 3, 12, 37, 38, 60))
        fixed = struct.pack(
            "<HBBIQQHHI", 33, kind, 1, 0, self.directory, self.directory, 96, len(pattern), 4_096
        )
        return fixed + pattern

    def query_info_body(self) -> bytes:
        kind, level = self.random.choice(
            (
                *((1, level) for level in (4, 5, 6, 7, 8, 9, 14, 16, 17, 18, 21, 22, 28, 34, 35)),
                *((2, level) for level in range(1, 12)),
                (3, 0),
            )
        )
        return struct.pack("<HBBIHHIIIQQ", 41, kind, level, 1_000, 0, 0, 0, 7, 0, *self.any_file())

    def set_info_body(self) -> bytes:
        kind, level, data = self.random.choice(
            (
                (1, 4, bytes(40)),
                (1, 10, struct.pack("<BxxxxxxxQI", 1, 0, 6) + "new".encode("utf-16-le")),
                (1, 13, b"\0"),
                (1, 14, bytes(8)),
                (1, 19, struct.pack("<Q", 10)),
                (1, 20, struct.pack("<Q", 10)),
                (1, 64, bytes(4)),
                (3, 0, bytes.fromhex("010004800000000000000000000000000000000000")),
            )
        )
        fixed = struct.pack("<HBBIHHIQQ", 33, kind, level, len(data), 96, 0, 4, *self.any_file())
        return fixed + data

    def changed(self, body: bytes) -> bytes:
        """Returns a body with a few changes; some have none."""
        changed = bytearray(body)
        for _ in range(self.random.randrange(4)):
            kind = self.random.randrange(6)
            if kind == 0 and changed:
                changed[self.random.randrange(len(changed))] = self.random.randrange(256)
            elif kind == 1:
                del changed[self.random.randrange(len(changed) + 1) :]
            elif kind == 2:
                changed += self.random.randbytes(self.random.randrange(40))
            else:
                width, numbers = self.random.choice(
                    ((2, _NUMBERS), (4, _NUMBERS + _LARGE_NUMBERS), (8, _HUGE_NUMBERS))
                )
                at = self.random.randrange(0, max(1, len(changed) - width + 1), 2)
                number = self.random.choice(numbers)
                changed[at : at + width] = number.to_bytes(width, "little")
        return bytes(changed)

    async def run(self, messages: int) -> None:
        await self.open_all()
        for number in range(messages):
            command = self.random.choice(list(self.bodies))
            body = self.changed(self.bodies[command]())
            answer = await self.ask(command, body)
            self.statuses[answer.header.status] = self.statuses.get(answer.header.status, 0) + 1
            if answer.header.status in UNEXPECTED:
                raise AssertionError(f"message {number}: {command.name} {body.hex()}")
            if answer.status in (NtStatus.FILE_CLOSED, NtStatus.DELETE_PENDING):
                await self.open_all()

    async def ask(self, command: Command, body: bytes) -> Response:
        client = self.client
        # So many that the changes rarely take more than is paid for.
        charge = self.random.choice((1, 1, 1, 2, 16))
        client.give(client.message(command, body, charge=charge, credits=charge))
        answer = await self.answer()
        if answer.status == NtStatus.PENDING:
            client.give(
                client.message(
                    Command.CANCEL,
                    ECHO,
                    flags=Flags.ASYNC,
                    message_id=answer.header.message_id,
                    async_id=answer.header.async_id,
                )
            )
            answer = await self.answer()
        return answer

    async def answer(self) -> Response:
        """Returns the next response. Notifications of breaks come in between."""
        while True:
            answer = await self.client.answer()
            if answer.header.message_id != NO_MESSAGE_ID:
                return answer

    async def open_all(self) -> None:
        for old in (self.file, self.directory):
            await self.ask(Command.CLOSE, struct.pack("<HHIQQ", 24, 0, 0, old, old))
        self.file = await self.open("file", 0x40)
        self.directory = await self.open("directory", 0x1)

    async def open(self, name: str, options: int) -> int:
        answer = await self.ask(Command.CREATE, create_body(name, options))
        if answer.status != NtStatus.SUCCESS:
            # Somebody has it open, or it is not what it was.
            name = f"{name}-{self.random.randrange(1 << 30)}"
            answer = await self.ask(Command.CREATE, create_body(name, options))
        assert answer.status == NtStatus.SUCCESS, answer.status.name
        (file_id,) = struct.unpack_from("<Q", answer.body, 64)
        return int(file_id)


def create_body(name: str, options: int = 0) -> bytes:
    encoded = name.encode("utf-16-le")
    lease = struct.pack("<16sIIQ", b"k" * 16, 7, 0, 0)
    lease = struct.pack("<IHHHHI", 0, 16, 4, 0, 24, len(lease)) + b"RqLs" + bytes(4) + lease
    fixed = struct.pack(
        "<HBBIQQIIIIIHHII",
        57,
        0,
        0xFF if not options else 0,
        2,
        0,
        0,
        0x001F_01FF,
        0,
        7,
        3,
        options,
        120,
        len(encoded),
        120 + len(encoded) + (-len(encoded) % 8) if not options else 0,
        len(lease) if not options else 0,
    )
    return fixed + encoded + (bytes(-len(encoded) % 8) + lease if not options else b"\0" * 2)


async def connect(server: Server, share: str) -> SocketClient:
    port = int(server.endpoints["smb"].rpartition(":")[2])
    client = SocketClient(*await asyncio.open_connection("127.0.0.1", port))
    await client.negotiate([0x311])
    assert (await client.log_on())[-1].status == NtStatus.SUCCESS
    assert (await client.connect_tree(rf"\\server\{share}")).status == NtStatus.SUCCESS
    await client.ask(Command.ECHO, ECHO, credits=500)
    return client
