"""The sockets of SMB clients: limits of size, time and memory, and the end of connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from etagere.engine.interface import Fault, FaultReason
from etagere.nt_status import NtStatus
from etagere.protocol.connections.pool import ConnectionPool
from etagere.protocol.smb import connection, server
from etagere.protocol.smb.exchanges import ServerRequest
from etagere.protocol.smb.framing import frame_prefix
from etagere.protocol.smb.header import Command, Header
from etagere.protocol.smb.logons import Passwords
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.server import ClientProtocol, SmbServer
from tests.protocol.smb.frames import ECHO, SmbFixture, SocketClient, replace_command
from tests.server import ACCOUNT

Run = Callable[["ServerFixture"], Coroutine[Any, Any, None]]


class ServerFixture:
    def __init__(self, pool: ConnectionPool | None) -> None:
        self.fixture = SmbFixture()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = SmbServer(
            self.fixture.services, self.listener, memory=self.fixture.memory, pool=pool
        )
        self.clients: list[SocketClient] = []

    async def connect(self) -> SocketClient:
        streams = await asyncio.open_connection("127.0.0.1", self.port)
        client = SocketClient(*streams)
        self.clients.append(client)
        return client

    async def log_on(self) -> SocketClient:
        client = await self.connect()
        await client.negotiate([0x311])
        await client.log_on()
        return client

    def protocol(self) -> ClientProtocol:
        (only,) = self.server.connections
        return only

    async def close(self) -> None:
        for client in self.clients:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        await self.server.drain(1)


def run(test: Run, *, pool: ConnectionPool | None = None) -> None:
    async def serve_and_test() -> None:
        fixture = ServerFixture(pool)
        fixture.server.start()
        try:
            await test(fixture)
        finally:
            await fixture.close()

    uvloop.run(serve_and_test())


@pytest.mark.parametrize("error", [Fault(FaultReason.UNAVAILABLE, "test"), RuntimeError("test")])
def test_keys_that_cannot_be_read(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SWEEP_SECONDS", 0.01)
    asked = []

    async def fail(_: Passwords, user: str) -> tuple[str, ...]:
        asked.append(user)
        if len(asked) < 3:
            raise error
        return ()

    monkeypatch.setattr(Passwords, "current", fail)

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        # The server asks again, and ends the session when it knows that the key is not valid.
        while len(fixture.server.session_table):
            await asyncio.sleep(0.01)
        assert asked == [ACCOUNT] * 3
        answer = await client.ask(Command.LOGOFF, ECHO)
        assert answer.status == NtStatus.USER_SESSION_DELETED

    run(test)


def test_a_connection_that_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SWEEP_SECONDS", 0.01)

    async def test(fixture: ServerFixture) -> None:
        async def connected(count: int) -> None:
            async with asyncio.timeout(10):
                while len(fixture.server.connections) != count:
                    await asyncio.sleep(0.01)

        def fail(_protocol: ClientProtocol, _now: float) -> None:
            raise RuntimeError("test")

        for _ in range(2):
            await fixture.connect()
            await connected(1)
            with monkeypatch.context() as patched:
                patched.setattr(ClientProtocol, "expire", fail)
                # It is closed, and those that come later are checked as well.
                await connected(0)

    run(test)


def test_a_stopped_process_does_not_make_clients_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SWEEP_SECONDS", 0.05)

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.connect()
        await client.negotiate([0x311])
        loop_time = asyncio.get_running_loop().time
        before = fixture.server.time()
        began = loop_time()
        time.sleep(1.0)  # as if it had been stopped
        await asyncio.sleep(0.2)
        elapsed = loop_time() - began
        assert elapsed > 1.0
        assert fixture.server.time() - before < elapsed - 0.8

    run(test)


def test_logon_and_echo() -> None:
    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        assert (await client.ask(Command.ECHO, ECHO)).body == ECHO
        assert len(fixture.server.session_table) == 1
        client.writer.close()
        while fixture.server.connections or len(fixture.server.session_table):
            await asyncio.sleep(0.01)

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frame_prefix(81 * 1024),
        frame_prefix(4) + b"abcd",
        frame_prefix(64) + bytes(64),
        frame_prefix(68) + Header(Command.ECHO).pack() + ECHO,
        b"\xff" * 100,
    ],
)
def test_what_is_not_smb_ends_the_connection(data: bytes) -> None:
    async def test(fixture: ServerFixture) -> None:
        client = await fixture.connect()
        client.writer.write(data)
        assert await client.is_closed()

    run(test)


def test_frames_may_be_longer_after_the_logon() -> None:
    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.ask(Command.ECHO, ECHO, credits=17)
        frame = client.message(Command.ECHO, ECHO + bytes(1 << 20), charge=17)
        client.give(frame)
        ((answer,),) = await client.settle()
        assert answer.body == ECHO
        client.writer.write(frame_prefix((2 << 20) + 1))
        assert await client.is_closed()

    run(test)


def test_short_responses_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = ClientProtocol._write

    def count_and_write(protocol: ClientProtocol) -> None:
        written.append(len(protocol._unwritten))
        write(protocol)

    monkeypatch.setattr(ClientProtocol, "_write", count_and_write)

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.ask(Command.ECHO, ECHO, credits=200)
        written.clear()
        messages = [client.message(Command.ECHO, ECHO) for _ in range(100)]
        client.writer.write(b"".join(frame_prefix(len(one)) + one for one in messages))
        for _ in messages:
            ((answer,),) = await client.settle()
            assert answer.body == ECHO
        assert sum(map(bool, written)) <= 50

    run(test)


def test_many_frames_at_once_are_all_answered() -> None:
    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.ask(Command.ECHO, ECHO, credits=2_000)
        ids = list(range(client.message_id, client.message_id + 1_500))
        for _ in ids:
            client.give(client.message(Command.ECHO, ECHO))
        found = [(await client.settle())[0][0].header.message_id for _ in ids]
        assert sorted(found) == ids

    run(test)


def test_requests_wait_until_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OUTSTANDING_REQUESTS_MAX", 3)
    active = most = 0

    async def slow(_: ServerRequest) -> Reply:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.001)
        active -= 1
        return Reply(ECHO)

    replace_command(monkeypatch, Command.WRITE, slow)
    monkeypatch.setattr("etagere.protocol.smb.dispatch.payload_bytes", lambda *_: (0, 0))

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.connect_tree(r"\\s\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=200)
        for _ in range(100):
            client.give(client.message(Command.WRITE, ECHO))
        for _ in range(100):
            await client.settle()
        assert most == 3

    run(test)


def test_responses_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = 0

    async def read(_: ServerRequest) -> Reply:
        nonlocal executed
        executed += 1
        return Reply(ECHO, payload=bytes(1 << 20))

    replace_command(monkeypatch, Command.READ, read)
    monkeypatch.setattr("etagere.protocol.smb.dispatch.payload_bytes", lambda *_: (0, 0))

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.connect_tree(r"\\s\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=200)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(100):
            client.give(client.message(Command.READ, ECHO))
        await asyncio.sleep(0.3)
        assert executed < 40
        protocol = fixture.protocol()
        now = asyncio.get_running_loop().time()
        protocol.expire(now + 30)
        assert fixture.server.connections
        assert fixture.server.memory.used_bytes > 4 << 20
        protocol.expire(now + 61)
        await asyncio.sleep(0.01)
        assert not fixture.server.connections
        assert fixture.server.memory.used_bytes == 0

    run(test)


@pytest.mark.parametrize("what", ["responses", "a frame"])
def test_slow_clients_are_closed_if_memory_is_scarce(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_: ServerRequest) -> Reply:
        return Reply(ECHO, payload=bytes(1 << 20))

    replace_command(monkeypatch, Command.READ, read)
    monkeypatch.setattr("etagere.protocol.smb.dispatch.payload_bytes", lambda *_: (0, 0))

    async def test(fixture: ServerFixture) -> None:
        memory = fixture.server.memory
        client = await fixture.log_on()
        await client.connect_tree(r"\\s\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=200)
        if what == "responses":
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                client.give(client.message(Command.READ, ECHO))
        else:
            client.writer.write(frame_prefix(1 << 20) + bytes(1_000))
        await asyncio.sleep(0.3)
        assert memory.used_bytes >= 1 << 20
        protocol = fixture.protocol()
        now = asyncio.get_running_loop().time()
        protocol.expire(now + 10)
        assert fixture.server.connections
        memory.add(1 << 30)
        protocol.expire(now + 10)
        await asyncio.sleep(0.01)
        assert not fixture.server.connections
        assert memory.used_bytes == 1 << 30

    run(test)


def test_a_frame_has_to_arrive_in_time() -> None:
    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        protocol = fixture.protocol()
        client.writer.write(frame_prefix(1_000))
        await asyncio.sleep(0.05)
        now = asyncio.get_running_loop().time()
        # A byte now and then.
        protocol._last_input = now + 5 * 60
        protocol.expire(now + 5 * 60 - 1)
        assert fixture.server.connections
        protocol.expire(now + 5 * 60 + 1)
        await asyncio.sleep(0.01)
        assert not fixture.server.connections

    run(test)


def test_clients_that_have_vanished_are_noticed() -> None:
    async def test(fixture: ServerFixture) -> None:
        await fixture.log_on()
        connected = fixture.protocol()._transport.get_extra_info("socket")  # type: ignore[union-attr]
        seconds = [
            connected.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert seconds == [60, 10, 3]
        # No probes are sent while a response is not acknowledged.
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 90_000

    run(test)


@pytest.mark.parametrize(
    ("prepare", "seconds"),
    [
        ("connect", 30),
        ("part of a frame", 30),
        ("log on", 15 * 60),
        ("log on, part of a frame", 60),
        ("log off", 30),
    ],
)
def test_silent_clients_are_disconnected(prepare: str, seconds: float) -> None:
    async def test(fixture: ServerFixture) -> None:
        if prepare.startswith("log o"):
            client = await fixture.log_on()
            if prepare == "log off":
                await client.ask(Command.LOGOFF, ECHO)
        else:
            client = await fixture.connect()
        if "part" in prepare:
            client.writer.write(frame_prefix(100) + b"part")
        await asyncio.sleep(0.05)
        protocol = fixture.protocol()
        now = asyncio.get_running_loop().time()
        protocol.expire(now + seconds - 5)
        assert not await client.is_closed(0.02)
        protocol.expire(now + seconds + 1)
        assert await client.is_closed()

    run(test)


def test_a_full_server_closes_clients_that_are_not_authenticated() -> None:
    async def test(fixture: ServerFixture) -> None:
        first = await fixture.log_on()
        silent = await fixture.connect()
        await asyncio.sleep(0.05)
        await fixture.log_on()
        assert await silent.is_closed()
        assert (await first.ask(Command.ECHO, ECHO)).body == ECHO

    run(test, pool=ConnectionPool(2))


def test_drain_finishes_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(_: ServerRequest) -> Reply:
        await asyncio.sleep(0.1)
        return Reply(ECHO)

    async def wait(request: ServerRequest) -> Reply:
        request.pend()
        await asyncio.Event().wait()
        raise AssertionError

    replace_command(monkeypatch, Command.FLUSH, slow)
    replace_command(monkeypatch, Command.LOCK, wait)

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.connect_tree(r"\\s\IPC$")
        await client.ask(Command.ECHO, ECHO, credits=10)
        await client.ask(Command.LOCK, ECHO)
        client.give(client.message(Command.FLUSH, ECHO))
        await asyncio.sleep(0.02)
        await fixture.server.drain(5)
        answers = [(await client.settle())[0][0] for _ in range(2)]
        assert {answer.header.command for answer in answers} == {Command.FLUSH, Command.LOCK}
        assert await client.is_closed()
        assert not len(fixture.server.session_table)
        assert fixture.fixture.memory.used_bytes == 0

    run(test)


def test_drain_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_ABORT_SECONDS", 0.1)

    async def hang(_: ServerRequest) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    replace_command(monkeypatch, Command.FLUSH, hang)

    async def test(fixture: ServerFixture) -> None:
        client = await fixture.log_on()
        await client.connect_tree(r"\\s\IPC$")
        client.give(client.message(Command.FLUSH, ECHO))
        await asyncio.sleep(0.02)
        async with asyncio.timeout(5):
            await fixture.server.drain(0.1)
        assert await client.is_closed()

    run(test)


def test_long_frames_before_the_logon_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PREAUTH_BYTES_MAX", 200_000)

    async def test(fixture: ServerFixture) -> None:
        clients = [await fixture.connect() for _ in range(3)]
        for client in clients:
            client.writer.write(frame_prefix(80_000) + bytes(1_000))
            await asyncio.sleep(0.05)
        assert await clients[2].is_closed()
        assert len(fixture.server.connections) == 2
        assert fixture.server.memory.used_bytes == fixture.server.preauth_bytes == 160_000
        for client in clients[:2]:
            client.writer.transport.abort()
        await asyncio.sleep(0.05)
        assert fixture.server.memory.used_bytes == fixture.server.preauth_bytes == 0
        client = await fixture.log_on()
        assert fixture.server.preauth_bytes == 0
        assert (await client.ask(Command.ECHO, ECHO)).body == ECHO

    run(test)
