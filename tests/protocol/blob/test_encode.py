"""Headers of the responses of the blob service."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.appends import Appended
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobResult,
    Copied,
    CopyStatus,
    PageTraits,
    Rehydration,
)
from etagere.model.bodies import Chunked
from etagere.model.common import ContentHeaders
from etagere.model.containers import Container, ContainerResult, PublicAccess
from etagere.model.leases import FixedLease, InfiniteLease
from etagere.protocol.blob import encode
from etagere.protocol.rest.responses import Headers, http_date
from etagere.rules.conditions import format_etag
from tests.protocol.blob.samples import DATE, ID, NOW, blob

LATER = NOW + 60 * TICKS_PER_SECOND
GUID = "00000000-0000-0000-0000-000000000007"


def text(headers: Headers) -> dict[str, str]:
    """Returns the headers by name; every name must occur once."""
    decoded = [(name.decode(), value.decode()) for name, value in headers]
    assert len(dict(decoded)) == len(decoded)
    return dict(decoded)


def encoded(stored: Blob, **options: Any) -> dict[str, str]:
    options = {"is_snapshot": False} | options
    overrides = options.pop("overrides", {})
    return text(encode.blob_headers(BlobResult(NOW, stored), overrides, **options))


PLAIN = {
    "ETag": format_etag(NOW),
    "Last-Modified": DATE,
    "Content-Type": "application/octet-stream",
    "Accept-Ranges": "bytes",
    "x-ms-creation-time": DATE,
    "x-ms-blob-type": "BlockBlob",
    "x-ms-server-encrypted": "true",
    "x-ms-lease-status": "unlocked",
    "x-ms-lease-state": "available",
}


def test_plain_blob() -> None:
    assert encoded(blob()) == PLAIN


def test_snapshots_have_no_lease() -> None:
    leased = blob(lease=InfiniteLease(ID))
    expected = {name: value for name, value in PLAIN.items() if "lease" not in name}
    assert encoded(leased, is_snapshot=True) == expected


def test_leases() -> None:
    fixed = blob(lease=FixedLease(ID, 15 * TICKS_PER_SECOND, LATER))
    state = {"x-ms-lease-status": "locked", "x-ms-lease-state": "leased"}
    assert encoded(fixed) == PLAIN | state | {"x-ms-lease-duration": "fixed"}
    infinite = blob(lease=InfiniteLease(ID))
    assert encoded(infinite) == PLAIN | state | {"x-ms-lease-duration": "infinite"}


def test_the_last_access_is_shown_if_it_is_tracked() -> None:
    read = blob(read_at=LATER)
    assert encoded(read) == PLAIN
    last_access = {"x-ms-last-access-time": http_date(LATER)}
    assert encoded(read, with_last_access=True) == PLAIN | last_access
    assert encoded(blob(), with_last_access=True) == PLAIN | {"x-ms-last-access-time": DATE}
    snapshot = encoded(read, is_snapshot=True, with_last_access=True)
    assert snapshot == encoded(read, is_snapshot=True)
    page = blob(kind=BlobKind.PAGE, traits=PageTraits())
    assert encoded(page, with_last_access=True) == encoded(page)


def test_headers_and_metadata_of_the_client() -> None:
    headers = ContentHeaders("text/plain", "gzip", "fr", "inline", "no-store")
    assert encoded(blob(headers=headers, metadata=(("Colour", "blue"),))) == PLAIN | {
        "Content-Type": "text/plain",
        "Content-Encoding": "gzip",
        "Content-Language": "fr",
        "Content-Disposition": "inline",
        "Cache-Control": "no-store",
        "x-ms-meta-Colour": "blue",
    }


def test_a_token_replaces_headers() -> None:
    overrides = {"content-type": "a/b", "cache-control": "private"}
    expected = PLAIN | {"Content-Type": "a/b", "Cache-Control": "private"}
    assert encoded(blob(), overrides=overrides) == expected


def test_md5_of_the_whole_blob() -> None:
    md5 = bytes(range(16))
    with_md5 = blob(headers=ContentHeaders(content_md5=md5))
    assert text(encode.md5_headers(with_md5, b"Content-MD5")) == {
        "Content-MD5": base64.b64encode(md5).decode()
    }
    assert encode.md5_headers(blob(), b"Content-MD5") == []


def test_tag_count() -> None:
    assert encoded(blob(tags=(("a", "1"), ("b", "2")))) == PLAIN | {"x-ms-tag-count": "2"}


def test_page_blob() -> None:
    page = blob(kind=BlobKind.PAGE, traits=PageTraits(7), content=Chunked(ID, 512))
    expected = {"x-ms-blob-type": "PageBlob", "x-ms-blob-sequence-number": "7"}
    assert encoded(page) == PLAIN | expected
    assert encode.length_header(page) == (b"x-ms-blob-content-length", b"512")
    assert text(encode.page_headers(page)) == {
        "ETag": format_etag(NOW),
        "Last-Modified": DATE,
        "x-ms-blob-sequence-number": "7",
    }


def test_append_blob() -> None:
    append = blob(kind=BlobKind.APPEND, traits=AppendTraits(3))
    expected = {"x-ms-blob-type": "AppendBlob", "x-ms-blob-committed-block-count": "3"}
    assert encoded(append) == PLAIN | expected
    sealed = blob(kind=BlobKind.APPEND, traits=AppendTraits(3, sealed=True))
    assert encoded(sealed) == PLAIN | expected | {"x-ms-blob-sealed": "true"}
    assert text(encode.appended_headers(Appended(9, append))) == {
        "ETag": format_etag(NOW),
        "Last-Modified": DATE,
        "x-ms-blob-append-offset": "9",
        "x-ms-blob-committed-block-count": "3",
    }


# Tiers

INFERRED = {"x-ms-access-tier": "Hot", "x-ms-access-tier-inferred": "true"}
CHANGED = {"x-ms-access-tier-change-time": DATE}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, INFERRED),
        ({"tier": "Cool", "tier_changed": NOW}, {"x-ms-access-tier": "Cool", **CHANGED}),
        ({"kind": BlobKind.APPEND, "traits": AppendTraits()}, {}),
        (
            {
                "tier": "Archive",
                "tier_changed": NOW,
                "rehydration": Rehydration("Hot", "High", LATER),
            },
            {
                "x-ms-access-tier": "Archive",
                "x-ms-archive-status": "rehydrate-pending-to-hot",
                "x-ms-rehydrate-priority": "High",
                **CHANGED,
            },
        ),
        (
            {"tier": "Archive", "tier_changed": 1, "rehydration": Rehydration("Cool", "High", NOW)},
            {"x-ms-access-tier": "Cool", **CHANGED},
        ),
        (
            {"tier": "Smart", "tier_changed": NOW},
            {"x-ms-access-tier": "Smart", "x-ms-smart-access-tier": "Hot", **CHANGED},
        ),
    ],
)
def test_tiers(fields: dict[str, Any], expected: dict[str, str]) -> None:
    stored = blob(**fields)
    assert text(encode.tier_headers(stored, NOW)) == expected
    assert encoded(stored, with_tier=True) == encoded(stored) | expected


# Copies


def test_finished_copy() -> None:
    copied = Copied(ID, "http://host/a", CopyStatus.SUCCESS, 5, 5, NOW)
    assert encoded(blob(copied=copied)) == PLAIN | {
        "x-ms-copy-id": GUID,
        "x-ms-copy-source": "http://host/a",
        "x-ms-copy-status": "success",
        "x-ms-copy-progress": "5/5",
        "x-ms-copy-completion-time": DATE,
    }


def test_pending_copy_has_no_completion_time() -> None:
    copied = Copied(ID, "http://host/a", CopyStatus.PENDING, 2, 5)
    assert text(encode.copy_headers(blob(copied=copied))) == {
        "x-ms-copy-id": GUID,
        "x-ms-copy-source": "http://host/a",
        "x-ms-copy-status": "pending",
        "x-ms-copy-progress": "2/5",
    }


def test_failed_and_incremental_copy() -> None:
    failed = Copied(ID, "http://host/a", CopyStatus.FAILED, 2, 5, NOW, "404 x", True, NOW)
    headers = text(encode.copy_headers(blob(copied=failed)))
    assert headers["x-ms-copy-status-description"] == "404 x"
    assert headers["x-ms-incremental-copy"] == "true"
    assert headers["x-ms-copy-destination-snapshot"] == "2026-01-02T03:04:05.0000000Z"


# Containers


def test_container() -> None:
    container = Container(ID, NOW, (("a", "1"),), PublicAccess.BLOBS)
    shown = ContainerResult(NOW, "box", container)
    expected = {
        "ETag": format_etag(NOW),
        "Last-Modified": http_date(NOW),
        "x-ms-meta-a": "1",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-blob-public-access": "blob",
        "x-ms-has-immutability-policy": "false",
        "x-ms-has-legal-hold": "false",
        "x-ms-default-encryption-scope": "$account-encryption-key",
        "x-ms-deny-encryption-scope-override": "false",
    }
    assert text(encode.container_headers(shown, "2020-08-04")) == expected
    newer = {"x-ms-immutable-storage-with-versioning-enabled": "false"}
    assert text(encode.container_headers(shown, "2020-10-02")) == expected | newer


def test_private_container() -> None:
    assert encode.access_headers(Container(ID, NOW)) == []
