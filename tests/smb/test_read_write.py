"""Reading and writing files with an SMB client."""

from __future__ import annotations

import random

from azure.storage.fileshare import ShareClient

from etagere.nt_status import NtStatus
from tests.smb.client import (
    ALL,
    CREATE,
    OPEN_IF,
    READ,
    WRITE,
    WRITE_THROUGH,
    SmbClient,
    read,
    refused,
)

MIB = 1024 * 1024


def test_the_end_of_a_file(client: SmbClient) -> None:
    opened = client.open("a", disposition=CREATE)
    with refused(NtStatus.END_OF_FILE):
        read(opened)
    opened.write(b"0123456789")
    assert read(opened, 5, 100) == b"56789"
    assert read(opened, 0, 3) == b"012"
    with refused(NtStatus.END_OF_FILE):
        read(opened, 10, 1)
    with refused(NtStatus.END_OF_FILE):
        opened.read(8, 10, min_length=3)
    # A gap is zeros.
    opened.write(b"x", 20)
    assert read(opened, 8) == b"89" + bytes(10) + b"x"
    with refused(NtStatus.INVALID_PARAMETER):
        opened.write(b"x", (1 << 63) - 1)
    opened.close()
    with refused(NtStatus.FILE_CLOSED):
        opened.read(0, 1)


def test_everybody_sees_a_write_at_once(
    client: SmbClient, other: SmbClient, share: ShareClient
) -> None:
    writer = client.open("a", disposition=CREATE)
    reader = other.open("a", READ)
    file = share.get_file_client("a")
    for number in range(8):
        data = b"%d" % number * 5_000
        writer.write(data, number * 5_000, write_through=number % 2 == 0)
        assert read(reader, number * 5_000) == data
        assert file.download_file().readall()[-5_000:] == data
        assert file.get_file_properties().size == (number + 1) * 5_000
    writer.flush()
    before = file.get_file_properties().etag
    writer.write(b"x")
    assert file.get_file_properties().etag != before


def test_large_files(client: SmbClient) -> None:
    data = random.Random(1).randbytes(5 * MIB + 123)
    opened = client.open("a", disposition=CREATE)
    for start in range(0, len(data), MIB):
        opened.write(data[start : start + MIB], start)
    assert b"".join(read(opened, start, MIB) for start in range(0, len(data), MIB)) == data
    opened.close()
    reopened = client.open("a", READ)
    assert reopened.end_of_file == len(data)
    assert read(reopened, 4 * MIB + 5, 1_000) == data[4 * MIB + 5 :][:1_000]
    reopened.close()


def test_access(client: SmbClient) -> None:
    client.write_file("a", b"bytes")
    reader = client.open("a", READ)
    with refused(NtStatus.ACCESS_DENIED):
        reader.write(b"x")
    with refused(NtStatus.ACCESS_DENIED):
        reader.flush()
    reader.close()
    writer = client.open("a", WRITE, disposition=OPEN_IF, options=WRITE_THROUGH)
    with refused(NtStatus.ACCESS_DENIED):
        read(writer)
    writer.write(b"B")
    writer.close()
    # FILE_APPEND_DATA alone: the offset does not count.
    appender = client.open("a", 0x0010_0004)
    appender.write(b"!")
    appender.write(b"!")
    appender.close()
    assert client.read_file("a") == b"Bytes!!"


def test_appends_at_once(client: SmbClient, other: SmbClient) -> None:
    client.write_file("a", b"")
    appenders = [one.open("a", 0x0010_0004) for one in (client, other) * 2]
    sent = []
    for number, opened in enumerate(appenders * 3):
        message, receive = opened.write(b"%x" % number * 10, send=False)
        tree = opened.tree_connect
        sent.append(
            (
                receive,
                opened.connection.send(message, tree.session.session_id, tree.tree_connect_id),
            )
        )
    for receive, request in sent:
        receive(request)
    for opened in appenders:
        opened.close()
    assert sorted(client.read_file("a")) == sorted(b"0123456789ab" * 10)


def test_close_returns_attributes(client: SmbClient) -> None:
    opened = client.open("a", ALL, disposition=CREATE)
    opened.write(b"bytes")
    opened.close(get_attributes=True)
    assert opened.end_of_file == 5
    assert opened.file_attributes == 0x20


def test_forced_close(client: SmbClient, share: ShareClient) -> None:
    opened = client.open("a", disposition=CREATE)
    opened.write(b"bytes")
    assert share.get_file_client("a").close_all_handles()["closed_handles_count"] == 1
    with refused(NtStatus.FILE_CLOSED):
        read(opened)
    assert share.get_file_client("a").download_file().readall() == b"bytes"
