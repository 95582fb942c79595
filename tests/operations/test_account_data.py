"""Which records belong to an account."""

from __future__ import annotations

from collections import Counter

from etagere.bodies.contents import HOLDERS
from etagere.engine.records import COLLECTIONS
from etagere.operations.account_copy import COPY_FUNCTIONS
from etagere.operations.account_data import BY_REFERENCE, INDEXES_BY_TIME, OF_LEDGER, classified
from etagere.operations.all_collections import DECLARED_IN


def test_every_collection_is_classified_once() -> None:
    declared = {name for name, each in COLLECTIONS.items() if _is_declared(each)}
    assert Counter(each.name for each in classified()) == Counter(declared)


def _is_declared(collection: object) -> bool:
    """Returns whether a collection is not that of a test."""
    return any(collection in vars(module).values() for module in DECLARED_IN)


def test_contents_are_copied_with_their_holders() -> None:
    for collection in (each.collection for each in HOLDERS if _is_declared(each.collection)):
        found = BY_REFERENCE.get(collection, collection)
        assert found in COPY_FUNCTIONS or collection in OF_LEDGER, collection


def test_indexes_by_time_belong_to_what_is_copied() -> None:
    copied = {each.name for each in classified()}
    assert {each.name for each in INDEXES_BY_TIME} <= copied
