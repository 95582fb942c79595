"""CHANGE_NOTIFY: watches of directories, and changes by SMB and REST clients."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from azure.storage.fileshare import ShareClient
from smbprotocol.change_notify import FileSystemWatcher
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import Open

from etagere.nt_status import NtStatus
from tests.smb.client import CREATE, DELETE, DIRECTORY, READ, SmbClient
from tests.smb.messages import FILE, change

ADDED, REMOVED, MODIFIED, OLD_NAME, NEW_NAME = range(1, 6)
ALL_CHANGES = 0x17F
_SECONDS_MAX = 10


class _Watcher:
    """A request that waits for changes."""

    def __init__(self, opened: Open, subjects: int = ALL_CHANGES, **options: Any) -> None:
        self._watcher = FileSystemWatcher(opened)
        self._watcher.start(subjects, **options)

    def changes(self) -> list[tuple[int, str]]:
        self._watcher.wait()
        return [
            (one["action"].get_value(), one["file_name"].get_value())
            for one in self._watcher.result
        ]

    def cancel(self) -> None:
        self._watcher.cancel()

    def status(self) -> int:
        try:
            self._watcher.wait()
        except SMBResponseException as error:
            return int(error.status)
        return NtStatus.SUCCESS


@pytest.fixture
def directory(client: SmbClient) -> Open:
    return client.open("d", READ, disposition=CREATE, options=DIRECTORY)


def test_changes_by_smb_clients(client: SmbClient, other: SmbClient, directory: Open) -> None:
    def changes() -> list[tuple[int, str]]:
        return _Watcher(directory).changes()

    watcher = _Watcher(directory)
    opened = other.open("d\\a.txt", disposition=CREATE)
    assert watcher.changes() == [(ADDED, "a.txt")]
    opened.write(b"hello")
    assert changes() == [(MODIFIED, "a.txt")]
    assert change(opened, FILE, 4, struct.pack("<qqqqI4x", 0, 0, 0, 0, 2)) == NtStatus.SUCCESS
    assert changes() == [(MODIFIED, "a.txt")]
    name = "d\\b.txt".encode("utf-16-le")
    rename = struct.pack("<I4xQI", 0, 0, len(name)) + name
    assert change(opened, FILE, 10, rename) == NtStatus.SUCCESS
    assert changes() == [(OLD_NAME, "a.txt"), (NEW_NAME, "b.txt")]
    assert change(opened, FILE, 13, b"\1") == NtStatus.SUCCESS
    opened.close()
    assert changes() == [(REMOVED, "b.txt")]
    directory.close()


def test_changes_by_rest_clients(share: ShareClient, directory: Open) -> None:
    watcher = _Watcher(directory, flags=1)
    below = share.get_directory_client("d/below")
    below.create_directory()
    assert watcher.changes() == [(ADDED, "below")]
    file = below.get_file_client("file.txt")
    file.create_file(10)
    file.upload_range(b"0123456789", 0, 10)
    file.delete_file()
    assert _Watcher(directory).changes() == [
        (ADDED, "below\\file.txt"),
        (MODIFIED, "below\\file.txt"),
        (REMOVED, "below\\file.txt"),
    ]
    directory.close()


def test_cancelled(client: SmbClient, other: SmbClient, directory: Open) -> None:
    watcher = _Watcher(directory)
    watcher.cancel()
    watcher = _Watcher(directory)
    other.write_file("d\\a.txt", b"")
    assert watcher.changes() == [(ADDED, "a.txt")]
    directory.close()


def test_closed(directory: Open) -> None:
    watcher = _Watcher(directory)
    directory.close()
    assert watcher.status() == NtStatus.NOTIFY_CLEANUP


def test_deleted(other: SmbClient, directory: Open) -> None:
    watcher = _Watcher(directory)
    opened = other.open("d", DELETE)
    assert change(opened, FILE, 13, b"\1") == NtStatus.SUCCESS
    assert watcher.status() == NtStatus.DELETE_PENDING
    opened.close()
    directory.close()


def test_buffer_is_too_small(other: SmbClient, directory: Open) -> None:
    watcher = _Watcher(directory, output_buffer_length=8)
    other.write_file("d\\a.txt", b"")
    # NOTIFY_ENUM_DIR is a success without any changes.
    assert watcher.changes() == []
    directory.close()


def test_only_directories_can_be_watched(client: SmbClient) -> None:
    opened = client.open("file", disposition=CREATE)
    assert _Watcher(opened).status() == NtStatus.INVALID_PARAMETER
    opened.close()
