"""Containers on the shared server of the SDK tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobLeaseClient, BlobServiceClient, ContainerClient

from tests.sdk.blob.clients import blob_service
from tests.server import Server, unique


@pytest.fixture(scope="session")
def service(server: Server) -> Iterator[BlobServiceClient]:
    with blob_service(server) as client:
        yield client


@pytest.fixture
def container(service: BlobServiceClient) -> Iterator[ContainerClient]:
    created = service.create_container(unique())
    yield created
    with contextlib.suppress(HttpResponseError):
        BlobLeaseClient(created).break_lease(0)
    with contextlib.suppress(ResourceNotFoundError):
        created.delete_container()
