"""Thousands of malformed requests: nothing crashes, hangs or leaks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from tests.protocol.http.harness import (
    Client,
    ServerFixture,
    get,
    on_loops,
    put,
    put_chunks,
    serving,
)
from tests.protocol.http.test_malformed import REFUSED, SERVED

SEEDS = [
    get("/container/blob?comp=list&prefix=a%20b", "x-ms-version: 2021-12-02", "Range: bytes=0-1"),
    put(b"hello world" * 20, "x-ms-blob-type: BlockBlob", "Content-Type: text/plain"),
    put(b"12345678", "Expect: 100-continue"),
    put_chunks(b"hello", b" ", b"world" * 30),
    get("/", "Connection: close"),
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    *REFUSED.values(),
    *[data for data, _ in SERVED.values()],
]
PIECES = [
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"\r\n\r\n", b"0\r\n\r\n", b"-1", b"\xff",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1", b"GET / ",
    b"ffffffffffffffff\r\n", b"Host: x\r\n", b"Expect: 100-continue\r\n", b"a" * 5000,
]  # fmt: skip
LIMITS = Limits(
    head_bytes_max=8192,
    head_seconds=0.3,
    behind_seconds_max=0.3,
    idle_seconds=0.3,
    linger_seconds=0.2,
)


def mutated(chance: random.Random) -> bytes:
    data = bytearray(b"".join(chance.choices(SEEDS, k=chance.randint(1, 3))))
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                data[at:at] = chance.choice(PIECES)
            case 2:
                del data[at : at + chance.randint(1, 20)]
            case 3:
                data[at:at] = data[max(0, at - 30) : at]
            case _:
                del data[at:]
    return bytes(data)


async def answers(request: Request) -> Response:
    """Reads all, part or none of the body, like applications do."""
    match len(request.headers) % 3:
        case 0:
            await request.body.read(1 << 20)
        case 1:
            async for _ in request.body:
                break
    return Response(200, (), b"x" * (len(request.target) * 100))


async def _exchange(server: ServerFixture, chance: random.Random) -> None:
    client = await server.connect()
    server.clients.remove(client)
    data = mutated(chance)
    cut = chance.randrange(len(data) + 1)
    await client.send_all(data[:cut])
    if chance.random() < 0.5:
        await asyncio.sleep(0)
    await client.send_all(data[cut:])
    await _leave(client, chance)


async def _leave(client: Client, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0:
            client.reset()
        case 1:
            await client.close()
        case 2:
            # All time limits are short: the server closes the connection, whatever it received.
            with contextlib.suppress(OSError, RuntimeError):  # the server was faster
                client.writer.write_eof()
            await client.rest(5)
            await client.close()
        case _:
            await client.rest(5)
            await client.close()


async def _worker(server: ServerFixture, chance: random.Random, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        await _exchange(server, chance)
        count += 1
    return count


@pytest.mark.parametrize("seed", [20240229])
@on_loops
async def test_mutated_requests(seed: int) -> None:
    async with serving(answers, limits=LIMITS) as server:
        end = time.monotonic() + 4.0
        workers = [_worker(server, random.Random(seed + number), end) for number in range(100)]
        total = sum(await asyncio.gather(*workers))
        assert total > 100  # on a busy machine
        assert server.stub.failures == []
        # The server still works.
        assert (await server.connect_and_ask(get())).status == 200
