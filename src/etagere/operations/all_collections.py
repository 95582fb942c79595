"""All collections of a ledger: importing this module declares them, for whoever copies a ledger."""

from __future__ import annotations

from typing import Final

from etagere.bodies import contents, maps
from etagere.engine import account_moves as write_checks
from etagere.engine import tasks
from etagere.operations import (
    account_map,
    account_moves,
    account_records,
    delegation,
    identity,
    service,
)
from etagere.operations.blob import collections as blob_collections
from etagere.operations.blob import pending_copies
from etagere.operations.file import collections as file_collections
from etagere.operations.queue import collections as queue_collections
from etagere.operations.table import collections as table_collections

DECLARED_IN: Final = (
    account_map,
    account_moves,
    account_records,
    blob_collections,
    contents,
    delegation,
    file_collections,
    identity,
    maps,
    pending_copies,
    queue_collections,
    service,
    table_collections,
    tasks,
    write_checks,
)
CLUSTER_COLLECTIONS: Final = (
    tasks.TASK_HOLDERS,
    identity.STORE_IDENTITIES,
    *account_map.MAP_COLLECTIONS,
    account_map.CELL_MEMBERSHIPS,
    write_checks.ACCOUNT_MOVES,
    write_checks.UNFINISHED_MOVES,
)
"""Collections that only clusters have. Migrations do not copy them."""
