"""Compounds, requests that wait, errors and backpressure on a connection without a socket."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from etagere.engine.interface import Fault, FaultReason, Refused, Unknown
from etagere.errors import Refusal
from etagere.nt_status import NtStatus
from etagere.protocol.smb import connection, dispatch
from etagere.protocol.smb.compounds import error_reply, pack_message, split
from etagere.protocol.smb.exchanges import Frame, ServerRequest
from etagere.protocol.smb.header import HEADER_BYTES, NO_MESSAGE_ID, Command, Flags, Header
from etagere.protocol.smb.requests import RELATED_FILE_ID, Reply
from etagere.protocol.smb.state import Open, remove_open
from etagere.protocol.smb.status import Disconnect, SmbError
from etagere.telemetry.context import CLIENT
from tests.protocol.smb.frames import (
    ECHO,
    RELATED,
    FrameClient,
    SmbFixture,
    replace_command,
)

Run = Callable[[SmbFixture, FrameClient], Coroutine[Any, Any, None]]

BODY = struct.pack("<HH", 4, 0)
PIPE_ID = 1 << 63


def with_file(persistent: int, volatile: int | None = None) -> bytes:
    return struct.pack("<HHQQ", 4, 0, persistent, persistent if volatile is None else volatile)


SAME_FILE = with_file(RELATED_FILE_ID)


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the commands by small ones, which open, use and close something."""
    ids = iter(range(PIPE_ID, PIPE_ID + 100))

    async def create(request: ServerRequest) -> Reply:
        if request.body[2]:
            raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
        opened = Open(next(ids), request.tree, 0)
        request.add_open(opened)
        return Reply(with_file(opened.id))

    async def flush(request: ServerRequest) -> Reply:
        opened = request.open(*struct.unpack_from("<QQ", request.body, 4))
        return Reply(with_file(opened.id))

    async def close(request: ServerRequest) -> Reply:
        remove_open(request.open(*struct.unpack_from("<QQ", request.body, 4)))
        return Reply(BODY)

    async def read(_request: ServerRequest) -> Reply:
        return Reply(BODY, payload=b"payload")

    async def wait(request: ServerRequest) -> Reply:
        request.pend()
        request.pend()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    replace_command(monkeypatch, Command.CREATE, create)
    replace_command(monkeypatch, Command.FLUSH, flush)
    replace_command(monkeypatch, Command.CLOSE, close)
    replace_command(monkeypatch, Command.QUERY_INFO, read, 0)
    replace_command(monkeypatch, Command.LOCK, wait)
    monkeypatch.setattr(dispatch, "payload_bytes", lambda _command, _body: (0, 0))


def run(test: Run, dialect: int = 0x311) -> None:
    async def log_on_and_test() -> None:
        server = SmbFixture()
        client = await server.log_on(dialect)
        await client.connect_tree(r"\\server\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=200)
        await test(server, client)

    asyncio.run(log_on_and_test())


def test_what_a_request_does_is_done_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its connections it uses."""
    noted = []

    async def note(_request: ServerRequest) -> Reply:
        noted.append(CLIENT.get())
        return Reply(BODY)

    replace_command(monkeypatch, Command.FLUSH, note)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        await client.ask(Command.FLUSH, with_file(PIPE_ID))

    run(test)
    assert noted == ["127.0.0.1"]


# Bytes


def test_error_response_bytes() -> None:
    assert error_reply(NtStatus.ACCESS_DENIED).body == bytes.fromhex("0900 00 00 00000000 00")
    assert error_reply(NtStatus.BUFFER_TOO_SMALL, b"\x08\0\0\0").body == bytes.fromhex(
        "0900"  # StructureSize
        "00"  # ErrorContextCount
        "00"  # Reserved
        "04000000"  # ByteCount
        "08000000"  # ErrorData
    )
    with_context = error_reply(NtStatus.BUFFER_TOO_SMALL, b"\x08\0\0\0", with_contexts=True)
    assert with_context.body == bytes.fromhex(
        "0900"  # StructureSize
        "01"  # ErrorContextCount
        "00"  # Reserved
        "0c000000"  # ByteCount
        "04000000"  # ErrorDataLength
        "00000000"  # ErrorId
        "08000000"  # ErrorContextData
    )


def test_payload_is_not_copied() -> None:
    payload = memoryview(bytearray(100_000))
    first, second = pack_message(Header(Command.READ), Reply(b"body", payload=payload))
    assert len(first) == HEADER_BYTES + 4
    assert second is payload


@pytest.mark.parametrize("next_command", [1, 8, 56, 68, 72, 80, 0xFFFF_FFF8])
def test_malformed_compound(next_command: int) -> None:
    frame = Header(Command.ECHO, next_command=next_command).pack() + bytes(8)
    with pytest.raises(Disconnect):
        split(memoryview(frame))


def test_compounds_are_limited() -> None:
    one = Header(Command.ECHO, next_command=HEADER_BYTES).pack()
    last = Header(Command.ECHO).pack()
    assert len(split(memoryview(one * 63 + last))) == 64
    with pytest.raises(Disconnect):
        split(memoryview(one * 65 + last))


@pytest.mark.parametrize("frame", [b"", b"\xfeSMB", bytes(64), b"\xfcSMB" + bytes(60)])
def test_what_is_no_smb2_message_disconnects(frame: bytes) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.give(frame)
        assert client.is_aborted

    run(test)


# Compounds


def test_related_messages_use_the_file_of_the_first() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound(
            (Command.CREATE, BODY, 0),
            (Command.FLUSH, SAME_FILE, RELATED),
            (Command.CLOSE, SAME_FILE, RELATED),
            (Command.FLUSH, SAME_FILE, RELATED),
        )
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [0, 0, 0, NtStatus.FILE_CLOSED]
        assert client.signer is not None
        for one in frame:
            assert client.signer.verify(one.data)
            assert one.header.session_id == client.session_id
            assert one.header.tree_id == client.tree_id
        for one in frame[:-1]:
            assert len(one.data) % 8 == 0
        assert [bool(one.header.flags & Flags.RELATED) for one in frame] == [0, 1, 1, 1]

    run(test)


def test_related_messages_ignore_their_own_session_and_tree() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        first = client.message(Command.CREATE, BODY + bytes(4), next_command=72)
        second = client.message(
            Command.FLUSH,
            SAME_FILE,
            flags=RELATED,
            session_id=0xFFFF_FFFF_FFFF_FFFF,
            tree_id=0xFFFF_FFFF,
        )
        client.give(first, second)
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [0, 0]

    run(test)


def test_failure_of_create_is_that_of_related_messages() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound(
            (Command.CREATE, b"\4\0\1\0", 0),
            (Command.FLUSH, SAME_FILE, RELATED),
            (Command.CLOSE, SAME_FILE, RELATED),
            (Command.CREATE, BODY, 0),
            (Command.CLOSE, SAME_FILE, RELATED),
        )
        (frame,) = await client.settle()
        missing = NtStatus.OBJECT_NAME_NOT_FOUND
        assert [one.status for one in frame] == [missing, missing, missing, 0, 0]

    run(test)


def test_first_message_cannot_be_related() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound(
            (Command.CREATE, BODY, RELATED),
            (Command.CLOSE, SAME_FILE, RELATED),
            (Command.CLOSE, SAME_FILE, 0),
        )
        (frame,) = await client.settle()
        invalid = NtStatus.INVALID_PARAMETER
        assert [one.status for one in frame] == [invalid, invalid, NtStatus.FILE_CLOSED]

    run(test)


def test_nothing_is_related_to_a_message_without_session() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        first = client.message(
            Command.CREATE, BODY + bytes(4), next_command=72, session_id=0xFFFF_FFFF_FFFF_FFFF
        )
        client.give(first, client.message(Command.CLOSE, SAME_FILE, flags=RELATED))
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [
            NtStatus.USER_SESSION_DELETED,
            NtStatus.INVALID_PARAMETER,
        ]

    run(test)


def test_unrelated_messages_are_independent() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound((Command.CREATE, BODY, 0), (Command.CLOSE, SAME_FILE, 0))
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [0, NtStatus.FILE_CLOSED]

    run(test)


def test_payload_within_a_compound() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound((Command.QUERY_INFO, BODY, 0), (Command.QUERY_INFO, BODY, 0))
        (frame,) = await client.settle()
        assert [one.body for one in frame] == [BODY + b"payload" + bytes(5), BODY + b"payload"]
        assert client.signer is not None
        assert all(client.signer.verify(one.data) for one in frame)

    run(test)


def test_encrypted_compound() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.seals = True
        client.compound((Command.CREATE, BODY, 0), (Command.CLOSE, SAME_FILE, RELATED))
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [0, 0]
        assert not any(one.is_signed for one in frame)

    run(test)


def test_file_of_another_tree() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        answer = await client.ask(Command.CREATE, BODY)
        file_id = struct.unpack_from("<Q", answer.body, 4)[0]
        assert (await client.ask(Command.FLUSH, with_file(file_id))).status == NtStatus.SUCCESS
        for wrong in (with_file(file_id, 5), with_file(5, file_id), SAME_FILE):
            assert (await client.ask(Command.FLUSH, wrong)).status == NtStatus.FILE_CLOSED
        await client.connect_tree(r"\\server\IPC$")
        answer = await client.ask(Command.FLUSH, with_file(file_id))
        assert answer.status == NtStatus.FILE_CLOSED

    run(test)


# Requests that wait


def test_pending_request_is_cancelled() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        lock_id = client.message_id
        interim = await client.ask(Command.LOCK, BODY, credits=3)
        assert interim.status == NtStatus.PENDING
        assert interim.header.flags & Flags.ASYNC
        assert interim.header.async_id
        assert not interim.is_signed
        assert interim.header.credits == 3
        assert interim.body == bytes.fromhex("0900 00 00 00000000 00")
        # Others are executed meanwhile.
        assert (await client.ask(Command.ECHO, ECHO)).status == NtStatus.SUCCESS
        client.give(
            client.message(
                Command.CANCEL,
                BODY,
                flags=Flags.ASYNC,
                message_id=lock_id,
                async_id=interim.header.async_id,
            )
        )
        ((final,),) = await client.settle()
        assert final.status == NtStatus.CANCELLED
        assert final.header.message_id == lock_id
        assert final.header.async_id == interim.header.async_id
        assert final.header.credits == 0
        assert final.is_signed

    run(test)


def test_cancel_of_what_does_not_wait_yet() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        lock_id = client.message_id
        client.give(client.message(Command.LOCK, BODY))
        client.give(client.message(Command.CANCEL, BODY, message_id=lock_id))
        ((final,),) = await client.settle()
        assert final.status == NtStatus.CANCELLED
        assert not final.header.flags & Flags.ASYNC

    run(test)


@pytest.mark.parametrize("fault", ["unsigned", "session", "id", "signature"])
def test_cancel_that_is_not_of_the_client(fault: str) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        (session,) = client.connection.sessions.values()
        session.requires_signing = True
        interim = await client.ask(Command.LOCK, BODY)
        message = client.message(
            Command.CANCEL,
            BODY,
            flags=Flags.ASYNC,
            message_id=0,
            async_id=interim.header.async_id + (fault == "id"),
            session_id=5 if fault == "session" else None,
            signs=fault != "unsigned",
        )
        if fault == "signature":
            message[-1] ^= 1
        client.give(message)
        assert await client.settle() == []

    run(test)


@pytest.mark.parametrize("command", [Command.TREE_DISCONNECT, Command.LOGOFF])
def test_end_of_tree_or_session_cancels(command: int) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        await client.ask(Command.LOCK, BODY)
        client.give(client.message(command, BODY))
        frames = await client.settle()
        assert sorted(one.status for frame in frames for one in frame) == [0, NtStatus.CANCELLED]

    run(test)


@pytest.mark.parametrize("command", [Command.TREE_DISCONNECT, Command.LOGOFF])
def test_end_of_tree_or_session_waits_for_requests(
    command: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()
    opened: list[Open] = []

    async def create(request: ServerRequest) -> Reply:
        tree = request.tree
        await goes_on.wait()
        opened.append(Open(PIPE_ID, tree, 0))
        request.add_open(opened[0])
        return Reply(BODY)

    replace_command(monkeypatch, Command.CREATE, create)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.give(client.message(Command.CREATE, BODY))
        client.give(client.message(command, BODY))
        assert await client.settle() == []
        # No request of the tree is started any more.
        answer = await client.ask(Command.FLUSH, with_file(PIPE_ID))
        assert answer.status in (NtStatus.NETWORK_NAME_DELETED, NtStatus.USER_SESSION_DELETED)
        goes_on.set()
        frames = await client.settle()
        assert [one.header.command for frame in frames for one in frame] == [
            Command.CREATE,
            command,
        ]
        assert not opened[0].tree.opens

    run(test)


def test_request_that_begins_to_wait_when_the_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = asyncio.Event()

    async def wait(request: ServerRequest) -> Reply:
        await goes_on.wait()
        request.pend()
        raise AssertionError

    replace_command(monkeypatch, Command.LOCK, wait)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.give(client.message(Command.LOCK, BODY))
        assert await client.settle() == []
        end = asyncio.create_task(client.connection.close())
        await asyncio.sleep(0)
        goes_on.set()
        async with asyncio.timeout(5):
            await end
        ((final,),) = await client.settle()
        assert final.status == NtStatus.CANCELLED

    run(test)


def test_end_of_the_connection_cancels() -> None:
    async def test(server: SmbFixture, client: FrameClient) -> None:
        await client.ask(Command.LOCK, BODY)
        async with asyncio.timeout(5):
            await client.connection.close()
        assert not len(server.sessions)
        assert server.memory.used_bytes == 0

    run(test)


def test_last_message_of_a_compound_waits() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound((Command.CREATE, BODY, 0), (Command.LOCK, BODY, RELATED))
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [0, NtStatus.PENDING]
        await client.connection.end_requests(lambda _: True)
        ((final,),) = await client.settle()
        assert final.status == NtStatus.CANCELLED

    run(test)


def test_other_messages_of_a_compound_must_not_wait() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound((Command.LOCK, BODY, 0), (Command.CREATE, BODY, 0))
        (frame,) = await client.settle()
        assert [one.status for one in frame] == [NtStatus.INTERNAL_ERROR, 0]

    run(test)


def test_pending_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PENDING_REQUESTS_MAX", 2)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        statuses = [(await client.ask(Command.LOCK, BODY)).status for _ in range(3)]
        assert statuses == [
            NtStatus.PENDING,
            NtStatus.PENDING,
            NtStatus.INSUFFICIENT_RESOURCES,
        ]

    run(test)


# Errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SmbError(NtStatus.DISK_FULL), NtStatus.DISK_FULL),
        (Refused(Refusal("SharingViolation")), NtStatus.SHARING_VIOLATION),
        (Refused(Refusal("InvalidUri")), NtStatus.ACCESS_DENIED),
        (Fault(FaultReason.DISK_FULL, "full"), NtStatus.DISK_FULL),
        (Fault(FaultReason.UNAVAILABLE, "gone"), NtStatus.UNEXPECTED_IO_ERROR),
        (Unknown("lost"), NtStatus.UNEXPECTED_IO_ERROR),
        (ZeroDivisionError(), NtStatus.INTERNAL_ERROR),
    ],
)
def test_errors(error: Exception, status: NtStatus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ServerRequest) -> Reply:
        raise error

    replace_command(monkeypatch, Command.WRITE, fail)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        assert (await client.ask(Command.WRITE, BODY)).status == status
        assert (await client.ask(Command.ECHO, ECHO)).status == NtStatus.SUCCESS

    run(test)


@pytest.mark.parametrize(("dialect", "count"), [(0x302, 0), (0x311, 1)])
def test_error_data(dialect: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ServerRequest) -> Reply:
        raise SmbError(NtStatus.BUFFER_TOO_SMALL, b"\1\0\0\0")

    replace_command(monkeypatch, Command.WRITE, fail)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        answer = await client.ask(Command.WRITE, BODY)
        assert answer.body[2] == count

    run(test, dialect)


@pytest.mark.parametrize(
    ("command", "body", "status"),
    [
        (99, BODY, NtStatus.INVALID_PARAMETER),
        (Command.CREATE, b"", NtStatus.INVALID_PARAMETER),
        (Command.CREATE, b"\4\0", NtStatus.INVALID_PARAMETER),
        (Command.CREATE, b"\5\0\0\0", NtStatus.INVALID_PARAMETER),
        (Command.ECHO, b"", NtStatus.INVALID_PARAMETER),
        (Command.ECHO, ECHO + bytes(65_536), NtStatus.SUCCESS),
        # More than its credits pay for.
        (Command.ECHO, ECHO + bytes(67_000), NtStatus.INVALID_PARAMETER),
    ],
)
def test_malformed_requests(command: int, body: bytes, status: NtStatus) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        assert (await client.ask(command, body)).status == status

    run(test)


def test_unknown_trees_and_sessions() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        answer = await client.ask(Command.CREATE, BODY, tree_id=99)
        assert answer.status == NtStatus.NETWORK_NAME_DELETED
        answer = await client.ask(Command.CREATE, BODY, session_id=99)
        assert answer.status == NtStatus.USER_SESSION_DELETED

    run(test)


def test_opens_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "OPENS_PER_SESSION_MAX", 2)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        statuses = [(await client.ask(Command.CREATE, BODY)).status for _ in range(3)]
        assert statuses == [0, 0, NtStatus.TOO_MANY_OPENED_FILES]

    run(test)


def test_opens_of_all_sessions_of_an_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "OPENS_PER_ADDRESS_MAX", 2)

    async def test(server: SmbFixture, client: FrameClient) -> None:
        other = await server.log_on()
        await other.connect_tree(r"\\server\IPC$")
        answers = [await one.ask(Command.CREATE, BODY) for one in (client, other)]
        assert [one.status for one in answers] == [0, 0]
        for one in (client, other):
            answer = await one.ask(Command.CREATE, BODY)
            assert answer.status == NtStatus.TOO_MANY_OPENED_FILES
        await client.connection.close()
        assert (await other.ask(Command.CREATE, BODY)).status == 0

    run(test)


# Notifications


@pytest.mark.parametrize("seals", [False, True])
def test_break_notification(seals: bool) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.seals = seals
        await client.ask(Command.ECHO, ECHO)
        (session,) = client.connection.sessions.values()
        session.notify(b"body")
        assert client.frames[0].startswith(b"\xfdSMB") == seals
        ((notification,),) = await client.settle()
        assert notification.header == Header(
            Command.OPLOCK_BREAK, flags=Flags.RESPONSE, message_id=NO_MESSAGE_ID
        )
        assert notification.body == b"body"

    run(test)


# Backpressure


def test_outstanding_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OUTSTANDING_REQUESTS_MAX", 2)
    goes_on = asyncio.Event()

    async def slow(_: ServerRequest) -> Reply:
        await goes_on.wait()
        return Reply(BODY)

    replace_command(monkeypatch, Command.WRITE, slow)

    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.give(client.message(Command.WRITE, BODY))
        assert client.connection.accepts_frame()
        client.give(client.message(Command.WRITE, BODY))
        assert not client.connection.accepts_frame()
        assert client.resumed == 0
        goes_on.set()
        assert len(await client.settle()) == 2
        assert client.resumed
        assert client.connection.accepts_frame()

    run(test)


def test_outstanding_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = asyncio.Event()

    async def slow(_: ServerRequest) -> Reply:
        await goes_on.wait()
        return Reply(BODY)

    replace_command(monkeypatch, Command.READ, slow)

    async def test(server: SmbFixture, client: FrameClient) -> None:
        given = 0
        while client.connection.accepts_frame():
            client.give(client.message(Command.READ, BODY, charge=16))
            given += 1
        assert given == 8
        assert server.memory.used_bytes > 8 << 20
        goes_on.set()
        assert len(await client.settle()) == 8
        assert server.memory.used_bytes == 0

    run(test)


def test_large_requests_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []

    async def read(_: ServerRequest) -> Reply:
        executed.append("large")
        return Reply(BODY)

    async def flush(_: ServerRequest) -> Reply:
        executed.append("small")
        return Reply(BODY)

    replace_command(monkeypatch, Command.READ, read)
    replace_command(monkeypatch, Command.FLUSH, flush)

    async def test(server: SmbFixture, client: FrameClient) -> None:
        for _ in range(5):
            client.give(client.message(Command.READ, BODY, charge=16))
        client.give(client.message(Command.FLUSH, BODY))
        assert len(await client.settle()) == 6
        assert executed == ["small", *["large"] * 5]
        # Those that have not been started when the connection ends never are.
        for _ in range(3):
            client.give(client.message(Command.READ, BODY, charge=16))
        await client.connection.close()
        assert await client.settle() == []
        assert len(executed) == 6
        assert server.memory.used_bytes == 0

    run(test)


def test_pending_requests_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OUTSTANDING_REQUESTS_MAX", 1)

    async def test(server: SmbFixture, client: FrameClient) -> None:
        for _ in range(3):
            await client.ask(Command.LOCK, BODY)
            assert client.connection.accepts_frame()
        assert 0 < server.memory.used_bytes < 300
        await client.connection.close()
        assert server.memory.used_bytes == 0

    run(test)


def test_frames_of_pending_requests_are_limited() -> None:
    async def test(server: SmbFixture, client: FrameClient) -> None:
        body = BODY + bytes(1 << 20)
        statuses = [(await client.ask(Command.LOCK, body, charge=17)).status for _ in range(4)]
        assert statuses == [NtStatus.PENDING] * 3 + [NtStatus.INSUFFICIENT_RESOURCES]
        assert 3 << 20 < server.memory.used_bytes < 4 << 20
        assert (await client.ask(Command.LOCK, BODY)).status == NtStatus.PENDING
        await client.connection.close()
        assert server.memory.used_bytes == 0

    run(test)


def test_a_compound_counts_again_after_it_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    opens, reads = asyncio.Event(), asyncio.Event()

    async def create(request: ServerRequest) -> Reply:
        request.pend()
        await opens.wait()
        return Reply(BODY)

    async def read(_: ServerRequest) -> Reply:
        await reads.wait()
        return Reply(BODY)

    replace_command(monkeypatch, Command.CREATE, create)
    replace_command(monkeypatch, Command.READ, read)

    async def test(server: SmbFixture, client: FrameClient) -> None:
        client.compound((Command.CREATE, BODY, 0), (Command.READ, BODY, 0), charge=16)
        await client.settle()
        assert server.memory.used_bytes < 1_000
        opens.set()
        await client.settle()
        assert server.memory.used_bytes > 1 << 20
        reads.set()
        await client.settle()
        assert server.memory.used_bytes == 0

    run(test)


def test_what_a_compound_asks_for_is_limited() -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        client.compound(*[(Command.QUERY_INFO, BODY, 0)] * 7, charge=16)
        assert len(await client.settle()) == 1
        client.compound(*[(Command.QUERY_INFO, BODY, 0)] * 8, charge=16)
        assert client.is_aborted

    run(test)


def test_one_frame_at_a_time_if_memory_is_scarce() -> None:
    async def test(server: SmbFixture, client: FrameClient) -> None:
        server.memory.add(1 << 30)
        assert client.connection.accepts_frame()
        client.give(client.message(Command.ECHO, ECHO))
        assert not client.connection.accepts_frame()
        assert len(await client.settle()) == 1
        assert client.connection.accepts_frame()

    run(test)


@pytest.mark.parametrize(
    ("command", "body"),
    [(Command.ECHO, ECHO), (Command.ECHO, b""), (Command.LOCK, BODY), (Command.CREATE, BODY)],
)
def test_frames_are_freed_without_the_garbage_collector(command: int, body: bytes) -> None:
    async def test(_: SmbFixture, client: FrameClient) -> None:
        def count() -> int:
            return sum(isinstance(one, Frame) for one in gc.get_objects())

        gc.collect()
        gc.disable()
        try:
            before = count()
            answer = await client.ask(command, body)
            if answer.status == NtStatus.PENDING:
                await client.connection.close()
            assert count() == before
        finally:
            gc.enable()

    run(test)
