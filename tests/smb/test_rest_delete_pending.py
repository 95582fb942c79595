"""Files and directories that SMB clients have marked for deletion, as REST clients see them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from azure.storage.fileshare import ShareClient, ShareLeaseClient
from smbprotocol.open import Open

from etagere.nt_status import NtStatus
from tests.sdk.file.clients import sas_client, share_token
from tests.sdk.harness import refused as rest_refused
from tests.server import Server, eventually
from tests.smb.client import (
    ALL,
    CREATE,
    DELETE,
    DELETE_ON_CLOSE,
    DIRECTORY,
    READ,
    READ_ONLY,
    SmbClient,
    read,
    refused,
    smb_client,
)
from tests.smb.messages import FILE, change
from tests.smb.rest_operations import CONTENT, operations

_DISPOSITION, _DISPOSITION_EX = 13, 64


def mark(opened: Open, *, deletes: bool = True) -> None:
    assert change(opened, FILE, _DISPOSITION, bytes([deletes])) == NtStatus.SUCCESS


def mark_ex(opened: Open, *, deletes: bool = True) -> None:
    flags = struct.pack("<I", int(deletes))
    assert change(opened, FILE, _DISPOSITION_EX, flags) == NtStatus.SUCCESS


def names(share: ShareClient, directory: str = "") -> list[str]:
    return [listed["name"] for listed in share.list_directories_and_files(directory)]


@pytest.fixture
def file(share: ShareClient) -> str:
    for name in ("f", "other"):
        share.get_file_client(name).upload_file(CONTENT)
    return "f"


_SOURCE_CODES = {"copy from": "CannotVerifyCopySource"}
"""The response to a copy describes the error at the source by its own code."""


@pytest.mark.parametrize("set_mark", [mark, mark_ex])
def test_marked_file(
    client: SmbClient,
    other: SmbClient,
    share: ShareClient,
    file: str,
    set_mark: Callable[..., None],
) -> None:
    held, reader = client.open(file), other.open(file, READ)
    every = operations(share, file)
    del every["list"]
    held.write(b"changed")
    set_mark(held)
    for name, operation in every.items():
        with rest_refused(409, _SOURCE_CODES.get(name, "SMBDeletePending")):
            operation()
    for directory in (share.get_directory_client(file), share.get_directory_client("F")):
        with rest_refused(409, "SMBDeletePending"):
            directory.create_directory()
    assert names(share) == ["other"]
    with refused(NtStatus.DELETE_PENDING):
        other.open(file, READ)
    # Without the mark the file is as it was.
    set_mark(held, deletes=False)
    assert names(share) == ["f", "other"]
    assert share.get_file_client(file).download_file().readall() == b"changed" + CONTENT[7:]
    other.open(file, READ).close()
    set_mark(held)
    held.close()
    # It is deleted with the last handle, not with the one that marked it.
    assert read(reader, 0, 7) == b"changed"
    with rest_refused(409, "SMBDeletePending"):
        every["get"]()
    reader.close()
    for name in ("get", "properties", "delete", "put range"):
        with rest_refused(404, "ResourceNotFound"):
            every[name]()
    every["create"]()
    assert names(share) == ["f", "other"]


def test_delete_on_close(client: SmbClient, other: SmbClient, share: ShareClient) -> None:
    """The option marks the file when its handle is closed."""
    share.get_file_client("f").upload_file(CONTENT)
    held = client.open("f", options=DELETE_ON_CLOSE)
    reader = other.open("f", READ)
    assert share.get_file_client("f").download_file().readall() == CONTENT
    held.close()
    with rest_refused(409, "SMBDeletePending"):
        share.get_file_client("f").get_file_properties()
    assert names(share) == []
    reader.close()
    assert not share.get_file_client("f").exists()


def test_other_handle_clears_the_mark(
    client: SmbClient, other: SmbClient, share: ShareClient
) -> None:
    share.get_file_client("f").upload_file(CONTENT)
    kept = other.open("f", DELETE | READ)
    client.open("f", options=DELETE_ON_CLOSE).close()
    with rest_refused(409, "SMBDeletePending"):
        share.get_file_client("f").get_file_properties()
    mark(kept, deletes=False)
    kept.close()
    assert share.get_file_client("f").download_file().readall() == CONTENT


def test_disconnected_client(server: Server, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(CONTENT)
    with smb_client(server, share.share_name) as lost:
        lost.open("f", options=DELETE_ON_CLOSE)
    eventually(lambda: not names(share), "the file to be deleted")


def test_marked_directory(client: SmbClient, share: ShareClient) -> None:
    share.create_directory("d")
    held = client.open("d", options=DIRECTORY)
    mark(held)
    directory = share.get_directory_client("d")
    lists: tuple[Callable[[], object], ...] = (
        directory.get_directory_properties,
        directory.create_directory,
        directory.delete_directory,
        lambda: directory.set_directory_metadata({"a": "b"}),
        lambda: list(directory.list_directories_and_files()),
        lambda: directory.create_subdirectory("below"),
        lambda: directory.upload_file("below", b"x"),
        lambda: directory.rename_directory("renamed"),
        lambda: directory.get_file_client("below").get_file_properties(),
        lambda: share.get_file_client("d").create_file(1),
    )
    for operation in lists:
        with rest_refused(409, "SMBDeletePending"):
            operation()
    assert names(share) == []
    mark(held, deletes=False)
    directory.upload_file("below", b"x")
    assert change(held, FILE, _DISPOSITION, b"\x01") == NtStatus.DIRECTORY_NOT_EMPTY
    directory.delete_file("below")
    mark(held)
    held.close()
    with rest_refused(404, "ResourceNotFound"):
        directory.get_directory_properties()


def test_rest_deletes_are_never_pending(client: SmbClient, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(CONTENT)
    share.create_directory("d")
    for name, options in (("f", 0), ("d", DIRECTORY)):
        held = client.open(name, READ, options=options)
        delete = (
            share.get_directory_client("d").delete_directory
            if options
            else share.get_file_client("f").delete_file
        )
        with rest_refused(409, "SharingViolation"):
            delete()
        assert name in names(share)
        client.open(name, READ, options=options).close()
        held.close()
        delete()
        assert name not in names(share)
        with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
            client.open(name, READ, options=options)


def test_read_only_and_leased_files_are_not_marked(client: SmbClient, share: ShareClient) -> None:
    client.write_file("f", CONTENT, attributes=READ_ONLY)
    with refused(NtStatus.CANNOT_DELETE):
        client.open("f", DELETE | READ, options=DELETE_ON_CLOSE)
    held = client.open("f", DELETE | READ)
    assert change(held, FILE, _DISPOSITION, b"\x01") == NtStatus.CANNOT_DELETE
    held.close()
    share.get_file_client("g").upload_file(CONTENT)
    ShareLeaseClient(share.get_file_client("g")).acquire()
    with refused(NtStatus.SHARING_VIOLATION):
        client.open("g", ALL, options=DELETE_ON_CLOSE)
    assert names(share) == ["f", "g"]


def test_authorization_comes_first(client: SmbClient, share: ShareClient) -> None:
    """A client without permission does not learn that the file is pending."""
    held = client.open("f", disposition=CREATE)
    mark(held)
    reader = sas_client(share, share_token(share, permission="r"))
    with rest_refused(403, "AuthorizationPermissionMismatch"):
        reader.get_file_client("f").delete_file()
    with rest_refused(409, "SMBDeletePending"):
        reader.get_file_client("f").get_file_properties()
