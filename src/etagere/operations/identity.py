"""The identity of the store of a cluster."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.engine.records import UINT, Collection
from etagere.model.cluster import IdentifyStore, MarkBodies, StoreIdentity

STORE_IDENTITIES: Final[Collection[tuple[int], StoreIdentity]] = Collection(
    "store_identities", StoreIdentity, (UINT,)
)
IDENTITY_KEY: Final = (0,)
"""The key of the only record."""


@operation
def identify_store(txn: WriteTxn, command: IdentifyStore) -> StoreIdentity:
    """Returns the identity of the store, which is this one if it had none."""
    stored = txn.get(STORE_IDENTITIES, IDENTITY_KEY, EXCLUSIVE)
    return txn.put(STORE_IDENTITIES, IDENTITY_KEY, command.identity) if stored is None else stored


@operation
def mark_bodies(txn: WriteTxn, command: MarkBodies) -> None:
    stored = txn.get(STORE_IDENTITIES, IDENTITY_KEY, EXCLUSIVE)
    if stored is not None and stored.id == command.id and not stored.is_marked:
        txn.put(STORE_IDENTITIES, IDENTITY_KEY, replace(stored, is_marked=True))


def get_identity(txn: ReadTxn, _nothing: None) -> StoreIdentity | None:
    """Returns the identity of the store, if it has one."""
    return txn.get(STORE_IDENTITIES, IDENTITY_KEY)
