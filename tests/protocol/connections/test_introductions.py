"""How nodes recognize each other: by a secret that they do not send, once per connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from etagere.protocol.connections import introductions
from etagere.protocol.connections.introductions import (
    HandshakeLimit,
    Introduction,
    NotIntroduced,
    introduce,
    receive_introduction,
)
from tests.loops import in_event_loop

SECRET, OTHER_SECRET = bytes(32), bytes([1]) * 32
SENT = Introduction("smb", "10.1.2.3", 50_000, 7)
CHALLENGE_BYTES, PROOF_BYTES = 32, 32


def accept(_: Introduction) -> None:
    """Accepts every connection."""


def pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return one, other


async def both(forwarder_secret: bytes, listener_secret: bytes) -> list[object]:
    """Runs both sides; returns what they returned or raised."""
    one, other = pair()

    async def closing(side: socket.socket, run: Awaitable[object]) -> object:
        with side:
            return await run

    return list(
        await asyncio.gather(
            closing(one, introduce(one, forwarder_secret, SENT)),
            closing(other, receive_introduction(other, listener_secret, accept)),
            return_exceptions=True,
        )
    )


@in_event_loop
async def test_an_introduction_arrives_and_nothing_behind_it_is_read() -> None:
    one, other = pair()
    with one, other:
        _, received = await asyncio.gather(
            introduce(one, SECRET, SENT), receive_introduction(other, SECRET, accept)
        )
        assert (received.service, received.host, received.port) == ("smb", "10.1.2.3", 50_000)
        assert received.epoch == 7
        await asyncio.get_running_loop().sock_sendall(one, b"of the client")
        assert await asyncio.get_running_loop().sock_recv(other, 100) == b"of the client"


@in_event_loop
async def test_a_connection_that_is_not_accepted() -> None:
    """The forwarder learns of it before it sends the bytes of its client."""

    def refuse(introduction: Introduction) -> None:
        raise NotIntroduced(f"not in epoch {introduction.epoch}")

    one, other = pair()
    forwarding = asyncio.create_task(introduce(one, SECRET, SENT))
    with one:
        with other, pytest.raises(NotIntroduced, match="not in epoch 7"):
            await receive_introduction(other, SECRET, refuse)
        with pytest.raises(NotIntroduced, match="closed"):
            await forwarding


@in_event_loop
async def test_sides_with_different_secrets() -> None:
    ended = await both(SECRET, OTHER_SECRET)
    assert all(isinstance(each, NotIntroduced) for each in ended)


async def recorded() -> tuple[bytes, bytes]:
    """Returns what both sides of a correct handshake sent: the listener, the forwarder."""
    (one, between), (again, other) = pair(), pair()
    loop = asyncio.get_running_loop()
    with one, between, again, other:
        sides = asyncio.gather(
            introduce(one, SECRET, SENT), receive_introduction(other, SECRET, accept)
        )
        challenge = await loop.sock_recv(again, 1_000)
        await loop.sock_sendall(between, challenge)
        message = await loop.sock_recv(between, 1_000)
        await loop.sock_sendall(again, message)
        answer = await loop.sock_recv(again, 1_000)
        await loop.sock_sendall(between, answer)
        await sides
    return challenge + answer, message


@in_event_loop
async def test_a_handshake_cannot_be_replayed() -> None:
    listener, forwarder = await recorded()
    loop = asyncio.get_running_loop()
    one, other = pair()
    with one, other:
        await loop.sock_sendall(one, forwarder)
        with pytest.raises(NotIntroduced, match="secret"):
            await receive_introduction(other, SECRET, accept)
    one, other = pair()
    with one, other:
        await loop.sock_sendall(other, listener)
        with pytest.raises(NotIntroduced, match="secret"):
            await introduce(one, SECRET, SENT)


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message[:-1] + bytes([message[-1] ^ 1]),
        lambda message: message.replace(b"10.1.2.3", b"10.1.2.4"),
        lambda _: b"\xff\xff" + bytes(2_000),
        lambda _: b"\x00\x00" + bytes(32),
        lambda message: message[:10],
        lambda _: b"",
    ],
)
@in_event_loop
async def test_changed_introductions(change: Callable[[bytes], bytes]) -> None:
    (one, between), (again, other) = pair(), pair()
    loop = asyncio.get_running_loop()
    with one, between, again, other:
        sides = asyncio.gather(
            introduce(one, SECRET, SENT),
            receive_introduction(other, SECRET, accept),
            return_exceptions=True,
        )
        await loop.sock_sendall(between, await loop.sock_recv(again, 1_000))
        await loop.sock_sendall(again, change(await loop.sock_recv(between, 1_000)))
        again.shutdown(socket.SHUT_WR)
        between.shutdown(socket.SHUT_WR)
        assert all(isinstance(each, NotIntroduced) for each in await sides)


@in_event_loop
async def test_a_silent_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "HANDSHAKE_SECONDS_MAX", 0.02)
    one, other = pair()
    with one, other:
        with pytest.raises(TimeoutError):
            await introduce(one, SECRET, SENT)
        with pytest.raises(TimeoutError):
            await receive_introduction(other, SECRET, accept)


class Handshakes:
    """Tasks that have handshakes which do not end."""

    def __init__(self, limit: HandshakeLimit) -> None:
        self._limit = limit
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, host: str) -> None:
        self._tasks.append(asyncio.create_task(self._wait(host)))
        await asyncio.sleep(0)

    async def _wait(self, host: str) -> None:
        with self._limit.admit(host):
            await asyncio.Event().wait()

    async def under_way(self) -> list[int]:
        """Returns the numbers of the tasks that were not cancelled, and cancels these."""
        await asyncio.sleep(0)
        running = [number for number, task in enumerate(self._tasks) if not task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        return running


@pytest.mark.parametrize(
    ("hosts", "under_way"),
    [
        ("abcd", [0, 1, 2, 3]),
        ("abcde", [1, 2, 3, 4]),
        ("aaab", [1, 2, 3]),
        ("aabbaa", [2, 3, 4, 5]),
    ],
)
@in_event_loop
async def test_new_handshakes_replace_the_oldest(hosts: str, under_way: list[int]) -> None:
    handshakes = Handshakes(HandshakeLimit(handshakes_max=4, handshakes_per_address_max=2))
    for host in hosts:
        await handshakes.begin(host)
    assert await handshakes.under_way() == under_way


@in_event_loop
async def test_completed_handshakes_do_not_count() -> None:
    limit = HandshakeLimit(handshakes_max=2, handshakes_per_address_max=1)
    handshakes = Handshakes(limit)
    await handshakes.begin("a")
    for _ in range(3):
        with limit.admit("b"):
            pass
    assert await handshakes.under_way() == [0]
