"""Malformed frames: before the logon, in the tokens of a logon, in headers, compounds and encrypted
messages, and in what is inside of messages. The server answers with an error or closes the
connection; it neither fails nor keeps others waiting.

To repeat a run, set `SEED`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import spnego
from azure.storage.fileshare import ShareClient

from etagere.nt_status import NtStatus
from etagere.protocol.smb.framing import frame_prefix
from etagere.protocol.smb.header import HEADER_BYTES, Command, Flags
from etagere.protocol.smb.rpc import FRAGMENT_BYTES_MAX
from tests.protocol.smb.frames import ECHO, Response, SocketClient, setup_body, tree_body
from tests.server import ACCOUNT, KEY, Server
from tests.smb.fuzzing import UNEXPECTED, Fuzzer, connect

SEED: Final = 20_260_102
SHORT_FRAMES: Final = 400
LONG_FRAMES: Final = 20_000
_ANSWER_SECONDS_MAX: Final = 10.0
_TAGS: Final = (b"MxAc", b"QFid", b"RqLs", b"AlSi", b"TWrp", b"SecD", b"ExtA", b"DHnQ", b"DH2Q")
_PATTERNS: Final = ("*", "<", ">", '"', "?", "*a", "<.", "a*", ".", '"<')
_SRVSVC: Final = bytes.fromhex("c84f324b7016d30112785a47bf6ee188")
_NDR: Final = bytes.fromhex("045d888aeb1cc9119fe808002b104860")


class FrameFuzzer(Fuzzer):
    """Sends frames that do not follow the rules, and then one that does."""

    def __init__(self, server: Server, client: SocketClient, share: str, seed: int) -> None:
        super().__init__(client, share, seed)
        self.server = server
        self.share = share
        self.is_connected = True
        self.pipe = self.pipe_tree = 0
        self.closed = 0
        """How many connections the server has closed."""
        self.kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self.junk,
            self.logon,
            self.header,
            self.header,
            self.compound,
            self.compound,
            self.compound,
            self.encrypted,
            self.encrypted,
            self.contexts,
            self.contexts,
            self.lock_array,
            self.pattern,
            self.pattern,
            self.rpc,
            self.rpc,
            self.descriptor,
        )

    async def run(self, messages: int) -> None:
        for _ in range(messages):
            try:
                await self.random.choice(self.kinds)()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.closed += 1
                self.disconnect()
        self.disconnect()

    # Connections

    async def use(self) -> SocketClient:
        """Returns a client with a session, open files and a pipe."""
        if not self.is_connected:
            self.client = await connect(self.server, self.share)
            self.is_connected = True
            self.file = self.directory = self.pipe = 0
        if not self.pipe:
            await self.open_all()
            await self.open_pipe()
        return self.client

    def disconnect(self) -> None:
        if self.is_connected:
            self.client.writer.close()
        self.is_connected = False

    async def open_pipe(self) -> None:
        client = self.client
        disk = client.tree_id
        answer = await self.ask(Command.TREE_CONNECT, tree_body(r"\\server\IPC$"))
        self.pipe_tree, client.tree_id = answer.header.tree_id, answer.header.tree_id
        name = "srvsvc".encode("utf-16-le")
        fixed = struct.pack(
            "<HBBIQQIIIIIHHII",
            *(57, 0, 0, 2, 0, 0, 0x0012_019F, 0, 7, 1, 0, 120, len(name), 0, 0),
        )
        answer = await self.ask(Command.CREATE, fixed + name)
        client.tree_id = disk
        (self.pipe,) = struct.unpack_from("<Q", answer.body, 64)

    async def ask(self, command: Command, body: bytes) -> Response:
        client = self.client
        message_id = client.message_id
        client.give(client.message(command, body, credits=64))
        return await self.response(message_id)

    async def check(self, frame: bytes) -> None:
        """Sends a frame and then a valid one, which is answered, or the connection is closed."""
        self.client.writer.write(frame_prefix(len(frame)) + frame)
        message_id = self.client.message_id
        self.client.give(self.client.message(Command.ECHO, ECHO, credits=64))
        try:
            await self.response(message_id)
        except AssertionError as error:
            raise AssertionError(f"{error} to {frame.hex()}") from None

    async def response(self, message_id: int) -> Response:
        """Returns the response to a request; others may come before it."""
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            while True:
                answers: list[Response] = (await self.client.settle())[0]
                for answer in answers:
                    header = answer.header
                    self.statuses[header.status] = self.statuses.get(header.status, 0) + 1
                    # [MS-SMB2] 3.3.5.2.7: a message that would wait, and is not the last one.
                    may_not_wait = header.next_command and header.status == NtStatus.INTERNAL_ERROR
                    assert may_not_wait or header.status not in UNEXPECTED, answer.status.name
                    if header.status == NtStatus.PENDING:
                        self.cancel(header.message_id, header.async_id)
                    elif header.message_id == message_id:
                        return answer

    def cancel(self, message_id: int, async_id: int) -> None:
        client = self.client
        client.give(
            client.message(
                Command.CANCEL, ECHO, flags=Flags.ASYNC, message_id=message_id, async_id=async_id
            )
        )

    async def send(self, command: int, body: bytes) -> None:
        """Sends a message, which is signed or encrypted."""
        client = self.client
        charge = max(1, min(64, -(-len(body) // 65_536)))
        message = bytes(client.message(command, body, charge=charge, credits=charge))
        await self.check(message)

    # Kinds of frames

    async def junk(self) -> None:
        """Something else than SMB, from a client that is not authenticated."""
        port = int(self.server.endpoints["smb"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            start = self.random.choice((b"\xfeSMB", b"\xffSMB", b"\xfdSMB", b"\xfcSMB", b"GET "))
            data = start + self.random.randbytes(self.random.randrange(300))
            length = self.random.choice((len(data), len(data), 0, 1, 0xFF_FFFF, 0x8500_0000))
            writer.write(length.to_bytes(4, "big") + data)
            writer.write_eof()
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                while await reader.read(65_536):
                    pass
        finally:
            writer.close()

    async def logon(self) -> None:
        """A logon with a changed token, in its first or in its second step."""
        port = int(self.server.endpoints["smb"].rpartition(":")[2])
        client = SocketClient(*await asyncio.open_connection("127.0.0.1", port))
        try:
            dialect = self.random.choice((0x210, 0x300, 0x302, 0x311))
            await client.negotiate([dialect])
            protocol = self.random.choice(("ntlm", "negotiate"))
            context = spnego.client(ACCOUNT, KEY, protocol=protocol)
            token = context.step() or b""
            if self.random.randrange(4):
                answer = await client.ask(Command.SESSION_SETUP, setup_body(token))
                client.session_id = answer.header.session_id
                offset, length = struct.unpack_from("<HH", answer.body, 4)
                token = context.step(answer.data[offset : offset + length]) or b""
            body = setup_body(self.changed(token))
            if not self.random.randrange(4):
                body = self.changed(body)
            client.give(client.message(Command.SESSION_SETUP, body))
            # Not more: a failed logon is answered late.
            client.writer.write_eof()
            await client.is_closed(5)
        finally:
            client.writer.close()

    async def header(self) -> None:
        """A header with changed fields, with a signature that is right."""
        client = await self.use()
        command = self.random.choice(list(self.bodies))
        body = self.bodies[command]()
        options: dict[str, Any] = {
            "flags": self.random.choice((0, 1, 2, 4, 6, 0x10, 0x70, 0x1000_0000, 0x2000_0000)),
            "charge": self.random.choice((0, 1, 2, 63, 8_192, 0xFFFF)),
            "credits": self.random.choice((0, 1, 512, 8_192, 0xFFFF)),
            "message_id": client.message_id + self.random.choice((0, 0, 0, 1, 100, -1, 1 << 62)),
            "session_id": self.random.choice((0, 1, 0xFFFF_FFFF, (1 << 64) - 1)),
            "tree_id": self.random.choice((0, self.pipe_tree, 0xFFFF_FFFF)),
            "async_id": self.random.choice((0, 1, (1 << 64) - 1)),
            "next_command": self.random.choice((0, 1, 8, 64, 72, 0xFFFF_FFF8)),
        }
        kept = self.random.sample(sorted(options), 2)
        options = {name: value for name, value in options.items() if name in kept}
        if "message_id" in options and options["message_id"] < 0:
            options["message_id"] = 0
        if self.random.randrange(8) == 0:
            command = self.random.choice((Command.CANCEL, 0x13, 0x7F, 0xFFFF))  # type: ignore[assignment]
        message = client.message(command, body, **options)
        if options.get("message_id", client.message_id) == client.message_id:
            client.message_id += max(options.get("charge", 1), 1)
        await self.check(bytes(message))

    async def compound(self) -> None:
        """Messages that are related to each other, or pretend to be."""
        client = await self.use()
        count = self.random.choice((2, 3, 5, 64, 65))
        messages = []
        for number in range(1, count + 1):
            command = self.random.choice(list(self.bodies))
            body = self.bodies[command]()
            if self.random.randrange(3) == 0:
                body = self.changed(body)
            if self.random.randrange(2):
                # The open of the message before it.
                file_id = struct.pack("<Q", self.file)
                body = body.replace(file_id, b"\xff" * 8)
            padded = body if number == count else body + bytes(-len(body) % 8)
            following = 0 if number == count else HEADER_BYTES + len(padded)
            if self.random.randrange(20) == 0:
                following = self.random.choice((1, 8, 64, following + 8, 0xFFFF_FFF8))
            flags = self.random.choice((0, Flags.RELATED, Flags.RELATED))
            messages.append(
                client.message(command, padded, flags=flags, next_command=following, credits=2)
            )
        await self.check(b"".join(messages))

    async def encrypted(self) -> None:
        """An encrypted message, with a changed header or content."""
        client = await self.use()
        assert client.sealer is not None
        command = self.random.choice(list(self.bodies))
        body = self.changed(self.bodies[command]())
        inner = bytes(client.message(command, body, signs=False))
        kind = self.random.randrange(6)
        if kind == 0:
            inner = self.changed(inner)
        elif kind == 1:
            # Encrypted twice.
            inner = b"".join(client.sealer.seal([inner], client.session_id))
        elif kind == 2:
            inner = inner[: self.random.randrange(len(inner))]
        frame = b"".join(client.sealer.seal([inner], client.session_id))
        if kind == 3:
            frame = self.changed(frame)
        await self.check(frame)

    async def contexts(self) -> None:
        """CREATE with any contexts."""
        await self.use()
        name = self.random.choice(("file", "new", "directory")).encode("utf-16-le")
        count = self.random.choice((1, 2, 5, 300))
        chain = b""
        for number in range(1, count + 1):
            data = self.random.randbytes(self.random.choice((0, 1, 8, 16, 32, 52, 60)))
            if self.random.randrange(2):
                data = bytes(len(data))
            step = 0 if number == count else 24 + len(data) + -len(data) % 8
            tag = self.random.choice(_TAGS)
            head = struct.pack("<IHHHHI", step, 16, 4, 0, 24, len(data)) + tag + bytes(4)
            if self.random.randrange(8) == 0:
                head = self.changed(head)
            chain += head + data + (bytes(-len(data) % 8) if step else b"")
        at = 120 + len(name) + -len(name) % 8
        oplock = self.random.choice((0, 1, 8, 9, 0xFF))
        fixed = struct.pack(
            "<HBBIQQIIIIIHHII",
            *(57, 0, oplock, 2, 0, 0, 0x0200_0000, 0, 7, 3, 0, 120, len(name), at, len(chain)),
        )
        await self.send(Command.CREATE, fixed + name + bytes(-len(name) % 8) + chain)
        if not self.random.randrange(8):
            await self.open_all()

    async def lock_array(self) -> None:
        await self.use()
        count = self.random.choice((1, 2, 100, 5_000))
        flags = self.random.choice((0x4, 0x11, 0x12, 0x1, 0))
        elements = b"".join(
            struct.pack(
                "<QQII",
                self.random.choice((number, (1 << 64) - 1, 0)),
                self.random.choice((1, 0, (1 << 64) - 1)),
                flags,
                0,
            )
            for number in range(count)
        )
        told = self.random.choice((count, count, 0, count + 1, 0xFFFF))
        await self.send(
            Command.LOCK, struct.pack("<HHIQQ", 48, told, 0, *self.any_file()) + elements
        )

    async def pattern(self) -> None:
        """QUERY_DIRECTORY with a pattern that could take exponential time."""
        await self.use()
        part = "".join(self.random.choices(_PATTERNS, k=self.random.choice((1, 2, 3))))
        text = (part * 300)[: self.random.choice((1, 5, 40, 255, 256))]
        encoded = text.encode("utf-16-le")
        fixed = struct.pack(
            *("<HBBIQQHHI", 33, self.random.choice((1, 12, 37)), 1, 0),
            *(self.directory, self.directory, 96, len(encoded), 60_000),
        )
        await self.send(Command.QUERY_DIRECTORY, fixed + encoded)

    async def rpc(self) -> None:
        """A message to the server service, by WRITE or by IOCTL."""
        client = await self.use()
        data = self.random.choice((self.bind, self.call))()
        if self.random.randrange(3):
            data = self.changed(data)
        disk, client.tree_id = client.tree_id, self.pipe_tree
        try:
            if self.random.randrange(2):
                head = (49, 112, len(data), 0, self.pipe, self.pipe, 0, 0, 0, 0, 0)
                await self.send(Command.WRITE, struct.pack("<HHIQQQIIHHI", *head) + data)
                length = self.random.choice((0, 10, 4_280))
                read = (49, 80, 0, length, 0, self.pipe, self.pipe, 0, 0, 0, 0, 0, 0)
                await self.send(Command.READ, struct.pack("<HBBIQQQIIIHHB", *read))
            else:
                head = (57, 0, 0x0011_C017, self.pipe, self.pipe, 120, len(data), 0, 0, 0, 4_280)
                fixed = struct.pack("<HHIQQIIIIIIII", *head, 1, 0)
                await self.send(Command.IOCTL, fixed + data)
        finally:
            client.tree_id = disk

    def bind(self) -> bytes:
        body = struct.pack("<HHIB3x", 4_280, 4_280, 0, 1)
        body += struct.pack("<HBx16sHH16sHH", 0, 1, _SRVSVC, 3, 0, _NDR, 2, 0)
        return self.fragment(self.random.choice((11, 14)), body)

    def call(self) -> bytes:
        server = "s\0".encode("utf-16-le")
        parameters = struct.pack("<IIII", 1, 2, 0, 2) + server
        parameters += struct.pack("<IIIIIIII", 1, 1, 1, 0, 0, 0xFFFF_FFFF, 0, 0)
        number = self.random.choice((15, 15, 16, 21, 0, 0xFFFF))
        if self.random.randrange(8) == 0:
            parameters += bytes(FRAGMENT_BYTES_MAX)
        return self.fragment(0, struct.pack("<IHH", len(parameters), 0, number) + parameters)

    def fragment(self, kind: int, body: bytes) -> bytes:
        flags = self.random.choice((3, 3, 3, 1, 2, 0, 0x83))
        length = 16 + len(body)
        return struct.pack("<BBBBIHHI", 5, 0, kind, flags, 0x10, length & 0xFFFF, 0, 1) + body

    async def descriptor(self) -> None:
        """SET_INFO with a security descriptor, also a long one."""
        await self.use()
        sid = b"\x01\x01" + bytes(5) + b"\x01" + bytes(4)
        entries = self.random.choice((0, 1, 100, 2_000, 3_000))
        acl_bytes = 8 + 20 * entries
        acl = struct.pack("<BBHHH", 2, 0, acl_bytes & 0xFFFF, entries, 0)
        acl += (struct.pack("<BBHI", 0, 0, 20, 0x1F_01FF) + sid) * entries
        data = struct.pack("<BBHIIII", 1, 0, 0x8004, 20, 32, 0, 44) + sid + sid + acl
        if self.random.randrange(2):
            data = self.changed(data)
        head = (33, 3, 0, len(data), 96, 0, self.random.choice((4, 7, 15)))
        fixed = struct.pack("<HBBIHHIQQ", *head, *self.any_file())
        await self.send(Command.SET_INFO, fixed + data)


def fuzz(server: Server, share: str, seed: int, frames: int) -> None:
    async def run() -> None:
        fuzzer = FrameFuzzer(server, await connect(server, share), share, seed)
        try:
            await fuzzer.run(frames)
        finally:
            fuzzer.disconnect()
        # It is not the first check that refuses everything.
        assert len(fuzzer.statuses) > 10, fuzzer.statuses
        assert fuzzer.closed < frames / 4

    asyncio.run(run())
    assert "Traceback" not in server.log()


def test_malformed_frames(server: Server, share: ShareClient) -> None:
    fuzz(server, share.share_name, SEED, SHORT_FRAMES)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_many_malformed_frames(server: Server, share: ShareClient, seed: int) -> None:
    fuzz(server, share.share_name, seed, LONG_FRAMES)
