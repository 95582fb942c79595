"""A server per module, and a share per test with two clients that are connected to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.fileshare import ShareClient

from tests.sdk.file.clients import file_service
from tests.server import Server, unique
from tests.smb.client import SmbClient, smb_client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(Path(tmp_path_factory.mktemp("server")) / "data")
    server.start()
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log()


@pytest.fixture
def share(server: Server) -> ShareClient:
    """The share of the test, for a REST client."""
    return file_service(server).create_share(unique("smb"))


@pytest.fixture
def client(server: Server, share: ShareClient) -> Iterator[SmbClient]:
    with smb_client(server, share.share_name) as connected:
        yield connected


@pytest.fixture
def other(server: Server, share: ShareClient) -> Iterator[SmbClient]:
    with smb_client(server, share.share_name) as connected:
        yield connected
