"""Snapshots: create, read, list, delete, and immutability."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
from azure.core import MatchConditions
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobLeaseClient,
    ContainerClient,
    ContentSettings,
    generate_blob_sas,
)

from etagere.operations.blob.snapshots import DELETED_TOGETHER_MAX
from tests.sdk.blob.clients import async_blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY, Server

HOUR = timedelta(hours=1)
OTHER_ETAG = '"0x8D0000000000001"'
OTHER_ID = "11111111-2222-3333-4444-555555555555"
NEVER_TAKEN = "2020-01-01T00:00:00.0000000Z"


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.upload_blob("blob", b"old", metadata={"Its": "own"})


def take(blob: BlobClient, **options: Any) -> BlobClient:
    """Creates a snapshot and returns a client for it."""
    return at(blob, str(blob.create_snapshot(**options)["snapshot"]))


def at(blob: BlobClient, snapshot: str) -> BlobClient:
    account = blob.url.split(f"/{blob.container_name}/", 1)[0]
    return BlobClient(
        account, blob.container_name, blob.blob_name, snapshot, blob.credential, retry_total=0
    )


def listed(container: ContainerClient) -> list[tuple[str, str | None]]:
    return [(found.name, found.snapshot) for found in container.list_blobs(include=["snapshots"])]


# Creating


def test_a_snapshot_has_the_content_and_properties_of_the_blob(blob: BlobClient) -> None:
    before = blob.get_blob_properties()
    answer = ResponseRecorder()
    taken = blob.create_snapshot(raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-snapshot"] == taken["snapshot"]
    assert taken["etag"] == before.etag
    assert blob.get_blob_properties().etag == before.etag
    past = at(blob, str(taken["snapshot"]))
    shown = past.get_blob_properties()
    assert (shown.etag, shown.last_modified) == (before.etag, before.last_modified)
    assert (shown.metadata, shown.size) == ({"Its": "own"}, 3)
    assert past.download_blob().readall() == b"old"
    assert past.download_blob(1, 1).readall() == b"l"
    past.close()


def test_metadata_of_a_snapshot(blob: BlobClient) -> None:
    before = blob.get_blob_properties()
    with take(blob, metadata={"Other": "things"}) as past:
        shown = past.get_blob_properties()
    assert shown.metadata == {"Other": "things"}
    assert shown.etag != before.etag
    after = blob.get_blob_properties()
    assert (after.etag, after.metadata) == (before.etag, {"Its": "own"})


def test_snapshot_times_are_unique(container: ContainerClient, blob: BlobClient) -> None:
    moments = [str(blob.create_snapshot()["snapshot"]) for _ in range(10)]
    assert moments == sorted(set(moments))
    assert listed(container) == [*(("blob", moment) for moment in moments), ("blob", None)]


def test_conditions_of_creating_a_snapshot(container: ContainerClient, blob: BlobClient) -> None:
    shown = blob.get_blob_properties()
    unmet: list[dict[str, Any]] = [
        {"etag": OTHER_ETAG, "match_condition": MatchConditions.IfNotModified},
        {"etag": shown.etag, "match_condition": MatchConditions.IfModified},
        {"if_modified_since": shown.last_modified},
        {"if_unmodified_since": shown.last_modified - HOUR},
    ]
    for conditions in unmet:
        with refused(412, "ConditionNotMet"):
            blob.create_snapshot(**conditions)
    assert listed(container) == [("blob", None)]
    blob.create_snapshot(etag=shown.etag, match_condition=MatchConditions.IfNotModified)
    with refused(404, "BlobNotFound"):
        container.get_blob_client("missing").create_snapshot()


def test_snapshots_of_a_leased_blob(blob: BlobClient) -> None:
    """No lease ID is needed; the snapshot has no lease."""
    lease = blob.acquire_lease()
    for options in ({}, {"lease": lease}):
        with take(blob, **options) as past:
            shown = past.get_blob_properties()
            assert not shown.lease.status
            assert not shown.lease.state
            with refused(412, "LeaseNotPresentWithBlobOperation"):
                past.download_blob(lease=lease)
    assert blob.get_blob_properties().lease.state == "leased"
    lease.release()


# Immutability


def test_snapshots_survive_changes_of_the_blob(blob: BlobClient) -> None:
    blob.stage_block("a", b"made of blocks")
    blob.commit_block_list([BlobBlock("a")], metadata={"of": "blocks"})
    with take(blob) as first:
        blob.upload_blob(b"put whole", overwrite=True)
        with take(blob) as second:
            blob.set_blob_metadata({"changed": "since"})
            blob.set_http_headers(ContentSettings(content_type="text/plain"))
            blob.stage_block("b", b"committed")
            blob.commit_block_list([BlobBlock("b")])
            assert first.download_blob().readall() == b"made of blocks"
            assert first.get_blob_properties().metadata == {"of": "blocks"}
            assert second.download_blob().readall() == b"put whole"
            assert second.get_blob_properties().metadata == {}
    assert blob.download_blob().readall() == b"committed"


def test_conditions_of_reading_a_snapshot(blob: BlobClient) -> None:
    with take(blob) as past:
        etag = past.get_blob_properties().etag
        blob.upload_blob(b"new", overwrite=True)
        past.download_blob(etag=etag, match_condition=MatchConditions.IfNotModified)
        with refused(412, "ConditionNotMet"):
            past.download_blob(etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
        with refused(304, "ConditionNotMet"):
            past.get_blob_properties(etag=etag, match_condition=MatchConditions.IfModified)


CHANGES: dict[str, Callable[[BlobClient], Any]] = {
    "put blob": lambda blob: blob.upload_blob(b"new", overwrite=True),
    "put block": lambda blob: blob.stage_block("a", b"new"),
    "put block list": lambda blob: blob.commit_block_list([]),
    "set metadata": lambda blob: blob.set_blob_metadata({"a": "b"}),
    "set properties": lambda blob: blob.set_http_headers(ContentSettings()),
    "lease": lambda blob: blob.acquire_lease(),
    "break": lambda blob: BlobLeaseClient(blob).break_lease(),
    "snapshot": lambda blob: blob.create_snapshot(),
}


def to_snapshot(moment: str) -> Callable[[Any], None]:
    """Returns a hook that adds the snapshot, which the SDK leaves out of operations that a snapshot
    does not have."""

    def change(request: Any) -> None:
        split = urlsplit(request.http_request.url)
        query = urlencode({**dict(parse_qsl(split.query)), "snapshot": moment})
        request.http_request.url = urlunsplit(split._replace(query=query))

    return change


@pytest.mark.parametrize("change", CHANGES)
def test_snapshots_cannot_be_changed(
    container: ContainerClient, blob: BlobClient, change: str
) -> None:
    moment = str(blob.create_snapshot()["snapshot"])
    before = blob.get_blob_properties()
    meddler = BlobClient(
        container.url.rsplit("/", 1)[0],
        container.container_name,
        "blob",
        credential=container.credential,
        raw_request_hook=to_snapshot(moment),
        retry_total=0,
    )
    with meddler, refused(400, "InvalidQueryParameterValue"):
        CHANGES[change](meddler)
    with at(blob, moment) as past:
        assert past.download_blob().readall() == b"old"
        assert past.get_blob_properties().metadata == {"Its": "own"}
    after = blob.get_blob_properties()
    assert (after.etag, after.lease.state) == (before.etag, "available")
    assert listed(container) == [("blob", moment), ("blob", None)]


@pytest.mark.parametrize("moment", ["yesterday", "2020-01-01", NEVER_TAKEN])
def test_unknown_snapshots(blob: BlobClient, moment: str) -> None:
    known = moment == NEVER_TAKEN
    with at(blob, moment) as past:
        for use in (past.download_blob, past.get_blob_properties, past.delete_blob):
            with refused(
                *((404, "BlobNotFound") if known else (400, "InvalidQueryParameterValue"))
            ):
                use()


# Listing


def test_listing(container: ContainerClient) -> None:
    for name in ("a", "b", "c"):
        container.upload_blob(name, name.encode(), metadata={"n": "now"})
    taken = {
        name: [
            str(container.get_blob_client(name).create_snapshot(metadata={"n": str(n)})["snapshot"])
            for n in range(count)
        ]
        for name, count in (("a", 3), ("c", 2))
    }
    expected: list[tuple[str, str | None]] = [
        *(("a", moment) for moment in taken["a"]),
        ("a", None),
        ("b", None),
        *(("c", moment) for moment in taken["c"]),
        ("c", None),
    ]
    assert listed(container) == expected
    assert [found.name for found in container.list_blobs()] == ["a", "b", "c"]
    for size in range(1, len(expected) + 1):
        pages = container.list_blobs(include=["snapshots"], results_per_page=size).by_page()
        # Pages that start with the last row again would never end.
        bounded = islice(pages, len(expected) + 1)
        found = [[(item.name, item.snapshot) for item in page] for page in bounded]
        assert [item for page in found for item in page] == expected
        assert {len(page) for page in found[:-1]} <= {size}
    shown = container.list_blobs("c", include=["snapshots", "metadata"])
    assert [item.metadata for item in shown] == [{"n": "0"}, {"n": "1"}, {"n": "now"}]


def test_a_page_contains_its_marker(container: ContainerClient) -> None:
    container.upload_blob("blob", b"").create_snapshot()
    answers: list[str] = []
    pages = container.list_blobs(
        include=["snapshots"],
        results_per_page=1,
        raw_response_hook=lambda response: answers.append(response.http_response.text()),
    ).by_page()
    for _ in range(2):
        list(next(pages))
    first, second = (re.findall("<(|Next)Marker>(.*?)</", answer) for answer in answers)
    assert [kind for kind, _ in first] == ["Next"]
    assert second == [("", first[0][1])]


# Deleting


def test_a_blob_with_snapshots_is_not_deleted_alone(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"old")
    moment = str(blob.create_snapshot()["snapshot"])
    with refused(409, "SnapshotsPresent"):
        blob.delete_blob()
    assert listed(container) == [("blob", moment), ("blob", None)]
    blob.delete_blob(delete_snapshots="include")
    assert listed(container) == []


def test_delete_only_the_snapshots(container: ContainerClient, blob: BlobClient) -> None:
    for _ in range(3):
        blob.create_snapshot()
    with refused(412, "ConditionNotMet"):
        blob.delete_blob(
            delete_snapshots="only", etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified
        )
    assert len(listed(container)) == 4
    blob.delete_blob(delete_snapshots="only")
    assert listed(container) == [("blob", None)]
    assert blob.download_blob().readall() == b"old"
    blob.delete_blob(delete_snapshots="only")  # no snapshots are no error
    blob.delete_blob()


def test_deleting_more_snapshots_than_one_transaction_deletes(
    container: ContainerClient, blob: BlobClient
) -> None:
    for kind in ("only", "include"):
        for _ in range(DELETED_TOGETHER_MAX + 1):
            blob.create_snapshot()
        blob.delete_blob(delete_snapshots=kind)
        assert listed(container) == ([("blob", None)] if kind == "only" else [])


def test_delete_one_snapshot(container: ContainerClient, blob: BlobClient) -> None:
    first, second = (str(blob.create_snapshot()["snapshot"]) for _ in range(2))
    with at(blob, first) as past:
        for missing_index in ("include", "only"):
            hook = with_headers(x_ms_delete_snapshots=missing_index)
            with refused(400, "InvalidHeaderValue") as error:
                past.delete_blob(raw_request_hook=hook)
            assert error.details["headername"] == "x-ms-delete-snapshots"
        with refused(412, "ConditionNotMet"):
            past.delete_blob(etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
        past.delete_blob()
        with refused(404, "BlobNotFound"):
            past.download_blob()
        with refused(404, "BlobNotFound"):
            past.delete_blob()
    assert listed(container) == [("blob", second), ("blob", None)]


def test_invalid_delete_options(blob: BlobClient) -> None:
    with refused(400, "InvalidHeaderValue"):
        blob.delete_blob(raw_request_hook=with_headers(x_ms_delete_snapshots="some"))
    assert blob.exists()


def test_deletion_under_a_lease(container: ContainerClient, blob: BlobClient) -> None:
    """A lease protects the blob, not its snapshots."""
    lease = blob.acquire_lease()
    with take(blob) as past:
        past.delete_blob()
    blob.create_snapshot()
    with refused(412, "LeaseIdMissing"):
        blob.delete_blob(delete_snapshots="include")
    assert len(listed(container)) == 2
    blob.delete_blob(delete_snapshots="include", lease=lease)
    assert listed(container) == []


# Tokens


def token_for(blob: BlobClient, snapshot: str) -> str:
    """Returns a token with all permissions for this snapshot."""
    token: str = generate_blob_sas(
        ACCOUNT,
        blob.container_name,
        blob.blob_name,
        snapshot=snapshot,
        account_key=KEY,
        permission="racwd",
        expiry=datetime.now(UTC) + HOUR,
    )
    assert "sr=bs" in token
    return token


def holder(blob: BlobClient, token: str, snapshot: str | None) -> BlobClient:
    account = blob.url.split(f"/{blob.container_name}/", 1)[0]
    return BlobClient(account, blob.container_name, "blob", snapshot, token, retry_total=0)


def test_a_token_for_one_snapshot(blob: BlobClient) -> None:
    first, second = (str(blob.create_snapshot()["snapshot"]) for _ in range(2))
    blob.upload_blob(b"new", overwrite=True)
    token = token_for(blob, first)
    with holder(blob, token, first) as past:
        assert past.download_blob().readall() == b"old"
        past.get_blob_properties()
        past.get_block_list("all")
    for snapshot in (second, None):
        with holder(blob, token, snapshot) as other:
            for use in (other.download_blob, other.get_blob_properties, other.delete_blob):
                with refused(403, "AuthenticationFailed"):
                    use()
    with holder(blob, token, first) as past:
        past.delete_blob()
    assert blob.download_blob().readall() == b"new"


@pytest.mark.parametrize("change", CHANGES)
def test_a_token_for_a_snapshot_changes_nothing(
    container: ContainerClient, blob: BlobClient, change: str
) -> None:
    moment = str(blob.create_snapshot()["snapshot"])
    before = blob.get_blob_properties()
    token = token_for(blob, moment)
    for hook, code in (
        (None, "AuthenticationFailed"),
        (to_snapshot(moment), "AuthorizationFailure"),
    ):
        account = container.url.rsplit("/", 1)[0]
        options: dict[str, Any] = {"raw_request_hook": hook} if hook else {}
        meddler = BlobClient(
            account, container.container_name, "blob", credential=token, retry_total=0, **options
        )
        with meddler, refused(403, code):
            CHANGES[change](meddler)
    after = blob.get_blob_properties()
    assert (after.etag, after.lease.state) == (before.etag, "available")
    assert listed(container) == [("blob", moment), ("blob", None)]


def test_the_asynchronous_client(server: Server, container: ContainerClient) -> None:
    container.upload_blob("blob", b"old")

    async def main() -> None:
        async with async_blob_service(server) as service:
            blob = service.get_blob_client(container.container_name, "blob")
            taken = await asyncio.gather(*(blob.create_snapshot() for _ in range(8)))
            moments = sorted(str(each["snapshot"]) for each in taken)
            assert len(set(moments)) == 8
            await blob.upload_blob(b"new", overwrite=True)
            past = service.get_blob_client(container.container_name, "blob", moments[0])
            assert await (await past.download_blob()).readall() == b"old"
            await past.delete_blob()
            await blob.delete_blob(delete_snapshots="include")

    asyncio.run(main())
    assert listed(container) == []
