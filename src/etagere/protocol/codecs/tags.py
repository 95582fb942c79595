"""Tags as XML, and the results of searches by tags."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import Tags
from etagere.model.ids import ID_BYTES
from etagere.operations.blob.tags import BlobPlace, TaggedBlobRow
from etagere.protocol.codecs import xml
from etagere.rules.names import check_blob_name, check_container_name
from etagere.rules.tags import check_tags

BYTES_MAX: Final = 64 << 10
_LIMITS: Final = xml.Limits(bytes_max=BYTES_MAX, elements_max=1_000, depth_max=4)


# Tags


def decode(document: bytes) -> Tags | Refusal:
    root = xml.read(document, "Tags", _LIMITS)
    if isinstance(root, Refusal):
        return root
    try:
        tag_set = xml.required(xml.children(root, ("TagSet",)), "TagSet")
        pairs = [_pair(element) for element in tag_set.children]
    except xml.Unreadable as unreadable:
        return unreadable.refusal
    return check_tags(pairs, Refusal("InvalidXmlNodeValue", {"XmlNodeName": "Tag"}))


def _pair(element: xml.Element) -> tuple[str, str]:
    if element.name != "Tag":
        raise xml.Unreadable(Refusal("UnsupportedXmlNode", {"XmlNodeName": element.name}))
    found = xml.children(element, ("Key", "Value"))
    return xml.text(xml.required(found, "Key")), xml.text(xml.required(found, "Value"))


def tags_element(tags: Tags) -> str:
    """Encodes tags. Their characters need no escaping."""
    rows = [f"<Tag><Key>{name}</Key><Value>{value}</Value></Tag>" for name, value in tags]
    return f"<Tags><TagSet>{''.join(rows)}</TagSet></Tags>"


def encode(tags: Tags) -> bytes:
    return xml.document(tags_element(tags))


# Search results


_ALL_TAGS_SINCE: Final = "2020-04-08"


def found_start(where: str, endpoint: str, marker: str | None, maxresults: str | None) -> str:
    """Returns the start of a page. It has the marker and the number of results only if the request
    has them."""
    return (
        f"{xml.DECLARATION}"
        f'<EnumerationResults ServiceEndpoint="{xml.escape_attribute(endpoint)}">'
        f"{'' if marker is None else xml.element('Marker', marker)}{xml.element('Where', where)}"
        f"{xml.element('MaxResults', maxresults) if maxresults else ''}<Blobs>"
    )


def found_rows(found: Sequence[TaggedBlobRow], _now: int, *, version: str) -> list[str]:
    """Encodes rows. Older versions have only one value instead of all tags."""
    tagged = tags_element if version >= _ALL_TAGS_SINCE else _value_element
    return [
        f"<Blob>{xml.name_element('Name', place.blob)}"
        f"<ContainerName>{place.container}</ContainerName>{tagged(tags)}</Blob>"
        for place, tags in found
    ]


def _value_element(tags: Tags) -> str:
    return f"<TagValue>{tags[0][1]}</TagValue>"


def found_end(following: TaggedBlobRow | None) -> str:
    marker = "" if following is None else format_marker(following[0])
    return f"</Blobs>{xml.element('NextMarker', marker)}</EnumerationResults>"


def format_marker(place: BlobPlace) -> str:
    packed = place.container_id + f"{place.container}/{place.blob}".encode()
    return base64.urlsafe_b64encode(packed).decode()


def parse_marker(written: str) -> BlobPlace | None:
    """Parses a marker; returns None if it is invalid."""
    try:
        packed = base64.b64decode(written, b"-_", validate=True)
        container, slash, blob = packed[ID_BYTES:].decode().partition("/")
    except (binascii.Error, ValueError):
        return None
    if not slash or packed[0] == 0xFF or check_container_name(container) or check_blob_name(blob):
        return None
    return BlobPlace(container, packed[:ID_BYTES], blob)
