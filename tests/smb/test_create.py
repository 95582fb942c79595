"""Opening, creating and overwriting files and directories with an SMB client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.storage.fileshare import ShareClient
from smbprotocol.create_contexts import (
    CreateContextName,
    SMB2CreateContextRequest,
    SMB2CreateQueryMaximalAccessRequest,
    SMB2CreateTimewarpToken,
)

from etagere.nt_status import NtStatus
from tests.smb.client import (
    ALL,
    ARCHIVE,
    CREATE,
    CREATED,
    DELETE,
    DELETE_ON_CLOSE,
    DIRECTORY,
    HIDDEN,
    MAXIMUM,
    NON_DIRECTORY,
    OPEN,
    OPEN_IF,
    OPENED,
    OVERWRITE,
    OVERWRITE_IF,
    OVERWRITTEN,
    READ,
    READ_ONLY,
    SHARE_ALL,
    SHARE_READ,
    SUPERSEDE,
    SUPERSEDED,
    SYSTEM,
    WRITE,
    SmbClient,
    read,
    refused,
)


@pytest.mark.parametrize(
    ("disposition", "if_there", "if_not"),
    [
        (SUPERSEDE, SUPERSEDED, CREATED),
        (OPEN, OPENED, NtStatus.OBJECT_NAME_NOT_FOUND),
        (CREATE, NtStatus.OBJECT_NAME_COLLISION, CREATED),
        (OPEN_IF, OPENED, CREATED),
        (OVERWRITE, OVERWRITTEN, NtStatus.OBJECT_NAME_NOT_FOUND),
        (OVERWRITE_IF, OVERWRITTEN, CREATED),
    ],
)
def test_dispositions(
    client: SmbClient, disposition: int, if_there: int | NtStatus, if_not: int | NtStatus
) -> None:
    client.write_file("there", b"bytes")
    for name, expected in (("there", if_there), ("not", if_not)):
        if isinstance(expected, NtStatus):
            with refused(expected):
                client.open(name, disposition=disposition)
            continue
        opened = client.open(name, disposition=disposition)
        assert opened.create_action == expected
        is_kept = expected == OPENED
        assert opened.end_of_file == (5 if is_kept else 0)
        opened.close()
        assert client.read_file(name) == b"bytes" if is_kept else True


def test_missing_names(client: SmbClient) -> None:
    client.write_file("file", b"")
    with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
        client.open("missing")
    for path in ("missing\\a", "file\\a"):
        for disposition in (OPEN, CREATE):
            with refused(NtStatus.OBJECT_PATH_NOT_FOUND):
                client.open(path, disposition=disposition)
    for path in ("a*b", "a:stream", "a::$DATA", "nul", "."):
        with refused(NtStatus.OBJECT_NAME_INVALID):
            client.open(path, disposition=CREATE)


def test_files_and_directories(client: SmbClient, share: ShareClient) -> None:
    client.open("Folder", disposition=CREATE, options=DIRECTORY).close()
    client.open("Folder\\File", disposition=CREATE).close()
    with refused(NtStatus.FILE_IS_A_DIRECTORY):
        client.open("folder", options=NON_DIRECTORY)
    with refused(NtStatus.NOT_A_DIRECTORY):
        client.open("folder\\file", options=DIRECTORY)
    with refused(NtStatus.OBJECT_NAME_COLLISION):
        client.open("FOLDER", disposition=CREATE, options=DIRECTORY)
    directory = client.open("folder\\")
    assert directory.file_attributes == 0x10
    with refused(NtStatus.INVALID_DEVICE_REQUEST):
        read(directory)
    with refused(NtStatus.INVALID_DEVICE_REQUEST):
        directory.write(b"x")
    directory.close()
    root = client.open("")
    assert root.file_attributes & 0x10
    root.close()
    assert [one["name"] for one in share.list_directories_and_files("Folder")] == ["File"]


def test_attributes(client: SmbClient, share: ShareClient) -> None:
    opened = client.open("a", disposition=CREATE, attributes=HIDDEN | SYSTEM)
    assert opened.file_attributes == HIDDEN | SYSTEM | ARCHIVE
    opened.close()
    properties = share.get_file_client("a").get_file_properties()
    assert properties.file_attributes == "Hidden | System | Archive"
    # An overwrite has to name these two.
    for attributes in (0, HIDDEN, SYSTEM):
        with refused(NtStatus.ACCESS_DENIED):
            client.open("a", disposition=OVERWRITE, attributes=attributes)
    client.open("a", disposition=OVERWRITE, attributes=HIDDEN | SYSTEM).close()


def test_read_only_files(client: SmbClient) -> None:
    # The attribute does not restrict the open that creates the file.
    opened = client.open("a", disposition=CREATE, attributes=READ_ONLY)
    opened.write(b"bytes")
    opened.close()
    with refused(NtStatus.ACCESS_DENIED):
        client.open("a", READ | WRITE)
    with refused(NtStatus.ACCESS_DENIED):
        client.open("a", READ, disposition=OVERWRITE)
    with refused(NtStatus.CANNOT_DELETE):
        client.open("a", DELETE, options=DELETE_ON_CLOSE)
    opened = client.open("a", MAXIMUM)
    assert read(opened) == b"bytes"
    with refused(NtStatus.ACCESS_DENIED):
        opened.write(b"x")
    opened.close()


def test_delete_on_close(client: SmbClient, other: SmbClient) -> None:
    client.write_file("a", b"bytes")
    opened = client.open("a", options=DELETE_ON_CLOSE)
    second = other.open("a", READ)
    opened.close()
    with refused(NtStatus.DELETE_PENDING):
        client.open("a")
    assert read(second) == b"bytes"
    second.close()
    with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
        client.open("a")
    with refused(NtStatus.INVALID_PARAMETER):
        client.open("a", READ, options=DELETE_ON_CLOSE)


def test_share_modes(client: SmbClient, other: SmbClient) -> None:
    client.write_file("a", b"bytes")
    reader = client.open("a", READ, share=SHARE_READ)
    other.open("a", READ, share=SHARE_ALL).close()
    other.open("a", 0x0010_0080, share=0).close()
    with refused(NtStatus.SHARING_VIOLATION):
        other.open("a", WRITE)
    with refused(NtStatus.SHARING_VIOLATION):
        other.open("a", READ, share=0)
    with refused(NtStatus.SHARING_VIOLATION):
        other.open("a", MAXIMUM)
    with refused(NtStatus.SHARING_VIOLATION):
        other.open("a", READ, disposition=OVERWRITE)
    reader.close()
    other.open("a", WRITE).close()


def context(name: CreateContextName, data: object) -> SMB2CreateContextRequest:
    request = SMB2CreateContextRequest()
    request["buffer_name"] = name
    request["buffer_data"] = data
    return request


def test_maximal_access(client: SmbClient) -> None:
    asked = context(
        CreateContextName.SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST,
        SMB2CreateQueryMaximalAccessRequest(),
    )
    opened = client.open("a", disposition=CREATE, contexts=[asked])
    (answer,) = opened.contexts
    assert answer["query_status"].get_value() == 0
    assert answer["maximal_access"].get_value() == ALL
    opened.close()


def test_snapshots(client: SmbClient, share: ShareClient) -> None:
    client.write_file("a", b"before")
    taken = share.create_snapshot()["snapshot"]
    client.write_file("a", b"after")
    token = f"@GMT-{taken[:10].replace('-', '.')}-{taken[11:19].replace(':', '.')}"
    assert client.read_file(f"{token}\\a") == b"before"
    assert client.read_file("a") == b"after"
    with refused(NtStatus.ACCESS_DENIED):
        client.open(f"{token}\\a", WRITE)
    with refused(NtStatus.MEDIA_WRITE_PROTECTED):
        client.open(f"{token}\\b", READ, disposition=CREATE)
    opened = client.open(f"{token}\\a", MAXIMUM, disposition=OPEN_IF)
    with refused(NtStatus.ACCESS_DENIED):
        opened.write(b"x")
    opened.close()
    with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
        client.open("@GMT-2000.01.01-00.00.00\\a", READ)
    timewarp = SMB2CreateTimewarpToken()
    timewarp["timestamp"] = _filetime_of(token)
    asked = context(CreateContextName.SMB2_CREATE_TIMEWARP_TOKEN, timewarp)
    opened = client.open("a", READ, contexts=[asked])
    assert read(opened) == b"before"
    opened.close()


def _filetime_of(token: str) -> datetime:
    return datetime.strptime(token, "@GMT-%Y.%m.%d-%H.%M.%S").replace(tzinfo=UTC)


def test_invalid_requests(client: SmbClient) -> None:
    cases: tuple[tuple[dict[str, Any], NtStatus], ...] = (
        ({"access": 0}, NtStatus.ACCESS_DENIED),
        ({"access": 0x0100_0000}, NtStatus.PRIVILEGE_NOT_HELD),
        ({"options": DIRECTORY | NON_DIRECTORY}, NtStatus.INVALID_PARAMETER),
        ({"options": 0x2000}, NtStatus.NOT_SUPPORTED),
        ({"attributes": 0x40}, NtStatus.INVALID_PARAMETER),
    )
    for changed, status in cases:
        with refused(status):
            client.open("a", **{"disposition": CREATE, **changed})
    with refused(NtStatus.OBJECT_NAME_NOT_FOUND):
        client.open("a")
