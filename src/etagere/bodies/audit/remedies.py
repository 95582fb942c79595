"""Removal of leaks: operations on the ledger, and files.

Only data that a check found to be unused is removed, and only while the process that checked the
directory has it locked. Losses are left unchanged for inspection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec

from etagere import directories
from etagere.bodies.audit.findings import FileRemedy, Finding, LedgerRemedy
from etagere.bodies.audit.snapshot import CannotCheck
from etagere.bodies.contents import (
    CHUNKS,
    CONTENTS_TO_REAP,
    DEAD_TOTALS,
    EXTENTS,
    MOVES,
    drop_references,
    mark_dead,
)
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.bodies.segments import forget_segment
from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import wire
from etagere.engine.groups import Writer
from etagere.engine.interface import EXCLUSIVE, WriteTxn, operation, registered
from etagere.engine.ledger import DatabaseError
from etagere.engine.records import COLLECTIONS, ENCODE
from etagere.model.base import Command
from etagere.model.bodies import ContentToReap, DeadTotal, MapToFlatten, MapToReap, Piece

_GROUP_MAX = 256
_ROWS_PER_LOOK = 10_000
_decode_fault = msgspec.msgpack.Decoder(wire.FaultNote).decode


class RowKey(Command, frozen=True):
    """A record by its collection's name and its encoded key."""

    collection: str
    key: bytes


@operation(reclaims=True)
def remove_row(txn: WriteTxn, command: RowKey) -> None:
    collection = COLLECTIONS[command.collection]
    txn.delete(collection, collection.unpack(command.key))


class ChunkKey(Command, frozen=True):
    content: bytes
    number: int


@operation(reclaims=True)
def release_unused_chunk(txn: WriteTxn, command: ChunkKey) -> None:
    """Removes a chunk that is in no list, and its references."""
    key = (command.content, command.number)
    chunk = txn.get(CHUNKS, key, EXCLUSIVE)
    if chunk is None:
        return
    for block in chunk.blocks:
        drop_references(txn, block.pieces)
    txn.delete(CHUNKS, key)


class IntervalKey(Command, frozen=True):
    map: bytes
    offset: int


@operation(reclaims=True)
def release_unused_interval(txn: WriteTxn, command: IntervalKey) -> None:
    """Removes an interval that no generation shows, and its reference."""
    key = (command.map, command.offset)
    interval = txn.get(INTERVALS, key, EXCLUSIVE)
    if interval is None:
        return
    if isinstance(interval.piece, Piece):
        drop_references(txn, (interval.piece,))
    txn.delete(INTERVALS, key)


class FormerKey(Command, frozen=True):
    map: bytes
    offset: int
    born: int


@operation(reclaims=True)
def release_unused_former(txn: WriteTxn, command: FormerKey) -> None:
    key = (command.map, command.offset, command.born)
    interval = txn.get(FORMER_INTERVALS, key, EXCLUSIVE)
    if interval is None:
        return
    if isinstance(interval.piece, Piece):
        drop_references(txn, (interval.piece,))
    txn.delete(FORMER_INTERVALS, key)


class GenerationKey(Command, frozen=True):
    map: bytes
    generation: int


@operation(reclaims=True)
def release_unused_generation(txn: WriteTxn, command: GenerationKey) -> None:
    """Deletes a generation without holders, and leaves its intervals to the collector."""
    txn.delete(GENERATIONS, (command.map, command.generation))
    txn.put(MAPS_TO_REAP, (command.map,), MapToReap())


class ExtentPlace(Command, frozen=True):
    segment: int
    offset: int


@operation(reclaims=True)
def release_unused_extent(txn: WriteTxn, command: ExtentPlace) -> None:
    """Marks an unused extent as dead, whatever its reference count is."""
    key = (command.segment, command.offset)
    extent = txn.get(EXTENTS, key, EXCLUSIVE)
    if extent is None:
        return
    txn.delete(EXTENTS, key)
    if extent.origin is not None:
        txn.delete(MOVES, extent.origin)
    mark_dead(txn, [(key, extent.length)])


class ContentId(Command, frozen=True):
    id: bytes


@operation(reclaims=True)
def mark_content_to_reap(txn: WriteTxn, command: ContentId) -> None:
    """Leaves a block list without holders to the collector."""
    txn.put(CONTENTS_TO_REAP, (command.id,), ContentToReap())


@operation(reclaims=True)
def mark_map_to_reap(txn: WriteTxn, command: ContentId) -> None:
    """Leaves an interval map without holders to the collector."""
    txn.put(MAPS_TO_REAP, (command.id,), MapToReap())


@operation(reclaims=True)
def mark_map_to_flatten(txn: WriteTxn, command: ContentId) -> None:
    """Lets the collector copy the base of a map into it."""
    txn.put(MAPS_TO_FLATTEN, (command.id,), MapToFlatten())


class SetDeadTotal(Command, frozen=True):
    segment: int
    length: int


@operation(reclaims=True)
def set_dead_total(txn: WriteTxn, command: SetDeadTotal) -> None:
    """Sets the total of dead bytes of a segment to the number that a check has counted."""
    if command.length:
        txn.put(DEAD_TOTALS, (command.segment,), DeadTotal(command.length))
    else:
        txn.delete(DEAD_TOTALS, (command.segment,))


def repair(
    directory: Path, findings: Iterable[Finding], config: Config, clock: Clock
) -> tuple[int, list[str]]:
    """Removes the leaks among the findings of a directory that the caller has locked; returns the
    number of removed leaks, and a description of each failure."""
    ledger_remedies: list[LedgerRemedy] = []
    file_remedies: list[FileRemedy] = []
    for finding in findings:
        if isinstance(finding.remedy, LedgerRemedy):
            ledger_remedies.append(finding.remedy)
        elif isinstance(finding.remedy, FileRemedy):
            file_remedies.append(finding.remedy)
    failures: list[str] = []
    if ledger_remedies:
        failures += _run_operations(directory, ledger_remedies, config, clock)
    failures += _repair_files(file_remedies)
    return len(ledger_remedies) + len(file_remedies) - len(failures), failures


def _run_operations(
    directory: Path, remedies: list[LedgerRemedy], config: Config, clock: Clock
) -> list[str]:
    """Runs operations in a writer in this process."""
    try:
        writer = Writer(directory, config, clock)
    except (DatabaseError, msgspec.DecodeError, OSError) as error:
        raise CannotCheck(f"the ledger in {directory} cannot be written: {error}") from error
    try:
        waiting = deque(remedies)
        failures: list[str] = []
        while waiting:
            group = list(islice(waiting, _GROUP_MAX))
            for answer in writer.run_group([_request(remedy) for remedy in group]):
                remedy = waiting.popleft()
                if answer.outcome is not wire.Outcome.RESULT:
                    failures.append(_failure(remedy, answer.outcome, answer.payload))
                elif remedy.operation is forget_segment and answer.payload == ENCODE(False):
                    waiting.append(remedy)  # it runs in bounded steps
            writer.maintain()
        return failures
    finally:
        writer.close()


def _request(remedy: LedgerRemedy) -> wire.Request:
    command = memoryview(ENCODE(remedy.command))
    return wire.Request(0, registered(remedy.operation).wire_name, command)


def _failure(remedy: LedgerRemedy, outcome: wire.Outcome, payload: bytes) -> str:
    detail = outcome.name.lower()
    if outcome is wire.Outcome.FAULT:
        detail = _decode_fault(payload).detail
    return f"{remedy.operation.__name__} {remedy.command}: {detail}"


def _repair_files(remedies: list[FileRemedy]) -> list[str]:
    failures: list[str] = []
    for path, length in remedies:
        try:
            if length is None:
                path.unlink(missing_ok=True)
            else:
                with path.open("r+b") as file:
                    file.truncate(length)
        except OSError as error:
            failures.append(f"{path}: {error.strerror}")
    for folder in {remedy.path.parent for remedy in remedies}:
        try:
            directories.sync(folder)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror}")
    return failures
