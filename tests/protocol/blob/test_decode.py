"""Decoding of requests to the blob service into commands."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from msgspec import structs

from etagere.auth.permissions import Permit, Public
from etagere.model.blobs import BlobKind, GetBlob, GetBlockList, ListBlobs
from etagere.model.blobs import DeleteSnapshots as Snapshots
from etagere.model.common import ContentHeaders
from etagere.model.conditions import Conditions
from etagere.model.containers import PublicAccess
from etagere.model.tiers import Priority
from etagere.protocol.blob import (
    decode,
    decode_listing,
    decode_sources,
    decode_tags,
    decode_tiers,
    pages,
)
from etagere.protocol.rest import requests
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.sources import requests as source_requests
from etagere.rules.dates import parse_instant
from tests.auth.callers import account_token
from tests.protocol.blob.exchanges import BLOB, CONTAINER, exchange, refusal_code

MOMENT = "2026-01-02T03:04:05.6789012Z"
LEASE = "00000000-0000-0000-0000-000000000007"
MD5 = base64.b64encode(bytes(range(16))).decode()

Decoder = Callable[[Exchange], object]


def with_value(name: str, value: str) -> Exchange:
    """A request with a value in the header of this name or, after "?", in the parameter."""
    return exchange(query=f"{name[1:]}={value}") if name[0] == "?" else exchange({name: value})


@pytest.mark.parametrize(
    ("decoder", "name", "value", "expected"),
    [
        (decode.blob_kind, "x-ms-blob-type", "BlockBlob", BlobKind.BLOCK),
        (decode.blob_kind, "x-ms-blob-type", "pageblob", BlobKind.PAGE),
        (decode.blob_kind, "x-ms-blob-type", "APPENDBLOB", BlobKind.APPEND),
        (decode.public_access, "x-ms-blob-public-access", "Container", PublicAccess.EVERYTHING),
        (decode.public_access, "x-ms-blob-public-access", "blob", PublicAccess.BLOBS),
        (decode.delete_snapshots, "x-ms-delete-snapshots", "Include", Snapshots.INCLUDE),
        (decode.delete_snapshots, "x-ms-delete-snapshots", "only", Snapshots.ONLY),
        (decode.snapshot, "?snapshot", MOMENT, parse_instant(MOMENT)),
        (decode.names_snapshot, "?snapshot", MOMENT, True),
        (decode.block_name, "?blockid", "AAEC", b"\x00\x01\x02"),
        (decode_tiers.any_tier, "x-ms-access-tier", "cool", "Cool"),
        (decode_tiers.rehydrate_priority, "x-ms-rehydrate-priority", "high", Priority.HIGH),
        (decode_sources.copies_properties, "x-ms-copy-source-blob-properties", "False", False),
        (decode_sources.copies_tags, "x-ms-copy-source-tag-option", "COPY", True),
        (decode_sources.seals, "x-ms-seal-blob", "true", True),
        (decode_sources.seals, "x-ms-seal-blob", "FALSE", False),
        (decode_tags.tags, "x-ms-tags", "b=2&a=%31", (("a", "1"), ("b", "2"))),
    ],
)
def test_values(decoder: Decoder, name: str, value: str, expected: object) -> None:
    assert decoder(with_value(name, value)) == expected


@pytest.mark.parametrize(
    ("decoder", "default"),
    [
        (decode.public_access, PublicAccess.NOTHING),
        (decode.delete_snapshots, Snapshots.NO),
        (decode.snapshot, None),
        (decode.names_snapshot, False),
        (decode.refuse_snapshot, None),
        (requests.header_overrides, {}),
        (decode_tiers.any_tier, ""),
        (decode_tiers.rehydrate_priority, Priority.STANDARD),
        (decode_tiers.tier_dates, (None, None)),
        (decode_sources.copies_properties, True),
        (decode_sources.copies_tags, False),
        (decode_sources.seals, None),
        (source_requests.source_conditions, Conditions()),
        (source_requests.forwarded_conditions, {}),
        (decode_tags.tags, ()),
        (decode_tags.found_marker, None),
    ],
)
def test_defaults(decoder: Decoder, default: object) -> None:
    assert decoder(exchange()) == default


@pytest.mark.parametrize(
    ("decoder", "name", "value", "code"),
    [
        (decode.blob_kind, "x-ms-blob-type", "Blob", "InvalidHeaderValue"),
        (decode.public_access, "x-ms-blob-public-access", "private", "InvalidHeaderValue"),
        # A private container has no header.
        (decode.public_access, "x-ms-blob-public-access", "", "InvalidHeaderValue"),
        (decode.delete_snapshots, "x-ms-delete-snapshots", "all", "InvalidHeaderValue"),
        (decode.snapshot, "?snapshot", "yesterday", "InvalidQueryParameterValue"),
        (decode.refuse_snapshot, "?snapshot", MOMENT, "InvalidQueryParameterValue"),
        (decode.block_name, "?blockid", "", "MissingRequiredQueryParameter"),
        (decode.block_name, "?blockid", "AAE", "InvalidQueryParameterValue"),
        (decode.block_name, "?blockid", "A" * 88, "InvalidBlockId"),
        (decode_tiers.any_tier, "x-ms-access-tier", "Lukewarm", "InvalidHeaderValue"),
        (decode_tiers.tier, "x-ms-access-tier", "P10", "AccessTierNotSupportedForBlobType"),
        (decode_tiers.rehydrate_priority, "x-ms-rehydrate-priority", "asap", "InvalidHeaderValue"),
        (
            decode_sources.copies_properties,
            "x-ms-copy-source-blob-properties",
            "no",
            "InvalidHeaderValue",
        ),
        (decode_sources.copies_tags, "x-ms-copy-source-tag-option", "ALL", "InvalidHeaderValue"),
        (decode_sources.seals, "x-ms-seal-blob", "1", "InvalidHeaderValue"),
        (source_requests.copy_source, "x-ms-other", "x", "MissingRequiredHeader"),
        (source_requests.copy_source, "x-ms-source-encryption-key", "x", "UnsupportedHeader"),
        (decode_tags.tag_search, "?where", "", "MissingRequiredQueryParameter"),
        (decode_tags.found_marker, "?marker", "!", "OutOfRangeInput"),
    ],
)
def test_refused_values(decoder: Decoder, name: str, value: str, code: str) -> None:
    assert refusal_code(decoder, with_value(name, value)) == code


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/Box/blob", "InvalidResourceName"),
        ("/b/blob", "OutOfRangeInput"),
        ("/box/" + "x" * 1_025, "OutOfRangeInput"),
    ],
)
def test_refused_names(path: str, code: str) -> None:
    assert refusal_code(decode.blob_name, exchange(path=path)) == code


def test_get_blob() -> None:
    headers = {"if-match": '"0x1"', "x-ms-lease-id": LEASE}
    request = exchange(headers, f"snapshot={MOMENT}", method="GET")
    assert decode.get_blob(request) == GetBlob(
        BLOB, Conditions(if_match=('"0x1"',)), b"\0" * 15 + b"\x07", parse_instant(MOMENT)
    )


# Headers of a blob


def test_headers_of_a_blob() -> None:
    headers = {
        "x-ms-blob-content-type": "text/plain",
        "x-ms-blob-content-encoding": "gzip",
        "x-ms-blob-content-language": "fr",
        "x-ms-blob-content-disposition": "inline",
        "x-ms-blob-cache-control": "no-store",
        "x-ms-blob-content-md5": MD5,
        "content-type": "image/png",
    }
    expected = ContentHeaders("text/plain", "gzip", "fr", "inline", "no-store", bytes(range(16)))
    assert decode.blob_headers(exchange(headers)) == expected
    assert decode.blob_headers(exchange(headers), standard=True) == expected


def test_standard_headers_describe_a_blob_only_where_the_body_is_its_content() -> None:
    request = exchange({"content-type": "image/png", "content-language": "fr"})
    assert decode.blob_headers(request) == ContentHeaders("")
    both = ContentHeaders("image/png", content_language="fr")
    assert decode.blob_headers(request, standard=True) == both


def test_default_content_type() -> None:
    assert decode.blob_headers(exchange(), default_type="a/b").content_type == "a/b"
    # An empty header clears the property.
    cleared = exchange({"x-ms-blob-content-type": ""})
    assert decode.blob_headers(cleared, default_type="a/b").content_type == ""


def test_md5_must_have_its_length_where_it_is_compared_with_a_body() -> None:
    request = exchange({"x-ms-blob-content-md5": base64.b64encode(b"short").decode()})
    assert decode.blob_headers(request).content_md5 == b"short"
    code = refusal_code(lambda it: decode.blob_headers(it, md5_of_body=True), request)
    assert code == "InvalidMd5"


@pytest.mark.parametrize("md5_of_body", [False, True])
def test_an_empty_md5_is_none(md5_of_body: bool) -> None:
    request = exchange({"x-ms-blob-content-md5": ""})
    assert decode.blob_headers(request, md5_of_body=md5_of_body).content_md5 is None


def test_md5_must_be_base64() -> None:
    request = exchange({"x-ms-blob-content-md5": "?"})
    assert refusal_code(decode.blob_headers, request) == "InvalidMd5"


# Block lists


@pytest.mark.parametrize(
    ("query", "committed", "uncommitted"),
    [
        ("", True, False),
        ("blocklisttype=committed", True, False),
        ("blocklisttype=Uncommitted", False, True),
        ("blocklisttype=ALL", True, True),
    ],
)
def test_get_block_list(query: str, committed: bool, uncommitted: bool) -> None:
    request = exchange({"x-ms-if-tags": "a='1'"}, query, method="GET")
    expected = GetBlockList(BLOB, committed, uncommitted, None, None, "a='1'", False)
    assert decode.get_block_list(request) == expected


def test_anonymous_callers_get_committed_blocks_only() -> None:
    request = exchange(query="blocklisttype=all", method="GET")
    request.permit = Permit(public=Public.BLOB)
    assert decode.get_block_list(request) == GetBlockList(BLOB, True, True, None, None, None, True)


def test_unknown_type_of_block_list() -> None:
    request = exchange(query="blocklisttype=none")
    assert refusal_code(decode.get_block_list, request) == "InvalidQueryParameterValue"


def test_a_token_replaces_response_headers() -> None:
    request = exchange()
    request.principal = structs.replace(account_token(), overrides={"content-type": "a/b"})
    assert requests.header_overrides(request) == {"content-type": "a/b"}


# Sources


def test_conditions_of_a_source() -> None:
    headers = {
        "x-ms-source-if-match": '"0x1"',
        "x-ms-source-if-tags": "a='1'",
        "if-match": '"0x2"',
    }
    request = exchange(headers)
    expected = Conditions(if_match=('"0x1"',), if_tags="a='1'")
    assert source_requests.source_conditions(request) == expected
    assert source_requests.forwarded_conditions(request) == {
        "If-Match": '"0x1"',
        "x-ms-if-tags": "a='1'",
    }


@pytest.mark.parametrize("value", ["caf\N{LATIN SMALL LETTER E WITH ACUTE}", "a\x7fb"])
def test_conditions_that_cannot_be_forwarded(value: str) -> None:
    request = exchange({"x-ms-source-if-match": value})
    assert refusal_code(source_requests.forwarded_conditions, request) == "InvalidHeaderValue"


def test_tags_of_the_request_and_of_the_source_exclude_each_other() -> None:
    request = exchange({"x-ms-copy-source-tag-option": "COPY", "x-ms-tags": "a=1"})
    code = "BothUserTagsAndSourceTagsCopyPresentException"
    assert refusal_code(decode_sources.copies_tags, request) == code


@pytest.mark.parametrize(
    ("headers", "query", "code"),
    [
        ({}, f"copyid={LEASE}", "MissingRequiredHeader"),
        ({"x-ms-copy-action": "stop"}, f"copyid={LEASE}", "InvalidHeaderValue"),
        ({"x-ms-copy-action": "abort"}, "", "MissingRequiredQueryParameter"),
        ({"x-ms-copy-action": "abort"}, "copyid=x", "InvalidQueryParameterValue"),
    ],
)
def test_refused_abort_of_a_copy(headers: dict[str, str], query: str, code: str) -> None:
    assert refusal_code(source_requests.aborted_copy, exchange(headers, query)) == code


def test_abort_of_a_copy() -> None:
    request = exchange({"x-ms-copy-action": "Abort"}, f"copyid={LEASE}")
    assert source_requests.aborted_copy(request) == b"\0" * 15 + b"\x07"


# Lists


def test_list_blobs() -> None:
    query = (
        "restype=container&prefix=a%2F&delimiter=%2F&maxresults=7&startfrom=a%2Fb&endbefore=a%2Fz"
    )
    request = exchange(query=f"{query}&include=metadata,%20Tags,uncommittedblobs", path="/box")
    assert decode_listing.list_blobs(request) == (
        ListBlobs(CONTAINER, 7, "a/", "/", "a/b", 0, "a/z", snapshots=False, uncommitted=True),
        {"metadata", "tags", "uncommittedblobs"},
    )


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("include=everything", "InvalidQueryParameterValue"),
        ("include=snapshots&delimiter=/", "InvalidQueryParameterValue"),
        ("maxresults=0", "OutOfRangeQueryParameterValue"),
        ("maxresults=many", "OutOfRangeQueryParameterValue"),
        ("marker=!", "OutOfRangeInput"),
        ("prefix=" + "x" * 1_025, "InvalidQueryParameterValue"),
    ],
)
def test_refused_lists(query: str, code: str) -> None:
    assert refusal_code(decode_listing.list_blobs, exchange(query=query, path="/box")) == code


@pytest.mark.parametrize(
    "name", ["a", "dir/file", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "\x01"]
)
@pytest.mark.parametrize("snapshot", [None, 639_000_000_000_000_000])
def test_markers_are_read_as_they_were_written(name: str, snapshot: int | None) -> None:
    written = pages.format_marker(name) if snapshot is None else pages.format_marker(name, snapshot)
    start, moment = decode_listing.marker(exchange(query=f"marker={written}"))
    assert start == name
    assert pages.format_marker(start, moment) == written


@pytest.mark.parametrize("place", [b"\x80", b"a\xff", b"a\xffnow", b"x" * 1_025])
def test_markers_that_no_page_ends_with(place: bytes) -> None:
    written = base64.urlsafe_b64encode(place).decode()
    request = exchange(query=f"marker={written}")
    assert refusal_code(decode_listing.marker, request) == "OutOfRangeInput"
