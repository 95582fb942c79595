"""The move of an account to another cell (`operations/account_moves.py` has its steps).

Bytes are copied first, while the account is used. Then the account is frozen, the rest is copied
from one snapshot, and all records become visible in the target together. A move that was
interrupted is continued or cancelled by the next command, or by the nodes (`jobs/moves.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from etagere.bodies.content_copy import CopyIds
from etagere.bodies.contents import SEGMENTS
from etagere.bodies.extent_copy import ExtentCopier
from etagere.config import MIB
from etagere.data_directory import CannotUse
from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES
from etagere.engine.interface import Fault, FaultReason, ReadTxn
from etagere.engine.postgres.bulk_insert import BulkInsert
from etagere.engine.postgres.copying import SnapshotReader, open_current_snapshot, open_snapshot
from etagere.engine.postgres.running_transactions import wait_for_running_transactions
from etagere.engine.records import ENCODE, Collection
from etagere.jobs.moves import task_of
from etagere.jobs.purging import purge
from etagere.jobs.purging_accounts import purge_accounts
from etagere.model.bodies import SegmentState
from etagere.model.cells import (
    AccountCell,
    AccountMove,
    BeginMove,
    CancelMove,
    EndMove,
    ExpectAccount,
    FinishMove,
    FreezeAccount,
    MoveState,
    PurgeAccount,
    RecordMove,
    UnfinishedMove,
)
from etagere.node.account_move_checks import require_nodes_in_cells, require_similar_clocks
from etagere.node.account_move_steps import Moved, Report, Step
from etagere.node.cell_access import CellAccess
from etagere.node.cluster_ledger import ClusterLedger
from etagere.operations.account_copy import (
    AccountCopier,
    count_pending_copies,
    find_deleted,
    find_resources,
)
from etagere.operations.account_map import get_account_entry, record_move
from etagere.operations.account_moves import (
    LocatedAccount,
    begin_move,
    cancel_move,
    end_move,
    expect_account,
    finish_move,
    freeze_account,
    locate_account,
)
from etagere.operations.account_purging import purge_account

_MOVE_ID_BYTES: Final = 16
_LAST_PASS_BYTES_MAX: Final = 8 * MIB
"""Another pass follows if the last one copied at least this much."""
_PASSES_MAX: Final = 10
_PENDING_COPIES_SECONDS_MAX: Final = 60.0
_EARLIER_DATA_SECONDS_MAX: Final = 600.0
_OTHER_MOVE_SECONDS_MAX: Final = 15.0
"""Longer than the ten seconds for which a process that was killed is considered alive."""
_DRAINING_SECONDS_MAX: Final = 30.0
_WRITES_SECONDS_MAX: Final = 10.0
"""How long writes may take that began before the account was frozen."""
_STAMP_SECONDS_MAX: Final = 10.0
_PAUSE_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 0.05


def _now(txn: ReadTxn, _: None) -> int:
    return txn.now


def _discard(_collection: Collection[Any, Any], _key: bytes, _value: bytes) -> None:
    """Discards a record: only the bytes are copied."""


class AccountMover:
    """Moves one account from one cell to another."""

    def __init__(
        self,
        account: str,
        source: CellAccess,
        target: CellAccess,
        account_map: ClusterLedger,
        report: Report,
        copied: Callable[[int], None],
    ) -> None:
        """`copied` is called with the number of bytes that were copied so far."""
        self._account = account
        self._source = source
        self._target = target
        self._account_map = account_map
        self._report = report
        self._extents = ExtentCopier(source.storage, target.store, copied)
        self._frozen_at = 0.0

    async def move(self, keep_seconds: int) -> Moved:
        """Moves the account, or continues a move that was interrupted. The nodes of the source
        remove it after this many seconds. Raises `CannotUse`, `ExtentsDamaged`, `MissingRecord`,
        `Refused`, `Fault` or `Unknown`."""
        async with self._exclusively():
            here = await self._locate(self._source)
            if here.move is not None and here.move.cell != self._target.name:
                raise CannotUse(f"{self._account} is moving, or has moved, to {here.move.cell}")
            if here.move is not None and here.move.state is MoveState.INCOMING:
                raise CannotUse(f"{self._account} is moving to cell {self._source.name}")
            moved = Moved()
            if here.move is not None and here.move.state is MoveState.MOVED:
                move_id = here.move.move_id
            else:
                self._require_account(here)
                move_id, moved = await self._copy_account(here.move)
            await self._hand_over(move_id)
            if self._frozen_at:
                seconds = time.monotonic() - self._frozen_at
                moved = moved._replace(frozen_seconds=seconds)
            await self._record_move(move_id, keep_seconds)
            return moved

    def _require_account(self, here: LocatedAccount) -> None:
        if here.account is None:
            raise CannotUse(f"account {self._account} is not in cell {self._source.name}")

    async def cancel(self) -> None:
        """Serves the account in the source again. Raises `CannotUse` if it has moved."""
        async with self._exclusively():
            here = await self._locate(self._source)
            if here.move is not None and here.move.cell != self._target.name:
                raise CannotUse(f"{self._account} is moving, or has moved, to {here.move.cell}")
            if here.move is not None and not await self._cancel(here.move):
                raise CannotUse(f"{self._account} has moved to cell {here.move.cell}")
            self._require_account(here)
            await self._discard_incoming()

    @contextlib.asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        """Holds a lock that keeps other commands from moving the account. Raises `CannotUse` if it
        cannot be acquired."""
        deadline = time.monotonic() + _OTHER_MOVE_SECONDS_MAX
        while True:
            task = self._source.coordinator.sole_worker(task_of(self._account))
            async with task as lock:
                if lock is not None:
                    yield
                    return
            if time.monotonic() > deadline:
                raise CannotUse(f"another command is moving {self._account}")
            await asyncio.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[SnapshotReader]:
        with open_snapshot(self._source.ledger.database) as snapshot:
            snapshot.require_primary()
            yield snapshot

    async def _locate(self, cell: CellAccess) -> LocatedAccount:
        return await cell.engine.read(locate_account, self._account)

    # Copying

    async def _copy_account(self, begun: AccountMove | None) -> tuple[bytes, Moved]:
        """Makes sure that the target has all data of the frozen account. Returns the id of the
        move, too."""
        there = await self._locate(self._target)
        if there.move is not None and there.move.state is MoveState.INCOMING:
            if begun is not None and there.move.move_id == begun.move_id:
                return begun.move_id, Moved()
            await self._discard_incoming()
        elif there.account is not None:
            raise CannotUse(f"cell {self._target.name} has another account {self._account}")
        if begun is not None:
            # Its process has ended, and with it everything that it had copied.
            await self._cancel(begun)
        await self._check_preconditions()
        await self._wait_for_earlier_data()
        await self._copy_most_bytes()
        await self._wait_for_pending_copies()
        # Again: copying may have taken hours.
        await asyncio.to_thread(require_nodes_in_cells, self._source, self._target)
        command = BeginMove(self._account, self._target.name, os.urandom(_MOVE_ID_BYTES))
        move = await self._source.engine.write(begin_move, command)
        try:
            await self._freeze(move)
            return move.move_id, await self._copy_rest(move)
        except BaseException:
            self._extents.release(abandoned=True)
            await self._cancel(move)
            raise

    async def _check_preconditions(self) -> None:
        """Raises `CannotUse` if the map has another cell for the account, if a node would not
        notice the move, or if the clocks differ."""
        known = await self._map_entry()
        if known is not None and known.cell != self._source.name:
            raise CannotUse(f"according to the map, {self._account} is in cell {known.cell}")
        await asyncio.to_thread(require_nodes_in_cells, self._source, self._target)
        await require_similar_clocks(self._source, self._target)

    async def _wait_for_earlier_data(self) -> None:
        """Waits until the target has removed the data of an earlier stay of the account."""
        with self._snapshot() as source:
            resources = find_resources(source, self._account)
        deadline = time.monotonic() + _EARLIER_DATA_SECONDS_MAX
        while True:
            move = (await self._locate(self._target)).move
            with open_current_snapshot(self._target.ledger.database) as target:
                left = find_deleted(target, resources)
            if not left and (move is None or move.is_purged):
                return
            if time.monotonic() > deadline:
                raise CannotUse(
                    f"cell {self._target.name} is still removing earlier data of {self._account}"
                )
            # The jobs of the nodes do the same.
            await purge_accounts(self._target.engine, self._target.coordinator)
            await purge(self._target.engine, self._target.coordinator)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _copy_most_bytes(self) -> None:
        """Copies bytes while the account is used, until few are left."""
        ids = CopyIds(b"")
        for _ in range(_PASSES_MAX):
            before = self._extents.copied_bytes
            with self._source.coordinator.pin(), self._snapshot() as snapshot:
                await AccountCopier(
                    snapshot, self._extents, ids, _discard, self._account, only_extents=True
                ).run()
            if self._extents.copied_bytes - before < _LAST_PASS_BYTES_MAX:
                break
        await self._extents.sync()
        self._report(Step.BYTES_COPIED)

    async def _freeze(self, move: AccountMove) -> None:
        """Keeps clients from changing the account, once its SMB sessions have ended. If the source
        has nodes, the one that serves files freezes the account."""
        deadline = time.monotonic() + _DRAINING_SECONDS_MAX
        while move.state is MoveState.DRAINING:
            self._frozen_at = time.monotonic()
            if not await asyncio.to_thread(self._source.nodes.has_processes):
                freeze = FreezeAccount(self._account, move.move_id)
                await self._source.engine.write(freeze_account, freeze)
            elif time.monotonic() > deadline:
                raise CannotUse(f"the SMB sessions of {self._account} did not end; try later")
            else:
                await asyncio.sleep(_POLL_SECONDS)
            found = (await self._locate(self._source)).move
            if found is None or found.move_id != move.move_id:
                raise CannotUse(f"the move of {self._account} was cancelled")
            move = found
        self._report(Step.FROZEN)
        await asyncio.to_thread(
            wait_for_running_transactions, self._source.ledger.database, _WRITES_SECONDS_MAX
        )

    async def _copy_rest(self, move: AccountMove) -> Moved:
        await self._wait_for_pending_copies()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._source.coordinator.pin())
            snapshot = stack.enter_context(self._snapshot())
            # After the snapshot: jobs change records of the account until then.
            version = await self._new_version()
            records = stack.enter_context(BulkInsert(self._target.ledger.database, version))
            ids = CopyIds(move.move_id)
            await AccountCopier(snapshot, self._extents, ids, records.add, self._account).run()
            await self._extents.sync()
            if snapshot.last_version >= version:
                raise Fault(FaultReason.CONTENTION, "the clocks of the cells are too far apart")
            self._require_open_segments(records)
            self._report(Step.COPIED)
            # Last: accounts that leave the target wait for transactions that use this collection.
            incoming = AccountMove(MoveState.INCOMING, self._source.name, move.move_id)
            key = (self._account,)
            records.add(UNFINISHED_MOVES, UNFINISHED_MOVES.pack(key), ENCODE(UnfinishedMove()))
            records.add(ACCOUNT_MOVES, ACCOUNT_MOVES.pack(key), ENCODE(incoming))
            records.commit()
        self._extents.release(abandoned=False)
        self._report(Step.INCOMING)
        return Moved(records.count, self._extents.copied_extents, self._extents.copied_bytes)

    async def _new_version(self) -> int:
        """Returns a stamp of the target that is greater than all stamps of the account."""
        now = await self._source.engine.read(_now, None)
        deadline = time.monotonic() + _STAMP_SECONDS_MAX
        while True:
            stamp = await self._target.engine.write(expect_account, ExpectAccount(self._account))
            if stamp > now:
                return stamp
            if time.monotonic() > deadline:
                raise CannotUse(f"the clock of cell {self._target.name} is behind")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _wait_for_pending_copies(self) -> None:
        deadline = time.monotonic() + _PENDING_COPIES_SECONDS_MAX
        while True:
            with self._snapshot() as snapshot:
                pending = count_pending_copies(snapshot, self._account)
            if not pending:
                return
            if time.monotonic() > deadline:
                raise CannotUse(f"{pending} copies to {self._account} are pending; try later")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _require_open_segments(self, records: BulkInsert) -> None:
        """Raises `Fault` if a segment with copies has been sealed, because this process was
        considered dead."""
        keys = [SEGMENTS.pack((number,)) for number in sorted(self._extents.segments())]
        found = records.lock(SEGMENTS, keys)
        for key in keys:
            segment = SEGMENTS.decode(found[key]) if key in found else None
            if segment is None or segment.closed or segment.state is not SegmentState.OPEN:
                raise Fault(FaultReason.UNAVAILABLE, "a segment was sealed meanwhile; try again")

    # Handing over

    async def _hand_over(self, move_id: bytes) -> None:
        """Takes the steps after which the target serves the account."""
        command = EndMove(self._account, move_id)
        move = await self._source.engine.write(end_move, command)
        if move is None or move.move_id != move_id or move.state is not MoveState.MOVED:
            # Another command has cancelled it, while this process was taken to be dead.
            await self._discard_incoming()
            raise CannotUse(f"the move of {self._account} was cancelled")
        self._report(Step.MOVED)
        await self._target.engine.write(end_move, command)
        self._report(Step.SERVED)

    async def _record_move(self, move_id: bytes, keep_seconds: int) -> None:
        # Read first, so that a change of the map by a later move is noticed.
        known = await self._map_entry()
        there = await self._locate(self._target)
        if there.account is None:
            # Other commands have moved it on, or removed it, since the target serves it.
            raise CannotUse(f"account {self._account} is not in cell {self._target.name} any more")
        if known is not None and known.cell not in (self._source.name, self._target.name):
            raise CannotUse(f"according to the map, {self._account} is in cell {known.cell}")
        moved = AccountCell(self._target.name, move_id)
        command = RecordMove(self._account, moved, known)
        if not await asyncio.to_thread(self._account_map.write, record_move, command):
            raise CannotUse(f"another command has changed the cell of {self._account} in the map")
        finish = FinishMove(self._account, move_id, keep_seconds)
        await self._source.engine.write(finish_move, finish)
        self._report(Step.RECORDED)

    async def _map_entry(self) -> AccountCell | None:
        return await asyncio.to_thread(self._account_map.read, get_account_entry, self._account)

    async def _cancel(self, move: AccountMove) -> bool:
        return await self._source.engine.write(cancel_move, CancelMove(self._account, move.move_id))

    async def _discard_incoming(self) -> None:
        """Removes the data of a cancelled move from the target. Raises `CannotUse` if the move can
        still be completed, or has been."""
        incoming = (await self._locate(self._target)).move
        if incoming is None or incoming.state is not MoveState.INCOMING:
            return
        known = await self._map_entry()
        if self._source.name not in (incoming.cell, None if known is None else known.cell):
            # Another account of this name is in the source. Only the cell that the data comes from
            # knows whether the move can be completed.
            raise CannotUse(
                f"{self._account} is moving from cell {incoming.cell} to {self._target.name}"
            )
        # Its data was copied after it had begun in the source. So if the source does not have it
        # now, it never will.
        begun = (await self._locate(self._source)).move
        if begun is not None and begun.move_id == incoming.move_id:
            raise CannotUse(f"another command is moving {self._account}")
        command = PurgeAccount(self._account, incoming.move_id)
        while await self._target.engine.write(purge_account, command):
            pass
