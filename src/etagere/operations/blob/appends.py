"""Operations on append blobs.

An append guards the blob, so blocks follow each other without gaps. Its cost does not depend on the
length of the blob. The bytes of small blocks are stored in the ledger until they are folded, many
at once, into a segment.
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
from etagere.operations.blob.blobs import find_changeable, with_new_stamp
from etagere.operations.blob.collections import BLOBS
from etagere.operations.blob.lookup import find_blob, find_for_change
from etagere.operations.blob.preconditions import check_change
from etagere.rules import appends as rules


def precheck_append(txn: ReadTxn, command: AppendBlock) -> None:
    """Refuses, before a long upload, what would be refused if the upload ended now. Only the length
    of the body has to be known."""
    blob = find_blob(txn, BlobRef(command.blob))
    check_change(blob, command.conditions, command.lease_id, txn.steady_now)
    _check_append(blob, command)


@operation
def append_block(txn: WriteTxn, command: AppendBlock) -> Appended:
    """Appends a body that is stored in pieces."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _check_append(blob, command)
    offset = blob.content.length
    write = intervals.write_shared if command.borrowed else intervals.write
    content = mapped(txn, blob, command.child_id)
    content = write(txn, content, offset, command.body.pieces, command.child_id)
    longer = replace(blob, content=content, traits=replace(traits, blocks=traits.blocks + 1))
    return Appended(offset, txn.put(BLOBS, key, with_new_stamp(txn, longer)))


@operation
def append_small_block(txn: WriteTxn, command: AppendBlock) -> Appended | None:
    """Appends a body that contains its bytes. Returns None without a change if too much of the blob
    is in the ledger already: then the bytes belong in a segment."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _check_append(blob, command)
    offset, data = blob.content.length, command.body.data
    if isinstance(blob.content, Mapped) and not folding.has_room(blob.content, len(data)):
        return None
    before = mapped(txn, blob, command.child_id)
    content = intervals.write_inline(txn, before, offset, data, command.child_id)
    longer = replace(blob, content=content, traits=replace(traits, blocks=traits.blocks + 1))
    stored = txn.put(BLOBS, key, with_new_stamp(txn, longer))
    return Appended(offset, stored, folding.became_due(before, content))


@operation
def seal_blob(txn: WriteTxn, command: SealBlob) -> Blob:
    """Seals a blob. One that is sealed already is not changed."""
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    traits = _traits(blob)
    abort_if(rules.check_position(command.position, blob.content.length))
    if traits.sealed:
        return blob
    sealed = replace(blob, traits=replace(traits, sealed=True))
    return txn.put(BLOBS, key, with_new_stamp(txn, sealed))


# Folding


class FoldBlocks(Command, frozen=True):
    """Replace bytes in the ledger by bytes in a segment."""

    blob: BlobName
    fold: folding.Fold
    body: Body
    child_id: bytes


def find_fold(txn: ReadTxn, name: BlobName) -> folding.Found | None:
    """Returns what to fold of a blob; None if there is too little."""
    content = find_blob(txn, BlobRef(name)).content
    if not isinstance(content, Mapped) or not folding.is_due(content):
        return None
    found = folding.find(txn, content)
    return found if found.fold.end > content.folded else None


@operation
def fold_blocks(txn: WriteTxn, command: FoldBlocks) -> bool:
    """Folds blocks, which changes neither the ETag nor the date. Returns whether there is more to
    fold."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None or not isinstance(blob.content, Mapped):
        return False
    folded = folding.fold(txn, blob.content, command.fold, command.body, command.child_id)
    if folded is None:
        return False
    txn.put(BLOBS, key, replace(blob, content=folded))
    return folding.is_due(folded)


# Checks


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
    """Returns the interval map of a blob, or a new one if the blob is empty."""
    content = blob.content
    if isinstance(content, Empty):
        return intervals.begin(txn, map_id, 0)
    if not isinstance(content, Mapped):
        raise TypeError(f"the bytes of this {blob.kind.value} do not lie in a map")
    return content
