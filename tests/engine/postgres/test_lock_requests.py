"""Exclusive locks are granted in time, though share locks of other nodes overlap without a gap."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from etagere.engine.interface import SHARED, Conflict, WriteTxn, operation
from tests.engine import samples
from tests.engine.postgres.writers import TestWriter, rows, writers
from tests.engine.samples import ITEMS, Key, PutItem
from tests.server import eventually

_HOLD_SECONDS = 0.03
_STORED = "SELECT collection, key FROM lock_requests"


@operation
def hold_shared(txn: WriteTxn, command: Key) -> None:
    """Holds a share lock for a while. The scan makes it run in the transaction."""
    txn.get(ITEMS, (command.key,), SHARED)
    txn.scan(ITEMS, ITEMS.all(), 1)
    time.sleep(_HOLD_SECONDS)


class ShareLockers:
    """Writers that lock the same record all the time, out of phase."""

    def __init__(self, made: list[TestWriter]) -> None:
        self._writers = made
        self._stop = threading.Event()
        self.granted = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._run, args=(writer, number))
            for number, writer in enumerate(self._writers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(20)

    def wait_for(self, grants: int) -> None:
        """Waits until as many more locks were granted."""
        wanted = self.granted + grants
        eventually(lambda: self.granted >= wanted, "share locks")

    def _run(self, writer: TestWriter, number: int) -> None:
        time.sleep(number * _HOLD_SECONDS / len(self._writers))
        while not self._stop.is_set():
            if isinstance(writer.write(hold_shared, Key("key")), Conflict):
                time.sleep(0.005)  # as the retry loop of a front end
            else:
                self.granted += 1


def _count_up(writer: TestWriter) -> float:
    """Returns how long an operation takes that needs an exclusive lock, with its retries."""
    began = attempted = time.monotonic()
    while isinstance(writer.write(samples.count_up, Key("key")), Conflict):
        # Other operations of the node do not wait for the lock.
        assert time.monotonic() - attempted < 5
        assert time.monotonic() - began < 30
        attempted = time.monotonic()
        time.sleep(0.005)
    return time.monotonic() - began


@pytest.mark.alone
def test_share_locks_do_not_starve_an_exclusive_one(
    postgresql_dsn: str, ledger_schema: str
) -> None:
    with writers(postgresql_dsn, ledger_schema, 4) as (exclusive, *sharing):
        exclusive.write(samples.put_item, PutItem("key"))
        lockers = ShareLockers(sharing)
        with lockers.running():
            for _ in range(2):
                # Both kinds of operations make progress.
                lockers.wait_for(2 * len(sharing))
                assert _count_up(exclusive) < 20
        assert rows(postgresql_dsn, ledger_schema, _STORED) == []


def test_share_locks_are_declined_until_the_request_expires(
    postgresql_dsn: str, ledger_schema: str
) -> None:
    """The writer that made it may have stopped."""
    with writers(postgresql_dsn, ledger_schema, 2) as (exclusive, sharing):
        exclusive.group((samples.put_item, PutItem("key")), (samples.put_item, PutItem("another")))
        with psycopg.connect(postgresql_dsn, options=f"-c search_path={ledger_schema}") as node:
            node.execute("SELECT FROM test_items FOR SHARE")
            assert isinstance(exclusive.write(samples.count_up, Key("key")), Conflict)
        stored = rows(postgresql_dsn, ledger_schema, _STORED)
        assert stored == [(ITEMS.name, ITEMS.pack(("key",)))]
        # The requests come with the fence, for the next group.
        assert sharing.write(samples.put_item, PutItem("more")) is not None
        outcomes = sharing.group((hold_shared, Key("key")), (hold_shared, Key("another")))
        assert isinstance(outcomes[0], Conflict)
        assert outcomes[1] is None
        assert exclusive.write(hold_shared, Key("key")) is None, "its own request does not count"
        eventually(lambda: sharing.write(hold_shared, Key("key")) is None, "the request to expire")
        # The next group of its writer removes the row.
        exclusive.write(samples.put_item, PutItem("more"))
        assert rows(postgresql_dsn, ledger_schema, _STORED) == []
