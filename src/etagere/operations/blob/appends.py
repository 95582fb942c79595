"""Append blobs: bytes that are added at the end, one block after the other.

Whoever adds guards the blob, so each block lies behind the one before it, whole. A block costs
what its bytes do, however many there are already. The bytes of small ones lie in the ledger until
they are folded, many at once, into a segment.
"""

from __future__ import annotations

from msgspec.structs import replace

from etagere.bodies import folding, intervals
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.appends import AppendBlock, Appended, SealBlob
from etagere.model.base import Command
from etagere.model.blobs import AppendTraits, Blob, BlobName, BlobRef
from etagere.model.bodies import Body, Empty, Mapped
from etagere.operations.blob.blobs import changed, find_changeable
from etagere.operations.blob.collections import BLOBS
from etagere.operations.blob.lookup import find_blob, find_for_change
from etagere.operations.blob.preconditions import check_change
from etagere.rules import appends as rules


def precheck_append(txn: ReadTxn, command: AppendBlock) -> None:
    """Refuses, before a long upload, what would be refused if the upload ended now. Of the
    body only the length has to be known."""
    blob = find_blob(txn, BlobRef(command.blob))
    check_change(blob, command.conditions, command.lease_id, txn.steady_now)
    _check_append(blob, command)


@operation
def append_block(txn: WriteTxn, command: AppendBlock) -> Appended:
    """The body lies in pieces, however small it is."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _check_append(blob, command)
    offset = blob.content.length
    write = intervals.write_shared if command.borrowed else intervals.write
    content = mapped(txn, blob, command.child_id)
    content = write(txn, content, offset, command.body.pieces, command.child_id)
    longer = replace(blob, content=content, traits=replace(traits, blocks=traits.blocks + 1))
    return Appended(offset, txn.put(BLOBS, key, changed(txn, longer)))


@operation
def append_small_block(txn: WriteTxn, command: AppendBlock) -> Appended | None:
    """The body carries its bytes. None, and nothing is changed, if too much of the blob lies in the
    ledger already: then they are better written to a segment."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _check_append(blob, command)
    offset, data = blob.content.length, command.body.data
    if isinstance(blob.content, Mapped) and not folding.has_room(blob.content, len(data)):
        return None
    before = mapped(txn, blob, command.child_id)
    content = intervals.write_inline(txn, before, offset, data, command.child_id)
    longer = replace(blob, content=content, traits=replace(traits, blocks=traits.blocks + 1))
    stored = txn.put(BLOBS, key, changed(txn, longer))
    return Appended(offset, stored, folding.has_come_due(before, content))


@operation
def seal_blob(txn: WriteTxn, command: SealBlob) -> Blob:
    """What is sealed already stays as it is."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _traits(blob)
    abort_if(rules.check_position(command.position, blob.content.length))
    if traits.sealed:
        return blob
    sealed = replace(blob, traits=replace(traits, sealed=True))
    return txn.put(BLOBS, key, changed(txn, sealed))


# Folded


class FoldBlocks(Command, frozen=True):
    """Let bytes lie in a segment that lay in the ledger."""

    blob: BlobName
    fold: folding.Fold
    body: Body
    child_id: bytes


def find_fold(txn: ReadTxn, name: BlobName) -> folding.Found | None:
    """What there is to fold of a blob; None if it is gone, or has too little."""
    content = find_blob(txn, BlobRef(name)).content
    if not isinstance(content, Mapped) or not folding.is_due(content):
        return None
    found = folding.find(txn, content)
    return found if found.fold.end > content.folded else None


@operation
def fold_blocks(txn: WriteTxn, command: FoldBlocks) -> bool:
    """Not a change that anybody sees: neither the ETag nor the date are others. Says whether there
    is more to fold."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None or not isinstance(blob.content, Mapped):
        return False
    folded = folding.fold(txn, blob.content, command.fold, command.body, command.child_id)
    if folded is None:
        return False
    txn.put(BLOBS, key, replace(blob, content=folded))
    return folding.is_due(folded)


# The rules


def _check_append(blob: Blob, command: AppendBlock) -> AppendTraits:
    traits, length = _traits(blob), blob.content.length
    abort_if(rules.check_position(command.position, length))
    abort_if(rules.check_length(command.length_max, length, command.body.length))
    abort_if(rules.check_appendable(traits))
    return traits


def _traits(blob: Blob) -> AppendTraits:
    if not isinstance(blob.traits, AppendTraits):
        raise Refused(Refusal("InvalidBlobType"))
    return blob.traits


def mapped(txn: WriteTxn, blob: Blob, map_id: bytes) -> Mapped:
    """The map of the bytes of a blob; a new one where there was nothing that needed one."""
    content = blob.content
    if isinstance(content, Empty):
        return intervals.begin(txn, map_id, 0)
    if not isinstance(content, Mapped):
        raise TypeError(f"the bytes of this {blob.kind.value} do not lie in a map")
    return content
