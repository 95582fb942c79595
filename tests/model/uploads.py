"""Uploads that nothing adopts, written and read back."""

from __future__ import annotations

from awscrt.checksums import crc64nvme

from etagere.bodies.contents import SEGMENTS
from etagere.bodies.files import FileBodyStore
from etagere.bodies.plans import SegmentRange
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import ReadTxn
from etagere.model.bodies import Body, Segment
from tests.model.front_ends import SMALL, StoreCluster

WIDE = Config(
    durable=False,
    inline_bytes_max=SMALL.inline_bytes_max,
    piece_bytes_max=3 * MIB,
    segment_bytes_max=8 * MIB,
    reserve_bytes=1 * MIB,
)
"""Pieces larger than one flush."""


def store_of(cluster: StoreCluster) -> FileBodyStore:
    store = cluster.local.front_end.store
    assert isinstance(store, FileBodyStore)
    return store


async def write(
    store: FileBodyStore,
    data: bytes,
    length: int | None = None,
    *,
    step: int = 64 * KIB,
    inline: bool = True,
) -> Body:
    async with store.writer(length, inline=inline) as writer:
        for at in range(0, len(data), step):
            await writer.append(data[at : at + step])
        return await writer.seal()


async def read(store: FileBodyStore, body: Body) -> bytes:
    if not body.pieces:
        return body.data
    plan = tuple(SegmentRange(p.segment, p.offset, p.length, p.crc) for p in body.pieces)
    with store.open_reader() as reader:
        return b"".join([chunk async for chunk in reader.chunks(plan)])


async def require_stored(store: FileBodyStore, body: Body, data: bytes) -> None:
    assert body.length == len(data)
    assert body.crc == crc64nvme(data)
    assert await read(store, body) == data
    if body.pieces:
        assert sum(piece.length for piece in body.pieces) == len(data)


async def state_of(cluster: StoreCluster, number: int) -> Segment:
    def look(txn: ReadTxn, _: None) -> Segment:
        segment = txn.get(SEGMENTS, (number,))
        assert segment is not None
        return segment

    return await cluster.local.front_end.engine.read(look, None)
