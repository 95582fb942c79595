"""Memory limits for request and response bodies in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from etagere.protocol.connections.memory import DOCUMENT_FACTOR, MemoryBudget, MemoryExhausted
from etagere.protocol.connections.sharing import FrontEndShare, FrontEndTable
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from tests.loops import until
from tests.protocol.http.harness import Handler, echo, get, head, on_loops, put, put_chunks, serving

MIB = 1 << 20


async def busy_or_echo(request: Request) -> Response:
    try:
        return await echo(request)
    except MemoryExhausted:
        return Response(503)


@pytest.mark.parametrize("group", [range(2), None])
def test_front_ends_share_one_budget(group: range | None) -> None:
    """Whether they have the same listeners or not."""
    table = FrontEndTable(2, 1)
    one, other = (
        MemoryBudget(8 * MIB, FrontEndShare(table, number, group or range(number, number + 1)))
        for number in range(2)
    )
    assert one.reserve(4 * MIB)
    assert other.reserve(3 * MIB)
    assert not one.reserve(MIB)
    assert one.is_scarce
    one.release(4 * MIB)
    assert other.reserve(4 * MIB)


def test_large_bodies_leave_memory_for_small_ones() -> None:
    budget = MemoryBudget(8 * MIB)
    assert budget.reserve(7 * MIB)
    assert not budget.reserve(100_000)
    for _ in range(16):
        assert budget.reserve(65_536)
    assert not budget.reserve(1)


@on_loops
async def test_spare_memory_is_what_requests_do_not_need() -> None:
    budget = MemoryBudget(8 * MIB, wait_seconds_max=0.05)
    assert budget.reserve(2 * MIB)
    assert budget.reserve_spare(2 * MIB)
    assert not budget.reserve_spare(1)
    budget.release(2 * MIB)
    waiting = asyncio.create_task(budget.reserve_in_turn(6 * MIB))
    await asyncio.sleep(0)
    assert not budget.reserve_spare(1)
    with pytest.raises(MemoryExhausted):
        await waiting
    budget.grant()
    assert budget.reserve_spare(1)


@on_loops
async def test_waiting_requests_get_memory_in_order() -> None:
    budget = MemoryBudget(8 * MIB, wait_seconds_max=2.0)
    assert budget.reserve(7 * MIB)
    got: list[int] = []

    async def wait(number: int, count: int) -> None:
        await budget.reserve_in_turn(count)
        got.append(number)

    waiting = [asyncio.create_task(wait(number, 3 * MIB)) for number in (1, 2)]
    await asyncio.sleep(0.01)
    with pytest.raises(MemoryExhausted):  # enough requests are ahead of it
        await budget.reserve_in_turn(3 * MIB)
    budget.release(4 * MIB)
    await until(lambda: got == [1])
    with pytest.raises(MemoryExhausted):
        await waiting[1]
    budget.release(6 * MIB)
    assert budget.used_bytes == 0
    await budget.reserve_in_turn(MIB)
    assert budget.used_bytes == MIB


@on_loops
async def test_small_reservations_do_not_wait_for_large_ones() -> None:
    table = FrontEndTable(2, 1)
    budget, other = (MemoryBudget(16 * MIB, FrontEndShare(table, number)) for number in range(2))
    assert budget.reserve(10 * MIB)
    waiting = asyncio.create_task(budget.reserve_in_turn(8 * MIB))
    await asyncio.sleep(0)
    assert other.is_wanted
    async with asyncio.timeout(1.0):
        await budget.reserve_in_turn(10_000)
        await budget.reserve_in_turn(MIB)
    waiting.cancel()
    await asyncio.wait([waiting])
    budget.release(11 * MIB + 10_000)
    assert budget.used_bytes == 0
    assert not other.is_wanted


@on_loops
async def test_small_bodies_do_not_wait_for_large_ones() -> None:
    budget = MemoryBudget(8 * MIB)
    assert budget.reserve(7 * MIB)
    large = asyncio.create_task(budget.reserve_in_turn(2 * MIB))
    await asyncio.sleep(0)
    async with asyncio.timeout(0.1):
        await budget.reserve_in_turn(1_000)
    assert not large.done()
    budget.release(7 * MIB)
    await large
    assert budget.used_bytes == 2 * MIB + 1_000


@on_loops
async def test_a_cancelled_wait_reserves_nothing() -> None:
    budget = MemoryBudget(8 * MIB)
    assert budget.reserve(7 * MIB)
    waiting = asyncio.create_task(budget.reserve_in_turn(2 * MIB))
    await asyncio.sleep(0)
    waiting.cancel()
    budget.release(7 * MIB)
    await asyncio.wait([waiting])
    assert budget.used_bytes == 0


@on_loops
async def test_a_document_is_refused_before_it_is_read() -> None:
    memory = MemoryBudget(8 * MIB * DOCUMENT_FACTOR, wait_seconds_max=0.1)
    async with serving(busy_or_echo, memory=memory) as server:
        client, other = await server.connect(), await server.connect()
        body = bytes(6 * MIB)
        await client.send(put(body)[:-1])
        await until(lambda: memory.used_bytes >= 6 * MIB * DOCUMENT_FACTOR)
        await other.send(head("PUT / HTTP/1.1", f"Content-Length: {len(body)}"))
        assert (await other.answer()).status == 503
        # A small one is served anyway, and the other once there is memory again.
        await other.send(body)
        assert (await other.ask(put(b"small"))).body == b"small"
        assert (await client.ask(b"\0")).body == body
        await until(lambda: memory.used_bytes == 0)
        assert (await other.ask(put(body))).body == body


@on_loops
async def test_slow_clients_are_evicted_when_others_wait_for_memory() -> None:
    memory = MemoryBudget(8 * MIB * DOCUMENT_FACTOR)
    limits = Limits(held_memory_seconds_max=5.0, wanted_memory_seconds_max=0.5)
    async with serving(busy_or_echo, limits=limits, memory=memory) as server:
        slow, other = await server.connect(), await server.connect()
        body = bytes(6 * MIB)
        await slow.send(put(body)[:MIB])
        await until(lambda: memory.used_bytes >= 6 * MIB * DOCUMENT_FACTOR)
        await asyncio.sleep(0.2)
        assert memory.used_bytes  # while no one else needs it
        assert (await other.ask(put(body))).body == body
        assert (await slow.answer()).status == 503
        await until(lambda: memory.used_bytes == 0)


async def read_in_pieces(request: Request) -> Response:
    """As an upload is."""
    return Response(200, (), b"".join([chunk async for chunk in request.body]))


@pytest.mark.parametrize(
    ("handle", "announced", "count"),
    [(echo, 16_384, 70), (echo, 300_000, 3), (read_in_pieces, 300_000, 70)],
)
@on_loops
async def test_announced_but_unsent_bytes_hold_little_memory(
    handle: Handler, announced: int, count: int
) -> None:
    memory = MemoryBudget(4 * MIB)
    async with serving(handle, memory=memory) as server:
        slow = [await server.connect() for _ in range(count)]
        body = bytes(announced)
        for client in slow:
            await client.send(put(body)[: 1 - announced])
        await until(lambda: len(server.stub.requests) == count)
        other = await server.connect()
        async with asyncio.timeout(1.0):
            assert (await other.ask(put(body))).body == body
        # None of them is given up.
        for client in slow:
            assert (await client.ask(body[1:])).body == body
        await until(lambda: memory.used_bytes == 0)
        assert not memory._reclaimable


@on_loops
async def test_a_growing_chunked_document_is_refused() -> None:
    memory = MemoryBudget(2 * MIB * DOCUMENT_FACTOR, wait_seconds_max=0.1)
    async with serving(busy_or_echo, memory=memory) as server:
        client = await server.connect()
        assert (await client.ask(put_chunks(*[bytes(65_536)] * 12))).status == 200
        sending = asyncio.create_task(client.send_all(put_chunks(*[bytes(65_536)] * 48)))
        assert (await client.answer()).status == 503
        await sending
        assert (await client.ask(put(b"small"))).body == b"small"
        await until(lambda: memory.used_bytes == 0)


@on_loops
async def test_memory_of_a_disconnected_client_is_released() -> None:
    memory = MemoryBudget()
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(wait, memory=memory) as server:
        for request in (put(bytes(200_000))[:-1], put_chunks(bytes(300_000))[:-5], get() * 3):
            client = await server.connect()
            await client.send(request + put(bytes(100_000)))
            await until(lambda: bool(server.stub.requests))
            await asyncio.sleep(0.01)
            client.reset()
        gate.set()
        await until(lambda: server.connections == 0)
        assert memory.used_bytes == 0


@on_loops
async def test_pipelined_bodies_stay_in_the_socket() -> None:
    memory = MemoryBudget()
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(wait, memory=memory) as server:
        client = await server.connect()
        await client.send(get())
        await until(lambda: bool(server.stub.requests))
        sending = asyncio.create_task(client.send(put(bytes(60_000)) * 14))
        await asyncio.sleep(0.2)
        assert memory.used_bytes < 320 * 1024  # what the transport had already read
        gate.set()
        assert (await client.answer()).status == 200
        for _ in range(14):
            assert (await client.answer()).body == bytes(60_000)
        await sending


@on_loops
async def test_large_responses_count_until_they_are_sent() -> None:
    memory = MemoryBudget(8 * MIB)

    async def large(request: Request) -> Response:
        return Response(200, (), bytes(7 * MIB))

    async with serving(large, memory=memory) as server:
        slow, other = await server.connect(receive_bytes=4096), await server.connect()
        await slow.send(get())
        await until(lambda: memory.used_bytes == 7 * MIB)
        assert (await other.ask(get())).status == 503
        # Completed changes get their response.
        assert (await other.ask(put(b""), "PUT")).status == 200
        assert len((await slow.answer(seconds=10)).body) == 7 * MIB
        await until(lambda: memory.used_bytes == 0)
        assert (await other.ask(get())).status == 200


@on_loops
async def test_streamed_responses_count_what_they_buffer() -> None:
    memory = MemoryBudget(8 * MIB)
    ended = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        await ended.wait()

    async def stream(request: Request) -> Response:
        return Response(200, (), chunks(), 5, buffer_bytes=4 * MIB)

    async with serving(stream, memory=memory) as server:
        clients = [await server.connect() for _ in range(3)]
        for client in clients[:2]:
            await client.send(get())
            assert await client.reader.readuntil(b"first")
        assert memory.used_bytes == 8 * MIB
        assert (await clients[2].ask(get())).status == 503
        ended.set()
        await until(lambda: memory.used_bytes == 0)
        assert (await clients[2].ask(get())).body == b"first"


@on_loops
async def test_large_responses_take_precedence_over_stalled_bodies() -> None:
    memory = MemoryBudget(8 * MIB)

    async def handle(request: Request) -> Response:
        return await echo(request) if request.method == "PUT" else Response(200, (), bytes(MIB))

    async with serving(handle, memory=memory) as server:
        for _ in range(6):
            await (await server.connect()).send(put(bytes(262_144))[:-262_143])
        await until(lambda: memory.used_bytes >= 6 * MIB)
        memory.add(MIB)
        assert memory.is_scarce
        await asyncio.sleep(0.15)
        assert (await server.connect_and_ask(get())).status == 200
        memory.release(MIB)


@on_loops
async def test_the_response_to_a_get_that_changed_something_is_always_sent() -> None:
    memory = MemoryBudget(8 * MIB)

    async def take(request: Request) -> Response:
        return Response(200, (), bytes(2 * MIB), has_effect=True)

    async with serving(take, memory=memory) as server:
        client = await server.connect()
        memory.add(7 * MIB)
        assert (await client.ask(get())).status == 200
        memory.release(7 * MIB)
        await until(lambda: memory.used_bytes == 0)


@on_loops
async def test_one_byte_chunks_form_one_document() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        assert (
            await client.ask(put_chunks(*[b"%c" % (n % 256) for n in range(2000)]))
        ).body == bytes(n % 256 for n in range(2000))
