"""A token for a container, blob, directory or snapshot is not valid for another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import pytest

from tests.probes.answers import AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE, refusal_fault
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import (
    BLOB_KIND,
    CONTAINER_KIND,
    LEASE,
    OPERATIONS,
    BlobOperation,
    BlobTarget,
)
from tests.probes.client import Request
from tests.probes.tokens import BLOB_LETTERS, CONTAINER_LETTERS, service_token
from tests.server import ACCOUNT, KEY

GRANTED_BY_CONTAINER: Final = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if CONTAINER_KIND.grants(operation, CONTAINER_LETTERS)
]
GRANTED_BY_BLOB: Final = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if BLOB_KIND.grants(operation, BLOB_LETTERS)
]
OUT_OF_SCOPE: Final = (AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE)


@pytest.fixture(scope="module")
def own(blobs: BlobFixture) -> BlobTarget:
    """The container and blob that the tokens are for."""
    return blobs.create()


@pytest.mark.parametrize("operation", GRANTED_BY_CONTAINER)
def test_neighbouring_containers(
    blobs: BlobFixture, own: BlobTarget, operation: BlobOperation
) -> None:
    neighbours = [own.container[:-1] + "z", f"{own.container}-z", own.container.upper()]
    with blobs.target_for(operation) as other, blobs.unchanged():
        token = CONTAINER_KIND.make(operation, own)
        paths = [operation.request(other).path]
        paths += [operation.request(own).path.replace(own.container, name) for name in neighbours]
        paths += [
            f"/{ACCOUNT}/{own.container}%2F..%2F{other.container}/{other.blob}",
            f"/{ACCOUNT}/{other.container}/../{own.container}/{own.blob}",
            f"/{ACCOUNT}//{own.container}/{own.blob}",
            f"/{ACCOUNT}/$root/{own.container}",
        ]
        for path in paths:
            answer = blobs.client.ask(token.put_on(replace(operation.request(own), path=path)))
            # A blob cannot be listed.
            expected = (*OUT_OF_SCOPE, (400, "InvalidQueryParameterValue"))
            assert not refusal_fault(answer, *expected), (path, answer)


def _neighbours(target: BlobTarget) -> Iterator[str]:
    yield f"{target.container}/{target.blob}2"
    yield f"{target.container}/{target.blob[:-1]}"
    yield f"{target.container}/{target.blob}/"
    yield f"{target.container}/{target.blob}/below"
    yield f"{target.container}/{target.blob.upper()}"
    yield f"{target.container}/{target.blob}%00"
    yield f"{target.container}/{target.blob}%0A"
    yield f"{target.container}/./{target.blob}"
    yield f"{target.container}//{target.blob}"
    yield f"{target.container}/{target.blob}/../{target.blob}2"
    yield target.container


@pytest.mark.parametrize("operation", GRANTED_BY_BLOB)
def test_neighbouring_blobs(blobs: BlobFixture, own: BlobTarget, operation: BlobOperation) -> None:
    with blobs.unchanged():
        token = service_token(ACCOUNT, KEY, own.container, own.blob)
        request = operation.request(own)
        for path in _neighbours(own):
            sent = replace(request, path=f"/{ACCOUNT}/{path}")
            answer = blobs.client.ask(token.put_on(sent))
            assert not refusal_fault(answer, *OUT_OF_SCOPE), (path, answer)


@pytest.mark.parametrize("operation", GRANTED_BY_BLOB)
def test_directories(blobs: BlobFixture, operation: BlobOperation) -> None:
    """The depth is not signed, so it must match the path."""
    with blobs.target_for(operation) as target:
        directory = target.blob.partition("/")[0]
        token = service_token(ACCOUNT, KEY, target.container, directory, sr="d", sdd="1")
        request = operation.request(target)
        with blobs.unchanged():
            for depth in ("0", "2", "-1", "01x", "", "99999"):
                answer = blobs.client.ask(token.setting("sdd", depth).put_on(request))
                assert not refusal_fault(answer, *OUT_OF_SCOPE), (depth, answer)
            for beside in ("shelf2/book", "other/shelf/book", "shelf/../other", "shelf//book"):
                path = f"/{ACCOUNT}/{target.container}/{beside}"
                answer = blobs.client.ask(token.put_on(replace(request, path=path)))
                assert not refusal_fault(answer, *OUT_OF_SCOPE), (beside, answer)
        answer = blobs.client.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer


@pytest.mark.parametrize("operation", GRANTED_BY_BLOB)
def test_snapshots(blobs: BlobFixture, operation: BlobOperation) -> None:
    """A token for a snapshot is not valid for the blob, nor for another snapshot."""
    with blobs.target_for(operation) as target:
        request = operation.request(target)
        path = f"/{ACCOUNT}/{target.container}/{target.blob}"
        take = Request("PUT", path, (("comp", "snapshot"),))
        if operation.aborts:
            # A blob with a pending copy has no snapshots.
            return
        lease = (("x-ms-lease-id", LEASE),) if operation.needs_lease else ()
        first, second = (
            blobs.send_as_owner(replace(take, headers=lease)).headers["x-ms-snapshot"]
            for _ in range(2)
        )
        token = service_token(ACCOUNT, KEY, target.container, target.blob, snapshot=first, sr="bs")
        with blobs.unchanged():
            for sent in (
                request,
                request.asking(("snapshot", quote(second))),
                request.asking(("snapshot", "")),
                request.asking(("snapshot", quote(first)), ("snapshot", quote(second))),
                request.asking(("snapshot", quote(first)), ("snapshot", "")),
                request.asking(("SNAPSHOT", quote(first)), ("snapshot", quote(second))),
            ):
                answer = blobs.client.ask(token.put_on(sent))
                assert not refusal_fault(answer, *OUT_OF_SCOPE), (sent, answer)
        if operation.row == "get_account_information":
            # It does not concern the snapshot.
            return
        sent = token.put_on(request.asking(("snapshot", quote(first))))
        if operation.rule.service_sas is not None and "bs" in operation.rule.service_sas.places:
            answer = blobs.client.ask(sent)
            assert 200 <= answer.status < 300, answer
            return
        with blobs.unchanged():
            answer = blobs.client.ask(sent)
            assert not refusal_fault(answer, *OUT_OF_SCOPE), answer


@pytest.mark.parametrize("prefix", ["", "s", "shelf", "shelf2/", "/shelf/", "other/", "shelf/../"])
def test_listing_of_a_directory(blobs: BlobFixture, own: BlobTarget, prefix: str) -> None:
    token = service_token(ACCOUNT, KEY, own.container, "shelf", sr="d", sdd="1")
    query = (("restype", "container"), ("comp", "list"))
    listing = Request("GET", f"/{ACCOUNT}/{own.container}", query)
    inside = blobs.client.ask(token.put_on(listing.asking(("prefix", "shelf/"))))
    assert inside.status == 200
    assert inside.body.count(b"<Blob>") == 1
    answer = blobs.client.ask(token.put_on(listing.asking(("prefix", prefix))))
    assert not refusal_fault(answer, *OUT_OF_SCOPE), answer.body
    # Given twice, it matches nothing.
    twice = token.put_on(listing.asking(("prefix", "shelf/"), ("prefix", prefix)))
    assert b"<Blob>" not in blobs.client.ask(twice).body
