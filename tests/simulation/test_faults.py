"""Errors in the ledger's files: every caller gets a true outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from etagere.config import KIB, MIB, Config
from etagere.engine.interface import Engine, FaultReason, ReadTxn
from etagere.engine.reserve import RESERVE_NAME
from tests.bodies.objects import delete_object, download, upload
from tests.engine.samples import (
    ITEMS,
    Item,
    Key,
    PutItem,
    PutLarge,
    count_up,
    get_item,
    get_large,
    put_item,
    put_large,
)
from tests.simulation.faults import (
    FULL,
    IOERR_FSYNC,
    IOERR_SHMSIZE,
    IOERR_TRUNCATE,
    IOERR_WRITE,
    VFS_NAME,
    Call,
    FaultyVFS,
    LedgerFaults,
    LedgerFile,
)
from tests.simulation.servers import (
    Ending,
    Server,
    ending_of,
    eventually,
    front_end,
    require_clean,
    run,
    served,
    wait_until,
)

TASKS = 32
# One group commit holds all concurrent writes of a test.
CONFIG = Config(sqlite_vfs=VFS_NAME, reserve_bytes=1 * MIB, group_seconds_max=5.0)
# Eight pages: operations that write more reach the log before the commit.
SPILLING = Config(
    sqlite_vfs=VFS_NAME, reserve_bytes=1 * MIB, group_seconds_max=5.0, page_cache_bytes=64 * KIB
)

Outcomes = dict[str, Ending]


@pytest.fixture
def faults() -> Iterator[LedgerFaults]:
    """The faults of a test's processes; created before any of them is forked."""
    control = LedgerFaults()
    vfs = FaultyVFS(control)
    yield control
    vfs.unregister()


@contextlib.contextmanager
def faulty_server(tmp_path: Path, config: Config, faults: LedgerFaults) -> Iterator[Server]:
    """A server whose ledger must pass the check after the test."""
    faults.watch(tmp_path / "data" / RESERVE_NAME)
    with served(tmp_path / "data", config) as server:
        yield server
        faults.stop()
        assert server.stop() == 0
    require_clean(server.directory)


def item(number: int) -> str:
    return f"item-{number}"


async def put_all(engine: Engine, round_: str = "") -> Outcomes:
    """Runs many concurrent writes of two KiB each."""
    await eventually(lambda: engine.write(put_item, PutItem("first")))  # connects
    return await put_more(engine, round_)


async def put_more(engine: Engine, round_: str) -> Outcomes:
    names = [round_ + item(number) for number in range(TASKS)]
    puts = [engine.write(put_item, PutItem(name, Item(name * 200))) for name in names]
    return dict(zip(names, await asyncio.gather(*map(ending_of, puts)), strict=True))


def seen_items(server: Server) -> dict[str, Item]:
    """Returns all items in the ledger."""

    def scan(txn: ReadTxn, _: None) -> list[tuple[tuple[str], Item]]:
        return txn.scan(ITEMS, ITEMS.all(), 10_000)

    async def read() -> dict[str, Item]:
        async with front_end(server) as front:
            return {key: found for (key,), found in await front.engine.read(scan, None)}

    return run(read())


def require_outcomes(outcomes: Outcomes, seen: dict[str, Item]) -> None:
    """Checks that acknowledged writes are present, failed ones are not, and nothing is torn."""
    for name, ending in outcomes.items():
        if ending.happened is not None:
            assert (name in seen) == ending.happened, (name, ending)
        assert name not in seen or seen[name] == Item(name * 200)


def require_all_or_none(outcomes: Outcomes, seen: dict[str, Item]) -> None:
    """Checks that the writes of unknown outcome were one commit."""
    there = {name in seen for name, ending in outcomes.items() if ending.kind == "unknown"}
    assert len(there) <= 1


def require_works_again(server: Server) -> None:
    async def write() -> None:
        async with front_end(server) as front:
            await eventually(lambda: front.engine.write(put_item, PutItem("again")))
            result = await put_more(front.engine, "again-")
            assert {ending.kind for ending in result.values()} == {"done"}

    run(write())


def put_under_faults(server: Server, round_: str = "") -> Outcomes:
    async def write() -> Outcomes:
        async with front_end(server) as front:
            return await put_all(front.engine, round_)

    return run(write())


def require_settled(server: Server, faults: LedgerFaults, outcomes: Outcomes) -> None:
    """Checks the outcomes now, after the fault has passed, and after a crash of everything."""
    seen = seen_items(server)
    require_outcomes(outcomes, seen)
    require_all_or_none(outcomes, seen)
    faults.stop()
    require_works_again(server)
    server.crash_and_restart()
    after = seen_items(server)
    assert {name: after.get(name) for name in outcomes} == {
        name: seen.get(name) for name in outcomes
    }


# Commits


def strike_after_connecting(
    server: Server,
    faults: LedgerFaults,
    call: Call,
    error: int,
    *,
    nth: int = 1,
    lasting: bool = False,
    short: bool = False,
) -> Outcomes:
    """Runs many concurrent writes with a fault from the first of them on."""

    async def write() -> Outcomes:
        async with front_end(server) as front:
            await front.engine.write(put_item, PutItem("first"))
            faults.strike(call, LedgerFile.LOG, error, nth=nth, lasting=lasting, short=short)
            return await put_more(front.engine, "")

    return run(write())


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 8])
def test_a_log_that_is_full_once_fails_no_write(
    tmp_path: Path, faults: LedgerFaults, nth: int, short: bool
) -> None:
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(server, faults, Call.WRITE, FULL, nth=nth, short=short)
        assert faults.injected == 1
        assert f"rolled back a group of {TASKS} operations" in server.log()
        assert {ending.kind for ending in outcomes.values()} == {"done"}
        require_settled(server, faults, outcomes)


def test_a_log_that_stays_full_fails_writes_that_need_space(
    tmp_path: Path, faults: LedgerFaults
) -> None:
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(server, faults, Call.WRITE, FULL, nth=4, lasting=True)
        assert {(ending.kind, ending.reason) for ending in outcomes.values()} == {
            ("fault", FaultReason.DISK_FULL)
        }
        require_settled(server, faults, outcomes)


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("nth", [1, 7])
def test_a_commit_that_cannot_be_written_has_an_unknown_outcome(
    tmp_path: Path, faults: LedgerFaults, nth: int, short: bool
) -> None:
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(
            server, faults, Call.WRITE, IOERR_WRITE, nth=nth, short=short
        )
        assert {ending.kind for ending in outcomes.values()} == {"unknown"}
        assert f"the commit of {TASKS} operations failed" in server.log()
        require_settled(server, faults, outcomes)


def test_a_commit_that_cannot_be_synced_has_an_unknown_outcome(
    tmp_path: Path, faults: LedgerFaults
) -> None:
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(server, faults, Call.SYNC, IOERR_FSYNC)
        assert {ending.kind for ending in outcomes.values()} == {"unknown"}
        require_settled(server, faults, outcomes)


def test_a_sync_that_keeps_failing(tmp_path: Path, faults: LedgerFaults) -> None:
    """No call hangs or gets a wrong outcome, however long it lasts."""
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(server, faults, Call.SYNC, IOERR_FSYNC, lasting=True)

        async def two_more() -> None:
            async with front_end(server) as front:
                outcomes.update(await put_more(front.engine, "second-"))
                outcomes.update(await put_more(front.engine, "third-"))

        run(two_more())
        # Once the log is known to be unwritable, nothing is tried.
        assert {ending.kind for ending in outcomes.values()} == {"unknown", "fault"}
        seen = seen_items(server)
        faults.stop()
        require_works_again(server)
        server.crash_and_restart()
        after = seen_items(server)
        assert {name for name in outcomes if name in seen} == {
            name for name in outcomes if name in after
        }


@pytest.mark.parametrize("call, error", [(Call.SYNC, IOERR_FSYNC), (Call.WRITE, IOERR_WRITE)])
def test_a_read_after_an_unknown_outcome_survives_a_crash(
    tmp_path: Path, faults: LedgerFaults, call: Call, error: int
) -> None:
    """A read after an unknown outcome shows which it is: a restart right after it neither undoes
    the write nor brings it back from the log."""
    with faulty_server(tmp_path, CONFIG, faults) as server:
        outcomes = strike_after_connecting(server, faults, call, error)
        assert {ending.kind for ending in outcomes.values()} == {"unknown"}
        wait_until(lambda: not faults.armed, "the fault")
        seen = seen_items(server)
        server.crash_and_restart()
        assert seen_items(server) == seen


# Statements


async def spill(engine: Engine) -> tuple[dict[bytes, Ending], list[Ending]]:
    """Large writes among small ones that increment: an operation that runs twice counts twice."""
    large = {b"large-%d" % number: bytes([number]) * 100 * KIB for number in range(TASKS // 2)}
    calls: list[Awaitable[object]] = []
    for key, data in large.items():
        calls.append(engine.write(count_up, Key("counter")))
        calls.append(engine.write(put_large, PutLarge(key, data)))
    endings = await asyncio.gather(*map(ending_of, calls))
    return dict(zip(large, endings[1::2], strict=True)), endings[::2]


def spill_under_faults(
    server: Server, faults: LedgerFaults, error: int, *, nth: int, lasting: bool
) -> tuple[dict[bytes, Ending], list[Ending]]:
    async def write() -> tuple[dict[bytes, Ending], list[Ending]]:
        async with front_end(server) as front:
            await front.engine.write(put_item, PutItem("first"))
            faults.strike(Call.WRITE, LedgerFile.LOG, error, nth=nth, lasting=lasting)
            return await spill(front.engine)

    return run(write())


def require_spilled_outcomes(
    server: Server, large: dict[bytes, Ending], counted: list[Ending]
) -> None:
    async def read() -> None:
        async with front_end(server) as front:
            counter = (await front.engine.read(get_item, "counter")) or Item()
            acknowledged = [ending.value for ending in counted if ending.kind == "done"]
            unknown = sum(ending.kind == "unknown" for ending in counted)
            assert len(set(acknowledged)) == len(acknowledged)
            assert len(acknowledged) <= counter.number <= len(acknowledged) + unknown
            for key, ending in large.items():
                found = await front.engine.read(get_large, key)
                if ending.happened is not None:
                    assert (found is not None) == ending.happened, (key, ending)
                number = int(key.removeprefix(b"large-"))
                assert found is None or found.data == bytes([number]) * 100 * KIB

    run(read())


@pytest.mark.parametrize("error", [FULL, IOERR_WRITE])
@pytest.mark.parametrize("nth", [1, 40])
def test_a_statement_that_fails_once_fails_no_write(
    tmp_path: Path, faults: LedgerFaults, error: int, nth: int
) -> None:
    """SQLite rolls back the transaction with everything the group had done in it."""
    with faulty_server(tmp_path, SPILLING, faults) as server:
        large, counted = spill_under_faults(server, faults, error, nth=nth, lasting=False)
        assert faults.injected == 1
        assert "rolled back a group" in server.log()
        assert {ending.kind for ending in (*large.values(), *counted)} == {"done"}
        assert sorted(ending.value for ending in counted) == [*range(1, TASKS // 2 + 1)]
        require_spilled_outcomes(server, large, counted)
        server.crash_and_restart()
        require_spilled_outcomes(server, large, counted)


@pytest.mark.parametrize("error", [FULL, IOERR_WRITE])
def test_statements_that_keep_failing(tmp_path: Path, faults: LedgerFaults, error: int) -> None:
    """A failure before the commit means that nothing happened; a failure in it may mean either."""
    with faulty_server(tmp_path, SPILLING, faults) as server:
        large, counted = spill_under_faults(server, faults, error, nth=30, lasting=True)
        reason = FaultReason.DISK_FULL if error == FULL else FaultReason.FAILED
        assert {(ending.kind, ending.reason) for ending in large.values()} == {("fault", reason)}
        assert "done" not in {ending.kind for ending in counted}
        require_spilled_outcomes(server, large, counted)
        faults.stop()
        require_works_again(server)
        server.crash_and_restart()
        require_spilled_outcomes(server, large, counted)


# Checkpoints


# Calls while there is no writer wait no longer than this for the next.
CHECKPOINTED = Config(
    sqlite_vfs=VFS_NAME, reserve_bytes=1 * MIB, checkpoint_pages=8, writer_answer_seconds_max=5.0
)


def test_a_checkpoint_on_a_full_disk_is_retried(tmp_path: Path, faults: LedgerFaults) -> None:
    with faulty_server(tmp_path, CHECKPOINTED, faults) as server:
        faults.strike(Call.WRITE, LedgerFile.DATABASE, FULL, lasting=True)
        result: Outcomes = {}
        for round_ in ("one-", "two-", "three-"):
            result.update(put_under_faults(server, round_))
        assert faults.injected
        assert "a checkpoint failed" in server.log()
        assert {ending.kind for ending in result.values()} == {"done"}
        require_outcomes(result, seen_items(server))
        # SQLite ignores errors in the checkpoint of a connection that it closes; apsw would not.
        faults.stop()
        server.crash_and_restart()  # with a partial checkpoint in the database
        require_outcomes(result, seen_items(server))
        faults.count(Call.SYNC, LedgerFile.DATABASE)
        require_works_again(server)
        wait_until(lambda: faults.seen, "a checkpoint")
        require_outcomes(result, seen_items(server))


@pytest.mark.parametrize(
    "call, error, short",
    [
        (Call.WRITE, IOERR_WRITE, False),
        (Call.WRITE, IOERR_WRITE, True),
        (Call.SYNC, IOERR_FSYNC, False),
        (Call.TRUNCATE, IOERR_TRUNCATE, False),
    ],
)
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_failed_checkpoint_restarts_from_the_start_of_the_log(
    tmp_path: Path, faults: LedgerFaults, call: Call, error: int, short: bool, nth: int
) -> None:
    """Checkpoints before the failing one were mostly partial: their pages count as moved although
    they were never synced, and are dropped with the rest. Another process keeps the database open,
    so that this state outlives the writer."""
    with faulty_server(tmp_path, CHECKPOINTED, faults) as server:

        async def put_rounds(outcomes: Outcomes, name: str, count: int) -> None:
            async with front_end(server) as front:
                await eventually(lambda: front.engine.write(put_item, PutItem("first")))
                for number in range(count):
                    outcomes.update(await put_more(front.engine, f"{name}-{number}-"))

        async def put_beside_a_reader() -> Outcomes:
            outcomes: Outcomes = {}
            async with front_end(server) as reader:
                await reader.engine.read(get_item, "first")
                faults.strike(call, LedgerFile.DATABASE, error, nth=nth, short=short, dropping=True)
                while not faults.injected:
                    await put_rounds(outcomes, f"before-{len(outcomes)}", 3)
                await eventually(lambda: reader.engine.write(put_item, PutItem("again")))
                # Beyond the next checkpoint, after which the log is overwritten.
                faults.count(Call.SYNC, LedgerFile.DATABASE)
                while faults.seen < 3:
                    await put_rounds(outcomes, f"after-{len(outcomes)}", 3)
            return outcomes

        outcomes = run(put_beside_a_reader())
        assert "a checkpoint failed" in server.log()
        assert sum(ending.kind == "done" for ending in outcomes.values()) > TASKS
        server.crash_and_restart()
        require_outcomes(outcomes, seen_items(server))


@pytest.mark.parametrize("nth", [1, 2, 3, 5])
def test_a_sync_of_the_log_that_drops_pages_loses_nothing(
    tmp_path: Path, faults: LedgerFaults, nth: int
) -> None:
    """Only the writer has the database open, so its log is recovered when the writer reopens it."""
    with faulty_server(tmp_path, CHECKPOINTED, faults) as server:
        outcomes = put_under_faults(server, "before-")
        faults.strike(Call.SYNC, LedgerFile.LOG, IOERR_FSYNC, nth=nth, dropping=True)
        for number in range(6):
            outcomes.update(put_under_faults(server, f"during-{number}-"))
        assert faults.injected == 1
        server.crash_and_restart()
        require_outcomes(outcomes, seen_items(server))
        require_works_again(server)


def test_nothing_acknowledged_is_lost_while_checkpoints_fail(
    tmp_path: Path, faults: LedgerFaults
) -> None:
    with faulty_server(tmp_path, CHECKPOINTED, faults) as server:
        outcomes = put_under_faults(server, "before-")
        faults.strike(Call.SYNC, LedgerFile.DATABASE, IOERR_FSYNC, lasting=True, dropping=True)

        async def put_until_it_fails_again() -> None:
            async with front_end(server) as front:
                while faults.injected < 3:
                    outcomes.update(await put_more(front.engine, f"during-{len(outcomes)}-"))
                    await asyncio.sleep(0.02)

        run(put_until_it_fails_again())
        faults.stop()
        require_works_again(server)
        server.crash_and_restart()
        require_outcomes(outcomes, seen_items(server))


# A full disk


def test_only_deletes_succeed_on_a_full_disk(tmp_path: Path, faults: LedgerFaults) -> None:
    """Like a real disk: there is no space until the reserve is released."""
    with faulty_server(tmp_path, CONFIG, faults) as server:

        async def fill_and_delete() -> None:
            async with front_end(server) as front:
                for number in range(8):
                    await upload(front.engine, front.store, f"old-{number}", bytes([number]) * 999)
                faults.strike(Call.WRITE, LedgerFile.LOG, FULL, lasting=True, while_filled=True)
                calls: list[Awaitable[object]] = []
                for number in range(8):
                    calls.append(upload(front.engine, front.store, f"new-{number}", b"new"))
                    if number % 2:
                        calls.append(front.engine.write(delete_object, f"old-{number}"))
                endings = await asyncio.gather(*map(ending_of, calls))
                deleted = [ending for ending in endings if ending.kind == "done"]
                refused = [ending.reason for ending in endings if ending.kind == "fault"]
                assert len(deleted) == 4, endings
                assert refused == [FaultReason.DISK_FULL] * 8, endings
                assert faults.injected
                faults.stop()
                # The writer notices that there is space.
                await eventually(lambda: upload(front.engine, front.store, "late", b"late"))

        async def look() -> None:
            async with front_end(server) as front:
                for number in range(8):
                    old = await download(front.engine, front.store, f"old-{number}")
                    assert old == (None if number % 2 else bytes([number]) * 999)
                    assert await download(front.engine, front.store, f"new-{number}") is None
                assert await download(front.engine, front.store, "late") == b"late"

        run(fill_and_delete())
        assert "the disk is full" in server.log()
        assert "there is space on the disk again" in server.log()
        run(look())
        server.crash_and_restart()
        run(look())


def test_deletes_succeed_when_the_shared_memory_of_the_log_cannot_grow(
    tmp_path: Path, faults: LedgerFaults
) -> None:
    """On a full disk SQLite reports an I/O error, after the commit was written to the log."""
    with faulty_server(tmp_path, CONFIG, faults) as server:

        async def fill_and_delete() -> None:
            async with front_end(server) as front:
                await upload(front.engine, front.store, "old", b"old")
                faults.strike(
                    Call.WRITE, LedgerFile.LOG, IOERR_SHMSIZE, lasting=True, while_filled=True
                )
                put = upload(front.engine, front.store, "new", b"new")
                assert (await ending_of(put)).kind == "unknown"
                await eventually(lambda: front.engine.write(delete_object, "old"))
                faults.stop()
                await eventually(lambda: upload(front.engine, front.store, "late", b"late"))
                assert await download(front.engine, front.store, "old") is None

        run(fill_and_delete())
        assert "there is space on the disk again" in server.log()
