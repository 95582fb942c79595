"""Operations on page blobs.

A change of pages guards the blob, so overlapping writes are serialized and the last one wins as a
whole.
"""

from __future__ import annotations

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, operation, unwrap
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobRef, PageTraits
from etagere.model.bodies import Mapped
from etagere.model.page_blobs import (
    ClearPages,
    GetPageRanges,
    PageRange,
    PageRangesResult,
    PutPage,
    SetPageBlobProperties,
)
from etagere.operations.blob.appends import mapped
from etagere.operations.blob.blobs import find_changeable, with_new_stamp
from etagere.operations.blob.collections import BLOBS
from etagere.operations.blob.lookup import find_blob
from etagere.operations.blob.preconditions import check_change, check_read
from etagere.rules import page_blobs as rules


def precheck_page(txn: ReadTxn, command: PutPage) -> None:
    """Refuses, before a long upload, what would be refused if the upload ended now. Only the length
    of the body has to be known."""
    blob = find_blob(txn, BlobRef(command.blob))
    check_change(blob, command.conditions, command.lease_id, txn.steady_now)
    _check_write(blob, command)


@operation
def put_page(txn: WriteTxn, command: PutPage) -> Blob:
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    _check_write(blob, command)
    write = intervals.write_shared if command.borrowed else intervals.write
    content = mapped(txn, blob, command.child_id)
    content = write(txn, content, command.start, command.body.pieces, command.child_id)
    return txn.put(BLOBS, key, with_new_stamp(txn, replace(blob, content=content)))


@operation
def clear_pages(txn: WriteTxn, command: ClearPages) -> Blob:
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    _check_write(blob, command)
    content = mapped(txn, blob, command.child_id)
    content = intervals.clear(txn, content, command.start, command.end, command.child_id)
    return txn.put(BLOBS, key, with_new_stamp(txn, replace(blob, content=content)))


@operation
def set_page_blob_properties(txn: WriteTxn, command: SetPageBlobProperties) -> Blob:
    """Sets the properties of a page blob, all or none. Headers that are not given stay unchanged.
    As in every Set Blob Properties, the copy status is cleared."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    if command.length is not None:
        abort_if(rules.check_resizable(blob.kind))
    traits = _traits(blob)
    if command.sequence is not None:
        number = unwrap(rules.next_sequence_number(traits.sequence_number, command.sequence))
        blob = replace(blob, traits=PageTraits(number))
    if command.length is not None:
        content = mapped(txn, blob, command.child_id)
        content = intervals.resize(txn, content, command.length, command.child_id)
        blob = replace(blob, content=content)
    if command.headers is not None:
        blob = replace(blob, headers=command.headers)
    return txn.put(BLOBS, key, with_new_stamp(txn, replace(blob, copied=None)))


def _check_write(blob: Blob, command: PutPage | ClearPages) -> None:
    abort_if(rules.check_sequence(command.sequence, _traits(blob).sequence_number))
    abort_if(rules.check_inside(command.end, blob.content.length))


def _traits(blob: Blob) -> PageTraits:
    if not isinstance(blob.traits, PageTraits):
        raise Refused(Refusal("InvalidBlobType"))
    return blob.traits


# Page ranges


def get_page_ranges(txn: ReadTxn, command: GetPageRanges) -> PageRangesResult:
    """Returns the page ranges of a blob or a snapshot, or their changes since an earlier snapshot.
    If there are more than the limit, the result has the offset to continue from."""
    ask = command.ask
    blob = find_blob(txn, ask.ref)
    check_read(blob, ask.conditions, ask.lease_id, txn.steady_now)
    _traits(blob)
    start, end = _span(command, blob.content.length)
    found = _found(txn, command, blob, start, end)
    more = found[command.limit] if len(found) > command.limit else None
    return PageRangesResult(
        txn.steady_now, blob, tuple(found[: command.limit]), None if more is None else more.start
    )


def _span(command: GetPageRanges, length: int) -> tuple[int, int]:
    """Returns the pages that overlap the range and were not returned yet."""
    if command.first and command.first >= length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": length}))
    end = length
    if command.last is not None:
        end = min(rules.page_after(command.last + 1), length)
    return rules.page_before(max(command.first, command.start)), end


def _found(
    txn: ReadTxn, command: GetPageRanges, blob: Blob, start: int, end: int
) -> list[PageRange]:
    """Returns the ranges in order, with one more than the limit if there are more."""
    old = None if command.previous is None else _previous(txn, command, command.previous)
    if start >= end or not isinstance(blob.content, Mapped):
        return []
    limit = command.limit + 1
    if old is None:
        written = intervals.ranges(txn, blob.content, start, end, limit)
        return [PageRange(first, behind) for first, behind in written[:limit]]
    changes = None
    if isinstance(old.content, Mapped):
        changes = intervals.changes(txn, old.content, blob.content, start, end, limit)
    if changes is None:
        raise Refused(Refusal("BlobOverwritten"))
    return [PageRange(*change) for change in changes[:limit]]


def _previous(txn: ReadTxn, command: GetPageRanges, previous: int) -> Blob:
    abort_if(rules.check_previous(previous, command.ask.snapshot))
    try:
        return find_blob(txn, BlobRef(command.ask.blob, previous))
    except Refused:
        raise Refused(Refusal("PreviousSnapshotNotFound")) from None
