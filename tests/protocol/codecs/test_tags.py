"""Tags as XML, and the marker of a page of found blobs."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.ids import new_id
from etagere.operations.blob.tags import BlobPlace, TaggedBlobRow
from etagere.protocol.codecs.tags import (
    BYTES_MAX,
    decode,
    encode,
    format_marker,
    found_end,
    found_rows,
    found_start,
    parse_marker,
)


def document(*tags: str) -> bytes:
    return f"<Tags><TagSet>{''.join(tags)}</TagSet></Tags>".encode()


def row(name: str, value: str) -> str:
    return f"<Tag><Key>{name}</Key><Value>{value}</Value></Tag>"


def test_tags_round_trip_sorted_by_name() -> None:
    result = document(row("b", " x "), row("a", "+-./:=_"), row("c", ""))
    tags = (("a", "+-./:=_"), ("b", " x "), ("c", ""))
    assert decode(result) == tags
    assert decode(encode(tags)) == tags
    assert encode(tags).endswith(b"<Tag><Key>c</Key><Value></Value></Tag></TagSet></Tags>")


def test_an_empty_tag_set() -> None:
    assert decode(b"<?xml version='1.0'?><Tags><TagSet/></Tags>") == ()
    assert decode(encode(())) == ()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", "InvalidXmlDocument"),
        (b"<Tags>", "InvalidXmlDocument"),
        (b"<TagSet/>", "InvalidXmlDocument"),
        (b"<Tags/>", "MissingRequiredXmlNode"),
        (b"<Tags><TagSet/><TagSet/></Tags>", "InvalidXmlDocument"),
        (b"<Tags><Other/></Tags>", "UnsupportedXmlNode"),
        (document("<Other/>"), "UnsupportedXmlNode"),
        (document("<Tag><Key>a</Key></Tag>"), "MissingRequiredXmlNode"),
        (document("<Tag><Value>a</Value></Tag>"), "MissingRequiredXmlNode"),
        (document("<Tag><Key>a</Key><Key>a</Key><Value/></Tag>"), "InvalidXmlDocument"),
        (document("<Tag><Key><a/></Key><Value/></Tag>"), "InvalidXmlDocument"),
        (document("<Tag><Key>a</Key><Value><b><c/></b></Value></Tag>"), "InvalidXmlDocument"),
        (document(row("", "1")), "EmptyTagName"),
        (document(row("a", "1"), row("a", "2")), "DuplicateTagNames"),
        (document(*(row(f"t{n}", "") for n in range(11))), "TagsTooLarge"),
        (document(*(row("a", "") for n in range(2_000))), "InvalidXmlDocument"),
        (document(row("a", "&lt;")), "InvalidXmlNodeValue"),
        (document(row("a\n", "1")), "InvalidXmlNodeValue"),
        (document(row("a", "é")), "InvalidXmlNodeValue"),
        (b"<!DOCTYPE x><Tags><TagSet/></Tags>", "InvalidXmlDocument"),
        (document() + b" " * BYTES_MAX, "InvalidXmlDocument"),
    ],
)
def test_malformed_documents_are_refused(sent: bytes, code: str) -> None:
    found = decode(sent)
    assert isinstance(found, Refusal)
    assert found.code == code


def _found(
    rows: list[TaggedBlobRow], following: TaggedBlobRow | None, where: str, endpoint: str
) -> bytes:
    start = found_start(where, endpoint, None, None)
    shown = "".join(found_rows(rows, 0, version="2021-12-02"))
    return (start + shown + found_end(following)).encode()


def test_found_blobs() -> None:
    place = BlobPlace("box", new_id(), "a&b")
    found = (place, (("k", "v"),))
    assert (
        _found([found], found, "k > 'a'", "http://host/")
        == (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://host/">'
            "<Where>k &gt; 'a'</Where><Blobs><Blob><Name>a&amp;b</Name>"
            "<ContainerName>box</ContainerName>"
            "<Tags><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tags></Blob></Blobs>"
            f"<NextMarker>{format_marker(place)}</NextMarker></EnumerationResults>"
        ).encode()
    )
    assert _found([], None, "k = ''", "").endswith(
        b"<Blobs></Blobs><NextMarker /></EnumerationResults>"
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100))
def test_markers_round_trip(blob: str) -> None:
    place = BlobPlace("box", new_id(), blob)
    assert parse_marker(format_marker(place)) == place


@pytest.mark.parametrize(
    "decoded",
    [
        b"",
        b"x",
        b"\0" * 16,
        b"\0" * 16 + b"box",
        b"\0" * 16 + b"box/",
        b"\0" * 16 + b"/blob",
        b"\0" * 16 + b"B X/blob",
        b"\0" * 16 + b"box/\xff",
        b"\xff" * 16 + b"box/blob",
        b"\0" * 16 + b"box/" + b"n" * 1_025,
    ],
)
def test_malformed_marker_contents(decoded: bytes) -> None:
    assert parse_marker(base64.urlsafe_b64encode(decoded).decode()) is None


@pytest.mark.parametrize("written", ["!", "é", "a", "\udc80", "AAAA AAAA"])
def test_invalid_markers(written: str) -> None:
    assert parse_marker(written) is None
