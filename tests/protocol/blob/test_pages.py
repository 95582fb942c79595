"""Listings of containers and blobs as XML."""

from __future__ import annotations

import base64
from typing import Any
from xml.etree import ElementTree

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import (
    NO_SNAPSHOT,
    AppendTraits,
    Blob,
    BlobEntry,
    BlobKind,
    Copied,
    CopyStatus,
    ListBlobs,
    PageTraits,
    Staging,
)
from etagere.model.bodies import Chunked
from etagere.model.common import ContentHeaders
from etagere.model.containers import Container, PublicAccess
from etagere.model.leases import InfiniteLease
from etagere.protocol.blob import pages
from etagere.rules.conditions import format_etag
from tests.protocol.blob.exchanges import CONTAINER, VERSION, exchange
from tests.protocol.blob.samples import DATE, ID, NOW, blob

Shape = list[tuple[str, Any]]


def shape(element: ElementTree.Element) -> Shape:
    """Returns the elements in their order: the text of a leaf, or the shape of what is inside."""
    return [(inner.tag, shape(inner) if len(inner) else inner.text or "") for inner in element]


def rows(*entries: BlobEntry, include: str = "", version: str = VERSION) -> list[Shape]:
    encoded = pages.blob_rows(entries, NOW, include=set(include.split()), version=version)
    return [shape(ElementTree.fromstring(row)) for row in encoded]


def properties(stored: Blob, include: str = "", snapshot: int = NO_SNAPSHOT) -> Shape:
    (row,) = rows(("a", stored, snapshot), include=include)
    found = dict(row)["Properties"]
    assert isinstance(found, list)
    return found


TIMES: Shape = [
    ("Creation-Time", DATE),
    ("Last-Modified", DATE),
    ("Etag", format_etag(NOW).strip('"')),
]
DESCRIPTION: Shape = [
    ("Content-Type", "application/octet-stream"),
    ("Content-Encoding", ""),
    ("Content-Language", ""),
    ("Content-CRC64", ""),
    ("Content-MD5", ""),
    ("Cache-Control", ""),
    ("Content-Disposition", ""),
]
TIER: Shape = [("AccessTier", "Hot"), ("AccessTierInferred", "true")]
LEASE: Shape = [("LeaseStatus", "unlocked"), ("LeaseState", "available")]
ENCRYPTED: Shape = [("ServerEncrypted", "true")]
BEFORE: Shape = [*TIMES, ("Content-Length", "0"), *DESCRIPTION]
BLOCK: Shape = [("BlobType", "BlockBlob")]


def test_plain_blob() -> None:
    inside = [*BEFORE, *BLOCK, *TIER, *LEASE, *ENCRYPTED]
    assert rows(("a", blob(), NO_SNAPSHOT)) == [
        [("Name", "a"), ("Properties", inside), ("OrMetadata", "")]
    ]


def test_older_versions_do_not_know_object_replication() -> None:
    ((*_, last),) = rows(("a", blob(), NO_SNAPSHOT), version="2021-06-08")
    assert last[0] == "Properties"


def test_snapshots_are_named_and_have_no_lease() -> None:
    (row,) = rows(("a", blob(lease=InfiniteLease(ID)), NOW))
    assert row[:2] == [("Name", "a"), ("Snapshot", "2026-01-02T03:04:05.0000000Z")]
    assert dict(row)["Properties"] == [*BEFORE, *BLOCK, *TIER, *ENCRYPTED]


def test_the_last_access_is_shown_if_it_is_tracked() -> None:
    read = blob(read_at=NOW + 3_600 * TICKS_PER_SECOND)
    page = blob(kind=BlobKind.PAGE, traits=PageTraits())
    entries: list[BlobEntry] = [
        ("a", read, NOW),
        ("a", read, NO_SNAPSHOT),
        ("b", page, NO_SNAPSHOT),
        ("c", blob(), NO_SNAPSHOT),
        ("d/", None, NO_SNAPSHOT),
    ]
    encoded = pages.blob_rows(entries, NOW, include=set(), version=VERSION, with_last_access=True)
    snapshot, current, other, plain, prefix = map(ElementTree.fromstring, encoded)
    untracked = rows(*entries)
    assert [shape(snapshot), shape(other), shape(prefix)] == untracked[0::2]
    for element, date in ((current, "Fri, 02 Jan 2026 04:04:05 GMT"), (plain, DATE)):
        inside = [*BEFORE, ("LastAccessTime", date), *BLOCK, *TIER, *LEASE, *ENCRYPTED]
        assert dict(shape(element))["Properties"] == inside


def test_prefixes_and_uncommitted_blobs() -> None:
    staging = Staging(ID, 3, 1, NOW, NOW)
    prefix, uncommitted = rows(("a/", None, NO_SNAPSHOT), ("b", staging, NO_SNAPSHOT))
    assert prefix == [("Name", "a/")]
    inside = [("Content-Length", "0"), *BLOCK, *TIER, *LEASE, *ENCRYPTED]
    assert uncommitted == [("Name", "b"), ("Properties", inside), ("OrMetadata", "")]


def test_headers_of_the_client() -> None:
    md5 = bytes(range(16))
    headers = ContentHeaders("a/<b>", "gzip", "fr", "inline", "no-store", md5)
    assert properties(blob(headers=headers))[4:11] == [
        ("Content-Type", "a/<b>"),
        ("Content-Encoding", "gzip"),
        ("Content-Language", "fr"),
        ("Content-CRC64", ""),
        ("Content-MD5", base64.b64encode(md5).decode()),
        ("Cache-Control", "no-store"),
        ("Content-Disposition", "inline"),
    ]


def test_headers_do_not_leak_into_the_next_row() -> None:
    """Rows reuse what the row before has in common with them."""
    other = blob(
        headers=ContentHeaders("a/b", content_md5=ID),
        created=NOW - 10 * TICKS_PER_SECOND,
        stamp=NOW + 10 * TICKS_PER_SECOND,
    )
    entries = [("a", blob(), NO_SNAPSHOT), ("b", other, NO_SNAPSHOT), ("c", blob(), NO_SNAPSHOT)]
    together = rows(*entries)
    assert together == [row for entry in entries for row in rows(entry)]


def test_page_and_append_blobs() -> None:
    page = blob(kind=BlobKind.PAGE, traits=PageTraits(7), content=Chunked(ID, 512))
    assert properties(page)[11:13] == [
        ("x-ms-blob-sequence-number", "7"),
        ("BlobType", "PageBlob"),
    ]
    append = blob(kind=BlobKind.APPEND, traits=AppendTraits(1, sealed=True))
    expected = [("BlobType", "AppendBlob"), *LEASE, *ENCRYPTED, ("Sealed", "true")]
    assert properties(append)[11:] == expected


def test_tags_metadata_and_copies_are_included_on_request() -> None:
    copied = Copied(ID, "http://host/a", CopyStatus.SUCCESS, 5, 5, NOW)
    stored = blob(tags=(("t", "1"),), metadata=(("m", "2"),), copied=copied)
    (row,) = rows(("a", stored, NO_SNAPSHOT))
    assert [tag for tag, _ in row] == ["Name", "Properties", "OrMetadata"]
    assert properties(stored)[-1] == ("TagCount", "1")
    (row,) = rows(("a", stored, NO_SNAPSHOT), include="tags metadata copy")
    assert row[2:4] == [
        ("Tags", [("TagSet", [("Tag", [("Key", "t"), ("Value", "1")])])]),
        ("Metadata", [("m", "2")]),
    ]
    tags = [tag for tag, _ in properties(stored, "copy")]
    copy = [tag for tag in tags if tag.startswith("Copy")]
    assert copy == ["CopyId", "CopySource", "CopyStatus", "CopyProgress", "CopyCompletionTime"]


@pytest.mark.parametrize(
    "name", ["a&b", "<a>", 'q"', " a ", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
def test_names_are_escaped(name: str) -> None:
    plain, escaped = rows(("a", blob(), NO_SNAPSHOT), (name, blob(), NO_SNAPSHOT))
    assert (plain[0], escaped[0]) == (("Name", "a"), ("Name", name))


def test_names_that_xml_cannot_contain_are_encoded() -> None:
    (row,) = pages.blob_rows([("a\x01", blob(), NO_SNAPSHOT)], NOW, include=set(), version=VERSION)
    assert '<Name Encoded="true">a%01</Name>' in row


# Around the rows


def test_a_page_echoes_what_the_request_has() -> None:
    asked = exchange(query="prefix=a%2F&marker=&maxresults=5&delimiter=%2F", path="/box")
    start = pages.blobs_start(ListBlobs(CONTAINER, 5), asked)
    page = ElementTree.fromstring(start + pages.blobs_end(None))
    assert page.attrib == {
        "ServiceEndpoint": "http://127.0.0.1:10000/account/",
        "ContainerName": "box",
    }
    assert shape(page) == [
        ("Prefix", "a/"),
        ("Marker", ""),
        ("MaxResults", "5"),
        ("Delimiter", "/"),
        ("Blobs", ""),
        ("NextMarker", ""),
    ]
    assert pages.echo(exchange()) == ""


def test_the_next_page_starts_at_the_entry_that_did_not_fit() -> None:
    end = pages.blobs_end(("b", blob(), NOW))
    assert f"<NextMarker>{pages.format_marker('b', NOW)}</NextMarker>" in end


# Containers


@pytest.mark.parametrize("include", [set[str](), {"metadata"}])
def test_containers(include: set[str]) -> None:
    container = Container(ID, NOW, (("m", "2"),), PublicAccess.BLOBS, lease=InfiniteLease(ID))
    named = [("box", container)]
    (row,) = pages.container_rows(named, NOW, include=include, version="2020-08-04")
    inside = [
        ("Last-Modified", DATE),
        ("Etag", format_etag(NOW)),
        ("LeaseStatus", "locked"),
        ("LeaseState", "leased"),
        ("PublicAccess", "blob"),
        ("LeaseDuration", "infinite"),
        ("DefaultEncryptionScope", "$account-encryption-key"),
        ("DenyEncryptionScopeOverride", "false"),
        ("HasImmutabilityPolicy", "false"),
        ("HasLegalHold", "false"),
    ]
    expected: Shape = [("Name", "box"), ("Properties", inside)]
    if include:
        expected.append(("Metadata", [("m", "2")]))
    assert shape(ElementTree.fromstring(row)) == expected
    (newer,) = pages.container_rows(named, NOW, include=include, version="2020-10-02")
    assert "<ImmutableStorageWithVersioningEnabled>false<" in newer


def test_page_of_containers() -> None:
    start = pages.containers_start(exchange(path="", query="comp=list"))
    page = ElementTree.fromstring(start + pages.containers_end(("c", Container(ID, NOW))))
    assert shape(page) == [("Containers", ""), ("NextMarker", pages.format_marker("c"))]
