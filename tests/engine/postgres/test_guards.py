"""What the guards of an operation protect, while other nodes change records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import EXCLUSIVE, WriteTxn, operation
from etagere.engine.postgres import connecting, transaction
from etagere.engine.postgres.acquiring import WantedLocks
from etagere.engine.postgres.transaction import GroupTransaction
from etagere.engine.records import RecordKey
from tests.engine import samples
from tests.engine.postgres.writers import rows, writers
from tests.engine.samples import ITEMS, NAMED, STAMPED, Item, Key, PutItem, PutNamed
from tests.server import eventually

_PARENT = (b"\x00" * 16, "parent")
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = {}"


@operation
def count_child_up(txn: WriteTxn, command: Key) -> int:
    """Changes a record that everybody changes only under the guard of another one."""
    txn.get(NAMED, _PARENT, EXCLUSIVE)
    item = txn.get(ITEMS, (command.key,)) or Item()
    return txn.put(ITEMS, (command.key,), Item(number=item.number + 1)).number


def test_records_are_read_after_all_locks(
    postgresql_dsn: str, ledger_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the record that is read comes before the guarded one in the order of locks."""
    assert ITEMS.name < NAMED.name
    # Long enough for a slow machine.
    monkeypatch.setitem(connecting._WRITER_SESSION, "lock_timeout", "20s")
    monkeypatch.setattr(transaction, "_LIMIT_LOCKING", "SET LOCAL statement_timeout = '20s'")
    path = f"-c search_path={ledger_schema}"
    with (
        writers(postgresql_dsn, ledger_schema, 1) as (writer,),
        psycopg.connect(postgresql_dsn, options=path) as other,
    ):
        writer.write(samples.put_named, PutNamed([_PARENT]))
        assert writer.write(count_child_up, Key("child")) == 1
        waiting = _WAITING.format(writer.backend_pid)
        other.execute("SELECT FROM test_named FOR UPDATE")
        outcomes: list[object] = []
        run = threading.Thread(
            target=lambda: outcomes.append(writer.write(count_child_up, Key("child")))
        )
        run.start()
        eventually(lambda: rows(postgresql_dsn, ledger_schema, waiting) == [(1,)], "the wait")
        changed = ITEMS.encode(Item(number=10))
        other.execute("UPDATE test_items SET version = version + 1, value = %s", (changed,))
        other.commit()
        run.join(20)
        assert outcomes == [11]


@operation
def keep_stamped(txn: WriteTxn, command: Key) -> None:
    """Writes a record with the stamp that it has, as a change of a lease does."""
    stamped = txn.get(STAMPED, (command.key,), EXCLUSIVE)
    assert stamped is not None
    txn.put(STAMPED, (command.key,), stamped)


def test_stamps_increase_over_changes_without_a_stamp(
    postgresql_dsn: str, ledger_schema: str
) -> None:
    """The stamps of a writer may be ahead of those of others, as after a clock was set back."""
    with writers(postgresql_dsn, ledger_schema, 2) as (ahead, other):
        stamp = other.write(samples.stamp_record, Key("other")).stamp
        ahead._renewals.stamps.last = stamp + 5 * TICKS_PER_SECOND
        first = ahead.write(samples.stamp_record, Key("key")).stamp
        other.write(keep_stamped, Key("key"))
        assert other.write(samples.stamp_record, Key("key")).stamp > first


@operation
def follow_pointer(txn: WriteTxn, command: Key) -> int:
    """Learns from a record which other one to guard."""
    found = txn.get(ITEMS, ("pointer",), EXCLUSIVE)
    return 0 if found is None else count_child_up(txn, command)


@operation
def follow_scanned_pointer(txn: WriteTxn, command: Key) -> int:
    return count_child_up(txn, command) if txn.scan(ITEMS, ITEMS.all(), 9) else 0


@operation
def claim_parent(txn: WriteTxn, command: Key) -> int:
    return count_child_up(txn, command) if txn.scan(NAMED, NAMED.all(), 1, claim=True) else 0


@pytest.mark.parametrize("follow", [follow_pointer, follow_scanned_pointer, claim_parent])
def test_records_are_read_again_after_late_locks(
    postgresql_dsn: str,
    ledger_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    follow: Callable[[WriteTxn, Key], int],
) -> None:
    """An operation of the same group has read the record before the lock was taken."""
    acquire, path = GroupTransaction.acquire, f"-c search_path={ledger_schema}"

    def acquire_and_interfere(transaction: GroupTransaction, wanted: WantedLocks) -> set[RecordKey]:
        monkeypatch.undo()
        changed = acquire(transaction, wanted)
        with psycopg.connect(postgresql_dsn, options=path) as other:
            other.execute("SELECT FROM test_named FOR UPDATE")
            other.execute(
                "UPDATE test_items SET version = version + 1, value = %s WHERE key = %s",
                (ITEMS.encode(Item(number=10)), ITEMS.pack(("child",))),
            )
        return changed

    with writers(postgresql_dsn, ledger_schema, 2) as (one, two):
        one.group(
            (samples.put_named, PutNamed([_PARENT])),
            (samples.put_item, PutItem("pointer")),
            (samples.put_item, PutItem("child")),
        )
        monkeypatch.setattr(GroupTransaction, "acquire", acquire_and_interfere)
        assert two.group((samples.send_maybe, Key("child")), (follow, Key("child")))[1] == 11


@operation
def stamp_scanned(txn: WriteTxn, command: Key) -> samples.Instant:
    """Locks a record after a scan, so in the transaction. Asks for the time before, or after."""
    if command.key == "before":
        assert txn.now
    txn.scan(ITEMS, ITEMS.all(), 1)
    return samples.stamp_record(txn, Key("key"))


@operation
def claim_and_tell_time(txn: WriteTxn, command: Key) -> samples.Instant:
    """Claims the first record, which another node has changed."""
    ((_, claimed),) = txn.scan(STAMPED, STAMPED.all(), 1, claim=True)
    return samples.Instant(txn.stamp, txn.now, claimed)


@pytest.mark.parametrize(
    ("run", "command"),
    [
        (stamp_scanned, Key("before")),
        (stamp_scanned, Key("after")),
        (claim_and_tell_time, Key("")),
    ],
)
def test_time_is_not_before_the_changes_of_records_that_were_locked_late(
    postgresql_dsn: str,
    ledger_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[WriteTxn, Key], samples.Instant],
    command: Key,
) -> None:
    """Another node changes the record after the time of the transaction was first read."""
    scan = GroupTransaction.scan
    with writers(postgresql_dsn, ledger_schema, 2) as (one, other):
        one.write(samples.stamp_record, Key("key"))

        def interfere_and_scan(
            transaction: GroupTransaction, *arguments: Any, **options: Any
        ) -> Any:
            monkeypatch.undo()
            time.sleep(0.01)
            assert other.write(samples.stamp_record, Key("key")).stamp
            time.sleep(0.01)
            return scan(transaction, *arguments, **options)

        monkeypatch.setattr(GroupTransaction, "scan", interfere_and_scan)
        instant = one.write(run, command)
        assert instant.previous is not None
        assert instant.now >= instant.previous.now
        assert instant.stamp > instant.previous.stamp
