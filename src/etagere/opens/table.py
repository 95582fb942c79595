"""The table of opens of a file process.

A share is tracked while SMB clients are connected to it. In a share that is not tracked, REST
operations are only counted: nothing is open that they could conflict with. The first client that
connects waits until those in progress have ended.

In a tracked share, a REST operation first finds out which entry its path leads to, then registers
itself there as soon as no open is in its way, and then runs its transaction, which ends if the path
leads to another entry by then. The operation then starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from etagere.clock import TICKS_PER_MILLISECOND
from etagere.engine.interface import Engine, Fault, ReadTxn, Refused, Unknown
from etagere.errors import Refusal
from etagere.metrics.snapshots import Snapshot
from etagere.model.files import DeleteEntry, EntryPath
from etagere.model.shares import ShareName, ShareRef
from etagere.opens.admission import RestClaim
from etagere.opens.caches import BREAK_SECONDS_MAX, LeaseTable
from etagere.opens.completion import completed
from etagere.opens.handles import Handle
from etagere.opens.reports import renamed, rest_changes
from etagere.opens.share import HandleSupply, ShareOpens
from etagere.operations.file import entries, shares
from etagere.operations.file.tree import LocatedEntry, is_path_change, locate_entry, path_changed
from etagere.rules.opens import RestAccess
from etagere.telemetry.context import ACCOUNT

T = TypeVar("T")

REST_WAIT_SECONDS_MAX: Final = 30.0
"""How long a REST operation waits for SMB clients to give up their caches."""
OPEN_HANDLES_MAX: Final = 200_000
"""The maximum number of open handles of a process; each takes about 1 KiB."""
_ATTEMPTS_MAX: Final = 20
_HANDLES_PER_MILLISECOND: Final = 1 << 20

ShareKey = tuple[str, str]


class OpenTable:
    """The opens of all shares that a process serves."""

    def __init__(
        self,
        engine: Engine,
        *,
        first_handle_id: int | None = None,
        handles_max: int = OPEN_HANDLES_MAX,
        break_seconds_max: float = BREAK_SECONDS_MAX,
    ) -> None:
        """`first_handle_id`: None for one that no earlier process has used."""
        self._engine = engine
        self._supply = HandleSupply(first_handle_id or _first_handle_id(), handles_max)
        self.leases = LeaseTable(break_seconds_max)
        self._shares: dict[ShareKey, ShareOpens] = {}
        """The shares that are tracked."""
        self._untracked: dict[ShareKey, int] = {}
        """The number of REST operations in progress in each share that is not tracked."""
        self._waiting: list[asyncio.Future[None]] = []
        """Clients that wait for such operations."""

    @property
    def open_handles(self) -> int:
        return self._supply.open

    def report(self, snapshot: Snapshot) -> None:
        """Adds how much is open. Looks at every open file, which takes 0.1 µs each."""
        shares = self._shares.values()
        snapshot.add("smb_tracked_shares", len(shares))
        snapshot.add("smb_opens", self.open_handles)
        snapshot.add("smb_locks", sum(share.count_locks() for share in shares))

    # REST operations

    async def rest(
        self,
        path: EntryPath,
        access: RestAccess,
        run: Callable[[EntryPath], Awaitable[T]],
        *,
        span: tuple[int, int] | None = None,
        seconds_max: float = REST_WAIT_SECONDS_MAX,
    ) -> T:
        """Runs a REST operation on an entry when the opens of the entry allow it.

        `run` gets the path that the transaction must use. It may be called more than once, and
        should contain nothing but the transaction: SMB opens wait for it. `span` are the bytes that
        the operation reads; the end is exclusive.
        """
        key = path.ref.share.key
        if key not in self._shares:
            return await self._run_untracked(key, run(path))
        if path.ref.snapshot is not None:
            # Nothing in a snapshot changes, so nothing conflicts.
            return await run(path)

        async def attempt() -> T:
            located, share = await self._locate(path)
            claims = (RestClaim(access, located, span),)
            await share.rest.admit(claims, seconds_max)
            try:
                expected = replace(path, expected_id=located.entry_id)
                result = await _within_quota(share, lambda: run(expected))
                if access is RestAccess.DELETE:
                    share.gathered.discard(located.entry_id)
                if share.watches:
                    share.watches.report(rest_changes(access, located, result))
                return result
            finally:
                self._release(share, claims)

        return await again_if_path_changes(attempt)

    async def rest_rename(
        self,
        source: EntryPath,
        destination: EntryPath,
        run: Callable[[EntryPath, EntryPath], Awaitable[T]],
        *,
        seconds_max: float = REST_WAIT_SECONDS_MAX,
    ) -> T:
        """Runs a rename when the opens of both entries allow it."""
        key = source.ref.share.key
        if key not in self._shares or source.ref != destination.ref:
            return await self._run_untracked(key, run(source, destination))

        return await self.move(lambda: source, destination, run, seconds_max=seconds_max)

    async def move(
        self,
        source: Callable[[], EntryPath],
        destination: EntryPath,
        run: Callable[[EntryPath, EntryPath], Awaitable[T]],
        *,
        check: Callable[[LocatedEntry], None] | None = None,
        by: Handle | None = None,
        on_wait: Callable[[], None] | None = None,
        seconds_max: float = REST_WAIT_SECONDS_MAX,
    ) -> T:
        """Runs a rename in a tracked share when the opens of both entries allow it, besides the
        handle that carries it out. `check` refuses what is at the destination."""

        async def attempt() -> T:
            path = source()
            located, share = await self._locate(path)
            target, target_share = await self._locate(destination)
            if target_share is not share:
                raise Refused(Refusal("ServerBusy"))
            if by is not None and located.entry_id != by.entry.id:
                if share.rest.is_moving:
                    await share.changes.next()
                raise path_changed()
            if check is not None:
                check(target)
            claims = [RestClaim(RestAccess.RENAME, located, by=by)]
            if target.entry_id != located.entry_id:
                claims.append(RestClaim(RestAccess.DELETE, target, by=by))
            await share.rest.admit(claims, seconds_max, on_wait)
            paths = (
                replace(path, expected_id=located.entry_id),
                replace(destination, expected_id=target.entry_id),
            )
            return await completed(self._move(share, claims, located, target, paths, run))

        return await again_if_path_changes(attempt)

    async def _move(
        self,
        share: ShareOpens,
        claims: Sequence[RestClaim],
        located: LocatedEntry,
        target: LocatedEntry,
        paths: tuple[EntryPath, EntryPath],
        run: Callable[[EntryPath, EntryPath], Awaitable[T]],
    ) -> T:
        """Runs a rename that was admitted."""
        moved = share.rest.begin_move(located.entry_id)
        try:
            result = await run(*paths)
            if target.entry_id != located.entry_id:
                share.gathered.discard(target.entry_id)
            if share.watches:
                share.watches.report(renamed(located, target, paths[1].components[-1]))
            return result
        finally:
            after = None
            try:
                if moved is not None:
                    after = await self._find(replace(paths[1], expected_id=None))
            finally:
                if moved is not None:
                    share.rest.end_move(moved, after)
                self._release(share, claims)

    async def _run_untracked(self, key: ShareKey, operation: Awaitable[T]) -> T:
        counts = self._untracked
        counts[key] = counts.get(key, 0) + 1
        try:
            return await operation
        finally:
            left = counts[key] - 1
            if left:
                counts[key] = left
            else:
                del counts[key]
                if self._waiting:
                    self._wake()

    async def _locate(self, path: EntryPath) -> tuple[LocatedEntry, ShareOpens]:
        located = await self._engine.read(locate_entry, path)
        name = path.ref.share
        known = self._shares.get(name.key)
        if known is None or known.id != located.share_id:
            # Either may be out of date.
            located = await self._engine.read(locate_entry, path)
        return located, self._track(name, located.share_id)

    async def _find(self, path: EntryPath) -> LocatedEntry | None:
        try:
            return await self._engine.read(locate_entry, path)
        except Refused:
            return None

    async def rest_in_share(
        self,
        name: ShareName,
        run: Callable[[], Awaitable[T]],
        *,
        holds_writers: bool = False,
        deletes: bool = False,
    ) -> T:
        """Runs a REST operation on a share, which sees everything that was written to its files.

        `holds_writers`: nothing more is written until it has ended, so that it sees the files as
        they all were at one moment. `deletes`: the same, but it runs even if something cannot be
        stored, because the disk is full.
        """
        share = self._shares.get(name.key)
        if share is None:
            return await self._run_untracked(name.key, run())
        if not (holds_writers or deletes):
            await share.gathered.flush_all()
            return await run()
        share.gathered.hold(None)
        try:
            with contextlib.suppress(*((Fault, Unknown) if deletes else ())):
                await share.gathered.flush_all()
            return await run()
        finally:
            share.gathered.end_hold(None)

    async def flush_share(self, name: ShareName) -> None:
        """Makes everything durable that was written to the files of a share."""
        share = self._shares.get(name.key)
        if share is not None:
            await share.gathered.flush_all()

    def _release(self, share: ShareOpens, claims: Sequence[RestClaim]) -> None:
        share.rest.release(claims)
        self._forget_if_idle(share)

    def pending_ids(self, ref: ShareRef) -> frozenset[int]:
        """Returns the ids of the entries of a share that listings do not show."""
        share = self._shares.get(ref.share.key)
        if share is None or ref.snapshot is not None:
            return frozenset()
        return share.deletions.entry_ids

    # Shares

    async def attach(self, name: ShareName) -> ShareOpens:
        """Connects an SMB client to a share, which is tracked from now on."""
        share_id = await self._engine.read(_share_id, name)
        share = self._track(name, share_id)
        share.clients += 1
        try:
            while name.key in self._untracked:
                future = asyncio.get_running_loop().create_future()
                self._waiting.append(future)
                await future
        except BaseException:
            self.detach(share)
            raise
        return share

    def detach(self, share: ShareOpens) -> None:
        """Disconnects an SMB client, which has closed its handles."""
        share.clients -= 1
        self._forget_if_idle(share)

    def is_used_over_smb(self, account: str) -> bool:
        """Returns whether SMB clients use a share of an account."""
        shares = self._shares.values()
        return any(one.is_used_over_smb for one in shares if one.name.account == account)

    def find(self, name: ShareName, share_id: bytes) -> ShareOpens | None:
        """Returns the opens of a share, or None if it is not tracked."""
        share = self._shares.get(name.key)
        return share if share is not None and share.id == share_id else None

    def drop(self, ref: ShareRef) -> None:
        """Closes the handles of a share or a snapshot that was deleted."""
        share = self._shares.get(ref.share.key)
        if share is None:
            return
        if ref.snapshot is not None:
            share.drop_snapshot(ref.snapshot)
        else:
            share.drop()
        self._forget_if_idle(share)

    async def close(self) -> None:
        """Waits for the deletions in progress."""
        deletions = [
            task for share in self._shares.values() for task in share.deletions.in_progress
        ]
        if deletions:
            await asyncio.wait(deletions)

    def _track(self, name: ShareName, share_id: bytes) -> ShareOpens:
        share = self._shares.get(name.key)
        if share is not None and share.id == share_id and not share.is_gone:
            return share
        if share is not None:
            # Another share of this name was created, or this one was restored.
            share.drop()
        share = self._shares[name.key] = ShareOpens(
            name, share_id, self._supply, self.leases, self._delete
        )
        return share

    def forget_if_idle(self, name: ShareName) -> None:
        """Stops tracking a share that nobody uses."""
        share = self._shares.get(name.key)
        if share is not None:
            self._forget_if_idle(share)

    def _forget_if_idle(self, share: ShareOpens) -> None:
        key = share.name.key
        if share.is_idle and self._shares.get(key) is share:
            del self._shares[key]

    async def _delete(self, path: EntryPath, is_directory: bool) -> None:
        command = DeleteEntry(path, is_directory)
        ACCOUNT.set(path.ref.share.account)  # any client may have closed the last handle
        try:
            await self._engine.write(entries.delete_entry, command)
        except Unknown:
            # The writer process is being restarted. If it has deleted the entry, this is refused.
            await self._engine.write(entries.delete_entry, command)
        share = self._shares.get(path.ref.share.key)
        if share is not None and path.expected_id is not None:
            share.gathered.discard(path.expected_id)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


async def _within_quota(share: ShareOpens, run: Callable[[], Awaitable[T]]) -> T:
    """Repeats an operation that exceeds the quota once the ledger knows which files have become
    shorter."""
    try:
        return await run()
    except Refused as refused:
        if refused.refusal.code != "ShareSizeLimitReached" or not share.gathered:
            raise
    await share.gathered.flush_all()
    return await run()


async def again_if_path_changes(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeats an operation whose path has come to lead to another entry than it was admitted to."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await attempt()
        except Refused as refused:
            if not is_path_change(refused):
                raise
    return await attempt()


def _share_id(txn: ReadTxn, name: ShareName) -> bytes:
    return shares.find(txn, name).id


def _first_handle_id() -> int:
    """Returns an id that is greater than those of earlier processes: none of them has opened a
    million handles per millisecond."""
    return time.time_ns() // (100 * TICKS_PER_MILLISECOND) * _HANDLES_PER_MILLISECOND
