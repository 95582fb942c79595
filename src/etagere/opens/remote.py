"""What other processes ask the process that serves files.

Reads of files by the other processes of a server, when the open handles allow it.

A process that does not serve files asks the one that does, through a socket in the data directory:
only that one knows who has a file open, and what was written to it and is not in the ledger yet. A
connection is one operation. It is admitted like a REST operation of the file process, is told so,
and ends when its process closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from etagere.engine.interface import Fault, FaultReason, Refused, Unknown
from etagere.engine.writer import unix_address
from etagere.errors import Refusal
from etagere.model.base import Command, Part
from etagere.model.files import EntryPath
from etagere.opens.contents import FileContents
from etagere.opens.table import REST_WAIT_SECONDS_MAX, OpenTable, again_if_path_changes
from etagere.rules.opens import RestAccess

logger = logging.getLogger(__name__)

T = TypeVar("T")

SOCKET_NAME: Final = "opens.sock"
_BACKLOG: Final = 128
_MESSAGE_BYTES_MAX: Final = 64 << 10
_REQUEST_SECONDS_MAX: Final = 5.0
_OPERATION_SECONDS_MAX: Final = 30.0
"""How long an operation may take once it is admitted. SMB clients wait for it."""
_STORE_SECONDS_MAX: Final = 15.0
"""How much longer than for the opens another process waits until it is admitted: what was written
to the file is stored before. A node that hangs does not answer at all."""
_LENGTH: Final = struct.Struct("<I")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RestOpens(Protocol):
    """The opens of this process, or of another one, as REST operations use them."""

    async def rest(
        self,
        path: EntryPath,
        access: RestAccess,
        run: Callable[[EntryPath], Awaitable[T]],
        *,
        span: tuple[int, int] | None = None,
        seconds_max: float = REST_WAIT_SECONDS_MAX,
    ) -> T: ...


class _Asked(Command, frozen=True, tag="read"):
    """The operation that is to be admitted."""

    path: EntryPath
    access: RestAccess
    span: tuple[int, int] | None
    seconds_max: float


class _StoreWrites(Command, frozen=True, tag="store"):
    """Asks to store what SMB clients have written and the ledger does not have yet."""

    seconds_max: float


class _Admitted(Part, frozen=True, tag="admitted"):
    """The operation may run."""

    expected_id: int | None


class _NotAdmitted(Part, frozen=True, tag="refused"):
    """The operation is refused."""

    code: str
    facts: dict[str, str | int]


class _Failed(Part, frozen=True, tag="failed"):
    """What was written to the file could not be stored."""

    reason: FaultReason
    detail: str


class _Stored(Part, frozen=True, tag="stored"):
    """What could be stored was stored."""

    is_all: bool


_encode = msgspec.msgpack.Encoder().encode
_decode_asked = msgspec.msgpack.Decoder(_Asked | _StoreWrites).decode
_decode_answer = msgspec.msgpack.Decoder(_Admitted | _NotAdmitted | _Failed).decode
_decode_stored = msgspec.msgpack.Decoder(_Stored).decode


async def _send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    data = _encode(message)
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes")
    return await reader.readexactly(length)


class RemoteOpens:
    """The opens of the file process, as another process of the server uses them."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SOCKET_NAME

    async def rest(
        self,
        path: EntryPath,
        access: RestAccess,
        run: Callable[[EntryPath], Awaitable[T]],
        *,
        span: tuple[int, int] | None = None,
        seconds_max: float = REST_WAIT_SECONDS_MAX,
    ) -> T:
        """Runs an operation on a file when the opens of the file allow it; as in `OpenTable`."""
        if path.ref.snapshot is not None:
            return await run(path)
        asked = _Asked(path, access, span, seconds_max)
        return await again_if_path_changes(lambda: self._run(asked, run))

    async def _run(self, asked: _Asked, run: Callable[[EntryPath], Awaitable[T]]) -> T:
        streams = await self._connect()
        if streams is None:
            return await run(asked.path)
        reader, writer = streams
        try:
            async with asyncio.timeout(asked.seconds_max + _STORE_SECONDS_MAX):
                await _send(writer, asked)
                answer = _decode_answer(await _receive(reader))
            if isinstance(answer, _NotAdmitted):
                raise Refused(Refusal(answer.code, dict(answer.facts)))
            if isinstance(answer, _Failed):
                raise Fault(answer.reason, answer.detail)
            return await run(replace(asked.path, expected_id=answer.expected_id))
        except (OSError, asyncio.IncompleteReadError):
            raise Refused(Refusal("ServerBusy")) from None
        finally:
            writer.close()

    async def _connect(self) -> Streams | None:
        """Returns a connection to the file process; None if nothing can be open."""
        try:
            with unix_address(self._path) as address:
                return await asyncio.open_unix_connection(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return None  # it is being started


async def store_writes(directory: Path, seconds_max: float) -> bool:
    """Makes a server store what SMB clients have written so far, as far as it can in this time.
    Returns whether it has stored all of it."""
    try:
        with unix_address(directory / SOCKET_NAME) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            await _send(writer, _StoreWrites(seconds_max))
            async with asyncio.timeout(seconds_max + _REQUEST_SECONDS_MAX):
                return _decode_stored(await _receive(reader)).is_all
        finally:
            writer.close()
    except (OSError, EOFError, ValueError, msgspec.MsgspecError):
        return False


class OpensServer:
    """Admits the operations of other processes."""

    def __init__(
        self, directory: Path, opens: OpenTable, contents: FileContents | None = None
    ) -> None:
        """Listens from now on. Call it in the running event loop, before SMB clients are served;
        `contents` has what they write."""
        self._opens = opens
        self._contents = contents
        self._operations: set[asyncio.Task[None]] = set()
        self._listener = _listen(directory / SOCKET_NAME)
        loop = asyncio.get_running_loop()
        self._starting = loop.create_task(
            asyncio.start_unix_server(self._serve, sock=self._listener)
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._operations.add(task)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS_MAX):
                asked = _decode_asked(await _receive(reader))
            if isinstance(asked, _StoreWrites):
                contents = self._contents
                is_all = contents is None or await contents.store_all(asked.seconds_max)
                await _send(writer, _Stored(is_all))
            else:
                await self._admit(asked, reader, writer)
        except (OSError, EOFError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
            logger.info("an operation of another process was not admitted: %s", error)
        finally:
            self._operations.discard(task)
            writer.close()

    async def _admit(
        self, asked: _Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async def run(path: EntryPath) -> None:
            await _send(writer, _Admitted(path.expected_id))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_OPERATION_SECONDS_MAX):
                    await reader.read(1)

        try:
            await self._opens.rest(
                asked.path,
                asked.access,
                run,
                span=asked.span,
                seconds_max=asked.seconds_max,
            )
        except Refused as refused:
            await _send(writer, _NotAdmitted(refused.refusal.code, refused.refusal.facts))
        except Fault as fault:
            await _send(writer, _Failed(fault.reason, fault.detail))
        except Unknown as unknown:
            await _send(writer, _Failed(FaultReason.UNAVAILABLE, str(unknown)))

    async def close(self) -> None:
        """Ends when the operations that were admitted have ended."""
        server = await self._starting
        server.close()
        if self._operations:
            await asyncio.wait(self._operations)


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # Before it has a name, so that other users can never access it.
    os.fchmod(listener.fileno(), 0o600)
    with unix_address(path) as address:
        listener.bind(address)
    listener.listen(_BACKLOG)
    return listener
