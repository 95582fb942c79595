"""Tiers: where blobs and their snapshots are kept."""

from __future__ import annotations

from etagere.engine.interface import Refused, WriteTxn, operation, unwrap
from etagere.errors import Refusal
from etagere.model.blobs import Blob
from etagere.model.tiers import SetBlobTier
from etagere.operations.blob import preconditions
from etagere.operations.blob.blobs import find_for_change
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS
from etagere.rules import tiers as tier_rules


@operation
def set_blob_tier(txn: WriteTxn, command: SetBlobTier) -> Blob:
    """Neither ETag nor date change, so that a lease keeps nobody from it."""
    key, blob = find_for_change(txn, command.blob)
    place = None
    if command.snapshot is not None:
        place = (*key, command.snapshot)
        blob = txn.get(SNAPSHOTS, place)  # whoever changes one guards the blob
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    preconditions.check_non_modifying(blob, command.conditions, command.lease_id, txn.steady_now)
    asked = tier_rules.Move(command.tier, command.priority, txn.steady_now + command.ticks)
    moved = unwrap(tier_rules.move(blob, asked, txn.steady_now, txn.stamp, past=place is not None))
    if place is not None:
        return txn.put(SNAPSHOTS, place, moved)
    return txn.put(BLOBS, key, moved)
