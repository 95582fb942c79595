"""The container $logs: every account has it, and clients cannot write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerClient

from tests.sdk.harness import refused
from tests.server import KEY, Server, unique

LOGS = "$logs"


@pytest.fixture
def logs(service: BlobServiceClient) -> Iterator[ContainerClient]:
    with service.get_container_client(LOGS) as client:
        yield client


def test_it_is_listed_only_on_request(
    service: BlobServiceClient, container: ContainerClient
) -> None:
    def listed(**options: Any) -> list[str]:
        return [found["name"] for found in service.list_containers(**options)]

    assert LOGS not in listed()
    shown = listed(include_system=True)
    assert shown.count(LOGS) == 1
    assert sorted(shown) == shown
    assert container.container_name in shown
    assert listed(include_system=True, results_per_page=1) == shown
    assert listed(include_system=True, name_starts_with="$l") == [LOGS]
    assert listed(name_starts_with="$l") == []


def test_it_can_be_read(logs: ContainerClient) -> None:
    shown = logs.get_container_properties()
    assert (shown.name, shown.metadata, shown.public_access) == (LOGS, {}, None)
    assert shown.lease.state == "available"
    assert logs.exists()
    assert logs.get_container_access_policy() == {"public_access": None, "signed_identifiers": []}
    assert list(logs.list_blobs()) == []
    assert list(logs.walk_blobs()) == []
    assert list(logs.find_blobs_by_tags("a='b'")) == []


WRITES: dict[str, Callable[[ContainerClient], object]] = {
    "create": lambda logs: logs.create_container(),
    "delete": lambda logs: logs.delete_container(),
    "set metadata": lambda logs: logs.set_container_metadata({"a": "b"}),
    "set access policy": lambda logs: logs.set_container_access_policy({}, public_access="blob"),
    "lease": lambda logs: logs.acquire_lease(),
    "put blob": lambda logs: logs.upload_blob("blob", b"content"),
    "put page blob": lambda logs: logs.get_blob_client("blob").create_page_blob(512),
    "put append blob": lambda logs: logs.get_blob_client("blob").create_append_blob(),
    "put block": lambda logs: logs.get_blob_client("blob").stage_block("1", b"content"),
    "put block list": lambda logs: logs.get_blob_client("blob").commit_block_list([]),
    "copy": lambda logs: logs.get_blob_client("blob").start_copy_from_url(logs.url + "/other"),
    "snapshot": lambda logs: logs.get_blob_client("blob").create_snapshot(),
    "set blob metadata": lambda logs: logs.get_blob_client("blob").set_blob_metadata({}),
    "set tags": lambda logs: logs.get_blob_client("blob").set_blob_tags({"a": "b"}),
    "set tier": lambda logs: logs.get_blob_client("blob").set_standard_blob_tier("Cool"),
}


@pytest.mark.parametrize("write", WRITES)
def test_it_cannot_be_written(logs: ContainerClient, write: str) -> None:
    before = logs.get_container_properties().etag
    with refused(403, "InsufficientAccountPermissions"):
        WRITES[write](logs)
    assert logs.get_container_properties().etag == before
    assert list(logs.list_blobs(include=["uncommittedblobs", "snapshots"])) == []


def test_blobs_in_it_can_be_read_and_deleted_once_there_are_some(
    logs: ContainerClient, container: ContainerClient
) -> None:
    with refused(404, "BlobNotFound"):
        logs.get_blob_client("blob").download_blob()
    with refused(404, "BlobNotFound"):
        logs.get_blob_client("blob").delete_blob()
    with refused(404, "BlobNotFound"):
        container.get_blob_client("copy").start_copy_from_url(f"{logs.url}/blob")
    (answer,) = logs.delete_blobs("blob", raise_on_any_failure=False)
    assert answer.status_code == 404


def test_anonymous_callers_cannot_list_it(server: Server) -> None:
    with BlobServiceClient(server.url("blob"), retry_total=0) as anonymous:
        with pytest.raises(HttpResponseError) as refusal:
            list(anonymous.get_container_client(LOGS).list_blobs())
        private = anonymous.get_container_client(unique())
        with pytest.raises(HttpResponseError) as refusal_of_private:
            list(private.list_blobs())
    assert refusal.value.status_code == refusal_of_private.value.status_code == 401
    assert refusal.value.error_code == refusal_of_private.value.error_code  # type: ignore[attr-defined]
    assert KEY not in str(refusal.value)
