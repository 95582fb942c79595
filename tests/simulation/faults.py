"""Injected errors: an SQLite VFS for the ledger's files, and a disk for those of bodies.

The ledger's writer runs in a process forked from the test, so its faults are in memory that both
share. Bodies are written by the test's own process."""

from __future__ import annotations

import enum
import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from etagere.bodies.disk import Disk
from tests.clocks import SharedWords

VFS_NAME = "faulty"


class Call(enum.IntEnum):
    """Operations of SQLite on a file."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 3


class LedgerFile(enum.IntEnum):
    """The ledger's two files: the write-ahead log and the database."""

    LOG = 1
    DATABASE = 2


FULL = apsw.SQLITE_FULL
IOERR_WRITE = apsw.SQLITE_IOERR_WRITE
IOERR_FSYNC = apsw.SQLITE_IOERR_FSYNC
IOERR_TRUNCATE = apsw.SQLITE_IOERR_TRUNCATE
IOERR_SHMSIZE = apsw.SQLITE_IOERR_SHMSIZE


class LedgerFaults:
    """Faults of the ledger's files, in whichever process has them open.

    There is one fault at a time. It strikes the n-th such call from now, once or until it is
    switched off. Only the writer calls these, so counting needs no lock."""

    _CALL, _WHERE, _COUNTDOWN, _ERROR, _LASTING, _SHORT, _CONDITIONAL, _INJECTED, _SEEN = range(9)
    _DROPPING = 9

    def __init__(self) -> None:
        self._words = SharedWords(10)
        self._while_filled: Path | None = None

    def strike(
        self,
        call: Call,
        where: LedgerFile,
        error: int,
        *,
        nth: int = 1,
        lasting: bool = False,
        short: bool = False,
        while_filled: bool = False,
        dropping: bool = False,
    ) -> None:
        """Arms the fault. `short`: half of the data is written first. `while_filled`: only while
        the watched file has bytes, like a disk that has space once that is truncated. `dropping`: a
        failing sync reverts what was written since the last one, like a kernel that drops the pages
        it could not write."""
        self.stop()
        words = self._words
        words[self._WHERE], words[self._COUNTDOWN], words[self._ERROR] = where, nth, error
        words[self._LASTING], words[self._SHORT] = lasting, short
        words[self._CONDITIONAL] = while_filled
        words[self._DROPPING] = dropping
        words[self._INJECTED] = words[self._SEEN] = 0
        words[self._CALL] = call  # last: this is what arms it

    def count(self, call: Call, where: LedgerFile) -> None:
        """Lets such calls pass, and counts them in `seen`."""
        self.strike(call, where, 0, nth=1 << 62)

    def stop(self) -> None:
        self._words[self._CALL] = 0

    def watch(self, path: Path) -> None:
        """Sets the file for `while_filled`; call it before the processes are forked."""
        self._while_filled = path

    @property
    def injected(self) -> int:
        """Returns how often the fault has struck."""
        return self._words[self._INJECTED]

    @property
    def seen(self) -> int:
        """Returns how many such calls there were since then."""
        return self._words[self._SEEN]

    @property
    def armed(self) -> bool:
        return bool(self._words[self._CALL])

    def due(self, call: Call, where: LedgerFile) -> int:
        """Returns the error for this call, or 0."""
        words = self._words
        if words[self._CALL] != call or words[self._WHERE] != where:
            return 0
        words[self._SEEN] += 1
        if words[self._SEEN] < words[self._COUNTDOWN]:
            return 0
        if words[self._CONDITIONAL] and not self._filled():
            return 0
        words[self._INJECTED] += 1
        if not words[self._LASTING]:
            words[self._CALL] = 0
        return words[self._ERROR]

    @property
    def short(self) -> bool:
        return bool(self._words[self._SHORT])

    @property
    def dropping(self) -> bool:
        return bool(self._words[self._DROPPING])

    def _filled(self) -> bool:
        with suppress(FileNotFoundError):
            return self._while_filled is not None and self._while_filled.stat().st_size > 0
        return False


class FaultyVFS(apsw.VFS):
    """The default VFS with faults. Registered as `VFS_NAME` while it lives."""

    def __init__(self, faults: LedgerFaults) -> None:
        self._faults = faults
        self._unsynced: dict[LedgerFile, Unsynced] = {where: {} for where in LedgerFile}
        super().__init__(VFS_NAME, "")

    # SQLite's names and signatures.
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self._faults, self._unsynced, name, flags)


Unsynced = dict[int, bytes]
"""The bytes before each write since the last sync, by offset."""


class FaultyFile(apsw.VFSFile):
    """One open file of the ledger. Unsynced data are shared by all who have it open in the same
    process."""

    def __init__(
        self,
        faults: LedgerFaults,
        unsynced: dict[LedgerFile, Unsynced],
        name: str | apsw.URIFilename | None,
        flags: list[int],
    ) -> None:
        self._faults = faults
        self._unsynced = unsynced
        kinds = {
            apsw.SQLITE_OPEN_WAL: LedgerFile.LOG,
            apsw.SQLITE_OPEN_MAIN_DB: LedgerFile.DATABASE,
        }
        self._where = next((kinds[flag] for flag in kinds if flags[0] & flag), None)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        error = self._due(Call.WRITE)
        if error:
            if self._faults.short:
                super().xWrite(data[: len(data) // 2], offset)
            raise _error(error)
        if self._where is not None and offset not in self._unsynced[self._where]:
            room = max(0, min(len(data), self.xFileSize() - offset))
            before = super().xRead(room, offset) if room else b""
            self._unsynced[self._where][offset] = before.ljust(len(data), b"\0")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        error = self._due(Call.SYNC)
        if error:
            if self._faults.dropping and self._where is not None:
                for offset, before in self._unsynced[self._where].items():
                    super().xWrite(before, offset)
            raise _error(error)
        super().xSync(flags)
        if self._where is not None:
            self._unsynced[self._where].clear()

    def xTruncate(self, newsize: int) -> None:
        error = self._due(Call.TRUNCATE)
        if error:
            raise _error(error)
        super().xTruncate(newsize)

    def _due(self, call: Call) -> int:
        return 0 if self._where is None else self._faults.due(call, self._where)


def _error(code: int) -> apsw.Error:
    error = apsw.FullError("injected") if code & 0xFF == FULL else apsw.IOError("injected")
    error.extendedresult = code  # type: ignore[union-attr]  # read by apsw; its stubs lack it
    return error


class DiskCall(enum.Enum):
    """Disk operations of bodies."""

    CREATE = enum.auto()
    WRITE = enum.auto()
    SYNC = enum.auto()


class _Plan(NamedTuple):
    call: DiskCall
    number: int
    lasting: bool
    short: bool


class FaultyDisk(Disk):
    """A disk whose calls fail on demand, and that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()  # bodies call from several threads
        self._plan: _Plan | None = None
        self._countdown = 0
        self.injected = 0
        self.failed_syncs: set[int] = set()
        """The inodes of the files whose fsync failed."""
        self.written_after_failed_sync: list[int] = []
        """The offsets of writes to such files after that."""
        self.synced_after_failed_sync = 0

    def strike(
        self,
        call: DiskCall,
        number: int,
        *,
        nth: int = 1,
        lasting: bool = False,
        short: bool = False,
    ) -> None:
        """Makes the n-th such call from now fail with this errno, once or until `stop`."""
        with self._lock:
            self._plan = _Plan(call, number, lasting, short)
            self._countdown = nth
            self.injected = 0

    def stop(self) -> None:
        with self._lock:
            self._plan = None

    def create(self, path: Path) -> int:
        plan = self._due(DiskCall.CREATE)
        if plan is None:
            return super().create(path)
        if plan.short:
            # The file was created, but its name is not durable.
            os.close(super().create(path))
        raise _os_error(plan.number)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if os.fstat(descriptor).st_ino in self.failed_syncs:
            self.written_after_failed_sync.append(offset)
        plan = self._due(DiskCall.WRITE)
        if plan is None:
            super().write(descriptor, buffers, offset)
            return
        if plan.short:
            data = b"".join(buffers)
            super().write(descriptor, [data[: len(data) // 2]], offset)
        raise _os_error(plan.number)

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode in self.failed_syncs:
            self.synced_after_failed_sync += 1
        plan = self._due(DiskCall.SYNC)
        if plan is not None:
            self.failed_syncs.add(inode)
            raise _os_error(plan.number)
        super().sync(descriptor)

    def _due(self, call: DiskCall) -> _Plan | None:
        with self._lock:
            plan = self._plan
            if plan is None or plan.call is not call:
                return None
            self._countdown -= 1
            if self._countdown > 0:
                return None
            if not plan.lasting:
                self._plan = None
            self.injected += 1
            return plan


def _os_error(number: int) -> OSError:
    return OSError(number, f"injected {errno.errorcode[number]}: {os.strerror(number)}")
