"""Recording that blobs were read."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.engine.interface import EXCLUSIVE, SHARED, WriteTxn, operation
from etagere.engine.records import total_order
from etagere.model.blobs import RecordReads
from etagere.operations.blob.collections import BLOBS, CONTAINERS
from etagere.rules.last_access import is_read_to_record


@operation
def record_reads(txn: WriteTxn, command: RecordReads) -> int:
    """Returns how many reads were recorded. A blob keeps its ETag and date, and its lease does not
    matter. A blob that was changed, replaced or deleted since it was read is left alone."""
    names = total_order({read.blob.container.key for read in command.reads}, CONTAINERS)
    containers = dict(zip(names, txn.get_all(CONTAINERS, names, SHARED), strict=True))
    stamps = {
        (container.id, read.blob.name): read.stamp
        for read in command.reads
        if (container := containers[read.blob.container.key]) is not None
    }
    keys = total_order(stamps, BLOBS)
    recorded = 0
    for key, blob in zip(keys, txn.get_all(BLOBS, keys, EXCLUSIVE), strict=True):
        if blob is None or blob.stamp != stamps[key] or not is_read_to_record(blob, txn.now):
            continue
        txn.put(BLOBS, key, replace(blob, read_at=txn.now))
        recorded += 1
    return recorded
