"""Listings for tests: whole pages with their rows and continuation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

from etagere.engine.interface import ReadTxn, Steps
from etagere.model.blobs import BlobEntry, ListBlobs
from etagere.model.containers import ListContainers, NamedContainer
from etagere.model.queues import ListQueues, NamedQueue
from etagere.operations.blob import containers, listing, tags
from etagere.operations.blob.tags import BlobPlace, FindBlobs, TaggedBlobRow
from etagere.operations.pages import Asked, FilledPage, FillPage, Row
from etagere.operations.queue import queues
from etagere.protocol.time_slices import run_at_once


class RowsPage(Generic[Row]):
    """A page that keeps its rows, up to a limit."""

    def __init__(self, room: int) -> None:
        self.rows: list[Row] = []
        self._room = room

    def add(self, rows: Sequence[Row]) -> int:
        some = rows[: self._room - len(self.rows)]
        self.rows += some
        return len(some)

    @property
    def rows_at_once(self) -> int:
        return 100


class BlobPage(NamedTuple):
    entries: tuple[BlobEntry, ...]
    following: tuple[str, int] | None


class FoundBlobs(NamedTuple):
    blobs: list[TaggedBlobRow]
    following: BlobPlace | None


class NamedPage(NamedTuple, Generic[Row]):
    rows: tuple[Row, ...]
    next_marker: str


_Operation = Callable[[ReadTxn, FillPage[Asked, Row]], Steps[FilledPage[Row]]]


def filled(
    txn: ReadTxn, operation: _Operation[Asked, Row], asked: Asked, room: int = 100_000
) -> tuple[tuple[Row, ...], Row | None]:
    page = RowsPage[Row](room)
    done = run_at_once(operation(txn, FillPage(asked, lambda _now: page)))
    return tuple(page.rows), done.following


def list_blobs(txn: ReadTxn, asked: ListBlobs) -> BlobPage:
    entries, following = filled(txn, listing.list_blobs, asked)
    return BlobPage(entries, None if following is None else (following[0], following[2]))


def list_containers(txn: ReadTxn, asked: ListContainers) -> NamedPage[NamedContainer]:
    rows, following = filled(txn, containers.list_containers, asked)
    return NamedPage(rows, "" if following is None else following[0])


def list_queues(txn: ReadTxn, asked: ListQueues) -> NamedPage[NamedQueue]:
    rows, following = filled(txn, queues.list_queues, asked)
    return NamedPage(rows, "" if following is None else following[0])


def find_blobs(txn: ReadTxn, asked: FindBlobs) -> FoundBlobs:
    blobs, following = filled(txn, tags.find_blobs, asked)
    return FoundBlobs(list(blobs), None if following is None else following[0])
