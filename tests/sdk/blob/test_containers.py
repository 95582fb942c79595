"""Containers: create, properties, metadata, leases and access."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    PublicAccess,
)

from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import unique

HOUR = timedelta(hours=1)


def test_create_and_properties(service: BlobServiceClient) -> None:
    answer = ResponseRecorder()
    container = service.get_container_client(unique())
    made = container.create_container(metadata={"Some": "thing"}, raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-version"]
    assert answer.headers["x-ms-request-id"]
    assert answer.headers["x-ms-client-request-id"]
    assert answer.headers["date"]
    shown = container.get_container_properties()
    assert shown.name == container.container_name
    assert shown.etag == made["etag"]
    assert shown.last_modified == made["last_modified"]
    assert abs(datetime.now(UTC) - shown.last_modified) < timedelta(minutes=1)
    assert shown.metadata == {"Some": "thing"}
    assert (shown.lease.status, shown.lease.state) == ("unlocked", "available")
    assert shown.lease.duration is None
    assert shown.public_access is None
    assert shown.has_immutability_policy is False
    assert shown.has_legal_hold is False
    assert container.exists()
    container.delete_container()
    assert not container.exists()


def test_create_twice(container: ContainerClient) -> None:
    with refused(409, "ContainerAlreadyExists") as error:
        container.create_container()
    assert "The specified container already exists." in error.message
    assert "RequestId:" in error.message


def test_delete_frees_the_name_at_once(container: ContainerClient) -> None:
    container.upload_blob("blob", b"old")
    answer = ResponseRecorder()
    container.delete_container(raw_response_hook=answer)
    assert answer.status == 202
    with refused(404, "ContainerNotFound"):
        container.get_container_properties()
    container.create_container()
    assert list(container.list_blob_names()) == []
    with refused(404, "BlobNotFound"):
        container.get_blob_client("blob").download_blob()


def test_a_missing_container(service: BlobServiceClient) -> None:
    container = service.get_container_client(unique())
    with refused(404, "ContainerNotFound"):
        container.delete_container()
    with refused(404, "ContainerNotFound"):
        container.get_container_access_policy()
    with refused(404, "ContainerNotFound"):
        container.set_container_metadata({})
    with refused(404, "ContainerNotFound"):
        container.upload_blob("blob", b"")
    with refused(404, "ContainerNotFound"):
        list(container.list_blobs())
    with refused(404, "ContainerNotFound"):
        container.acquire_lease()


@pytest.mark.parametrize("name", ["abc", "a" * 63, "0-1", "$root", "$web"])
def test_valid_names(service: BlobServiceClient, name: str) -> None:
    container = service.create_container(name)
    try:
        assert container.get_container_properties().name == name
    finally:
        container.delete_container()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", "OutOfRangeInput"),
        ("a" * 64, "OutOfRangeInput"),
        ("Abc", "InvalidResourceName"),
        ("a--b", "InvalidResourceName"),
        ("-abc", "InvalidResourceName"),
        ("abc-", "InvalidResourceName"),
        ("a_b_c", "InvalidResourceName"),
        ("étagère", "InvalidResourceName"),
        ("$other", "InvalidResourceName"),
    ],
)
def test_invalid_names(service: BlobServiceClient, name: str, code: str) -> None:
    with refused(400, code):
        service.create_container(name)


# Metadata


def test_metadata_is_replaced_and_keeps_its_case(container: ContainerClient) -> None:
    before = container.get_container_properties().etag
    first = container.set_container_metadata({"CamelCase": "Värde".encode().hex(), "other": "2"})
    assert first["etag"] != before
    shown = container.get_container_properties()
    assert shown.metadata == {"CamelCase": "Värde".encode().hex(), "other": "2"}
    assert shown.etag == first["etag"]
    container.set_container_metadata({})
    assert not container.get_container_properties().metadata


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"1st": "x"}, "InvalidMetadata"),
        ({"with-dash": "x"}, "InvalidMetadata"),
        ({"": "x"}, "EmptyMetadataKey"),
        ({"large": "x" * 8192}, "MetadataTooLarge"),
    ],
)
def test_bad_metadata(container: ContainerClient, metadata: dict[str, str], code: str) -> None:
    with refused(400, code):
        container.set_container_metadata(metadata)


def test_largest_metadata(container: ContainerClient) -> None:
    metadata = {"a": "x" * 4095, "b": "y" * 4095}
    container.set_container_metadata(metadata)
    assert container.get_container_properties().metadata == metadata


def test_metadata_conditions(container: ContainerClient) -> None:
    changed = container.get_container_properties().last_modified
    container.set_container_metadata({"a": "1"}, if_modified_since=changed - HOUR)
    with refused(412, "ConditionNotMet") as error:
        container.set_container_metadata({"a": "2"}, if_modified_since=changed + HOUR)
    assert error.details
    assert container.get_container_properties().metadata == {"a": "1"}


def test_delete_conditions(container: ContainerClient) -> None:
    changed = container.get_container_properties().last_modified
    with refused(412, "ConditionNotMet"):
        container.delete_container(if_unmodified_since=changed - HOUR)
    with refused(412, "ConditionNotMet"):
        container.delete_container(if_modified_since=changed + HOUR)
    container.delete_container(if_unmodified_since=changed + HOUR)
    assert not container.exists()


# Leases


def test_lease_from_acquire_to_release(container: ContainerClient) -> None:
    answer = ResponseRecorder()
    lease = container.acquire_lease(lease_duration=15, raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-lease-id"] == lease.id
    shown = container.get_container_properties()
    assert (shown.lease.status, shown.lease.state) == ("locked", "leased")
    assert shown.lease.duration == "fixed"
    assert shown.etag == lease.etag
    lease.renew()
    old = lease.id
    lease.change("11111111-2222-3333-4444-555555555555")
    assert lease.id == "11111111-2222-3333-4444-555555555555" != old
    lease.release()
    shown = container.get_container_properties()
    assert (shown.lease.status, shown.lease.state) == ("unlocked", "available")


def test_infinite_lease_prevents_deletion(container: ContainerClient) -> None:
    lease = container.acquire_lease()
    assert container.get_container_properties().lease.duration == "infinite"
    with refused(412, "LeaseIdMissing") as error:
        container.delete_container()
    assert error.details["leasestate"] == "leased"
    assert lease.id not in str(error.details)
    with refused(412, "LeaseIdMismatchWithContainerOperation"):
        container.delete_container(lease="11111111-2222-3333-4444-555555555555")
    container.upload_blob("blob", b"only deletion needs the lease")
    container.set_container_metadata({"so": "does this"})
    container.delete_container(lease=lease)
    assert not container.exists()


def test_lease_id_is_a_condition_of_use(container: ContainerClient) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    with refused(412, "LeaseNotPresentWithContainerOperation"):
        container.get_container_properties(lease=other)
    lease = container.acquire_lease()
    assert container.get_container_properties(lease=lease).etag == lease.etag
    with refused(412, "LeaseIdMismatchWithContainerOperation"):
        container.get_container_properties(lease=other)
    with refused(412, "LeaseIdMismatchWithContainerOperation"):
        container.set_container_metadata({}, lease=other)
    container.set_container_metadata({"a": "b"}, lease=lease)
    lease.release()


def test_lease_conflicts(container: ContainerClient) -> None:
    lease = container.acquire_lease(15)
    with refused(409, "LeaseAlreadyPresent"):
        container.acquire_lease(15)
    again = container.acquire_lease(60, lease_id=lease.id)
    assert again.id == lease.id
    lease.id = "11111111-2222-3333-4444-555555555555"
    with refused(409, "LeaseIdMismatchWithLeaseOperation"):
        lease.renew()
    with refused(409, "LeaseIdMismatchWithLeaseOperation"):
        lease.release()
    again.release()


def test_lease_break(container: ContainerClient) -> None:
    lease = container.acquire_lease(60)
    answer = ResponseRecorder()
    left = lease.break_lease(lease_break_period=30, raw_response_hook=answer)
    assert answer.status == 202
    assert 29 <= left <= 30
    assert container.get_container_properties().lease.state == "breaking"
    with refused(409, "LeaseIsBreakingAndCannotBeAcquired"):
        container.acquire_lease(lease_id=lease.id)
    with refused(409, "LeaseIsBrokenAndCannotBeRenewed"):
        lease.renew()
    assert lease.break_lease(lease_break_period=0) == 0
    assert container.get_container_properties().lease.state == "broken"
    container.delete_container()


@pytest.mark.parametrize("duration", [0, 14, 61, -2])
def test_invalid_lease_durations(container: ContainerClient, duration: int) -> None:
    with refused(400, "InvalidHeaderValue"):
        container.acquire_lease(duration)


def test_invalid_lease_ids(container: ContainerClient) -> None:
    with refused(400, "InvalidHeaderValue"):
        container.acquire_lease(lease_id="not a guid")


def test_lease_conditions(container: ContainerClient) -> None:
    changed = container.get_container_properties().last_modified
    with refused(412, "ConditionNotMet"):
        container.acquire_lease(if_modified_since=changed + HOUR)
    container.acquire_lease(if_unmodified_since=changed + HOUR).release()


# Access


def test_public_access_round_trip(service: BlobServiceClient) -> None:
    name = unique()
    container = service.create_container(name, public_access=PublicAccess.BLOB)
    assert container.get_container_properties().public_access == "blob"
    container.set_container_access_policy({}, public_access=PublicAccess.CONTAINER)
    assert container.get_container_access_policy()["public_access"] == "container"
    assert container.get_container_properties().public_access == "container"
    container.set_container_access_policy({})
    assert container.get_container_access_policy()["public_access"] is None
    container.delete_container()


def test_bad_public_access(container: ContainerClient) -> None:
    with refused(400, "InvalidHeaderValue"):
        container.set_container_access_policy(
            {}, raw_request_hook=with_headers(x_ms_blob_public_access="everybody")
        )
