"""Contents without a store: a memory engine, and places in a segment without bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from etagere.bodies.contents import SEGMENTS, blocks_of, compose, create_extents, reap_some, release
from etagere.bodies.plans import Plan, SegmentRange, locate
from etagere.engine.interface import C, Guard, T, WriteTxn
from etagere.engine.memory import MemoryEngine
from etagere.engine.records import Collection, K, R, Span
from etagere.model.bodies import Block, Chunked, Content, Piece, Segment
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, Object
from tests.model.consistency import rows

SEGMENT = 1


class CountingTxn:
    """A transaction that counts its writes."""

    def __init__(self, beneath: WriteTxn) -> None:
        self._beneath = beneath
        self.puts: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()

    @property
    def now(self) -> int:
        return self._beneath.now

    @property
    def steady_now(self) -> int:
        return self._beneath.steady_now

    @property
    def stamp(self) -> int:
        return self._beneath.stamp

    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None:
        return self._beneath.get(collection, key, guard)

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        return self._beneath.get_all(collection, keys, guard)

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        return self._beneath.scan(collection, span, limit, reverse=reverse, claim=claim)

    def put(self, collection: Collection[K, R], key: K, record: R) -> R:
        self.puts[collection.name] += 1
        return self._beneath.put(collection, key, record)

    def delete(self, collection: Collection[K, R], key: K) -> None:
        self.deletes[collection.name] += 1
        self._beneath.delete(collection, key)

    def on_commit(self, hook: Callable[[C], None], argument: C) -> None:
        self._beneath.on_commit(hook, argument)


class LedgerFixture:
    """An engine whose transactions are run by plain functions, and extents of one segment."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self._end = 0
        self.change(lambda txn: txn.put(SEGMENTS, (SEGMENT,), Segment(new_id())))

    def change(self, work: Callable[[WriteTxn], T]) -> T:
        txn = self.engine.begin()
        try:
            result = work(txn)
            txn.commit()
            return result
        finally:
            txn.rollback()

    def count(self, work: Callable[[WriteTxn], T]) -> tuple[T, CountingTxn]:
        counted: list[CountingTxn] = []

        def counting(txn: WriteTxn) -> T:
            counted.append(CountingTxn(txn))
            return work(counted[0])

        return self.change(counting), counted[0]

    def look(self, work: Callable[[Any, Any], T], command: object = None) -> T:
        return asyncio.run(self.engine.read(work, command))

    def rows(self, collection: Collection[Any, Any]) -> dict[Any, Any]:
        return self.look(rows, collection)

    def piece(self, length: int = 10) -> Piece:
        """Returns a place where an upload could have been written."""
        piece = Piece(SEGMENT, self._end, length)
        self._end += length
        return piece

    def block(self, pieces: int = 1) -> Block:
        return Block(new_id(), tuple(self.piece() for _ in range(pieces)))

    def stage(self, blocks: list[Block]) -> None:
        """Holds the extents of blocks, as Put Block does."""
        pieces = [piece for block in blocks for piece in block.pieces]
        self.change(lambda txn: create_extents(txn, pieces))

    def list_blocks(self, blocks: list[Block], base: Chunked | None = None) -> Chunked:
        """Makes an object of blocks in place of its base; new blocks were staged."""
        return self.change(lambda txn: relist(txn, blocks, base))

    def release(self, content: Content) -> None:
        self.change(lambda txn: release(txn, content))

    def plan(self, content: Content, start: int = 0, length: int | None = None) -> Plan:
        return self.look(lambda txn, _: locate(txn, content, start, length))

    def segment_ranges(
        self, content: Content, start: int = 0, length: int | None = None
    ) -> tuple[SegmentRange, ...]:
        plan = self.plan(content, start, length)
        assert not isinstance(plan, bytes)
        return tuple(part for part in plan if isinstance(part, SegmentRange))

    def reap_all(self) -> int:
        steps = 0
        while self.change(lambda txn: reap_some(txn, 8)):
            steps += 1
        return steps


def relist(txn: WriteTxn, blocks: list[Block], base: Chunked | None) -> Chunked:
    borrowed: set[tuple[int, int]] = set()
    if base is not None:
        borrowed = {p.extent for block in blocks_of(txn, base) for p in block.pieces}
    content = compose(txn, new_id(), blocks, base=base, borrowed=borrowed)
    txn.put(OBJECTS, ("a",), Object(content, 0))
    if base is not None:
        release(txn, base)
    return content
