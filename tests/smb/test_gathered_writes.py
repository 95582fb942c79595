"""What was written through SMB and is not stored yet: other services, snapshots and restarts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerClient
from azure.storage.fileshare import ShareClient
from smbprotocol.exceptions import SMBException

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service, file_token
from tests.server import Server, check, served, unique
from tests.smb.client import ALL, CREATE, SHARE_WRITE, SmbClient, smb_client

MIB = 1 << 20


@pytest.fixture
def container(server: Server) -> ContainerClient:
    return blob_service(server).create_container(unique())


def _source(share: ShareClient, name: str) -> str:
    return f"{share.url}/{name}?{file_token(share, name)}"


def test_copies_to_blobs_see_every_write(
    client: SmbClient, share: ShareClient, container: ContainerClient
) -> None:
    opened = client.open("f", disposition=CREATE)
    for number in range(5):
        data = b"%d" % number * 5_000
        opened.write(data, number * 5_000)
        whole = b"".join(b"%d" % one * 5_000 for one in range(number + 1))
        source = _source(share, "f")
        copied = container.get_blob_client(f"copied-{number}")
        copied.start_copy_from_url(source)
        assert copied.download_blob().readall() == whole
        opened.write(b"x", 0)
        put = container.get_blob_client(f"put-{number}")
        put.upload_blob_from_url(source)
        assert put.download_blob().readall() == b"x" + whole[1:]
        opened.write(b"0", 0)
    opened.close()


def test_copies_to_blobs_respect_share_modes(
    client: SmbClient, share: ShareClient, container: ContainerClient
) -> None:
    opened = client.open("f", ALL, disposition=CREATE, share=SHARE_WRITE)
    opened.write(b"abc")
    blob = container.get_blob_client("b")
    with pytest.raises(HttpResponseError) as refused:
        blob.upload_blob_from_url(_source(share, "f"))
    assert refused.value.status_code == 409
    opened.close()
    blob.upload_blob_from_url(_source(share, "f"))
    assert blob.download_blob().readall() == b"abc"


def test_operations_on_the_share_see_every_write(
    server: Server, client: SmbClient, share: ShareClient
) -> None:
    opened = client.open("f", disposition=CREATE)
    opened.write(b"a" * 1_000)
    (listed,) = share.list_directories_and_files()
    assert listed["size"] == 1_000
    opened.write(b"b" * 1_000, 1_000)
    assert share.get_share_stats() == 2_000
    opened.write(b"c" * 1_000, 2_000)
    snapshot = share.create_snapshot()["snapshot"]
    opened.write(b"d" * 3_000, 0)
    frozen = file_service(server).get_share_client(share.share_name, snapshot=snapshot)
    shown = frozen.get_file_client("f").download_file().readall()
    assert shown == b"a" * 1_000 + b"b" * 1_000 + b"c" * 1_000
    file = share.get_file_client("f")
    opened.write(b"e", 8_999)
    ranges = [(one.start, one.end) for one in file.list_ranges()]
    assert (ranges[0][0], ranges[-1][1]) == (0, 8_999)
    opened.write(b"f", 4 * MIB - 1)
    file.upload_range(bytes(2 * MIB), offset=2 * MIB, length=2 * MIB)
    file.upload_range(b"z", offset=0, length=1)
    assert file.download_file(0, 2).readall() == b"zd"
    assert bytes(opened.read(0, 2)) == b"zd"
    opened.close()


def test_a_server_that_stops_stores_everything(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.start()
    share = file_service(server).create_share("kept")
    with contextlib.suppress(SMBException), smb_client(server, "kept") as client:
        opened = client.open("f", disposition=CREATE)
        opened.write(b"abc" * 1_000)
        assert server.stop() == 0
    server.start()
    share = file_service(server).get_share_client("kept")
    assert share.get_file_client("f").download_file().readall() == b"abc" * 1_000
    assert server.stop() == 0


def test_a_killed_server_has_what_was_flushed(tmp_path: Path) -> None:
    data = bytes(range(256)) * (MIB // 256)
    with served(tmp_path / "data") as server:
        file_service(server).create_share("kept")
        with contextlib.suppress(SMBException), smb_client(server, "kept") as client:
            flushed = client.open("flushed", disposition=CREATE)
            closed = client.open("closed", disposition=CREATE)
            unflushed = client.open("unflushed", disposition=CREATE)
            for number in range(12):
                flushed.write(data, number * MIB)
                closed.write(data, number * MIB)
                unflushed.write(data, number * MIB)
            flushed.flush()
            closed.close()
            server.kill()
        server.start()
        share = file_service(server).get_share_client("kept")
        for name in ("flushed", "closed"):
            assert share.get_file_client(name).download_file().readall() == data * 12
        left = share.get_file_client("unflushed").download_file().readall()
        assert len(left) % MIB == 0
        assert left == data * (len(left) // MIB)
        assert server.stop() == 0
        assert check(tmp_path / "data").returncode == 0
