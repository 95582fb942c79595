"""One server for all tests that do not end it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobLeaseClient, BlobServiceClient, ContainerClient

from tests.sdk.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served, unique


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("shared") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with served(directory, "--account", account) as shared:
        yield shared
        assert shared.stop() == 0


@pytest.fixture(scope="session")
def service(server: Server) -> Iterator[BlobServiceClient]:
    with server.service() as client:
        yield client


@pytest.fixture
def container(service: BlobServiceClient) -> Iterator[ContainerClient]:
    made = service.create_container(unique())
    yield made
    with contextlib.suppress(HttpResponseError):
        BlobLeaseClient(made).break_lease(0)
    with contextlib.suppress(ResourceNotFoundError):
        made.delete_container()
