"""Snapshots of a ledger that are copied: not those of a former primary."""

from __future__ import annotations

import pytest

from etagere.clock import SystemClock
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.copying import open_current_snapshot, open_snapshot
from etagere.engine.postgres.fence_renewal import FenceRenewal
from tests.engine.postgres.ledgers import RawLedger, renew_once
from tests.engine.samples import ITEMS, Item


def test_a_snapshot_is_current_though_no_node_runs(postgresql_dsn: str, ledger_schema: str) -> None:
    ledger = RawLedger(Database(postgresql_dsn, ledger_schema))
    ledger.commit({"a": Item()})
    renew_once(ledger.database, FenceRenewal(ledger.database, SystemClock()))
    ledger.execute("UPDATE fence SET at = at - 40000000")
    with open_snapshot(ledger.database) as snapshot, pytest.raises(Fault):
        snapshot.require_primary()
    with open_current_snapshot(ledger.database) as snapshot:
        assert [key for key, _ in snapshot.rows(ITEMS)] == [ITEMS.pack(("a",))]
    ledger.close()


def test_a_snapshot_of_a_former_primary_is_refused(postgresql_dsn: str, ledger_schema: str) -> None:
    ledger = RawLedger(Database(postgresql_dsn, ledger_schema))
    renew_once(ledger.database, FenceRenewal(ledger.database, SystemClock()))
    ledger.execute("UPDATE fence SET wal_timeline = '00000009'")
    with (
        pytest.raises(Fault, match="may no longer be the primary") as refused,
        open_current_snapshot(ledger.database),
    ):
        pass
    assert refused.value.reason is FaultReason.UNAVAILABLE
    ledger.close()
