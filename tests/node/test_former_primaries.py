"""Migrations and moves of accounts use nothing that a former primary answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from etagere.clock import SystemClock
from etagere.data_directory import CannotUse
from etagere.engine.interface import Fault
from etagere.engine.postgres.fence_renewal import FenceRenewal
from etagere.node import account_mover, migration
from etagere.node.account_mover import AccountMover
from etagere.node.cluster_ledger import ClusterLedger
from etagere.settings.addresses import BodiesAddress, DatabaseAddress
from tests.engine.postgres.ledgers import renew_once

MESSAGE = "may no longer be the primary"


@pytest.fixture
def ledger(postgresql_database: str) -> Iterator[ClusterLedger]:
    """A ledger whose fence is that of another server."""
    with ClusterLedger(DatabaseAddress(postgresql_database), create=True) as made:
        renew_once(made.database, FenceRenewal(made.database, SystemClock()))
        with psycopg.connect(postgresql_database, autocommit=True) as connection:
            connection.execute("UPDATE etagere.fence SET wal_timeline = '00000009'")
        yield made


def test_a_migration_does_not_copy_a_former_primary(ledger: ClusterLedger, tmp_path: Path) -> None:
    (tmp_path / "bodies").mkdir()
    directory = tmp_path / "target"
    directory.mkdir()
    bodies = BodiesAddress(tmp_path / "bodies")
    with pytest.raises((CannotUse, Fault), match=MESSAGE):
        migration._build(ledger, bodies, directory, lambda *_: None)


def test_earlier_data_of_an_account_is_not_looked_up_on_a_former_primary(
    ledger: ClusterLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locate(_: object) -> Any:
        return SimpleNamespace(move=None)

    monkeypatch.setattr(account_mover, "find_resources", lambda *_: [])
    mover = SimpleNamespace(
        _account="account",
        _target=SimpleNamespace(ledger=ledger),
        _snapshot=nullcontext,
        _locate=locate,
    )
    with pytest.raises(Fault, match=MESSAGE):
        asyncio.run(AccountMover._wait_for_earlier_data(cast("AccountMover", mover)))
