"""The records that belong to an account: every collection is in exactly one of the tables below.

Records are found by the name of the account, by the id of one of its containers, queues, tables or
shares, or because one of those refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from etagere.bodies import contents, maps
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES
from etagere.engine.records import Collection
from etagere.engine.tasks import TASK_HOLDERS
from etagere.model.base import Record
from etagere.model.blobs import StagingAge
from etagere.model.delegation import ExpiringDelegatingUser
from etagere.model.queues import MessageIndexRow
from etagere.model.shares import ExpiringShare
from etagere.operations import account_map
from etagere.operations.account_moves import ACCOUNTS_TO_PURGE
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob import collections as blob
from etagere.operations.blob.pending_copies import PENDING_COPIES
from etagere.operations.delegation import (
    DELEGATING_USERS,
    DELEGATION_SECRETS,
    EXPIRING_DELEGATING_USERS,
)
from etagere.operations.file import collections as file
from etagere.operations.identity import STORE_IDENTITIES
from etagere.operations.queue import collections as queue
from etagere.operations.service import SERVICE_PROPERTIES
from etagere.operations.table import collections as table

AnyCollection = Collection[Any, Any]

BY_ACCOUNT: Final[tuple[AnyCollection, ...]] = (
    ACCOUNTS,
    SERVICE_PROPERTIES,
    DELEGATION_SECRETS,
    DELEGATING_USERS,
    file.DELETED_SHARE_NAMES,
)
"""Keys begin with the name of the account."""


class Resources(NamedTuple):
    """Containers, queues, tables or shares: records whose keys begin with the name of the account,
    and each of which has an id."""

    collection: AnyCollection
    id_of: Callable[[Any], bytes]
    by_id: tuple[AnyCollection, ...]
    """Keys begin with the id."""
    deleted: AnyCollection
    """Deleted resources, by id, whose records are still to be removed."""


_OF_SHARES: Final[tuple[AnyCollection, ...]] = (
    file.SHARE_SNAPSHOTS,
    file.SHARE_USAGE,
    file.ENTRIES,
    file.FORMER_ENTRIES,
    file.HISTORIES_TO_PURGE,
    file.PERMISSIONS,
    file.PERMISSION_NUMBERS,
    file.PERMISSION_USAGE,
    file.INHERITED_PERMISSIONS,
)

RESOURCES: Final = (
    Resources(
        blob.CONTAINERS,
        lambda container: container.id,
        (blob.BLOBS, blob.SNAPSHOTS, blob.STAGINGS, blob.TAGGED_CONTAINERS),
        blob.DELETED_CONTAINERS,
    ),
    Resources(
        queue.QUEUES,
        lambda found: found.contents,
        (queue.MESSAGES, queue.VISIBLE),
        queue.DISCARDED,
    ),
    Resources(
        table.TABLES,
        lambda found: found.id,
        (table.ENTITIES, table.PROPERTY_VALUES, table.DROPPED_INDEXES),
        table.DELETED_TABLES,
    ),
    Resources(file.SHARES, lambda share: share.id, _OF_SHARES, file.SHARES_TO_PURGE),
    Resources(file.DELETED_SHARES, lambda kept: kept.share.id, _OF_SHARES, file.SHARES_TO_PURGE),
)

TAG_INDEXES: Final[dict[AnyCollection, int]] = {blob.TAGGED_BLOBS: 4, blob.TAG_VALUES: 3}
"""Keys begin with the name of the account and contain, at this position, the id of a container,
which may have been deleted."""


class ByTime(NamedTuple):
    """An index by time, whose rows are computed from other records."""

    rows: AnyCollection
    row: Record
    key_of: Callable[[Any, Any], tuple[Any, ...] | None]
    """Returns the key of the row of a record with this key; None if it has none."""


_TICKS_PER_HOUR: Final = 3_600 * TICKS_PER_SECOND

INDEXES_BY_TIME: Final[dict[AnyCollection, ByTime]] = {
    blob.STAGINGS: ByTime(
        blob.STAGING_AGES,
        StagingAge(),
        lambda key, staging: (staging.staged // _TICKS_PER_HOUR, *key),
    ),
    queue.MESSAGES: ByTime(
        queue.EXPIRING,
        MessageIndexRow(),
        lambda key, message: None if message.expires is None else (message.expires, *key),
    ),
    file.DELETED_SHARES: ByTime(
        file.EXPIRING_SHARES, ExpiringShare(), lambda key, kept: (kept.expires, *key)
    ),
    DELEGATING_USERS: ByTime(
        EXPIRING_DELEGATING_USERS,
        ExpiringDelegatingUser(),
        lambda key, user: (user.expires, *key),
    ),
}

BY_REFERENCE: Final[dict[AnyCollection, AnyCollection]] = {
    blob.STAGED_BLOCKS: blob.STAGINGS,
    queue.TEXTS: queue.MESSAGES,
}
"""Records that others refer to, with the collection of those others."""

CONTENTS: Final[tuple[AnyCollection, ...]] = (
    contents.INLINE,
    contents.BLOCK_LISTS,
    contents.CHUNKS,
    contents.CONTENT_SHARERS,
    contents.CHUNK_SHARERS,
    contents.EXTENTS,
    maps.INTERVAL_MAPS,
    maps.INTERVALS,
    maps.FORMER_INTERVALS,
    maps.GENERATIONS,
    maps.MAPS_TO_REAP,
    maps.MAPS_TO_FLATTEN,
)
"""Contents, which may have holders in other accounts."""

PENDING: Final[tuple[AnyCollection, ...]] = (PENDING_COPIES, file.PENDING_FILE_COPIES)
"""Copies under way: keys begin with the id of the container or share."""

OF_LEDGER: Final[tuple[AnyCollection, ...]] = (
    # To be removed.
    blob.DELETED_CONTAINERS,
    blob.DISCARDED_STAGINGS,
    blob.DRAFTS,
    contents.CONTENTS_TO_REAP,
    file.SHARES_TO_PURGE,
    queue.DISCARDED,
    table.DELETED_TABLES,
    # Where bytes are stored.
    contents.COUNTED_DEAD,
    contents.COUNTERS,
    contents.DEAD_TOTALS,
    contents.MOVES,
    contents.SEGMENTS,
    contents.UNCOUNTED_DEAD,
    # The cell.
    ACCOUNT_MOVES,
    ACCOUNTS_TO_PURGE,
    STORE_IDENTITIES,
    TASK_HOLDERS,
    UNFINISHED_MOVES,
    account_map.ACCOUNT_CELLS,
    account_map.CELL_MEMBERSHIPS,
    account_map.CELL_NODES,
    account_map.CELLS,
    account_map.MAP_IDENTITIES,
)
"""Records that belong to no account, or no longer belong to one."""


def classified() -> Iterable[AnyCollection]:
    """Yields the collections of all tables. A collection of several kinds of resources is yielded
    once."""
    yield from BY_ACCOUNT
    yield from (resources.collection for resources in RESOURCES)
    yield from dict.fromkeys(each for resources in RESOURCES for each in resources.by_id)
    yield from TAG_INDEXES
    yield from (index.rows for index in INDEXES_BY_TIME.values())
    yield from BY_REFERENCE
    yield from CONTENTS
    yield from PENDING
    yield from OF_LEDGER
