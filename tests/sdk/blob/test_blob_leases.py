"""Blob leases: every action in every state, and uses of leased blobs.

The two tables are those of the service. Where its documents name both 409 and 412 for a wrong lease
ID, it is 412, as in its own table of codes and in all its clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobLeaseClient,
    BlobServiceClient,
    ContainerClient,
    ContentSettings,
)

from tests.sdk.blob.clients import async_blob_service, blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import Server, served, unique

HELD = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "bbbbbbbb-0000-4000-8000-000000000002"
THIRD = "cccccccc-0000-4000-8000-000000000003"
OTHER_ETAG = '"0x8D0000000000001"'

SHORTEST_SECONDS = 15
STATES = ("available", "leased", "breaking", "broken", "expired")


def lease_of(blob: BlobClient, lease_id: str = HELD) -> BlobLeaseClient:
    return BlobLeaseClient(blob, lease_id)


def state_of(blob: BlobClient) -> str:
    return str(blob.get_blob_properties().lease.state)


# Actions

ACTIONS: dict[str, Callable[[BlobClient], Any]] = {
    "acquire": lambda blob: blob.acquire_lease(60),
    "acquire held": lambda blob: blob.acquire_lease(60, HELD),
    "acquire other": lambda blob: blob.acquire_lease(60, OTHER),
    "break at once": lambda blob: lease_of(blob).break_lease(0),
    "break later": lambda blob: lease_of(blob).break_lease(20),
    "break": lambda blob: lease_of(blob).break_lease(),
    "change held to other": lambda blob: lease_of(blob).change(OTHER),
    "change other to held": lambda blob: lease_of(blob, OTHER).change(HELD),
    "change other to third": lambda blob: lease_of(blob, OTHER).change(THIRD),
    "renew held": lambda blob: lease_of(blob).renew(),
    "renew other": lambda blob: lease_of(blob, OTHER).renew(),
    "release held": lambda blob: lease_of(blob).release(),
    "release other": lambda blob: lease_of(blob, OTHER).release(),
}

PRESENT = "LeaseAlreadyPresent"
ABSENT = "LeaseNotPresentWithLeaseOperation"
MISMATCH = "LeaseIdMismatchWithLeaseOperation"
NOT_ACQUIRED = "LeaseIsBreakingAndCannotBeAcquired"
NOT_CHANGED = "LeaseIsBreakingAndCannotBeChanged"
NOT_RENEWED = "LeaseIsBrokenAndCannotBeRenewed"

# The columns are the states; a cell is the state afterwards, or the code of a 409.
OUTCOMES: dict[str, tuple[str, str, str, str, str]] = {
    "acquire": ("leased", PRESENT, PRESENT, "leased", "leased"),
    "acquire held": ("leased", "leased", NOT_ACQUIRED, "leased", "leased"),
    "acquire other": ("leased", PRESENT, PRESENT, "leased", "leased"),
    "break at once": (ABSENT, "broken", "broken", "broken", "broken"),
    "break later": (ABSENT, "breaking", "breaking", "broken", "broken"),
    "break": (ABSENT, "broken", "breaking", "broken", "broken"),
    "change held to other": (ABSENT, "leased", NOT_CHANGED, ABSENT, ABSENT),
    # A client that lost the response to a change repeats it.
    "change other to held": (ABSENT, "leased", MISMATCH, ABSENT, ABSENT),
    "change other to third": (ABSENT, MISMATCH, MISMATCH, ABSENT, ABSENT),
    "renew held": (MISMATCH, "leased", NOT_RENEWED, NOT_RENEWED, "leased"),
    "renew other": (MISMATCH, MISMATCH, MISMATCH, MISMATCH, MISMATCH),
    "release held": (MISMATCH, "available", "available", "available", "available"),
    "release other": (MISMATCH, MISMATCH, MISMATCH, MISMATCH, MISMATCH),
}

# Uses

Use = Callable[..., Any]

WRITES: dict[str, Callable[[BlobClient], Use]] = {
    "put blob": lambda blob: lambda **lease: blob.upload_blob(b"new", overwrite=True, **lease),
    "put block": lambda blob: lambda **lease: blob.stage_block("b", b"new", **lease),
    "put block list": lambda blob: (
        lambda **lease: blob.commit_block_list([BlobBlock("a")], **lease)
    ),
    "set metadata": lambda blob: lambda **lease: blob.set_blob_metadata({"a": "b"}, **lease),
    "set properties": lambda blob: (
        lambda **lease: blob.set_http_headers(ContentSettings("text/plain"), **lease)
    ),
    "delete": lambda blob: blob.delete_blob,
    "delete snapshots": lambda blob: (
        lambda **lease: blob.delete_blob(delete_snapshots="only", **lease)
    ),
}
READS: dict[str, Callable[[BlobClient], Use]] = {
    "get": lambda blob: blob.download_blob,
    "get properties": lambda blob: blob.get_blob_properties,
    "get block list": lambda blob: lambda **lease: blob.get_block_list("all", **lease),
    "snapshot": lambda blob: blob.create_snapshot,
}
USES = WRITES | READS

IDS: dict[str, dict[str, str]] = {
    "no id": {},
    "its id": {"lease": HELD},
    "another id": {"lease": OTHER},
}

ID_MISSING = "LeaseIdMissing"
ID_MISMATCH = "LeaseIdMismatchWithBlobOperation"
NO_LEASE = "LeaseNotPresentWithBlobOperation"
LOST = "LeaseLost"

# The columns are the lease IDs; a cell is the code of a 412, or "" on success.
REFUSALS_OF_WRITES: dict[str, tuple[str, str, str]] = {
    "available": ("", NO_LEASE, NO_LEASE),
    "leased": (ID_MISSING, "", ID_MISMATCH),
    "breaking": (ID_MISSING, "", ID_MISMATCH),
    "broken": ("", LOST, LOST),
    "expired": ("", LOST, LOST),
}
REFUSALS_OF_READS: dict[str, tuple[str, str, str]] = {
    **REFUSALS_OF_WRITES,
    "leased": ("", "", ID_MISMATCH),
    "breaking": ("", "", ID_MISMATCH),
}
MODIFYING = frozenset(WRITES) - {"put block", "delete", "delete snapshots"}
"""Operations that change the ETag of a blob and clear an ended lease."""


# Blobs in every state


class LeasedBlobs:
    """A blob for each case, in the state that the case needs. Leases that have to expire are
    acquired at the start, so that the tests wait for all of them at once."""

    def __init__(self, container: ContainerClient, expiring: list[str]) -> None:
        self._container = container
        for name in expiring:
            self._put(name).acquire_lease(SHORTEST_SECONDS, HELD)
        self._expired_at = time.monotonic() + SHORTEST_SECONDS

    def _put(self, name: str) -> BlobClient:
        blob = self._container.get_blob_client(name)
        blob.stage_block("a", b"old")
        blob.commit_block_list([BlobBlock("a")])
        return blob

    def blob(self, state: str, case: str) -> BlobClient:
        if state == "expired":
            time.sleep(max(0.0, self._expired_at - time.monotonic()))
            return self._container.get_blob_client(case)
        blob = self._put(f"{state}/{case}")
        if state != "available":
            blob.acquire_lease(-1, HELD)
        if state == "breaking":
            lease_of(blob).break_lease(40)
        if state == "broken":
            lease_of(blob).break_lease(0)
        return blob


RENEWALS: dict[str, tuple[Callable[[BlobClient], Any], str]] = {
    "untouched": (lambda blob: None, ""),
    "read": (lambda blob: blob.download_blob().readall(), ""),
    "staged": (lambda blob: blob.stage_block("b", b"new"), ""),
    "written": (lambda blob: blob.upload_blob(b"new", overwrite=True), MISMATCH),
    "described": (lambda blob: blob.set_blob_metadata({"a": "b"}), MISMATCH),
    "leased again": (lambda blob: blob.acquire_lease(60, OTHER), MISMATCH),
    "broken": (lambda blob: lease_of(blob).break_lease(), NOT_RENEWED),
}
"""Actions between the expiry of a lease and its renewal, and the code of a 409 or ""."""


def use_case(use: str, sent: str) -> str:
    return f"{use}/{sent}"


@pytest.fixture(scope="module", autouse=True)
def leased_blobs(service: BlobServiceClient) -> Iterator[LeasedBlobs]:
    container = service.create_container(unique("leases"))
    used = [use_case(use, sent) for use in USES for sent in IDS]
    yield LeasedBlobs(container, [*ACTIONS, *used, *RENEWALS])
    container.delete_container()  # blob leases do not prevent that


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_actions(leased_blobs: LeasedBlobs, state: str, action: str) -> None:
    blob = leased_blobs.blob(state, action)
    before = blob.get_blob_properties()
    assert before.lease.state == state
    outcome = OUTCOMES[action][STATES.index(state)]
    if outcome in STATES:
        ACTIONS[action](blob)
        after = outcome
    else:
        with refused(409, outcome) as error:
            ACTIONS[action](blob)
        assert error.details["leasestate"] == state
        assert HELD not in str(error.details)
        after = state
    shown = blob.get_blob_properties()
    assert shown.lease.state == after
    assert shown.lease.status == ("locked" if after in ("leased", "breaking") else "unlocked")
    assert (shown.etag, shown.last_modified) == (before.etag, before.last_modified)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("sent", IDS)
@pytest.mark.parametrize("state", STATES)
def test_uses(leased_blobs: LeasedBlobs, state: str, sent: str, use: str) -> None:
    blob = leased_blobs.blob(state, use_case(use, sent))
    before = blob.get_blob_properties()
    assert before.lease.state == state
    refusals = REFUSALS_OF_WRITES if use in WRITES else REFUSALS_OF_READS
    code = refusals[state][tuple(IDS).index(sent)]
    if code:
        with refused(412, code):
            USES[use](blob)(**IDS[sent])
        assert state_of(blob) == state
        assert blob.get_blob_properties().etag == before.etag
        return
    USES[use](blob)(**IDS[sent])
    if use == "delete":
        assert not blob.exists()
        return
    forgotten = use in MODIFYING and state in ("broken", "expired")
    assert state_of(blob) == ("available" if forgotten else state)
    assert (blob.get_blob_properties().etag != before.etag) == (use in MODIFYING)


@pytest.mark.parametrize("between", RENEWALS)
def test_renewals_after_the_expiry(leased_blobs: LeasedBlobs, between: str) -> None:
    blob = leased_blobs.blob("expired", between)
    happens, code = RENEWALS[between]
    happens(blob)
    if code:
        with refused(409, code):
            lease_of(blob).renew()
    else:
        lease_of(blob).renew()
        with refused(412, ID_MISSING):
            blob.upload_blob(b"new", overwrite=True)
        blob.upload_blob(b"new", overwrite=True, lease=lease_of(blob))


# One lease


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.upload_blob("blob", b"old")


def test_lifecycle_of_a_lease(container: ContainerClient, blob: BlobClient) -> None:
    etag = blob.get_blob_properties().etag
    answer = ResponseRecorder()
    lease = blob.acquire_lease(60, raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-id"]) == (201, lease.id)
    assert lease.etag == etag
    shown = blob.get_blob_properties().lease
    assert (shown.status, shown.state, shown.duration) == ("locked", "leased", "fixed")
    (listed,) = container.list_blobs()
    assert (listed.lease.status, listed.lease.state) == ("locked", "leased")
    lease.renew(raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-id"]) == (200, lease.id)
    lease.change(OTHER, raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-id"], lease.id) == (200, OTHER, OTHER)
    left = lease.break_lease(30, raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-time"]) == (202, "30")
    assert left == 30
    assert lease.break_lease(10) == 10  # the shorter period wins
    assert 0 < lease.break_lease(50) <= 10
    lease.release(raw_response_hook=answer)
    assert answer.status == 200
    assert state_of(blob) == "available"
    assert blob.acquire_lease().etag == etag
    assert blob.get_blob_properties().lease.duration == "infinite"


def test_a_break_without_a_period(blob: BlobClient) -> None:
    lease = blob.acquire_lease(30)
    left = lease.break_lease()
    assert 20 < left <= 30
    assert state_of(blob) == "breaking"
    lease.release()
    assert blob.acquire_lease().break_lease() == 0
    assert state_of(blob) == "broken"


def test_overwriting_keeps_the_lease(blob: BlobClient) -> None:
    lease = blob.acquire_lease(60)
    blob.upload_blob(b"whole", overwrite=True, lease=lease)
    blob.stage_block("a", b"of blocks", lease=lease)
    blob.commit_block_list([BlobBlock("a")], lease=lease)
    with refused(412, ID_MISSING):
        blob.delete_blob()
    lease.renew()
    blob.delete_blob(lease=lease)
    blob.upload_blob(b"a new blob has none")
    assert state_of(blob) == "available"


def test_lease_ids_for_missing_blobs(container: ContainerClient) -> None:
    blob = container.get_blob_client("missing")
    for name, use in USES.items():
        creates = name in ("put blob", "put block", "put block list")
        with refused(*((412, NO_LEASE) if creates else (404, "BlobNotFound"))):
            use(blob)(lease=HELD)
    for action in ACTIONS.values():
        with refused(404, "BlobNotFound"):
            action(blob)


def test_conditions_of_actions(blob: BlobClient) -> None:
    etag = blob.get_blob_properties().etag
    unmet: dict[str, Any] = {"etag": OTHER_ETAG, "match_condition": MatchConditions.IfNotModified}
    with refused(412, "ConditionNotMet"):
        blob.acquire_lease(**unmet)
    assert state_of(blob) == "available"
    lease = blob.acquire_lease(etag=etag, match_condition=MatchConditions.IfNotModified)
    for action in (lease.renew, lease.release, lease.break_lease):
        with refused(412, "ConditionNotMet"):
            action(**unmet)
    with refused(412, "ConditionNotMet"):
        lease.change(OTHER, **unmet)
    lease.release()


@pytest.mark.parametrize(
    "written",
    [
        HELD.upper(),
        HELD.replace("-", ""),
        f"{{{HELD}}}",
        f"({HELD})",
        "{0xaaaaaaaa,0x0000,0x4000,{0x80,0x00,0x00,0x00,0x00,0x00,0x00,0x01}}",
    ],
)
def test_forms_of_lease_ids(blob: BlobClient, written: str) -> None:
    assert blob.acquire_lease(60, written).id == HELD
    blob.set_blob_metadata({"a": "b"}, lease=written)
    lease_of(blob).release()


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-ms-lease-action", "steal"),
        ("x-ms-lease-duration", "14"),
        ("x-ms-lease-duration", "61"),
        ("x-ms-lease-duration", "0"),
        ("x-ms-lease-duration", "long"),
        ("x-ms-proposed-lease-id", "mine"),
    ],
)
def test_invalid_requests(blob: BlobClient, header: str, value: str) -> None:
    hook = with_headers(**{header.replace("-", "_"): value})
    with refused(400, "InvalidHeaderValue") as error:
        blob.acquire_lease(raw_request_hook=hook)
    assert (error.details["headername"], error.details["headervalue"]) == (header, value)
    with refused(400, "InvalidHeaderValue"):
        lease_of(blob).break_lease(61)
    assert state_of(blob) == "available"


def test_one_of_many_acquirers_wins(server: Server, blob: BlobClient) -> None:
    async def main() -> None:
        async with async_blob_service(server) as service:
            contended = service.get_blob_client(blob.container_name, blob.blob_name)
            attempts = (contended.acquire_lease(60) for _ in range(16))
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            winners = [lease for lease in outcomes if not isinstance(lease, BaseException)]
            assert len(winners) == 1
            for loss in outcomes:
                if isinstance(loss, BaseException):
                    assert isinstance(loss, HttpResponseError)
                    assert loss.status_code == 409
            await contended.upload_blob(b"new", overwrite=True, lease=winners[0])
            await winners[0].release()

    asyncio.run(main())


def test_leases_survive_a_crash(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with blob_service(server) as service:
            leased_blobs = LeasedBlobs(service.create_container("survivors"), [])
            etags = {
                state: leased_blobs.blob(state, "blob").get_blob_properties().etag
                for state in ("leased", "breaking", "broken")
            }
            service.get_container_client("survivors").upload_blob("fixed", b"")
            service.get_blob_client("survivors", "fixed").acquire_lease(60, HELD)
        server.kill()
        server.start()
        with blob_service(server) as service:
            for state, etag in etags.items():
                blob = service.get_blob_client("survivors", f"{state}/blob")
                shown = blob.get_blob_properties()
                assert (shown.lease.state, shown.etag) == (state, etag)
                if state == "broken":
                    blob.upload_blob(b"new", overwrite=True)
                    continue
                with refused(412, ID_MISSING):
                    blob.upload_blob(b"new", overwrite=True)
                blob.upload_blob(b"new", overwrite=True, lease=lease_of(blob))
            fixed = service.get_blob_client("survivors", "fixed")
            assert fixed.get_blob_properties().lease.duration == "fixed"
            lease_of(fixed).renew()
        assert server.stop() == 0
