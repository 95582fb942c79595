"""Asynchronous copies from other servers, which continue after the response.

The process that received the request runs the copy. A copy whose process is gone, or does not know
of it, will never be finished: the first process that notices marks it as failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol

from etagere.bodies.store import BodyStore, BodyWriter
from etagere.coordination.interface import Coordinator
from etagere.engine.interface import (
    Engine,
    Fault,
    FaultReason,
    ReadTxn,
    Refused,
    Unknown,
    WriteTxn,
)
from etagere.errors import Refusal
from etagere.model.copies import CopyRef, FailCopy, FinishCopy, RecordProgress, Ref
from etagere.model.file_copies import FileCopyRef
from etagere.operations.blob import pending_copies
from etagere.operations.file import pending_copies as pending_file_copies
from etagere.telemetry.context import ACCOUNT

logger = logging.getLogger(__name__)

COPIES_MAX: Final = 32
"""The maximum number of copies of one process, so that they do not use all of its connections."""
_PROGRESS_SECONDS = 1.0
_SECONDS_MAX = 14 * 24 * 3600.0
_DESCRIPTION_CHARACTERS_MAX = 256

_CANCELLED: Final = "500 OperationCancelled The copy was ended before it was complete."
_FAILED: Final = "500 InternalError The copy could not be carried out."
_FULL: Final = "507 InsufficientStorage There is no room for the copy."
_DIFFERS: Final = "500 Md5Mismatch What was read is not what the source announced."


class CopySource(Protocol):
    """The source of a copy."""

    @property
    def length(self) -> int | None: ...

    def chunks(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class PendingCopies(Generic[Ref]):
    """The operations on the pending copies of a service."""

    record_progress: Callable[[WriteTxn, RecordProgress[Ref]], bool]
    finish: Callable[[WriteTxn, FinishCopy[Ref]], bool]
    fail: Callable[[WriteTxn, FailCopy[Ref]], bool]
    find: Callable[[ReadTxn, Ref | None], list[tuple[Ref, bytes]]]
    """Returns some after a given one, each with the process that runs it."""
    inline: bool
    """Whether small bodies may be stored in the ledger."""


BLOB_COPIES: Final = PendingCopies[CopyRef](
    pending_copies.record_progress,
    pending_copies.finish_copy,
    pending_copies.fail_copy,
    pending_copies.pending_copies,
    inline=True,
)
FILE_COPIES: Final = PendingCopies[FileCopyRef](
    pending_file_copies.record_file_progress,
    pending_file_copies.finish_file_copy,
    pending_file_copies.fail_file_copy,
    pending_file_copies.pending_file_copies,
    inline=False,
)


class Copying(Generic[Ref]):
    """The copies to the objects of one service that this process runs."""

    def __init__(
        self,
        engine: Engine,
        store: BodyStore,
        coordinator: Coordinator,
        pending: PendingCopies[Ref],
    ) -> None:
        self._pending = pending
        self._engine = engine
        self._store = store
        self._coordinator = coordinator
        self._reserved: set[bytes] = set()
        self._running: dict[bytes, asyncio.Task[None]] = {}

    @property
    def process(self) -> bytes:
        return self._coordinator.process_id

    @contextmanager
    def reserve(self, copy_id: bytes) -> Iterator[None]:
        """Reserves a place for a copy while it is created, so that the process knows of it before
        others can see it."""
        if len(self._reserved) + len(self._running) >= COPIES_MAX:
            raise Refused(Refusal("ServerBusy"))
        self._reserved.add(copy_id)
        try:
            yield
        finally:
            self._reserved.discard(copy_id)

    def start(self, copy_ref: Ref, source: CopySource, md5: bytes | None) -> None:
        """Starts to read the source to its end, and closes it. `md5` is the MD5 that the source has
        announced."""
        copy_id = copy_ref.copy_id
        task = asyncio.create_task(self._run(copy_ref, source, md5))
        self._running[copy_id] = task
        task.add_done_callback(lambda _: self._running.pop(copy_id, None))

    def cancel(self, copy_id: bytes) -> None:
        """Cancels a copy that was aborted. If another process runs it, that process will notice
        soon."""
        if (task := self._running.get(copy_id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancels all copies."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, copy_ref: Ref, source: CopySource, md5: bytes | None) -> None:
        # A copy that has begun may end while its account is frozen.
        ACCOUNT.set("")
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                await self._read(copy_ref, source, md5)
            return
        except (asyncio.CancelledError, TimeoutError):
            description = _CANCELLED
        except Refused as refused:
            description = _describe(refused.refusal)
        except Fault as fault:
            logger.warning("a copy failed: %s", fault)
            description = _FULL if fault.reason is FaultReason.DISK_FULL else _FAILED
        except Unknown as unknown:
            # It may have been finished; then marking it as failed has no effect.
            logger.warning("a copy may have failed: %s", unknown)
            description = _FAILED
        except Exception:
            logger.exception("a copy failed")
            description = _FAILED
        finally:
            await _close(source)
        await self._fail(copy_ref, description)

    async def _read(self, copy_ref: Ref, source: CopySource, md5: bytes | None) -> None:
        async with self._store.writer(
            source.length, inline=self._pending.inline, md5=md5 is not None
        ) as writer:
            if not await self._receive(copy_ref, source, writer):
                return
            body = await writer.seal()
            if md5 is not None and writer.md5 != md5:
                await self._fail(copy_ref, _DIFFERS)
                return
            await self._engine.write(self._pending.finish, FinishCopy(copy_ref, body))

    async def _receive(self, copy_ref: Ref, source: CopySource, writer: BodyWriter) -> bool:
        """Receives the source; returns False if the copy is no longer pending."""
        copied, recorded_at = 0, time.monotonic()
        async for chunk in source.chunks():
            await writer.append(chunk)
            copied += len(chunk)
            if time.monotonic() - recorded_at < _PROGRESS_SECONDS:
                continue
            progress = RecordProgress(copy_ref, copied)
            if not await self._engine.write(self._pending.record_progress, progress):
                return False
            recorded_at = time.monotonic()
        return True

    async def _fail(self, copy_ref: Ref, description: str) -> None:
        try:
            await self._engine.write(self._pending.fail, FailCopy(copy_ref, description))
        except (Fault, Unknown) as error:
            logger.warning("cannot record the failure of a copy, will retry: %s", error)
        except Exception:
            logger.exception("cannot record the failure of a copy, will retry")

    # Abandoned copies

    async def fail_abandoned(self) -> None:
        """Marks the pending copies that no process runs as failed."""
        after = None
        while rows := await self._engine.read(self._pending.find, after):
            for copy_ref, process in rows:
                if not await self._is_running(copy_ref.copy_id, process):
                    await self._fail(copy_ref, _CANCELLED)
            after, _ = rows[-1]

    async def _is_running(self, copy_id: bytes, process: bytes) -> bool:
        if process == self.process:
            return copy_id in self._reserved or copy_id in self._running
        return await self._coordinator.is_alive(process)


async def _close(source: CopySource) -> None:
    """Closes a source. An error does not affect the copy."""
    try:
        await source.close()
    except Exception:
        logger.exception("cannot close a copy source")


def _describe(refusal: Refusal) -> str:
    """Returns the status description of a failed copy."""
    status = refusal.facts.get("CopySourceStatusCode", refusal.error.status)
    code = refusal.facts.get("CopySourceErrorCode", refusal.code)
    return f"{status} {code} {refusal.message}"[:_DESCRIPTION_CHARACTERS_MAX]
