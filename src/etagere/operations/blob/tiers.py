"""Operations on the access tiers of blobs and snapshots."""

from __future__ import annotations

from etagere.engine.interface import WriteTxn, operation, unwrap
from etagere.model.blobs import Blob
from etagere.model.tiers import SetBlobTier
from etagere.operations.blob import preconditions
from etagere.operations.blob.lookup import find_ref_for_change
from etagere.rules import tiers as tier_rules


@operation
def set_blob_tier(txn: WriteTxn, command: SetBlobTier) -> Blob:
    """Sets the tier. Neither the ETag nor the date change, so no lease id is needed."""
    found = find_ref_for_change(txn, command.ref)
    blob, now = found.blob, txn.steady_now
    preconditions.check_non_modifying(blob, command.conditions, command.lease_id, now)
    asked = tier_rules.TierChange(command.tier, command.priority, now + command.ticks)
    is_snapshot = not command.ref.is_current
    return found.put(
        txn, unwrap(tier_rules.change_tier(blob, asked, now, txn.stamp, is_snapshot=is_snapshot))
    )
