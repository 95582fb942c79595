"""Access tiers: setting, listing and rehydration."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobProperties,
    BlobType,
    ContainerClient,
    PremiumPageBlobTier,
    RehydratePriority,
    StandardBlobTier,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import eventually, served, unique

PENDING = "rehydrate-pending-to-"


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.upload_blob("blob", b"data")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[ContainerClient]:
    """A container on a server where no rehydration ends during a test."""
    seconds = "--rehydrate-standard-seconds=1000", "--rehydrate-high-seconds=1000"
    with served(tmp_path / "data", *seconds) as server, blob_service(server) as service:
        yield service.create_container(unique())


def set_tier(blob: BlobClient, tier: str, **options: object) -> ResponseRecorder:
    answer = ResponseRecorder()
    blob.set_standard_blob_tier(tier, raw_response_hook=answer, **options)  # type: ignore[arg-type]
    return answer


def listed(container: ContainerClient, name: str = "blob") -> BlobProperties:
    (found,) = [blob for blob in container.list_blobs() if blob.name == name]
    return found


@contextlib.contextmanager
def unchanged(blob: BlobClient) -> Iterator[None]:
    """Checks that ETag and date do not change."""
    before = blob.get_blob_properties()
    yield
    after = blob.get_blob_properties()
    assert (after.etag, after.last_modified) == (before.etag, before.last_modified)


@pytest.mark.parametrize("tier", ["Hot", "Cool", "Cold", "Smart", "Archive"])
def test_a_tier_is_set_at_once(container: ContainerClient, blob: BlobClient, tier: str) -> None:
    inferred = blob.get_blob_properties()
    assert (inferred.blob_tier, inferred.blob_tier_inferred) == ("Hot", True)
    assert inferred.blob_tier_change_time is None
    with unchanged(blob):
        assert set_tier(blob, tier).status == 200
    for found in (blob.get_blob_properties(), listed(container)):
        assert (found.blob_tier, bool(found.blob_tier_inferred)) == (tier, False)
        assert found.blob_tier_change_time is not None
        assert (found.archive_status, found.rehydrate_priority) == (None, None)
        assert found.smart_access_tier == ("Hot" if tier == "Smart" else None)


@pytest.mark.parametrize("tier", ["Cool", "Archive"])
def test_a_blob_is_put_with_a_tier(container: ContainerClient, tier: str) -> None:
    whole = container.upload_blob("whole", b"data", standard_blob_tier=StandardBlobTier(tier))
    parts = container.get_blob_client("parts")
    parts.stage_block("1", b"data")
    parts.commit_block_list([BlobBlock("1")], standard_blob_tier=StandardBlobTier(tier))
    for blob in (whole, parts):
        found = blob.get_blob_properties()
        assert (found.blob_tier, found.blob_tier_inferred) == (tier, None)
    if tier == "Archive":
        with refused(409, "BlobArchived"):
            parts.download_blob()


def test_archived_blobs_cannot_be_read_or_changed(
    container: ContainerClient, blob: BlobClient
) -> None:
    set_tier(blob, "Archive")
    other = container.get_blob_client("blob")
    with refused(409, "BlobArchived"):
        blob.download_blob()
    with refused(409, "BlobArchived"):
        blob.download_blob(offset=1, length=1)
    with refused(409, "BlobArchived"):
        blob.upload_blob(b"other", overwrite=True)
    with refused(409, "BlobArchived"):
        # Refused before all of the body was sent.
        blob.upload_blob(io.BytesIO(bytes(1 << 20)), overwrite=True, length=1 << 20)
    with refused(409, "BlobArchived"):
        blob.set_blob_metadata({"a": "b"})
    with refused(409, "BlobArchived"):
        blob.set_http_headers()
    other.stage_block("1", b"data")
    with refused(409, "BlobArchived"):
        other.commit_block_list([BlobBlock("1")])
    with refused(409, "BlobArchived"):
        blob.create_snapshot()
    assert blob.get_blob_properties().size == 4
    assert [found.blob_tier for found in container.list_blobs()] == ["Archive"]
    blob.delete_blob()
    assert not blob.exists()


def test_pending_rehydration(slow: ContainerClient) -> None:
    blob = slow.upload_blob("blob", b"data")
    set_tier(blob, "Archive")
    with unchanged(blob):
        assert set_tier(blob, "Cold").status == 202
    for found in (blob.get_blob_properties(), listed(slow)):
        assert (found.blob_tier, found.archive_status) == ("Archive", f"{PENDING}cold")
        assert found.rehydrate_priority == "Standard"
    with refused(409, "BlobBeingRehydrated"):
        blob.download_blob()
    with refused(409, "BlobBeingRehydrated"):
        set_tier(blob, "Hot")
    with refused(409, "BlobBeingRehydrated"):
        set_tier(blob, "Archive")
    again = set_tier(blob, "Cold", rehydrate_priority=RehydratePriority.HIGH)
    assert again.status == 202
    assert listed(slow).rehydrate_priority == "High"
    assert blob.get_blob_properties().blob_tier == "Archive"


def test_completed_rehydration(container: ContainerClient, blob: BlobClient) -> None:
    set_tier(blob, "Archive")
    assert set_tier(blob, "Cold", rehydrate_priority=RehydratePriority.HIGH).status == 202
    eventually(lambda: blob.get_blob_properties().blob_tier == "Cold", "the end of the way")
    for found in (blob.get_blob_properties(), listed(container)):
        assert (found.blob_tier, found.archive_status) == ("Cold", None)
        assert found.rehydrate_priority is None
        assert found.blob_tier_change_time is not None
    assert blob.download_blob().readall() == b"data"
    assert set_tier(blob, "Cold").status == set_tier(blob, "Hot").status == 200


def test_the_duration_of_rehydration_is_a_setting(tmp_path: Path) -> None:
    seconds = "--rehydrate-standard-seconds=0", "--rehydrate-high-seconds=1000"
    with served(tmp_path / "data", *seconds) as server, blob_service(server) as service:
        container = service.create_container(unique())
        for priority, tier in (("Standard", "Hot"), ("High", "Archive")):
            blob = container.upload_blob(priority, b"data")
            set_tier(blob, "Archive")
            assert set_tier(blob, "Hot", rehydrate_priority=priority).status == 202
            assert blob.get_blob_properties().blob_tier == tier


@pytest.mark.parametrize("tier", ["Hot", "Cool", "Cold", "Smart"])
def test_rehydration_targets(blob: BlobClient, tier: str) -> None:
    set_tier(blob, "Archive")
    assert set_tier(blob, tier).status == 202
    assert blob.get_blob_properties().archive_status == f"{PENDING}{tier.lower()}"


def test_a_snapshot_has_a_tier_of_its_own(container: ContainerClient, blob: BlobClient) -> None:
    taken = container.get_blob_client("blob", snapshot=str(blob.create_snapshot()["snapshot"]))
    set_tier(taken, "Archive")
    assert taken.get_blob_properties().blob_tier == "Archive"
    assert blob.get_blob_properties().blob_tier == "Hot"
    with refused(409, "BlobArchived"):
        taken.download_blob()
    with refused(409, "BlobArchived"):
        set_tier(taken, "Hot")
    tiers = [found.blob_tier for found in container.list_blobs(include=["snapshots"])]
    assert tiers == ["Archive", "Hot"]


def test_no_lease_is_needed(container: ContainerClient, blob: BlobClient) -> None:
    other = container.upload_blob("other", b"data").acquire_lease(15)
    held = blob.acquire_lease(15)
    assert set_tier(blob, "Cool").status == 200
    assert set_tier(blob, "Hot", lease=held).status == 200
    with refused(412, "LeaseIdMismatchWithBlobOperation"):
        set_tier(blob, "Cool", lease=other)


def test_tag_conditions(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"data", tags={"a": "b"})
    with refused(412, "ConditionNotMet"):
        set_tier(blob, "Cool", if_tags_match_condition="\"a\" = 'c'")
    assert set_tier(blob, "Cool", if_tags_match_condition="\"a\" = 'b'").status == 200


def test_delete_conditions_on_the_tier_change_time(
    container: ContainerClient, blob: BlobClient
) -> None:
    other = container.upload_blob("other", b"data", standard_blob_tier=StandardBlobTier.COOL)
    early, late = (datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (-60, 60))
    set_tier(blob, "Cool")
    with refused(412, "ConditionNotMet"):
        blob.delete_blob(access_tier_if_modified_since=late)
    blob.delete_blob(access_tier_if_modified_since=early)
    with refused(412, "ConditionNotMet"):
        other.delete_blob(access_tier_if_unmodified_since=early)
    other.delete_blob(access_tier_if_unmodified_since=late)


# Refusals


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_ms_access_tier": "Warm"}, "InvalidHeaderValue"),
        ({"x_ms_access_tier": ""}, "MissingRequiredHeader"),
        ({"x_ms_access_tier": "P10"}, "AccessTierNotSupportedForBlobType"),
        ({"x_ms_rehydrate_priority": "Low"}, "InvalidHeaderValue"),
        ({"x_ms_lease_id": "mine"}, "InvalidHeaderValue"),
        ({"if_match": "*"}, "ConditionHeadersNotSupported"),
    ],
)
def test_invalid_requests(blob: BlobClient, headers: dict[str, str], code: str) -> None:
    with refused(400, code):
        blob.set_standard_blob_tier("Cool", raw_request_hook=with_headers(**headers))
    assert blob.get_blob_properties().blob_tier_inferred


def test_a_missing_blob(container: ContainerClient) -> None:
    with refused(404, "BlobNotFound"):
        set_tier(container.get_blob_client("none"), "Cool")


def test_a_block_blob_cannot_be_put_with_a_premium_tier(container: ContainerClient) -> None:
    hook = with_headers(x_ms_access_tier="P10")
    with refused(400, "AccessTierNotSupportedForBlobType"):
        container.upload_blob("blob", b"data", raw_request_hook=hook)
    assert list(container.list_blob_names()) == []


# Page and append blobs


def test_the_tier_of_a_page_blob_can_only_be_raised(container: ContainerClient) -> None:
    blob = container.get_blob_client("pages")
    blob.create_page_blob(1024)
    assert (blob.get_blob_properties().blob_tier, listed(container, "pages").blob_tier) == (
        "P10",
        "P10",
    )
    assert blob.get_blob_properties().blob_tier_inferred
    with unchanged(blob):
        blob.set_premium_page_blob_tier(PremiumPageBlobTier.P20)
    found = listed(container, "pages")
    assert (found.blob_tier, found.blob_tier_inferred) == ("P20", None)
    with refused(409, "CannotChangeToLowerTier"):
        blob.set_premium_page_blob_tier(PremiumPageBlobTier.P15)
    with refused(400, "AccessTierNotSupportedForBlobType"):
        set_tier(blob, "Hot")
    with refused(409, "BlobTierInadequateForContentLength"):
        blob.create_page_blob(64 << 30, premium_page_blob_tier=PremiumPageBlobTier.P4)
    blob.create_page_blob(1024, premium_page_blob_tier=PremiumPageBlobTier.P4)
    assert blob.get_blob_properties().blob_tier == "P4"


def test_an_append_blob_has_no_tier(container: ContainerClient) -> None:
    blob = container.upload_blob("log", b"line", blob_type=BlobType.APPENDBLOB)
    assert blob.get_blob_properties().blob_tier is None
    assert listed(container, "log").blob_tier is None
    with refused(400, "AccessTierNotSupportedForBlobType"):
        set_tier(blob, "Cool")
