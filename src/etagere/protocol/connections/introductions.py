"""How a node introduces a connection that it forwards, or relays requests on, to another node.

Both prove that they know the secret of the cluster, or that of the account map if they are in
different cells, for this connection only:

    listener   challenge, 32 random bytes
    forwarder  length u16 · introduction · HMAC-SHA256 of "forward", challenge and introduction
    listener   HMAC-SHA256 of "accept", challenge and introduction

A listener that does not accept the connection closes it instead. Otherwise the bytes of the client
follow. An introduction contains random bytes of the forwarder, so that an old answer proves
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from etagere.model.base import Part

HANDSHAKE_SECONDS_MAX: Final = 5.0
INTRODUCTION_BYTES_MAX: Final = 1_024
HANDSHAKES_MAX: Final = 256
"""The most connections that are being introduced at the same time."""
HANDSHAKES_PER_ADDRESS_MAX: Final = 64
"""The most of them from one address."""
_CHALLENGE_BYTES: Final = 32
_PROOF_BYTES: Final = hashlib.sha256().digest_size
_LENGTH: Final = struct.Struct("<H")
_FORWARD, _ACCEPT = b"forward", b"accept"


class NotIntroduced(Exception):
    """The other side does not know the secret, or does not keep to the protocol."""


class Introduction(Part, frozen=True):
    """What a forwarded connection is for."""

    service: str
    host: str
    """The address of the client."""
    port: int
    epoch: int
    """The epoch of the node that the connection is forwarded to, as the forwarder knows it."""
    nonce: bytes = b""
    is_relayed: bool = False
    """Whether the requests come from a node of another cell. They are not encrypted, and must not
    be relayed again."""
    is_secure: bool = False
    """Whether the client sent the relayed requests over TLS."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Introduction).decode


async def connect_to_node(
    address: tuple[str, int], secret: bytes, introduction: Introduction
) -> socket.socket:
    """Connects to another node. Raises `NotIntroduced`, `OSError` or `TimeoutError`."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    connected = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        set_options(connected)
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            await asyncio.get_running_loop().sock_connect(connected, address)
        await introduce(connected, secret, introduction)
    except BaseException:
        connected.close()
        raise
    return connected


def set_options(connected: socket.socket) -> None:
    """Sets the options of a connection between nodes."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def introduce(connected: socket.socket, secret: bytes, introduction: Introduction) -> None:
    """Introduces a connection to the node at the other end. Raises `NotIntroduced`, `OSError` or
    `TimeoutError`."""
    async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
        loop = asyncio.get_running_loop()
        nonce = os.urandom(_CHALLENGE_BYTES)
        message = _encode(msgspec.structs.replace(introduction, nonce=nonce))
        challenge = await _receive(connected, _CHALLENGE_BYTES)
        proof = _proof(secret, _FORWARD, challenge, message)
        await loop.sock_sendall(connected, _LENGTH.pack(len(message)) + message + proof)
        answer = await _receive(connected, _PROOF_BYTES)
        if not hmac.compare_digest(answer, _proof(secret, _ACCEPT, challenge, message)):
            raise NotIntroduced("the other node does not know the secret")


async def receive_introduction(
    connected: socket.socket, secret: bytes, check: Callable[[Introduction], None]
) -> Introduction:
    """Returns what a new connection is for. `check` raises `NotIntroduced` if it cannot be
    accepted: the forwarder must learn that before it sends the bytes of the client. Raises
    `NotIntroduced`, `OSError` or `TimeoutError`."""
    async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
        loop = asyncio.get_running_loop()
        challenge = os.urandom(_CHALLENGE_BYTES)
        await loop.sock_sendall(connected, challenge)
        (length,) = _LENGTH.unpack(await _receive(connected, _LENGTH.size))
        if length > INTRODUCTION_BYTES_MAX:
            raise NotIntroduced(f"an introduction of {length} bytes")
        message = await _receive(connected, length)
        proof = await _receive(connected, _PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(secret, _FORWARD, challenge, message)):
            raise NotIntroduced("the other side does not know the secret")
        try:
            introduction = _decode(message)
        except msgspec.MsgspecError as error:
            raise NotIntroduced(str(error)) from error
        check(introduction)
        await loop.sock_sendall(connected, _proof(secret, _ACCEPT, challenge, message))
        return introduction


def _proof(secret: bytes, purpose: bytes, challenge: bytes, message: bytes) -> bytes:
    return hmac.digest(secret, purpose + challenge + message, "sha256")


async def _receive(connected: socket.socket, count: int) -> bytes:
    """Receives exactly this many bytes: those that follow belong to the client."""
    loop = asyncio.get_running_loop()
    received = b""
    while len(received) < count:
        data = await loop.sock_recv(connected, count - len(received))
        if not data:
            raise NotIntroduced("the other side closed the connection")
        received += data
    return received


class HandshakeLimit:
    """Limits the handshakes under way, in total and per address. A new handshake replaces the
    oldest one: a node completes its handshake within milliseconds, so strangers that connect and
    send nothing do not keep it out."""

    def __init__(
        self,
        handshakes_max: int = HANDSHAKES_MAX,
        handshakes_per_address_max: int = HANDSHAKES_PER_ADDRESS_MAX,
    ) -> None:
        self._handshakes_max = handshakes_max
        self._handshakes_per_address_max = handshakes_per_address_max
        self._under_way: dict[asyncio.Task[Any], str] = {}
        """The tasks, oldest first, with the addresses of their clients."""

    @contextlib.contextmanager
    def admit(self, host: str) -> Iterator[None]:
        """Counts the current task while it has a handshake. If there are too many, cancels the
        oldest one."""
        task = asyncio.current_task()
        assert task is not None
        same = [other for other, its_host in self._under_way.items() if its_host == host]
        if len(same) >= self._handshakes_per_address_max:
            self._cancel(same[0])
        elif len(self._under_way) >= self._handshakes_max:
            self._cancel(next(iter(self._under_way)))
        self._under_way[task] = host
        try:
            yield
        finally:
            self._under_way.pop(task, None)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        del self._under_way[task]
        task.cancel()
