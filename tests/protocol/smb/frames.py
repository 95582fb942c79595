"""A client that gives frames to a connection, and takes those that it sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

import spnego

from etagere.clock import SystemClock
from etagere.engine.memory import MemoryEngine
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, ShareName
from etagere.nt_status import NtStatus
from etagere.opens.table import OpenTable
from etagere.operations.file import shares
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.smb import dispatch
from etagere.protocol.smb.buffers import Buffer
from etagere.protocol.smb.connection import Connection
from etagere.protocol.smb.encryption import Cipher, Sealer
from etagere.protocol.smb.exchanges import ServerRequest
from etagere.protocol.smb.framing import frame_prefix
from etagere.protocol.smb.header import HEADER_BYTES, Command, Flags, Header, parse_header
from etagere.protocol.smb.keys import INITIAL_PREAUTH_HASH, derive_keys, extend_preauth_hash
from etagere.protocol.smb.large_frames import LargeFrameQueue
from etagere.protocol.smb.logons import LogonDelays, Passwords
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.session_table import SessionTable
from etagere.protocol.smb.signing import Signer, SigningAlgorithm, signer
from etagere.settings import Settings
from tests.server import ACCOUNT, KEY, SECONDS_MAX

LOCAL = "127.0.0.1:50000"
REMOTE = "192.0.2.1:50000"
SHARE = "box"
CLIENT_GUID = bytes(range(16))
SERVER_GUID = bytes(range(16, 32))
RELATED = Flags.RELATED
ECHO = struct.pack("<HH", 4, 0)


class Response(NamedTuple):
    header: Header
    data: bytes
    """From the header on, with the padding."""

    @property
    def body(self) -> bytes:
        return self.data[HEADER_BYTES:]

    @property
    def status(self) -> NtStatus:
        return NtStatus(self.header.status)

    @property
    def is_signed(self) -> bool:
        return bool(self.header.flags & Flags.SIGNED)


class _NoContents:
    """The contents of files, to which nobody writes."""

    async def store_all(self, seconds_max: float) -> bool:
        return True


class SmbFixture:
    """A server without sockets."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.engine = MemoryEngine()
        self.opens = OpenTable(self.engine)
        self.sessions = SessionTable()
        self.memory = MemoryBudget()
        self.delays = LogonDelays()
        self.large_frames = LargeFrameQueue()
        self.settings = settings or Settings()
        self.services = SmbServices(
            self.engine,
            self.opens,
            cast("Any", _NoContents()),
            self.settings,
            SystemClock(),
            SERVER_GUID,
            "SERVER",
        )

    async def create_share(self, **settings: Any) -> None:
        name = ShareName(ACCOUNT, SHARE)
        await self.engine.write(shares.create_share, CreateShare(name, new_id(), **settings))

    def connect(self, client: str = LOCAL) -> FrameClient:
        return FrameClient(self, client)

    async def log_on(self, dialect: int = 0x311, **options: Any) -> FrameClient:
        """Returns a client with a session."""
        client = self.connect()
        await client.negotiate([dialect], **options)
        assert (await client.log_on())[-1].status == NtStatus.SUCCESS
        return client


class FrameClient:
    """A client, which is also the link of its connection."""

    def __init__(self, server: SmbFixture, address: str) -> None:
        self.connection = Connection(
            server.services,
            server.sessions,
            self,
            address,
            passwords=Passwords(server.engine, server.settings),
            logon_delays=server.delays,
            memory=server.memory,
            large_frames=server.large_frames,
        )
        self.frames: list[bytes] = []
        self.is_aborted = False
        self.is_authenticated = False
        self.resumed = 0
        self.message_id = 0
        self.session_id = 0
        self.tree_id = 0
        self.signer: Signer | None = None
        self.sealer: Sealer | None = None
        self.signs = True
        self.seals = False
        self.dialect = 0
        self.hash = INITIAL_PREAUTH_HASH

    # Link

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.frames.append(b"".join(buffers))

    def resume(self) -> None:
        self.resumed += 1

    def abort(self) -> None:
        self.is_aborted = True

    def on_authenticated(self) -> None:
        self.is_authenticated = True

    # Requests

    def message(
        self,
        command: int,
        body: bytes,
        *,
        flags: int = 0,
        charge: int = 1,
        credits: int = 1,
        message_id: int | None = None,
        session_id: int | None = None,
        tree_id: int | None = None,
        async_id: int = 0,
        next_command: int = 0,
        signs: bool | None = None,
    ) -> bytearray:
        """Returns a message, which is signed if the client has a session."""
        if message_id is None:
            message_id = self.message_id
            self.message_id += charge
        header = Header(
            command,
            charge,
            0,
            credits,
            flags,
            next_command,
            message_id,
            async_id,
            self.tree_id if tree_id is None else tree_id,
            self.session_id if session_id is None else session_id,
        )
        message = bytearray(header.pack() + body)
        signs = self.signs if signs is None else signs
        if signs and self.signer is not None and not self.seals:
            self.signer.sign(message)
        return message

    def give(self, *messages: bytes | bytearray) -> None:
        """Gives a frame to the connection. Messages but the last one have to be padded."""
        frame = b"".join(messages)
        if self.seals:
            assert self.sealer is not None
            frame = b"".join(self.sealer.seal([frame], self.session_id))
        self.connection.receive(memoryview(frame))

    def compound(self, *parts: tuple[int, bytes, int], **options: Any) -> None:
        """Gives a compound of messages, each of which is a command, a body and flags."""
        messages = []
        for number, (command, body, flags) in enumerate(parts, 1):
            is_last = number == len(parts)
            padded = body if is_last else body + bytes(-len(body) % 8)
            following = 0 if is_last else HEADER_BYTES + len(padded)
            messages.append(
                self.message(command, padded, flags=flags, next_command=following, **options)
            )
        self.give(*messages)

    async def settle(self) -> list[list[Response]]:
        """Lets the connection work; returns the frames that it has sent meanwhile."""
        for _ in range(30):
            await asyncio.sleep(0)
        frames, self.frames = self.frames, []
        return [self._responses(frame) for frame in frames]

    def _responses(self, frame: bytes) -> list[Response]:
        if frame.startswith(b"\xfdSMB"):
            assert self.sealer is not None
            frame = self.sealer.open(frame)
        responses = []
        while True:
            header = parse_header(frame)
            assert header is not None
            length = header.next_command or len(frame)
            responses.append(Response(header, frame[:length]))
            if not header.next_command:
                return responses
            frame = frame[length:]

    async def ask(self, command: int, body: bytes, **options: Any) -> Response:
        """Sends a request; returns the one response."""
        self.give(self.message(command, body, **options))
        return await self.answer()

    async def answer(self) -> Response:
        """Waits for a response; returns the only one."""
        frames = await self.settle()
        while not frames:
            await asyncio.sleep(0.01)
            frames = await self.settle()
        ((response,),) = frames
        return response

    # Commands

    async def negotiate(
        self,
        dialects: Sequence[int],
        *,
        mode: int = 1,
        capabilities: int = 0x44,
        ciphers: Sequence[int] = (2,),
        signing: Sequence[int] = (2,),
        contexts: Sequence[tuple[int, bytes]] | None = None,
    ) -> Response:
        body = negotiate_body(dialects, mode, capabilities, ciphers, signing, contexts)
        request = self.message(Command.NEGOTIATE, body)
        self.give(request)
        ((response,),) = await self.settle()
        if response.status == NtStatus.SUCCESS:
            self.dialect = struct.unpack_from("<H", response.body, 4)[0]
            self.cipher = ciphers[0] if self.dialect == 0x311 and ciphers else 1
            self.algorithm = {0x210: 0, 0x311: signing[0] if signing else 1}.get(self.dialect, 1)
        self.hash = extend_preauth_hash(extend_preauth_hash(self.hash, request), response.data)
        return response

    async def log_on(
        self,
        user: str = ACCOUNT,
        password: str = KEY,
        *,
        previous: int = 0,
        mode: int = 1,
        keeps_keys: bool = False,
        flags: int = 0,
    ) -> list[Response]:
        """Logs on; returns the responses of all steps."""
        context = spnego.client(user, password, protocol="ntlm")
        responses: list[Response] = []
        token: bytes | None = None
        session_hash = self.hash
        while True:
            out = context.step(token)
            body = setup_body(out or b"", previous=previous, mode=mode, flags=flags)
            request = self.message(Command.SESSION_SETUP, body)
            self.give(request)
            response = await self.answer()
            responses.append(response)
            if not keeps_keys:
                self.session_id = response.header.session_id
            session_hash = extend_preauth_hash(session_hash, request)
            if response.status != NtStatus.MORE_PROCESSING_REQUIRED:
                break
            session_hash = extend_preauth_hash(session_hash, response.data)
            offset, length = struct.unpack_from("<HH", response.body, 4)
            token = response.data[offset : offset + length]
        if response.status == NtStatus.SUCCESS and not keeps_keys:
            self._make_keys(context.session_key, session_hash)
        return responses

    def _make_keys(self, session_key: bytes, session_hash: bytes) -> None:
        cipher = None if self.dialect < 0x300 else self.cipher
        keys = derive_keys(self.dialect, session_key, session_hash, cipher)
        self.signer = signer(SigningAlgorithm(self.algorithm), keys.signing)
        if cipher is not None:
            self.sealer = Sealer(Cipher(cipher), keys.decryption, keys.encryption)

    async def connect_tree(self, path: str = rf"\\server\{SHARE}") -> Response:
        response = await self.ask(Command.TREE_CONNECT, tree_body(path))
        if response.status == NtStatus.SUCCESS:
            self.tree_id = response.header.tree_id
        return response


class SocketClient(FrameClient):
    """A client whose frames go through a socket. Its own connection object is not used."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(SmbFixture(), LOCAL)
        self.reader = reader
        self.writer = writer

    def give(self, *messages: bytes | bytearray) -> None:
        frame = b"".join(messages)
        self.writer.write(frame_prefix(len(frame)) + frame)

    async def settle(self) -> list[list[Response]]:
        async with asyncio.timeout(SECONDS_MAX):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return [self._responses(await self.reader.readexactly(length))]

    async def is_closed(self, seconds: float = SECONDS_MAX) -> bool:
        """Returns whether the server closes the connection."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65_536):
                    pass
                return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True


def negotiate_body(
    dialects: Sequence[int],
    mode: int,
    capabilities: int,
    ciphers: Sequence[int],
    signing: Sequence[int],
    contexts: Sequence[tuple[int, bytes]] | None,
) -> bytes:
    if contexts is None:
        contexts = [
            (1, struct.pack("<HHH", 1, 4, 1) + b"salt"),
            *([(2, _uint16s(ciphers))] if ciphers else []),
            *([(8, _uint16s(signing))] if signing else []),
            (5, "server".encode("utf-16-le")),
        ]
    names = struct.pack(f"<{len(dialects)}H", *dialects)
    offset, count, packed = 0, 0, b""
    if 0x311 in dialects:
        names += bytes(-(36 + len(names)) % 8)
        offset, count = HEADER_BYTES + 36 + len(names), len(contexts)
        for kind, data in contexts:
            packed += bytes(-len(packed) % 8) + struct.pack("<HHI", kind, len(data), 0) + data
    fixed = struct.pack(
        "<HHHHI16sIHH",
        36,
        len(dialects),
        mode,
        0,
        capabilities,
        CLIENT_GUID,
        offset,
        count,
        0,
    )
    return fixed + names + packed


def _uint16s(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers) + 1}H", len(numbers), *numbers)


def setup_body(token: bytes, *, previous: int = 0, mode: int = 1, flags: int = 0) -> bytes:
    return struct.pack("<HBBIIHHQ", 25, flags, mode, 0, 0, 88, len(token), previous) + token


def tree_body(path: str) -> bytes:
    encoded = path.encode("utf-16-le")
    return struct.pack("<HHHH", 9, 0, 72, len(encoded)) + encoded


Handler = Callable[[ServerRequest], Awaitable[Reply]]


def replace_command(monkeypatch: Any, command: int, handler: Handler, size: int = 4) -> None:
    """Replaces a command, so that what is around it can be tested."""
    row = dispatch.CommandRow(handler, size)
    monkeypatch.setitem(dispatch.COMMANDS, command, row)
