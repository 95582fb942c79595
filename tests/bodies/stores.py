"""A store with records of every kind, and ways to damage it from outside."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from etagere.bodies.collector import Collector
from etagere.bodies.contents import MOVES, SEGMENTS
from etagere.bodies.files import FileBodyStore
from etagere.bodies.segment_files import segment_path
from etagere.bodies.segments import Reap, reap
from etagere.config import KIB, Config
from etagere.engine.interface import Engine
from etagere.engine.ledger import database_path, statements
from etagere.engine.records import Collection, K, R
from etagere.model.base import Record
from etagere.model.bodies import Block, Content, Segment, SegmentState
from etagere.model.ids import new_id
from tests.bodies import mapped_objects
from tests.bodies.objects import (
    OBJECTS,
    CopyObject,
    ListBlocks,
    Object,
    StageBlocks,
    copy_object,
    delete_object,
    download,
    list_blocks,
    split,
    stage,
    stage_blocks,
    upload,
)
from tests.engine.sqlite_harness import SqliteHarness

CONFIG = Config(
    durable=False,
    inline_bytes_max=1 * KIB,
    piece_bytes_max=8 * KIB,
    segment_bytes_max=128 * KIB,
    reserve_bytes=64 * KIB,
)
LISTED_BLOCKS = 140


def data_of(name: str, length: int) -> bytes:
    return random.Random(name).randbytes(length)


SIZES = {
    "empty": 0,
    "small": 700,
    "small-copy": 700,
    "single": 5_000,
    "copied": 6_000,
    "copied-2": 6_000,
    "many": 100_000,
    "many-copy": 100_000,
    "moved": 4_000,
    "moved-many": 90_000,
    "late": 3_000,
}
"""Objects that are uploads, and copies of them."""
_COPIES = {"small-copy": "small", "copied-2": "copied", "many-copy": "many"}


def expected() -> dict[str, bytes]:
    """Returns all objects of the store and their bytes."""
    objects = {name: data_of(_COPIES.get(name, name), size) for name, size in SIZES.items()}
    objects["list-old"] = data_of("list", LISTED_BLOCKS * 16)
    objects["list"] = objects["list-old"] + data_of("list-more", 2_000)
    return objects | mapped()


def mapped() -> dict[str, bytes]:
    """Returns the expected bytes of the objects that are interval maps."""
    old = bytearray(40_000)
    old[512:10_512] = data_of("pages", 10_000)
    live = bytearray(old)
    live[4_096:5_096] = data_of("pages-later", 1_000)
    live[9_000:12_000] = bytes(3_000)
    fork = bytearray(old)
    fork[2_048:3_048] = data_of("pages-fork", 1_000)
    fork[6_000:7_000] = bytes(1_000)
    return {
        "pages": bytes(live),
        "pages-old": bytes(old),
        "pages-copy": bytes(old),
        "pages-fork": bytes(fork[:30_000]),
        "appended": data_of("appended", 3_000),
        "inline": data_of("inline", 1_500) + data_of("inline-later", 500),
        "inline-old": data_of("inline", 1_500),
    }


async def build(directory: Path) -> None:
    """Fills a new store, leaves an open segment behind as a crash does, and stops."""
    harness = SqliteHarness(directory, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        store = FileBodyStore(directory, engine, CONFIG)
        await _upload_moved(directory, engine, store)
        await _write_maps(engine, store)
        await _upload_objects(engine, store)
        await store.close()
        await engine.write(delete_object, "gone-later")
        await _leave_behind(directory, engine)
    finally:
        await harness.close()
    (directory / "writer.sock").unlink(missing_ok=True)


async def _upload_moved(directory: Path, engine: Engine, store: FileBodyStore) -> None:
    """Uploads objects whose extents a collection has moved; of the emptied segments one is removed
    and one is left."""
    for round_ in range(2):
        suffix = "-many" if round_ else ""
        await upload(engine, store, "doomed", data_of("doomed", 40_000))
        name = f"moved{suffix}"
        await upload(engine, store, name, data_of(name, SIZES[name]))
        await engine.write(delete_object, "doomed")
        await store.maintain()
        await store.maintain()
        collector = Collector(engine, store, CONFIG)
        if round_:
            with store.open_reader():
                await collector.collect()
                await collector.collect()
        else:
            await collector.collect()
            await collector.collect()


async def _upload_objects(engine: Engine, store: FileBodyStore) -> None:
    for name, size in SIZES.items():
        if name in _COPIES:
            await engine.write(copy_object, CopyObject(_COPIES[name], name))
        elif not name.startswith("moved") and name != "late":
            await upload(engine, store, name, data_of(name, size))
    async with store.writer(inline=False) as writer:
        await writer.append(data_of("list", LISTED_BLOCKS * 16))
        body = await writer.seal()
        blocks = tuple(Block(new_id(), (piece,)) for piece in split(body, 16))
        await engine.write(stage_blocks, StageBlocks("list", blocks))
    await engine.write(list_blocks, ListBlocks("list", new_id()))
    await engine.write(copy_object, CopyObject("list", "list-old"))
    await stage(engine, store, "list", [data_of("list-more", 2_000)])
    await engine.write(list_blocks, ListBlocks("list", new_id(), tuple(range(LISTED_BLOCKS))))
    await stage(engine, store, "waiting", [b"x" * 500, b"y" * 600])
    await upload(engine, store, "gone", data_of("gone", 3_000))
    await engine.write(delete_object, "gone")
    await upload(engine, store, "gone-later", data_of("gone-later", 3_000))
    await upload(engine, store, "dying", data_of("dying", 90_000))
    await engine.write(delete_object, "dying")


async def _write_maps(engine: Engine, store: FileBodyStore) -> None:
    """Writes a map that was changed after a copy, that copy, and a child of it; some intervals are
    still to be reaped."""
    await mapped_objects.begin(engine, "pages", 40_000)
    await mapped_objects.write(engine, store, "pages", 512, data_of("pages", 10_000))
    await engine.write(copy_object, CopyObject("pages", "pages-old"))
    await mapped_objects.write(engine, store, "pages", 4_096, data_of("pages-doomed", 1_000))
    await engine.write(copy_object, CopyObject("pages", "pages-doomed"))
    await mapped_objects.write(engine, store, "pages", 4_096, data_of("pages-later", 1_000))
    await mapped_objects.clear(engine, "pages", 9_000, 12_000)
    await engine.write(delete_object, "pages-doomed")
    while await engine.write(reap, Reap()):
        pass
    for name in ("pages-copy", "pages-fork"):
        await engine.write(copy_object, CopyObject("pages-old", name))
    data = data_of("pages-fork", 1_000)
    await mapped_objects.write(engine, store, "pages-fork", 2_048, data)
    await mapped_objects.clear(engine, "pages-fork", 6_000, 7_000)
    await mapped_objects.resize(engine, "pages-fork", 30_000)
    await mapped_objects.begin(engine, "appended", 0)
    data = data_of("appended", 3_000)
    for start in range(0, 3_000, 1_000):
        await mapped_objects.write(engine, store, "appended", None, data[start : start + 1_000])
    await _write_inline(engine, store)
    await mapped_objects.begin(engine, "pages-gone", 5_000)
    await mapped_objects.write(engine, store, "pages-gone", 0, data_of("pages-gone", 5_000))
    await engine.write(delete_object, "pages-gone")


async def _write_inline(engine: Engine, store: FileBodyStore) -> None:
    """Writes inline intervals: some only in an older generation, some in the newest."""
    await mapped_objects.begin(engine, "inline", 0)
    data = data_of("inline", 1_500)
    for start in range(0, 1_500, 100):
        if start == 700:
            await mapped_objects.write(engine, store, "inline", None, data[start : start + 100])
        else:
            await mapped_objects.write_inline(engine, "inline", data[start : start + 100])
    await engine.write(copy_object, CopyObject("inline", "inline-old"))
    await mapped_objects.fold(engine, store, "inline")
    for start in range(0, 500, 100):
        later = data_of("inline-later", 500)[start : start + 100]
        await mapped_objects.write_inline(engine, "inline", later)


async def _leave_behind(directory: Path, engine: Engine) -> None:
    """Starts a process that ends in the middle of an upload."""
    store = FileBodyStore(directory, engine, CONFIG)
    await upload(engine, store, "late", data_of("late", SIZES["late"]))
    async with store.writer(50_000) as writer:
        await writer.append(b"z" * 50_000)
        await writer.seal()
    store.coordinator.close()


async def read_all(directory: Path) -> dict[str, bytes | None]:
    """Starts a server on a store and downloads all objects."""
    harness = SqliteHarness(directory, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        store = FileBodyStore(directory, engine, CONFIG)
        found = {name: await download(engine, store, name) for name in expected()}
        await store.close()
        return found
    finally:
        await harness.close()


class DamagedStore:
    """A copy of a store for a test to damage."""

    def __init__(self, source: Path, directory: Path) -> None:
        shutil.copytree(source, directory)
        self.directory = directory

    @contextmanager
    def database(self) -> Iterator[apsw.Connection]:
        connection = apsw.Connection(str(database_path(self.directory)))
        try:
            yield connection
        finally:
            connection.close()

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self.database() as connection:
            return list(connection.execute(sql, values))

    def rows(self, collection: Collection[K, R]) -> list[tuple[K, R]]:
        rows = self.execute(f"SELECT key, value FROM {collection.name} ORDER BY key")  # noqa: S608
        return [(collection.unpack(key), collection.decode(value)) for key, value in rows]

    def get(self, collection: Collection[K, R], key: K) -> R:
        ((value,),) = self.execute(statements(collection).get, (collection.pack(key),))
        return collection.decode(value)

    def put(self, collection: Collection[K, R], key: K, record: Record) -> None:
        value = collection.encode(record)  # type: ignore[arg-type]
        self.execute(statements(collection).put, (collection.pack(key), value))

    def corrupt(self, collection: Collection[K, R], key: K) -> None:
        """Makes a record undecodable."""
        self.execute(statements(collection).put, (collection.pack(key), b"\xc1 spoilt"))

    def delete(self, collection: Collection[K, R], key: K) -> None:
        assert self.get(collection, key) is not None
        self.execute(statements(collection).delete, (collection.pack(key),))

    def content(self, name: str) -> Any:
        return self.get(OBJECTS, (name,)).content

    def put_content(self, name: str, content: Content) -> None:
        self.put(OBJECTS, (name,), Object(content, 1))

    def segment_of(self, name: str) -> int:
        """Returns the segment of the first byte of an object that was not moved."""
        number = self.content(name).pieces[0].segment
        assert isinstance(number, int)
        return number

    def path(self, number: int) -> Path:
        return segment_path(self.directory, number)

    def segment(self, state: SegmentState) -> tuple[int, Segment]:
        """Returns any segment in this state."""
        found = [(n, s) for (n,), s in self.rows(SEGMENTS) if s.state is state]
        return found[0]

    def move(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the old and the new place of some moved extent."""
        origin, move = self.rows(MOVES)[0]
        return origin, (move.segment, move.offset)
