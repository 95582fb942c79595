"""Removal of the contents of deleted containers, in bounded steps."""

from __future__ import annotations

from typing import Any, Final

from etagere.bodies.contents import release
from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.engine.records import Collection
from etagere.model.base import Command
from etagere.model.blobs import Blob
from etagere.operations.blob import staging as stagings
from etagere.operations.blob import tags
from etagere.operations.blob.collections import (
    BLOBS,
    DELETED_CONTAINERS,
    DISCARDED_STAGINGS,
    DRAFTS,
    SNAPSHOTS,
    STAGING_AGES,
    STAGINGS,
    TAGGED_CONTAINERS,
)
from etagere.operations.removal import RemovalStep

_MARKS: Final[tuple[Collection[Any, Any], ...]] = (DELETED_CONTAINERS, DISCARDED_STAGINGS, DRAFTS)


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether there may be something to remove, so that nothing is written if there is
    not."""
    if txn.scan(STAGING_AGES, stagings.stale(txn.steady_now), 1):
        return True
    return any(txn.scan(marks, marks.all(), 1) for marks in _MARKS)


class PurgeContainers(Command, frozen=True):
    rows_max: int = 200


@operation(reclaims=True)
def purge_containers(txn: WriteTxn, command: PurgeContainers) -> int:
    """Removes rows in one bounded step; returns how many (0: nothing is left to remove)."""
    for (container_id,), _ in txn.scan(DELETED_CONTAINERS, DELETED_CONTAINERS.all(), 1, claim=True):
        step = RemovalStep(command.rows_max)
        removed = _purge_container(txn, container_id, step)
        if not step.is_over:
            txn.delete(DELETED_CONTAINERS, (container_id,))
            txn.delete(TAGGED_CONTAINERS, (container_id,))
        return removed + 1
    return 0


def _purge_container(txn: WriteTxn, container_id: bytes, step: RemovalStep) -> int:
    removed = 0
    holders: tuple[Collection[Any, Blob], ...] = (SNAPSHOTS, BLOBS)
    for collection in holders:
        for key, blob in step.rows(txn, collection, collection.under((container_id,))):
            txn.delete(collection, key)
            release(txn, blob.content)
            removed += 1
            if collection is BLOBS:
                tagged = tags.forget(txn, key, blob.tags)
                removed += tagged
                step.left -= tagged
    for key, _ in step.rows(txn, STAGINGS, STAGINGS.under((container_id,))):
        staging = txn.get(STAGINGS, key, EXCLUSIVE)
        if staging is not None:
            stagings.forget(txn, key, staging)
        removed += 1
    return removed
