"""The isolation of the memory engine, step by step: anomalies happen without a guard, and guards
prevent them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    Conflict,
    Fault,
    FaultReason,
    Guard,
    WriteTxn,
    operation,
)
from etagere.engine.memory import MemoryEngine
from etagere.engine.memory_transactions import MemoryWriteTxn
from etagere.model.base import Command
from tests.clocks import SharedClock
from tests.engine import samples
from tests.engine.samples import ITEMS, Item, Key, PutItem

A, B, C = ("a",), ("b",), ("c",)


def engine_with(*keys: str) -> MemoryEngine:
    engine = MemoryEngine()
    commit(engine, lambda txn: [txn.put(ITEMS, (key,), Item(key)) for key in keys])
    return engine


def commit(engine: MemoryEngine, change: Callable[[MemoryWriteTxn], object]) -> None:
    transaction = engine.begin()
    change(transaction)
    transaction.commit()


def put(key: tuple[str], text: str) -> Callable[[MemoryWriteTxn], object]:
    return lambda txn: txn.put(ITEMS, key, Item(text))


def text_of(item: Item | None) -> str | None:
    return None if item is None else item.text


def newest(engine: MemoryEngine, key: tuple[str]) -> str | None:
    snapshot = engine.begin_read()
    try:
        return text_of(snapshot.get(ITEMS, key))
    finally:
        snapshot.close()


def keys_of(found: list[tuple[tuple[str], Item]]) -> str:
    return "".join(key for (key,), _ in found)


# Anomalies, and the guards against them


def go_off_duty(
    txn: MemoryWriteTxn, mine: tuple[str], other: tuple[str], guard: Guard | None
) -> None:
    """The textbook write skew: one of two may leave if the other stays."""
    if text_of(txn.get(ITEMS, other, guard)) == "on":
        txn.put(ITEMS, mine, Item("off"))


def both_on_duty() -> MemoryEngine:
    engine = MemoryEngine()
    commit(engine, put(A, "on"))
    commit(engine, put(B, "on"))
    return engine


def test_write_skew_happens_without_guards() -> None:
    engine = both_on_duty()
    first, second = engine.begin(), engine.begin()
    go_off_duty(first, A, B, None)
    go_off_duty(second, B, A, None)
    first.commit()
    second.commit()
    assert (newest(engine, A), newest(engine, B)) == ("off", "off")


@pytest.mark.parametrize("guard", [SHARED, EXCLUSIVE])
@pytest.mark.parametrize(("mine", "other"), [(A, B), (B, A)])
def test_write_skew_cannot_happen_with_guards(
    guard: Guard, mine: tuple[str], other: tuple[str]
) -> None:
    engine = both_on_duty()
    first, second = engine.begin(), engine.begin()
    go_off_duty(first, mine, other, guard)
    with pytest.raises(Conflict):
        go_off_duty(second, other, mine, guard)
    second.rollback()
    first.commit()
    commit(engine, lambda txn: go_off_duty(txn, other, mine, guard))
    assert (newest(engine, mine), newest(engine, other)) == ("off", "on")


def test_write_skew_happens_without_guards_between_concurrent_writes() -> None:
    """Whole operations overlap too, not only steps driven by a test."""
    engine = both_on_duty()

    async def both() -> None:
        await asyncio.gather(
            engine.write(leave_unguarded, Leave("a", "b")),
            engine.write(leave_unguarded, Leave("b", "a")),
        )

    asyncio.run(both())
    assert (newest(engine, A), newest(engine, B)) == ("off", "off")


class Leave(Command, frozen=True):
    mine: str
    other: str


@operation
def leave_unguarded(txn: WriteTxn, command: Leave) -> None:
    if text_of(txn.get(ITEMS, (command.other,))) == "on":
        txn.put(ITEMS, (command.mine,), Item("off"))


def test_a_phantom_appears_without_a_guard_on_absence() -> None:
    engine = engine_with("b")
    decider = engine.begin()
    assert decider.get(ITEMS, A) is None
    commit(engine, put(A, "phantom"))
    decider.put(ITEMS, C, Item("a is absent"))
    decider.commit()
    assert newest(engine, A) == "phantom"
    assert newest(engine, C) == "a is absent"


@pytest.mark.parametrize("guard", [SHARED, EXCLUSIVE])
def test_absence_can_be_guarded(guard: Guard) -> None:
    engine = engine_with("b")
    decider, other = engine.begin(), engine.begin()
    assert decider.get(ITEMS, A, guard) is None
    with pytest.raises(Conflict):
        other.put(ITEMS, A, Item("phantom"))
    decider.put(ITEMS, C, Item("a is absent"))
    decider.commit()
    assert newest(engine, A) is None


def test_a_scan_guards_nothing() -> None:
    engine = engine_with("a")
    decider = engine.begin()
    assert keys_of(decider.scan(ITEMS, ITEMS.all(), 10)) == "a"
    commit(engine, put(B, "b"))
    assert keys_of(decider.scan(ITEMS, ITEMS.all(), 10)) == "ab"
    commit(engine, lambda txn: txn.delete(ITEMS, A))
    assert keys_of(decider.scan(ITEMS, ITEMS.all(), 10)) == "b"


def test_unguarded_gets_may_differ_and_guarded_ones_may_not() -> None:
    engine = engine_with("a", "b")
    reader = engine.begin()
    assert text_of(reader.get(ITEMS, A)) == "a"
    commit(engine, put(A, "changed"))
    assert text_of(reader.get(ITEMS, A)) == "changed"
    assert text_of(reader.get(ITEMS, A, SHARED)) == "changed"
    with pytest.raises(Conflict):
        engine.begin().put(ITEMS, A, Item("again"))
    assert text_of(reader.get(ITEMS, A)) == "changed"


def test_uncommitted_writes_are_seen_by_nobody_else() -> None:
    engine = engine_with("a")
    writer, other, snapshot = engine.begin(), engine.begin(), engine.begin_read()
    writer.put(ITEMS, A, Item("uncommitted"))
    writer.put(ITEMS, B, Item("uncommitted"))
    assert text_of(other.get(ITEMS, A)) == "a"
    assert keys_of(other.scan(ITEMS, ITEMS.all(), 10)) == "a"
    assert keys_of(snapshot.scan(ITEMS, ITEMS.all(), 10)) == "a"
    writer.rollback()
    assert newest(engine, A) == "a"
    assert newest(engine, B) is None


# Interruptions within an operation


def count_up_unguarded(txn: WriteTxn) -> None:
    item = txn.get(ITEMS, A) or Item()
    txn.put(ITEMS, A, Item(number=item.number + 1))


def count_up_guarded(txn: WriteTxn) -> None:
    samples.count_up(txn, Key("a"))


def number_after_interruption(change: Callable[[WriteTxn], None], at_step: int) -> int:
    """Counts to two; the second count commits before a given step of the first."""
    engine = MemoryEngine()
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == at_step:
            other = engine.begin()
            change(other)
            other.commit()

    first = engine.begin(interrupt)
    change(first)
    first.commit()
    snapshot = engine.begin_read()
    return (snapshot.get(ITEMS, A) or Item()).number


def test_an_update_is_lost_between_an_unguarded_get_and_its_put() -> None:
    assert number_after_interruption(count_up_unguarded, 1) == 2
    assert number_after_interruption(count_up_unguarded, 2) == 1
    with pytest.raises(Conflict):
        number_after_interruption(count_up_unguarded, 3)


def test_no_update_is_lost_after_a_guarded_get() -> None:
    assert number_after_interruption(count_up_guarded, 1) == 2
    for step in (2, 3):
        with pytest.raises(Conflict):
            number_after_interruption(count_up_guarded, step)


# Locks


def test_shared_guards_coexist_and_exclude_writers() -> None:
    engine = engine_with("a")
    first, second, writer = engine.begin(), engine.begin(), engine.begin()
    first.get(ITEMS, A, SHARED)
    second.get(ITEMS, A, SHARED)
    with pytest.raises(Conflict):
        writer.put(ITEMS, A, Item())
    with pytest.raises(Conflict):
        engine.begin().delete(ITEMS, A)
    with pytest.raises(Conflict):
        engine.begin().get(ITEMS, A, EXCLUSIVE)
    first.commit()
    with pytest.raises(Conflict):
        engine.begin().put(ITEMS, A, Item())
    second.rollback()
    commit(engine, put(A, "free"))
    assert newest(engine, A) == "free"


@pytest.mark.parametrize(
    "lock",
    [
        lambda txn: txn.get(ITEMS, A, EXCLUSIVE),
        lambda txn: txn.put(ITEMS, A, Item()),
        lambda txn: txn.delete(ITEMS, A),
    ],
)
def test_exclusive_guards_exclude_all_guards_but_no_reads(
    lock: Callable[[MemoryWriteTxn], object],
) -> None:
    engine = engine_with("a")
    holder = engine.begin()
    lock(holder)
    for guard in (SHARED, EXCLUSIVE):
        with pytest.raises(Conflict):
            engine.begin().get(ITEMS, A, guard)
    assert text_of(engine.begin().get(ITEMS, A)) == "a"
    engine.begin().get(ITEMS, B, EXCLUSIVE)


def test_a_sole_holder_may_upgrade() -> None:
    engine = engine_with("a")
    holder = engine.begin()
    holder.get(ITEMS, A, SHARED)
    holder.get(ITEMS, A, EXCLUSIVE)
    with pytest.raises(Conflict):
        engine.begin().get(ITEMS, A, SHARED)
    # Asking for a weaker guard later releases nothing.
    holder.get(ITEMS, A, SHARED)
    with pytest.raises(Conflict):
        engine.begin().get(ITEMS, A, SHARED)
    holder.put(ITEMS, A, Item("mine"))
    holder.commit()
    assert newest(engine, A) == "mine"


def test_one_of_two_holders_may_not_upgrade() -> None:
    engine = engine_with("a")
    first, second = engine.begin(), engine.begin()
    first.get(ITEMS, A, SHARED)
    second.get(ITEMS, A, SHARED)
    with pytest.raises(Conflict):
        first.put(ITEMS, A, Item())
    first.rollback()
    second.put(ITEMS, A, Item("second"))
    second.commit()
    assert newest(engine, A) == "second"


def test_a_conflict_cannot_be_swallowed() -> None:
    engine = engine_with("a")
    holder, other = engine.begin(), engine.begin()
    holder.get(ITEMS, A, EXCLUSIVE)
    other.put(ITEMS, B, Item("other"))
    with pytest.raises(Conflict):
        other.get(ITEMS, A, SHARED)
    holder.commit()
    with pytest.raises(Conflict):
        other.get(ITEMS, C)
    with pytest.raises(Conflict):
        other.commit()
    assert newest(engine, B) is None
    commit(engine, put(B, "free"))


def test_locks_keep_collections_apart() -> None:
    engine = MemoryEngine()
    holder = engine.begin()
    holder.get(ITEMS, A, EXCLUSIVE)
    with pytest.raises(Conflict):
        commit(engine, put(A, "same collection"))
    commit(engine, lambda txn: txn.put(samples.STAMPED, A, samples.Stamped(1, 1)))
    assert engine.begin().get(samples.STAMPED, A) == samples.Stamped(1, 1)
    holder.commit()


# Claims


def test_claims_skip_what_others_hold() -> None:
    engine = engine_with("a", "b", "c", "d", "e", "f")
    engine.begin().get(ITEMS, A, EXCLUSIVE)
    engine.begin().get(ITEMS, C, SHARED)
    first, second, third = engine.begin(), engine.begin(), engine.begin()
    assert keys_of(first.scan(ITEMS, ITEMS.all(), 2, claim=True)) == "bd"
    assert keys_of(second.scan(ITEMS, ITEMS.all(), 1, claim=True, reverse=True)) == "f"
    assert keys_of(third.scan(ITEMS, ITEMS.all(), 9, claim=True)) == "e"
    assert keys_of(engine.begin().scan(ITEMS, ITEMS.all(), 9, claim=True)) == ""
    # The claimant finds them again.
    assert keys_of(first.scan(ITEMS, ITEMS.all(), 9, claim=True)) == "bd"


def test_claims_are_held_until_the_end() -> None:
    engine = engine_with("a", "b")
    holder = engine.begin()
    holder.scan(ITEMS, ITEMS.all(), 1, claim=True)
    with pytest.raises(Conflict):
        engine.begin().get(ITEMS, A, SHARED)
    engine.begin().get(ITEMS, B, SHARED)
    holder.rollback()
    next_one = engine.begin()
    assert keys_of(next_one.scan(ITEMS, ITEMS.all(), 1, claim=True)) == "a"
    next_one.delete(ITEMS, A)
    next_one.commit()
    assert keys_of(engine.begin().scan(ITEMS, ITEMS.all(), 1)) == "b"


def test_claims_include_own_writes_and_leave_out_own_deletions() -> None:
    engine = engine_with("a", "c")
    claimer = engine.begin()
    claimer.put(ITEMS, B, Item())
    claimer.delete(ITEMS, A)
    assert keys_of(claimer.scan(ITEMS, ITEMS.all(), 9, claim=True)) == "bc"


def test_own_writes_are_merged_into_scans() -> None:
    engine = engine_with("b", "d", "f")
    writer = engine.begin()
    for key in ("a", "d", "e", "g"):
        writer.put(ITEMS, (key,), Item("own"))
    writer.delete(ITEMS, ("f",))
    found = writer.scan(ITEMS, ITEMS.all(), 9)
    assert keys_of(found) == "abdeg"
    assert [item.text for _, item in found] == ["own", "b", "own", "own", "own"]
    assert keys_of(writer.scan(ITEMS, ITEMS.all(), 9, reverse=True)) == "gedba"
    assert keys_of(writer.scan(ITEMS, ITEMS.all(), 3, reverse=True)) == "ged"
    rest = ITEMS.after(ITEMS.all(), ("b",))
    assert keys_of(writer.scan(ITEMS, rest, 2)) == "de"
    assert keys_of(writer.scan(ITEMS, ITEMS.under((), "e"), 9)) == "e"


# Snapshots


def test_commits_do_not_change_a_snapshot() -> None:
    engine = engine_with("a", "b")
    early = engine.begin_read()
    commit(engine, put(A, "changed"))
    commit(engine, lambda txn: txn.delete(ITEMS, B))
    commit(engine, put(C, "c"))
    late = engine.begin_read()
    commit(engine, lambda txn: txn.delete(ITEMS, A))
    commit(engine, put(B, "again"))
    assert text_of(early.get(ITEMS, A)) == "a"
    assert text_of(early.get(ITEMS, B)) == "b"
    assert early.get(ITEMS, C) is None
    assert keys_of(early.scan(ITEMS, ITEMS.all(), 9)) == "ab"
    assert keys_of(early.scan(ITEMS, ITEMS.all(), 1, reverse=True)) == "b"
    assert text_of(late.get(ITEMS, A)) == "changed"
    assert keys_of(late.scan(ITEMS, ITEMS.all(), 9)) == "ac"
    assert (newest(engine, A), newest(engine, B)) == (None, "again")


def test_unneeded_versions_are_dropped() -> None:
    engine = engine_with("a")
    assert engine.versions_held == 1
    for number in range(5):
        commit(engine, put(A, str(number)))
    assert engine.versions_held == 1
    early = engine.begin_read()
    for number in range(5):
        commit(engine, put(A, str(number)))
    late = engine.begin_read()
    twin = engine.begin_read()
    for number in range(5):
        commit(engine, put(A, str(number)))
    assert engine.versions_held == 3
    early.close()
    assert engine.versions_held == 2
    late.close()
    assert engine.versions_held == 2
    twin.close()
    assert engine.versions_held == 1
    last = engine.begin_read()
    commit(engine, lambda txn: txn.delete(ITEMS, A))
    assert engine.versions_held == 2
    assert text_of(last.get(ITEMS, A)) == "4"
    last.close()
    assert engine.versions_held == 0


def test_deleting_a_missing_record_leaves_nothing() -> None:
    engine = MemoryEngine()
    snapshot = engine.begin_read()
    commit(engine, lambda txn: txn.delete(ITEMS, A))
    assert engine.versions_held == 0
    snapshot.close()


# Time


def test_now_and_stamp_are_fixed_when_first_read() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    early, late, snapshot = engine.begin(), engine.begin(), engine.begin_read()
    start = early.now
    clock.advance(100)
    assert early.now == start
    assert late.now == start + 100
    assert snapshot.now == start + 100
    clock.advance(100)
    assert snapshot.now == start + 100
    assert late.stamp == late.stamp == clock.wall()
    assert early.stamp == late.stamp + 1
    early.rollback()
    assert engine.begin().stamp == clock.wall() + 2


def test_a_restart_rolls_back_uncommitted_changes() -> None:
    engine = engine_with("a")
    open_transaction = engine.begin()
    open_transaction.put(ITEMS, B, Item("uncommitted"))
    again = engine.restarted()
    assert keys_of(again.begin_read().scan(ITEMS, ITEMS.all(), 9)) == "a"
    again.begin().put(ITEMS, B, Item())
    with pytest.raises(Fault) as fault:
        open_transaction.commit()
    assert fault.value.reason is FaultReason.UNAVAILABLE
    with pytest.raises(Fault):
        engine.begin()


def test_the_timeline_is_stored_by_each_commit() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    transaction = engine.begin()
    stamp = transaction.stamp
    assert engine.timeline.last_stamp < stamp
    clock.advance(1000)
    transaction.commit()
    assert engine.timeline.last_stamp == stamp
    assert clock.elapsed() - 2_000 < engine.timeline.elapsed <= clock.elapsed()
    assert MemoryEngine(clock, engine.timeline).begin().stamp > stamp


# Ending transactions


def test_an_ended_transaction_cannot_be_used() -> None:
    engine = engine_with("a")
    committed, rolled_back, closed = engine.begin(), engine.begin(), engine.begin_read()
    committed.commit()
    rolled_back.rollback()
    closed.close()
    closed.close()
    for transaction in (committed, rolled_back):
        transaction.rollback()
        with pytest.raises(RuntimeError, match="ended"):
            transaction.put(ITEMS, A, Item())
        with pytest.raises(RuntimeError, match="ended"):
            transaction.commit()
    with pytest.raises(RuntimeError, match="ended"):
        closed.get(ITEMS, A)


def test_hooks_run_after_the_locks_are_released() -> None:
    engine = MemoryEngine()
    seen: list[str | None] = []

    def look(_: None) -> None:
        seen.append(newest(engine, A))
        commit(engine, put(A, "by the hook"))

    transaction = engine.begin()
    transaction.put(ITEMS, A, Item("committed"))
    transaction.on_commit(look, None)
    assert seen == []
    transaction.commit()
    assert seen == ["committed"]
    assert newest(engine, A) == "by the hook"


def test_a_write_waits_for_a_lock_by_retrying() -> None:
    engine = engine_with("a")

    async def wait() -> None:
        holder = engine.begin()
        holder.get(ITEMS, A, EXCLUSIVE)
        writing = asyncio.create_task(engine.write(samples.put_item, PutItem("a", Item("later"))))
        while not engine.retries.conflicts:
            await asyncio.sleep(0)
        holder.put(ITEMS, A, Item("earlier"))
        holder.commit()
        await writing

    asyncio.run(wait())
    assert newest(engine, A) == "later"
    assert engine.retries.gave_up == 0


def test_a_cancelled_write_leaves_nothing_behind() -> None:
    engine = engine_with("a")

    async def cancel() -> None:
        writing = asyncio.create_task(engine.write(samples.put_item, PutItem("a", Item("never"))))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await engine.write(samples.count_up, Key("a"))

    asyncio.run(cancel())
    assert newest(engine, A) == "a"
    assert engine.retries.conflicts == 0


def test_a_record_that_could_not_be_read_back_is_not_stored() -> None:
    engine = MemoryEngine()
    broken = Item(text=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected `str`"):
        engine.begin().put(ITEMS, A, broken)
    assert newest(engine, A) is None
