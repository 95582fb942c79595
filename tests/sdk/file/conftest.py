"""Shares on the shared server of the SDK tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.fileshare import ShareClient, ShareLeaseClient, ShareServiceClient

from tests.sdk.file.clients import file_service
from tests.server import Server, unique


@pytest.fixture(scope="session")
def files(server: Server) -> Iterator[ShareServiceClient]:
    with file_service(server) as client:
        yield client


@pytest.fixture
def share(files: ShareServiceClient) -> Iterator[ShareClient]:
    created = files.create_share(unique("share"))
    yield created
    with contextlib.suppress(HttpResponseError):
        ShareLeaseClient(created).break_lease(lease_break_period=0)
    with contextlib.suppress(ResourceNotFoundError):
        created.delete_share(delete_snapshots=True)
