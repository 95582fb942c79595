"""Decoding of requests about pages and appended blocks."""

from __future__ import annotations

import pytest

from etagere.model.appends import AppendBlock, SealBlob
from etagere.model.blobs import GetBlob
from etagere.model.common import ContentHeaders
from etagere.model.conditions import NO_CONDITIONS
from etagere.model.page_blobs import (
    ClearPages,
    GetPageRanges,
    PutPage,
    SequenceAction,
    SequenceChange,
    SequenceConditions,
    SetPageBlobProperties,
)
from etagere.protocol.blob import decode_pages
from etagere.protocol.rest.uploads import NO_BODY
from etagere.rules.dates import parse_instant
from tests.protocol.blob.exchanges import BLOB, exchange, refusal_code

MOMENT = "2026-01-02T03:04:05.6789012Z"
LONG_MAX = 2**63 - 1
ID = b"child"


@pytest.mark.parametrize(("value", "length"), [("0", 0), ("512", 512), (str(8 * 2**40), 8 * 2**40)])
def test_length_of_a_page_blob(value: str, length: int) -> None:
    request = exchange({"x-ms-blob-content-length": value})
    assert decode_pages.page_blob_length(request) == length


@pytest.mark.parametrize("value", ["511", "-512", "x", str(8 * 2**40 + 512), "9" * 19])
def test_refused_length_of_a_page_blob(value: str) -> None:
    request = exchange({"x-ms-blob-content-length": value})
    assert refusal_code(decode_pages.page_blob_length, request) == "InvalidHeaderValue"
    assert refusal_code(decode_pages.page_blob_length, exchange()) == "MissingRequiredHeader"


@pytest.mark.parametrize(("value", "number"), [("0", 0), (str(LONG_MAX), LONG_MAX)])
def test_sequence_number(value: str, number: int) -> None:
    request = exchange({"x-ms-blob-sequence-number": value})
    assert decode_pages.sequence_number(request) == number


@pytest.mark.parametrize("value", ["-1", str(LONG_MAX + 1), "9" * 20, "1.0", ""])
def test_refused_sequence_number(value: str) -> None:
    request = exchange({"x-ms-blob-sequence-number": value})
    assert refusal_code(decode_pages.sequence_number, request) == "InvalidHeaderValue"


@pytest.mark.parametrize(("value", "clears"), [("update", False), ("Clear", True)])
def test_page_write(value: str, clears: bool) -> None:
    assert decode_pages.is_clear(exchange({"x-ms-page-write": value})) is clears


@pytest.mark.parametrize(
    ("headers", "code"),
    [({}, "MissingRequiredHeader"), ({"x-ms-page-write": "erase"}, "InvalidHeaderValue")],
)
def test_refused_page_write(headers: dict[str, str], code: str) -> None:
    assert refusal_code(decode_pages.is_clear, exchange(headers)) == code


@pytest.mark.parametrize(
    "headers",
    [
        {"range": "bytes=512-1535"},
        {"x-ms-range": "bytes=512-1535"},
        {"x-ms-range": "bytes=512-1535", "range": "bytes=0-511"},
    ],
)
def test_pages_are_named_by_either_header(headers: dict[str, str]) -> None:
    assert decode_pages.pages(exchange(headers)) == (512, 1_536)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "MissingRequiredHeader"),
        ({"range": "bytes=0-"}, "InvalidHeaderValue"),
        ({"range": "bytes=512-0"}, "InvalidHeaderValue"),
        ({"range": "bytes=1-512"}, "InvalidPageRange"),
        ({"range": "bytes=0-512"}, "InvalidPageRange"),
    ],
)
def test_refused_pages(headers: dict[str, str], code: str) -> None:
    assert refusal_code(decode_pages.pages, exchange(headers)) == code


def test_commands_for_pages_have_the_conditions_of_the_request() -> None:
    sequence = {
        "x-ms-if-sequence-number-le": "3",
        "x-ms-if-sequence-number-lt": "4",
        "x-ms-if-sequence-number-eq": "2",
    }
    conditions = SequenceConditions(3, 4, 2)
    request = exchange({"range": "bytes=0-511", **sequence})
    common = (ID, NO_CONDITIONS, None, conditions)
    assert decode_pages.put_page(request, 0, NO_BODY, ID) == PutPage(BLOB, 0, NO_BODY, *common)
    assert decode_pages.clear_pages(request, ID) == ClearPages(BLOB, 0, 512, *common)


# Properties that only page blobs have


def test_properties_of_every_blob_are_not_those_of_page_blobs() -> None:
    request = exchange({"x-ms-blob-content-type": "a/b"})
    assert decode_pages.page_blob_properties(request, ID) is None


def test_a_resize_keeps_the_headers_that_are_not_named() -> None:
    request = exchange({"x-ms-blob-content-length": "1024"})
    expected = SetPageBlobProperties(BLOB, ID, None, 1_024, None, NO_CONDITIONS, None)
    assert decode_pages.page_blob_properties(request, ID) == expected


def test_headers_are_set_together_with_the_length() -> None:
    headers = {"x-ms-blob-content-length": "0", "x-ms-blob-content-type": "a/b"}
    found = decode_pages.page_blob_properties(exchange(headers), ID)
    assert found is not None
    assert (found.headers, found.length) == (ContentHeaders("a/b"), 0)


@pytest.mark.parametrize(
    ("action", "number", "change"),
    [
        ("update", "7", SequenceChange(SequenceAction.UPDATE, 7)),
        ("MAX", "7", SequenceChange(SequenceAction.MAX, 7)),
        ("increment", None, SequenceChange(SequenceAction.INCREMENT, 0)),
    ],
)
def test_change_of_the_sequence_number(
    action: str, number: str | None, change: SequenceChange
) -> None:
    headers = {"x-ms-sequence-number-action": action}
    if number is not None:
        headers["x-ms-blob-sequence-number"] = number
    found = decode_pages.page_blob_properties(exchange(headers), ID)
    assert found is not None
    assert (found.sequence, found.length, found.headers) == (change, None, None)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-ms-blob-sequence-number": "7"}, "MissingRequiredHeader"),
        ({"x-ms-sequence-number-action": "update"}, "MissingRequiredHeader"),
        ({"x-ms-sequence-number-action": "max"}, "MissingRequiredHeader"),
        ({"x-ms-sequence-number-action": "reset"}, "InvalidHeaderValue"),
        (
            {"x-ms-sequence-number-action": "increment", "x-ms-blob-sequence-number": "7"},
            "InvalidHeaderValue",
        ),
    ],
)
def test_refused_change_of_the_sequence_number(headers: dict[str, str], code: str) -> None:
    request = exchange(headers)
    assert refusal_code(lambda it: decode_pages.page_blob_properties(it, ID), request) == code


# Page ranges


def test_get_page_ranges() -> None:
    query = f"maxresults=5&marker=1024&prevsnapshot={MOMENT}"
    request = exchange({"range": "bytes=512-2047"}, query, method="GET")
    expected = GetPageRanges(GetBlob(BLOB), 5, 512, 2_047, 1_024, parse_instant(MOMENT))
    assert decode_pages.get_page_ranges(request) == expected


def test_old_clients_get_all_page_ranges_at_once() -> None:
    """They do not support markers."""
    since = decode_pages.PAGE_RANGES_IN_PARTS_SINCE
    new, old = exchange(version=since), exchange(version="2019-12-12", query="maxresults=5")
    assert decode_pages.get_page_ranges(new).limit == decode_pages.PAGE_RANGES_MAX
    assert decode_pages.get_page_ranges(old).limit > decode_pages.PAGE_RANGES_MAX


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("marker=x", "OutOfRangeInput"),
        ("marker=-1", "OutOfRangeInput"),
        ("maxresults=0", "OutOfRangeQueryParameterValue"),
        ("prevsnapshot=then", "InvalidQueryParameterValue"),
    ],
)
def test_refused_page_ranges(query: str, code: str) -> None:
    assert refusal_code(decode_pages.get_page_ranges, exchange(query=query)) == code


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        (f"http://127.0.0.1:10000/account/box/dir/blob?snapshot={MOMENT}", parse_instant(MOMENT)),
        ("http://127.0.0.1:10000/account/box/dir/blob", "InvalidHeaderValue"),
        ("http://[::1/account/box", "InvalidHeaderValue"),
        (
            f"http://127.0.0.1:10000/account/box/other?snapshot={MOMENT}",
            "PreviousSnapshotOperationNotSupported",
        ),
        (
            f"http://127.0.0.1:10000/other/box/dir/blob?snapshot={MOMENT}",
            "PreviousSnapshotOperationNotSupported",
        ),
    ],
)
def test_previous_snapshot_by_url(url: str, outcome: int | str) -> None:
    request = exchange({"x-ms-previous-snapshot-url": url})
    if isinstance(outcome, str):
        assert refusal_code(decode_pages.get_page_ranges, request) == outcome
    else:
        assert decode_pages.get_page_ranges(request).previous == outcome


# Append blobs


def test_append_block_and_seal() -> None:
    request = exchange({"x-ms-blob-condition-appendpos": "4", "x-ms-blob-condition-maxsize": "9"})
    expected = AppendBlock(BLOB, NO_BODY, ID, 4, 9, NO_CONDITIONS, None)
    assert decode_pages.append_block(request, NO_BODY, ID) == expected
    assert decode_pages.seal_blob(request) == SealBlob(BLOB, 4, NO_CONDITIONS, None)


@pytest.mark.parametrize("name", ["x-ms-blob-condition-appendpos", "x-ms-blob-condition-maxsize"])
def test_refused_append_conditions(name: str) -> None:
    request = exchange({name: "-1"})
    code = refusal_code(lambda it: decode_pages.append_block(it, NO_BODY, ID), request)
    assert code == "InvalidHeaderValue"
