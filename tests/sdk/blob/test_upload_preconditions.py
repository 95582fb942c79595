"""Slow uploads: preconditions are decided when an upload ends, not when it starts.

Each upload is held in the middle of its body, after the server has accepted its head. Then the blob
is changed; then the upload continues."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobLeaseClient,
    ContainerClient,
    generate_container_sas,
)

from tests.server import ACCOUNT, KEY, eventually

HELD = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "bbbbbbbb-0000-4000-8000-000000000002"

ID_MISSING = (412, "LeaseIdMissing")
ID_MISMATCH = (412, "LeaseIdMismatchWithBlobOperation")
NO_LEASE = (412, "LeaseNotPresentWithBlobOperation")
LOST = (412, "LeaseLost")
NOT_MET = (412, "ConditionNotMet")
CREATED = (201, "")


# Uploads


class UploadKind(NamedTuple):
    """An upload to a blob whose block `a` is committed and whose block `b` is staged."""

    query: str
    body: bytes
    headers: dict[str, str]
    landed: Callable[[BlobClient], bool]


# So long that the server checks preconditions first, and reads it from the socket.
LONG = b"new" * 1_000_000
WHOLE = {"x-ms-blob-type": "BlockBlob"}
PAIR = b"<Latest>YQ==</Latest><Latest>Yg==</Latest>"
PAIRS = 600  # so many that the server builds the list in steps


def listed(count: int) -> UploadKind:
    body = b"<BlockList>%b</BlockList>" % (PAIR * count)
    return UploadKind(
        "comp=blocklist&", body, {}, lambda blob: content_of(blob) == b"oldnew" * count
    )


KINDS = {
    "put blob": UploadKind("", LONG, WHOLE, lambda blob: content_of(blob) == LONG),
    "put small blob": UploadKind("", b"new", WHOLE, lambda blob: content_of(blob) == b"new"),
    "put block": UploadKind("comp=block&blockid=Yw==&", LONG, {}, lambda blob: "c" in staged(blob)),
    "put block list": listed(1),
    "put long block list": listed(PAIRS),
}
LISTS = ("put block list", "put long block list")
CONDITIONAL = tuple(name for name in KINDS if name != "put block")
UNCONDITIONAL = tuple(name for name in KINDS if name not in LISTS)


class Upload:
    """A request in two parts, the second of which is sent on demand."""

    def __init__(self, blob: BlobClient, kind: UploadKind, headers: dict[str, str]) -> None:
        url = urlsplit(blob.url)
        token = generate_container_sas(
            ACCOUNT,
            blob.container_name,
            account_key=KEY,
            permission="rcw",
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        sent = {
            "Host": url.netloc,
            "x-ms-version": "2025-01-05",
            "Content-Length": str(len(kind.body)),
            "Expect": "100-continue",
            **kind.headers,
            **headers,
        }
        lines = [f"PUT {url.path}?{kind.query}{token} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        middle = len(kind.body) // 2
        self._first, self._rest = kind.body[:middle], kind.body[middle:]
        self._socket = socket.create_connection((url.hostname, url.port), timeout=20)
        self._file = self._socket.makefile("rb")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def begin(self) -> Upload:
        """Returns when the server has asked for the body, so that the head was accepted."""
        assert self.answer() == (100, "")
        self._socket.sendall(self._first)
        return self

    def finish(self) -> tuple[int, str]:
        self._socket.sendall(self._rest)
        return self.answer()

    def answer(self) -> tuple[int, str]:
        """Returns the status and the error code of the next response."""
        status = int(self._file.readline().split()[1])
        headers = http.client.parse_headers(self._file)
        self._file.read(int(headers.get("Content-Length", "0")))
        return status, headers.get("x-ms-error-code", "")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


# Blobs and their visible state


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return made(container, "blob")


def made(container: ContainerClient, name: str) -> BlobClient:
    blob = container.get_blob_client(name)
    blob.stage_block("a", b"old")
    blob.commit_block_list([BlobBlock("a")])
    blob.stage_block("b", b"new")
    return blob


def content_of(blob: BlobClient) -> bytes:
    content: bytes = blob.download_blob().readall()
    return content


def staged(blob: BlobClient) -> list[str]:
    return [block.id for block in blob.get_block_list("uncommitted")[1]]


def seen(container: ContainerClient) -> list[tuple[Any, ...]] | None:
    """Returns everything in a container; None if there is no such container."""
    if not container.exists():
        return None
    found: list[tuple[Any, ...]] = []
    for listed in container.list_blobs(include=["uncommittedblobs"]):
        blob = container.get_blob_client(listed.name)
        content = content_of(blob) if blob.exists() else None
        found.append((listed.name, listed.etag, listed.lease.state, content, staged(blob)))
    return found


def lease_of(blob: BlobClient, lease_id: str = HELD) -> BlobLeaseClient:
    return BlobLeaseClient(blob, lease_id)


# Preconditions: each function prepares the blob and returns the request headers


def on_nothing(_blob: BlobClient) -> dict[str, str]:
    return {}


def on_its_lease(blob: BlobClient) -> dict[str, str]:
    blob.acquire_lease(60, HELD)
    return {"x-ms-lease-id": HELD}


def on_the_etag(blob: BlobClient) -> dict[str, str]:
    return {"If-Match": str(blob.get_blob_properties().etag)}


def on_being_first(blob: BlobClient) -> dict[str, str]:
    blob.delete_blob()
    blob.stage_block("a", b"old")
    blob.stage_block("b", b"new")
    return {"If-None-Match": "*"}


# Changes during the upload


def broken(blob: BlobClient) -> None:
    lease_of(blob).break_lease(0)


def taken_over(blob: BlobClient) -> None:
    broken(blob)
    blob.acquire_lease(60, OTHER)


def broken_and_written(blob: BlobClient) -> None:
    broken(blob)
    blob.set_blob_metadata({"by": "another"})


def deleted(blob: BlobClient) -> None:
    leased = blob.get_blob_properties().lease.status == "locked"
    blob.delete_blob(lease=lease_of(blob) if leased else None)


def replaced(blob: BlobClient) -> None:
    deleted(blob)
    blob.upload_blob(b"by another")


def container_of(blob: BlobClient) -> ContainerClient:
    account = blob.url.split(f"/{blob.container_name}/", 1)[0]
    return ContainerClient(account, blob.container_name, blob.credential, retry_total=0)


def without_container(blob: BlobClient) -> None:
    with container_of(blob) as container:
        container.delete_container()


def in_a_new_container(blob: BlobClient) -> None:
    with container_of(blob) as container:
        container.delete_container()
        container.create_container()


class ChangeCase(NamedTuple):
    relies: Callable[[BlobClient], dict[str, str]]
    happens: Callable[[BlobClient], Any]
    answer: tuple[int, str]
    kinds: tuple[str, ...] = tuple(KINDS)


REFUSED = {
    "its lease is broken": ChangeCase(on_its_lease, broken, LOST),
    "its lease is released": ChangeCase(
        on_its_lease, lambda blob: lease_of(blob).release(), NO_LEASE
    ),
    "its lease gets another id": ChangeCase(
        on_its_lease, lambda blob: lease_of(blob).change(OTHER), ID_MISMATCH
    ),
    "its lease is taken over": ChangeCase(on_its_lease, taken_over, ID_MISMATCH),
    "its lease is forgotten": ChangeCase(on_its_lease, broken_and_written, NO_LEASE),
    "its leased blob is deleted": ChangeCase(on_its_lease, deleted, NO_LEASE),
    "its leased blob is replaced": ChangeCase(on_its_lease, replaced, NO_LEASE),
    "its leased blob is in another container": ChangeCase(
        on_its_lease, in_a_new_container, NO_LEASE
    ),
    "somebody leases the blob": ChangeCase(
        on_nothing, lambda blob: blob.acquire_lease(60, OTHER), ID_MISSING
    ),
    "the container is deleted": ChangeCase(
        on_nothing, without_container, (404, "ContainerNotFound")
    ),
    "the blob is changed": ChangeCase(
        on_the_etag, lambda blob: blob.set_blob_metadata({"by": "another"}), NOT_MET, CONDITIONAL
    ),
    "the blob is deleted": ChangeCase(on_the_etag, deleted, NOT_MET, CONDITIONAL),
    "the blob is replaced": ChangeCase(on_the_etag, replaced, NOT_MET, CONDITIONAL),
    "the container is replaced": ChangeCase(on_the_etag, in_a_new_container, NOT_MET, CONDITIONAL),
    "somebody is first": ChangeCase(
        on_being_first,
        lambda blob: blob.upload_blob(b"by another"),
        (409, "BlobAlreadyExists"),
        CONDITIONAL,
    ),
    "the blocks are used by another": ChangeCase(
        on_nothing,
        lambda blob: blob.commit_block_list([BlobBlock("a")]),
        (400, "InvalidBlockList"),
        LISTS,
    ),
    "the blocks are deleted": ChangeCase(on_nothing, deleted, (400, "InvalidBlockList"), LISTS),
    "the blocks were in another container": ChangeCase(
        on_nothing, in_a_new_container, (400, "InvalidBlockList"), LISTS
    ),
}

DONE = {
    "nothing": ChangeCase(on_nothing, lambda blob: None, CREATED),
    "nothing under a lease": ChangeCase(on_its_lease, lambda blob: None, CREATED),
    "nothing with an ETag": ChangeCase(on_the_etag, lambda blob: None, CREATED, CONDITIONAL),
    "nothing before the first": ChangeCase(on_being_first, lambda blob: None, CREATED, CONDITIONAL),
    "its lease is renewed": ChangeCase(on_its_lease, lambda blob: lease_of(blob).renew(), CREATED),
    "its lease is breaking": ChangeCase(
        on_its_lease, lambda blob: lease_of(blob).break_lease(50), CREATED
    ),
    "a lease comes and goes": ChangeCase(
        on_nothing, lambda blob: blob.acquire_lease().release(), CREATED
    ),
    "a lease does not change the ETag": ChangeCase(
        on_the_etag, lambda blob: blob.acquire_lease().release(), CREATED, CONDITIONAL
    ),
    "a snapshot does not change the ETag": ChangeCase(
        on_the_etag, lambda blob: blob.create_snapshot(), CREATED, CONDITIONAL
    ),
    # An upload without a condition is one write at its end, to whatever blob has the name then.
    "the blob is deleted": ChangeCase(on_nothing, deleted, CREATED, UNCONDITIONAL),
    "the container is replaced": ChangeCase(on_nothing, in_a_new_container, CREATED, UNCONDITIONAL),
}


def cases(table: dict[str, ChangeCase]) -> list[tuple[str, str]]:
    return [(what, kind) for what, meanwhile in table.items() for kind in meanwhile.kinds]


@pytest.mark.parametrize(("what", "kind"), cases(REFUSED))
def test_refused_at_the_end(
    container: ContainerClient, blob: BlobClient, what: str, kind: str
) -> None:
    relies, happens, answer, _ = REFUSED[what]
    with closing(Upload(blob, KINDS[kind], relies(blob))) as upload:
        upload.begin()
        happens(blob)
        before = seen(container)
        assert upload.finish() == answer
    assert seen(container) == before


@pytest.mark.parametrize(("what", "kind"), cases(DONE))
def test_accepted_at_the_end(
    container: ContainerClient, blob: BlobClient, what: str, kind: str
) -> None:
    relies, happens, answer, _ = DONE[what]
    with closing(Upload(blob, KINDS[kind], relies(blob))) as upload:
        upload.begin()
        happens(blob)
        before = seen(container)
        assert upload.finish() == answer
    assert KINDS[kind].landed(blob)
    assert seen(container) != before  # nothing of it was visible before


def test_no_write_succeeds_after_its_lease_was_broken(container: ContainerClient) -> None:
    """While the lease is breaking, writes are still allowed, so all of them start."""
    blobs = {kind: made(container, kind) for kind in KINDS}
    with ExitStack() as stack:
        uploads = begun(stack, blobs)
        for blob in blobs.values():
            lease_of(blob).break_lease(1)
        eventually(
            lambda: {state_of(blob) for blob in blobs.values()} == {"broken"},
            "the end of the leases",
        )
        before = seen(container)
        assert [upload.finish() for upload in uploads] == [LOST] * len(KINDS)
    assert seen(container) == before


def test_no_write_succeeds_after_its_lease_expired(container: ContainerClient) -> None:
    blobs = {kind: made(container, kind) for kind in KINDS}
    renewed = made(container, "renewed")
    with ExitStack() as stack:
        uploads = begun(stack, blobs)
        renewed.acquire_lease(15, HELD)
        lucky = Upload(renewed, KINDS["put blob"], {"x-ms-lease-id": HELD})
        stack.enter_context(closing(lucky)).begin()
        time.sleep(15)
        lease_of(renewed).renew()
        before = seen(container)
        assert [upload.finish() for upload in uploads] == [LOST] * len(KINDS)
        assert seen(container) == before
        # Nothing happened between the expiry of this lease and its renewal.
        assert lucky.finish() == CREATED
    assert content_of(renewed) == LONG


def begun(stack: ExitStack, blobs: dict[str, BlobClient]) -> list[Upload]:
    """Starts an upload of each kind, each under a lease of 15 seconds."""
    uploads = []
    for kind, blob in blobs.items():
        blob.acquire_lease(15, HELD)
        upload = Upload(blob, KINDS[kind], {"x-ms-lease-id": HELD})
        uploads.append(stack.enter_context(closing(upload)).begin())
    return uploads


def state_of(blob: BlobClient) -> str:
    return str(blob.get_blob_properties().lease.state)


def test_doomed_uploads_are_refused_before_the_body(blob: BlobClient) -> None:
    blob.acquire_lease(60, HELD)
    stale = {"x-ms-lease-id": HELD, "If-Match": '"0x8D0000000000001"'}
    for kind, headers, answer in (
        ("put blob", {}, ID_MISSING),
        ("put block", {}, ID_MISSING),
        ("put blob", {"x-ms-lease-id": OTHER}, ID_MISMATCH),
        ("put block", {"x-ms-lease-id": OTHER}, ID_MISMATCH),
        ("put blob", stale, NOT_MET),
    ):
        with closing(Upload(blob, KINDS[kind], headers)) as upload:
            assert upload.answer() == answer
