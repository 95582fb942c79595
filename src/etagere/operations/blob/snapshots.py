"""Operations on snapshots.

A snapshot shares the bytes of its blob, so it costs one record, whatever the size. Snapshots cannot
be changed or leased. Creating or deleting them guards the blob, so that none is ever left behind.
"""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import release, share
from etagere.engine.interface import Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.blobs import DeleteSnapshot, SnapshotBlob, SnapshotResult
from etagere.model.leases import NO_LEASE
from etagere.operations.blob.collections import SNAPSHOTS
from etagere.operations.blob.lookup import find_for_change, find_ref_for_change
from etagere.operations.blob.preconditions import check_change, check_non_modifying
from etagere.rules.tiers import check_online

# Other writes wait for the transaction that deletes these, which takes a few milliseconds.
DELETED_TOGETHER_MAX = 200


@operation
def snapshot_blob(txn: WriteTxn, command: SnapshotBlob) -> SnapshotResult:
    """Creates a snapshot, which does not change the blob. It has the ETag of the blob, unless it
    has its own metadata."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    check_non_modifying(blob, command.conditions, command.lease_id, txn.steady_now)
    abort_if(check_online(blob, txn.steady_now))
    moment = txn.stamp
    content = share(txn, blob.content)
    taken = msgspec.structs.replace(blob, content=content, lease=NO_LEASE, read_at=0)
    if command.metadata:
        taken = msgspec.structs.replace(taken, metadata=command.metadata, stamp=moment)
    txn.put(SNAPSHOTS, (*key, moment), taken)
    return SnapshotResult(txn.steady_now, moment, taken)


@operation(reclaims=True)
def delete_snapshot(txn: WriteTxn, command: DeleteSnapshot) -> None:
    found = find_ref_for_change(txn, command.ref)
    check_change(found.blob, command.conditions, command.lease_id, txn.steady_now)
    found.delete(txn)
    release(txn, found.blob.content)


# For callers that have guarded the blob


def exist(txn: WriteTxn, key: tuple[bytes, str]) -> bool:
    return bool(txn.scan(SNAPSHOTS, SNAPSHOTS.under(key), 1))


def delete_some(txn: WriteTxn, key: tuple[bytes, str]) -> bool:
    """Deletes as many snapshots of a blob as one transaction may, the oldest first; returns whether
    none are left."""
    rows = txn.scan(SNAPSHOTS, SNAPSHOTS.under(key), DELETED_TOGETHER_MAX + 1)
    for place, found in rows[:DELETED_TOGETHER_MAX]:
        txn.delete(SNAPSHOTS, place)
        release(txn, found.content)
    return len(rows) <= DELETED_TOGETHER_MAX
