"""Permissions to set, read and search tags."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.probes.answers import BLOB_OVERWRITE, PERMISSION_MISMATCH, refusal_fault
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import OPERATIONS, BlobOperation, BlobTarget
from tests.probes.client import VERSION, Pairs, Request
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS

TAGS = ("x-ms-tags", "kind=secret&more=less")
TAGGING = [
    form
    for form in OPERATIONS
    if form.row
    in {"put_blob", "put_block_list", "put_blob_from_url", "copy_blob", "copy_blob_from_url"}
]


# Setting tags


@pytest.mark.parametrize("operation", TAGGING, ids=str)
def test_setting_tags_with_a_write(blobs: BlobFixture, operation: BlobOperation) -> None:
    blob = "free_blob" if operation.creates else "blob"
    with blobs.target_for(operation) as target:
        name = getattr(target, blob)
        request = operation.request(target).having(TAGS)
        with blobs.unchanged():
            for letters in ("w", "c", "racw", "racwdxylmeiop", "t", "rt"):
                token = service_token(ACCOUNT, KEY, target.container, name, permissions=letters)
                assert not refusal_fault(
                    blobs.client.ask(token.put_on(request)), PERMISSION_MISMATCH
                ), letters
            for letters in ("rwdxylacup", "t", "tf"):
                wide = account_token(ACCOUNT, KEY, permissions=letters)
                assert not refusal_fault(
                    blobs.client.ask(wide.put_on(request)), PERMISSION_MISMATCH
                ), letters
            if not operation.creates:
                # The create permission does not allow overwrites, with or without tags.
                token = service_token(ACCOUNT, KEY, target.container, name, permissions="ct")
                answer = blobs.client.ask(token.put_on(request))
                blocks = operation.row == "put_block_list"
                expected = PERMISSION_MISMATCH if blocks else BLOB_OVERWRITE
                assert not refusal_fault(answer, expected)
        token = service_token(ACCOUNT, KEY, target.container, name, permissions="wt")
        answer = blobs.client.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer


@pytest.mark.parametrize("operation", TAGGING, ids=str)
def test_empty_tags_header(blobs: BlobFixture, operation: BlobOperation) -> None:
    """An empty header needs no permission, and sets no tags."""
    with blobs.target_for(operation) as target:
        name = target.free_blob if operation.creates else target.blob
        token = service_token(ACCOUNT, KEY, target.container, name, permissions="w")
        answer = blobs.client.ask(token.put_on(operation.request(target).having(("x-ms-tags", ""))))
        if answer.status < 300:
            path = f"/{ACCOUNT}/{target.container}/{name}"
            assert (
                b"<Tag>" not in blobs.send_as_owner(Request("GET", path, (("comp", "tags"),))).body
            )
        else:
            assert not refusal_fault(answer)


def test_tags_header_of_other_operations(blobs: BlobFixture) -> None:
    """Operations without tags ignore the header."""
    rows = {"append_block", "put_page", "set_blob_metadata", "set_blob_properties", "put_block"}
    for operation in (form for form in OPERATIONS if form.row in rows and not form.creates):
        with blobs.target_for(operation) as target:
            token = service_token(ACCOUNT, KEY, target.container, target.blob, permissions="w")
            blobs.client.ask(token.put_on(operation.request(target).having(TAGS)))
            tags = Request(
                "GET", f"/{ACCOUNT}/{target.container}/{target.blob}", (("comp", "tags"),)
            )
            assert b"secret" not in blobs.send_as_owner(tags).body, operation


# Listing tags


@pytest.mark.parametrize("include", ["tags", "metadata,tags", "TAGS", "tags,tags"])
def test_tags_in_listings(blobs: BlobFixture, include: str) -> None:
    """Public access does not include tags."""
    query = (("restype", "container"), ("comp", "list"), ("include", include))
    target = blobs.create(access="container")
    listing = Request("GET", f"/{ACCOUNT}/{target.container}", query, (("x-ms-version", VERSION),))
    anonymous = blobs.client.ask(listing)
    assert not refusal_fault(anonymous, (401, "NoAuthenticationInformation")), anonymous
    for token in (
        service_token(ACCOUNT, KEY, target.container, permissions="rlf"),
        account_token(ACCOUNT, KEY, permissions="rwdlf"),
    ):
        answer = blobs.client.ask(token.put_on(listing))
        assert not refusal_fault(answer, PERMISSION_MISMATCH), answer
        assert b"book" not in answer.body
    both = service_token(ACCOUNT, KEY, target.container, permissions="lt")
    assert b"<Value>book</Value>" in blobs.client.ask(both.put_on(listing)).body
    blobs.remove(target)


# Searching by tags


def _find(container: str, where: str) -> Request:
    query: Pairs = (("comp", "blobs"), ("where", quote(where)))
    if container:
        query = (("restype", "container"), *query)
    return Request("GET", f"/{ACCOUNT}/{container}", query, (("x-ms-version", VERSION),))


@pytest.fixture(scope="module")
def containers(blobs: BlobFixture) -> Iterator[tuple[BlobTarget, BlobTarget, BlobTarget]]:
    """Two containers, and one of another account, with the same blob in each."""
    targets = blobs.create(), blobs.create(), blobs.create(account=SECOND_ACCOUNT)
    yield targets
    for target in targets:
        blobs.remove(target)


def test_search_of_a_container(
    blobs: BlobFixture, containers: tuple[BlobTarget, BlobTarget, BlobTarget]
) -> None:
    own, other, foreign = containers
    token = service_token(ACCOUNT, KEY, own.container, permissions="f")
    answer = blobs.client.ask(token.put_on(_find(own.container, "kind='book'")))
    assert answer.status == 200
    assert answer.body.count(b"<Blob>") == 1
    for where in (
        f"@container='{other.container}' AND kind='book'",
        f"kind='book' AND @container='{other.container}'",
        f"@container='{own.container}' AND @container='{other.container}' AND kind='book'",
        f"@container='{other.container}' AND @container='{own.container}' AND kind='book'",
        f"@container='{foreign.container}' AND kind='book'",
        "kind>'a'", "kind>=''", "@container>'' AND kind='book'", "kind='book' OR kind='book'",
    ):  # fmt: skip
        answer = blobs.client.ask(token.put_on(_find(own.container, where)))
        results = answer.body.partition(b"<Blobs")[2]
        assert other.container.encode() not in results, where
        assert foreign.container.encode() not in results, where
        assert answer.status == 200 or not refusal_fault(answer), (where, answer)


def test_marker_of_another_search(
    blobs: BlobFixture, containers: tuple[BlobTarget, BlobTarget, BlobTarget]
) -> None:
    """A marker of a search of the account does not extend a search of a container."""
    own, other, foreign = containers
    page = ("maxresults", "1")
    markers = set()
    marker = ""
    for _ in range(5):
        following = _find("", "kind='book'").asking(page, ("marker", quote(marker, safe="")))
        body = blobs.send_as_owner(following).body
        marker = body.partition(b"<NextMarker>")[2].partition(b"<")[0].decode()
        markers.add(marker)
        if not marker:
            break
    token = service_token(ACCOUNT, KEY, own.container, permissions="f")
    for marker in filter(None, markers):
        request = _find(own.container, "kind='book'").asking(("marker", quote(marker, safe="")))
        answer = blobs.client.ask(token.put_on(request))
        results = answer.body.partition(b"<Blobs")[2]
        assert other.container.encode() not in results
        assert foreign.container.encode() not in results


def test_search_of_an_account(
    blobs: BlobFixture, containers: tuple[BlobTarget, BlobTarget, BlobTarget]
) -> None:
    own, other, foreign = containers
    results = blobs.send_as_owner(_find("", "kind='book'")).body
    assert own.container.encode() in results
    assert other.container.encode() in results
    assert foreign.container.encode() not in results
    filtered = blobs.send_as_owner(
        _find("", f"@container='{foreign.container}' AND kind='book'")
    ).body
    assert b"<Blob>" not in filtered
    second = account_token(SECOND_ACCOUNT, SECOND_KEYS[0])
    answer = blobs.client.ask(second.put_on(_find("", "kind='book'")))
    assert not refusal_fault(answer, (403, "AuthenticationFailed"))
