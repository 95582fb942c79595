"""I/O errors while SMB clients write: what FLUSH or CLOSE has acknowledged is there, and what was
written can be read for as long as the server runs."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from smbprotocol.exceptions import SMBException, SMBResponseException

from etagere.engine.ledger import DATABASE_NAME
from etagere.nt_status import NtStatus
from tests.sdk.file.clients import file_service
from tests.server import check, served
from tests.simulation import syscalls
from tests.simulation.injection import InjectedError, broken_server
from tests.smb.client import CREATE, SmbClient, read

SHARE: Final = "share"
SEGMENT: Final = "segments/00000001.seg"
ERRORS: Final = [
    InjectedError("fdatasync", SEGMENT, nth=3),
    InjectedError("pwritev2", SEGMENT, "ENOSPC", nth=4, every=1),
]
MORE_ERRORS: Final = [
    InjectedError("fdatasync", f"{DATABASE_NAME}-wal", nth=40),
    InjectedError("pwritev2", SEGMENT, nth=3, every=5),
]
READ_ERRORS: Final = [
    InjectedError(call, SEGMENT, nth=2, every=2) for call in ("preadv2", "preadv")
]
_SECONDS: Final = 2.0
_CLIENTS: Final = 2
_FAILURES: Final = {NtStatus.DISK_FULL, NtStatus.UNEXPECTED_IO_ERROR, NtStatus.END_OF_FILE}

pytestmark = pytest.mark.skipif(bool(syscalls.why_not()), reason=syscalls.why_not())


class _Writer(threading.Thread):
    """A client that writes one file after the other, and reads what it has written."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self.flushed: dict[str, bytes] = {}
        """What files have to contain."""
        self.statuses: set[int] = set()
        self.wrong_reads: list[str] = []
        self._port = port
        self._number = number
        self._random = random.Random(number)
        self._files = 0
        self._ends_at = time.monotonic() + _SECONDS

    def run(self) -> None:
        while time.monotonic() < self._ends_at:
            # The server may restart its processes after an error.
            with contextlib.suppress(SMBException, OSError):
                client = SmbClient(self._port, SHARE)
                try:
                    while time.monotonic() < self._ends_at:
                        self._write_file(client)
                finally:
                    client.connection.disconnect(close=False)

    def _write_file(self, client: SmbClient) -> None:
        self._files += 1
        name, content = f"{self._number}-{self._files}", b""
        with self._refusals():
            opened = client.open(name, disposition=CREATE)
            for number in range(4):
                data = b"%d-%d " % (self._files, number) * self._random.choice((10, 3_000, 9_000))
                offset = self._random.randrange(100_000)
                with self._refusals():
                    opened.write(data, offset)
                    start = content[:offset].ljust(offset, b"\0")
                    content = start + data + content[offset + len(data) :]
                with self._refusals():
                    opened.flush()
                    self.flushed[name] = content
                with self._refusals():
                    if read(opened) != content:
                        self.wrong_reads.append(name)
            opened.close()
            self.flushed[name] = content

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except SMBResponseException as error:
            self.statuses.add(error.status)


def _write_with(directory: Path, *errors: InjectedError) -> list[_Writer]:
    data = directory / "data"
    with served(data) as server:
        file_service(server).create_share(SHARE)
        assert server.stop() == 0
    with broken_server(data, errors[0], directory / "log", "smb", *errors[1:]) as endpoint:
        port = int(endpoint.rpartition(":")[2])
        writers = [_Writer(port, number) for number in range(_CLIENTS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    return writers


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_nothing_flushed_is_lost(tmp_path: Path, error: InjectedError) -> None:
    _require_nothing_lost(tmp_path, error)


@pytest.mark.long
@pytest.mark.parametrize("error", MORE_ERRORS, ids=str)
def test_nothing_flushed_is_lost_with_more_errors(tmp_path: Path, error: InjectedError) -> None:
    _require_nothing_lost(tmp_path, error)


def _require_nothing_lost(tmp_path: Path, error: InjectedError) -> None:
    writers = _write_with(tmp_path, error)
    assert "Traceback" not in (tmp_path / "log").read_text()
    with served(tmp_path / "data") as server:
        share = file_service(server).get_share_client(SHARE)
        for writer in writers:
            assert writer.flushed
            assert not writer.wrong_reads
            assert writer.statuses <= _FAILURES
            for name, content in writer.flushed.items():
                assert share.get_file_client(name).download_file().readall() == content, name
        assert server.stop() == 0
    assert check(tmp_path / "data").returncode == 0


def test_a_read_that_fails_is_reported(tmp_path: Path) -> None:
    for writer in _write_with(tmp_path, *READ_ERRORS):
        assert not writer.wrong_reads
        assert NtStatus.UNEXPECTED_IO_ERROR in writer.statuses
        assert writer.statuses <= _FAILURES
    assert "Traceback" not in (tmp_path / "log").read_text()
