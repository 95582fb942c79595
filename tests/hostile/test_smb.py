"""One SMB client that uses all that it may use: others do not wait, and the server stays small."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from etagere.nt_status import NtStatus
from etagere.opens.locks import LOCK_WAITERS_MAX
from etagere.protocol.smb.commands.locks import ELEMENTS_MAX
from etagere.protocol.smb.header import Command
from etagere.protocol.smb.limits import PIPES_PER_SESSION_MAX, WATCHES_PER_SESSION_MAX
from etagere.rules.opens import RANGE_LOCKS_MAX
from tests.hostile.bystanders import assert_others_do_not_wait, bystanders
from tests.hostile.smb import (
    DIRECTORY,
    FAIL_IMMEDIATELY,
    FILE,
    LOCK_EXCLUSIVE,
    UNLOCK,
    ask_all,
    close_body,
    create_body,
    lock_body,
    log_on,
    notify_body,
    open_all,
    query_directory_body,
    read_body,
    write_body,
)
from tests.protocol.smb.frames import SocketClient
from tests.sdk.file.clients import file_service
from tests.server import Server, served, unique

_MIB: Final = 1 << 20
_FILES: Final = 3_000
_PERCENTILE_99_SECONDS_MAX: Final = 0.05
_ATTEMPTS: Final = 3
Attack = Callable[[SocketClient], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("smb") / "data"
    with served(directory) as started:
        yield started
        assert started.stop() == 0
        assert "Traceback" not in started.log()


@pytest.fixture
def share(server: Server) -> str:
    name: str = file_service(server).create_share(unique("smb")).share_name
    return name


def attack(server: Server, share: str, carry_out: Attack, *, clients: int = 1) -> None:
    async def one() -> None:
        client = await log_on(server.endpoints["smb"], share)
        try:
            await carry_out(client)
        finally:
            # Without a farewell.
            client.writer.transport.abort()

    async def run() -> None:
        await asyncio.gather(*(one() for _ in range(clients)))

    asyncio.run(run())


# Others do not wait


async def _lock_storm(client: SocketClient) -> None:
    """As many locks as possible, as many that wait for them as possible, and all unlocked in the
    order that takes longest."""
    name = unique("locked")
    holder, waiter = await open_all(client, [name, name])
    ranges = [(10 * at, 5) for at in range(RANGE_LOCKS_MAX)]
    arrays = [ranges[at : at + ELEMENTS_MAX] for at in range(0, len(ranges), ELEMENTS_MAX)]
    flags = LOCK_EXCLUSIVE | FAIL_IMMEDIATELY
    locked = await ask_all(client, Command.LOCK, [lock_body(holder, one, flags) for one in arrays])
    assert {one.status for one in locked} == {NtStatus.SUCCESS}
    everything = lock_body(waiter, [(0, 10 * RANGE_LOCKS_MAX)], LOCK_EXCLUSIVE)
    waiting = await ask_all(client, Command.LOCK, [everything] * LOCK_WAITERS_MAX)
    assert {one.status for one in waiting} == {NtStatus.PENDING}
    for one in reversed(arrays):
        answer = await client.ask(Command.LOCK, lock_body(holder, one[:0:-1], UNLOCK))
        assert answer.status == NtStatus.SUCCESS


async def _put(client: SocketClient) -> None:
    (file,) = await open_all(client, [unique("large")])
    data = bytes(_MIB)
    bodies = [write_body(file, at * _MIB, data) for at in range(64)]
    answers = await ask_all(client, Command.WRITE, bodies, charge=16)
    assert {one.status for one in answers} == {NtStatus.SUCCESS}
    await ask_all(client, Command.CLOSE, [close_body(file)])


async def _open_and_vanish(client: SocketClient) -> None:
    await open_all(client, [""] * 2_000, DIRECTORY)


async def _watch(client: SocketClient) -> None:
    """Everybody is told of each change."""
    directories = await open_all(client, [""] * WATCHES_PER_SESSION_MAX, DIRECTORY)
    watching = await ask_all(
        client, Command.CHANGE_NOTIFY, [notify_body(one) for one in directories]
    )
    assert {one.status for one in watching} == {NtStatus.PENDING}
    await ask_all(client, Command.CREATE, [create_body(unique("new"), FILE)])
    await asyncio.sleep(0.3)


@pytest.mark.alone
@pytest.mark.parametrize("service", ["smb", "file"])
@pytest.mark.parametrize(
    ("carry_out", "clients"),
    [(_lock_storm, 1), (_put, 2), (_open_and_vanish, 2), (_watch, 2)],
    ids=lambda one: one.__name__.strip("_") if callable(one) else str(one),
)
def test_others_do_not_wait(
    server: Server, share: str, carry_out: Attack, clients: int, service: str
) -> None:
    def run() -> None:
        attack(server, share, carry_out, clients=clients)

    assert_others_do_not_wait(server, run, service=service)


@pytest.mark.alone
def test_others_do_not_wait_for_listings(server: Server, share: str) -> None:
    """Patterns that take long, and match nothing in a directory with many long names."""
    name = "a.b" * 80

    async def fill(client: SocketClient) -> None:
        names = [f"{name}{number}" for number in range(_FILES)]
        files = await open_all(client, names)
        await ask_all(client, Command.CLOSE, [close_body(one) for one in files])

    async def list_all(client: SocketClient) -> None:
        (directory,) = await open_all(client, [""], DIRECTORY)
        for pattern in ("<.>" * 80 + "x", "*b" * 120, "*"):
            body = query_directory_body(directory, pattern, 65_536)
            answers = await ask_all(client, Command.QUERY_DIRECTORY, [body] * 8)
            assert NtStatus.INVALID_PARAMETER not in {one.status for one in answers}

    attack(server, share, fill)
    assert_others_do_not_wait(server, lambda: attack(server, share, list_all), service="smb")


@pytest.mark.alone
def test_many_handles_and_sessions(server: Server, share: str) -> None:
    """10,000 handles and 200 sessions: small requests take no longer."""

    async def run() -> None:
        endpoint = server.endpoints["smb"]
        clients = [await log_on(endpoint, share) for _ in range(200)]
        try:
            for number, client in enumerate(clients):
                await open_all(client, [f"file{number % 50}"] * 50)
            measured = []
            for _ in range(_ATTEMPTS):
                with bystanders(server, "smb") as others, bystanders(server, "file") as rest:
                    await asyncio.sleep(1)
                measured.append(max(others.percentile_99_seconds, rest.percentile_99_seconds))
                if measured[-1] < _PERCENTILE_99_SECONDS_MAX:
                    return
        finally:
            for client in clients:
                client.writer.transport.abort()
        raise AssertionError(f"one request in a hundred took {measured} s")

    asyncio.run(run())


# Limits


def test_locks_that_wait_are_limited(server: Server, share: str) -> None:
    async def run(client: SocketClient) -> None:
        holder, waiter = await open_all(client, ["locked", "locked"])
        await client.ask(Command.LOCK, lock_body(holder, [(0, 1)], LOCK_EXCLUSIVE))
        body = lock_body(waiter, [(0, 1)], LOCK_EXCLUSIVE)
        answers = await ask_all(client, Command.LOCK, [body] * (LOCK_WAITERS_MAX + 1))
        # The client is told that it waits before it is refused.
        assert {one.status for one in answers} == {NtStatus.PENDING}
        (refused,) = (await client.settle())[0]
        assert refused.status == NtStatus.INSUFFICIENT_RESOURCES

    attack(server, share, run)


def test_watches_are_limited(server: Server, share: str) -> None:
    async def run(client: SocketClient) -> None:
        directories = await open_all(client, [""] * (WATCHES_PER_SESSION_MAX + 1), DIRECTORY)
        bodies = [notify_body(one) for one in directories]
        *answers, last = await ask_all(client, Command.CHANGE_NOTIFY, bodies)
        assert {one.status for one in answers} == {NtStatus.PENDING}
        assert last.status == NtStatus.INSUFFICIENT_RESOURCES

    attack(server, share, run)


def test_pipes_are_limited(server: Server, share: str) -> None:
    async def run(client: SocketClient) -> None:
        await client.connect_tree(r"\\server\IPC$")
        bodies = [create_body("srvsvc", 0)] * (PIPES_PER_SESSION_MAX + 1)
        *answers, last = await ask_all(client, Command.CREATE, bodies)
        assert {one.status for one in answers} == {NtStatus.SUCCESS}
        assert last.status == NtStatus.TOO_MANY_OPENED_FILES
        (file_id,) = struct.unpack_from("<Q", answers[0].body, 64)
        await client.ask(Command.CLOSE, close_body(file_id))
        assert (await client.ask(Command.CREATE, bodies[0])).status == NtStatus.SUCCESS

    attack(server, share, run)


def test_handles_on_a_file_are_limited(server: Server, share: str) -> None:
    async def run(client: SocketClient) -> None:
        bodies = [create_body("file", FILE)] * 2_001
        *answers, last = await ask_all(client, Command.CREATE, bodies)
        assert {one.status for one in answers} == {NtStatus.SUCCESS}
        assert last.status == NtStatus.TOO_MANY_OPENED_FILES
        assert (await client.ask(Command.CREATE, create_body("other", FILE))).status == 0

    attack(server, share, run)


# Memory


def test_responses_that_nobody_reads(tmp_path: Path) -> None:
    """What the server keeps for such clients is limited for all of them together."""
    with served(tmp_path / "data") as server:
        _require_bounded_memory(server, file_service(server).create_share("box").share_name)
        assert server.stop() == 0


def _require_bounded_memory(server: Server, share: str) -> None:
    async def fill(client: SocketClient) -> None:
        (file,) = await open_all(client, ["large"])
        await ask_all(client, Command.WRITE, [write_body(file, 0, bytes(_MIB))], charge=16)

    async def run() -> None:
        before = _memory_bytes(server)
        clients = [await log_on(server.endpoints["smb"], share) for _ in range(40)]
        for client in clients:
            (file,) = await open_all(client, ["large"])
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            # Otherwise the kernel may take all responses.
            connection = client.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            for _ in range(20):
                body = read_body(file, 0, _MIB)
                client.give(client.message(Command.READ, body, charge=16, credits=16))
        most, grew_at = before, time.monotonic()
        while time.monotonic() - grew_at < 1.0:
            await asyncio.sleep(0.05)
            now = _memory_bytes(server)
            if now > most:
                most, grew_at = now, time.monotonic()
        for client in clients:
            client.writer.transport.abort()
        # The budget, and a frame for each client that gets one while memory is scarce.
        assert most - before < 300 * _MIB

    attack(server, share, fill)
    asyncio.run(run())


def _memory_bytes(server: Server) -> int:
    """The resident memory of the largest process of the server."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in server.children()]
    return max(pages) * 4_096
