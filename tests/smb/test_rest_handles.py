"""Handles of SMB clients, listed and closed by REST clients."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest
from azure.storage.fileshare import Handle, ShareClient
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import LockFlags, Open

from etagere.nt_status import NtStatus
from tests.sdk.harness import now
from tests.sdk.harness import refused as rest_refused
from tests.smb.client import (
    CREATE,
    DELETE_ON_CLOSE,
    DIRECTORY,
    READ,
    SmbClient,
    lock,
    read,
    refused,
)
from tests.smb.messages import FILE, change, query, send
from tests.smb.rest_operations import CONTENT

_RIGHTS = {
    0x80: [],
    0x1: ["Read"],
    0x20: ["Read"],  # execute
    0x2: ["Write"],
    0x4: ["Write"],  # append
    0x10000: ["Delete"],
    0x10003: ["Read", "Write", "Delete"],
    0x8000_0000: ["Read"],  # generic
    0x4000_0000: ["Write"],
    0x1000_0000: ["Read", "Write", "Delete"],
    0x0200_0000: ["Read", "Write", "Delete"],  # maximum allowed
}


@pytest.mark.parametrize(("access", "rights"), _RIGHTS.items())
def test_listed_rights(
    client: SmbClient, share: ShareClient, access: int, rights: list[str]
) -> None:
    file = share.get_file_client("f")
    file.upload_file(CONTENT)
    client.open("f", access)
    (listed,) = file.list_handles()
    assert (listed.access_rights or []) == rights


def test_listed_handles(client: SmbClient, other: SmbClient, share: ShareClient) -> None:
    share.create_directory("Papers").upload_file("Report.txt", CONTENT)
    path = "Papers/Report.txt"
    file = share.get_file_client(path)
    for one in (client, other):
        one.open("PAPERS\\report.TXT", READ)
    first, second = file.list_handles()
    shown = file.get_file_properties()
    for listed, one in ((first, client), (second, other)):
        assert isinstance(listed, Handle)
        assert listed.path == path
        assert (listed.file_id, listed.parent_id) == (shown.file_id, shown.parent_id)
        assert listed.session_id == str(one.session.session_id)
        address, port = one.connection.transport._sock.getsockname()
        assert listed.client_ip == f"{address}:{port}"
        # The name that the client logs on with.
        assert listed.client_name == socket.gethostname().upper()
        assert abs(listed.open_time - now()) < timedelta(minutes=1)
    assert first.id < second.id


def test_handles_below_directories(client: SmbClient, share: ShareClient) -> None:
    share.create_directory("a").create_subdirectory("b").upload_file("f", CONTENT)
    for name, options in (("", DIRECTORY), ("a", DIRECTORY), ("a\\b", DIRECTORY), ("a\\b\\f", 0)):
        client.open(name, READ, options=options)

    def listed(path: str, recursive: bool) -> list[str]:
        directory = share.get_directory_client(path)
        return [one.path or "" for one in directory.list_handles(recursive=recursive)]

    assert listed("", False) == [""]
    assert listed("", True) == ["", "a", "a/b", "a/b/f"]
    assert listed("a", False) == ["a"]
    assert listed("a", True) == ["a", "a/b", "a/b/f"]
    assert listed("a/b", True) == ["a/b", "a/b/f"]
    directory = share.get_directory_client("a")
    assert directory.close_all_handles()["closed_handles_count"] == 1
    assert listed("", True) == ["", "a/b", "a/b/f"]
    assert directory.close_all_handles(recursive=True)["closed_handles_count"] == 2
    assert listed("", True) == [""]
    directory.rename_directory("c")


def _statuses(opened: Open) -> set[int]:
    """Returns the status of each kind of request with a handle."""
    statuses = {
        query(opened, FILE, 5).status,
        change(opened, FILE, 20, bytes(8)),
        send(opened, opened.close(send=False)[0]).status,
    }
    for request in (
        lambda: read(opened, 0, 1),
        lambda: opened.write(b"x"),
        opened.flush,
        lambda: lock(opened, 0, 1, LockFlags.SMB2_LOCKFLAG_SHARED_LOCK),
    ):
        try:
            request()
        except SMBResponseException as error:
            statuses.add(error.status)
        else:
            statuses.add(NtStatus.SUCCESS)
    return statuses


def test_closed_handles(client: SmbClient, other: SmbClient, share: ShareClient) -> None:
    file = share.get_file_client("f")
    closed = client.open("f", disposition=CREATE)
    kept = other.open("f")
    closed.write(b"acknowledged")
    lock(closed, 0, 5, LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK)
    first, second = file.list_handles()
    assert file.close_handle(first) == {"closed_handles_count": 1, "failed_handles_count": 0}
    assert [one.id for one in file.list_handles()] == [second.id]
    # What was written stays, and the locks are gone.
    assert read(kept, 0, 12) == b"acknowledged"
    assert file.download_file().readall() == b"acknowledged"
    file.upload_range(b"A", 0, 1)
    assert _statuses(closed) == {NtStatus.FILE_CLOSED}
    assert file.close_handle(first)["closed_handles_count"] == 0
    # The session goes on.
    client.open("f").close()
    kept.close()


def test_closing_marked_files(client: SmbClient, share: ShareClient) -> None:
    """Pending files are not listed, but their handles are."""
    file = share.get_file_client("f")
    opened = client.open("f", disposition=CREATE)
    assert change(opened, FILE, 13, b"\x01") == NtStatus.SUCCESS
    (listed,) = share.get_directory_client("").list_handles(recursive=True)
    assert [one.id for one in file.list_handles()] == [listed.id]
    assert file.close_handle(listed)["closed_handles_count"] == 1
    with rest_refused(404, "ResourceNotFound"):
        file.get_file_properties()
    client.open("g", disposition=CREATE, options=DELETE_ON_CLOSE)
    assert share.get_file_client("g").exists()
    assert share.get_directory_client("").close_all_handles(recursive=True) == {
        "closed_handles_count": 1,
        "failed_handles_count": 0,
    }
    assert not share.get_file_client("g").exists()


def test_deleted_share(client: SmbClient, other: SmbClient, share: ShareClient) -> None:
    """Clients learn that the share is gone, so that they connect to one that replaces it."""
    opened = client.open("f", disposition=CREATE)
    share.delete_share()
    assert _statuses(opened) == {NtStatus.NETWORK_NAME_DELETED}
    for replaced in (False, True):
        with refused(NtStatus.NETWORK_NAME_DELETED):
            other.open("f", disposition=CREATE)
        if not replaced:
            share.create_share()
    for one in (client, other):
        one.tree.disconnect()
        one.tree.connect()
    client.open("f", disposition=CREATE).close()
    other.open("f").close()
