"""Listings of directories, as XML.

A page has up to 5,000 rows, so names are checked many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from etagere.model.files import Entry, ListEntries
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.xml import name_element
from etagere.protocol.file.decode_listing import ATTRIBUTES, ETAG, PERMISSION_KEY, TIMESTAMPS
from etagere.protocol.file.encode import content_length
from etagere.protocol.rest.continuation_tokens import format_token
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import endpoint
from etagere.protocol.rest.responses import http_date
from etagere.rules.conditions import format_etag
from etagere.rules.dates import format_instant
from etagere.rules.file_attributes import format_attributes
from etagere.rules.file_permissions import format_permission_key

_IDS_SINCE: Final = "2020-10-02"
"""The first version in which listings have the IDs of directories and files."""
_ECHOED: Final = (("prefix", "Prefix"), ("marker", "Marker"), ("maxresults", "MaxResults"))


def start(asked: ListEntries, directory_id: int, exchange: Exchange) -> str:
    """Returns the start of a page, up to its rows."""
    path = asked.path
    attributes = [
        f'ServiceEndpoint="{xml.escape_attribute(endpoint(exchange))}"',
        f'ShareName="{xml.escape_attribute(path.ref.share.name)}"',
        _directory_path("/".join(path.components)),
    ]
    if path.ref.snapshot is not None:
        attributes.append(f'ShareSnapshot="{format_instant(path.ref.snapshot)}"')
    shown_id = ""
    if exchange.version >= _IDS_SINCE:
        shown_id = f"<DirectoryId>{directory_id}</DirectoryId>"
    return (
        f"{xml.DECLARATION}<EnumerationResults {' '.join(attributes)}>"
        f"{_echo(exchange)}{shown_id}<Entries>"
    )


def _directory_path(path: str) -> str:
    if xml.must_be_encoded(path):
        return f'DirectoryPath="{quote(path)}" Encoded="true"'
    return f'DirectoryPath="{xml.escape_attribute(path)}"'


def _echo(exchange: Exchange) -> str:
    """Returns the elements that repeat the parameters of the request, if they are present."""
    sent = [(tag, exchange.parameter(name)) for name, tag in _ECHOED]
    return "".join(
        [
            name_element(tag, value) if value else f"<{tag} />"
            for tag, value in sent
            if value is not None
        ]
    )


def end(following: Entry | None) -> str:
    marker = "" if following is None else f"<NextMarker>{format_token(following.name)}</NextMarker>"
    return f"</Entries>{marker or '<NextMarker />'}</EnumerationResults>"


def rows(entries: Sequence[Entry], _now: int, *, include: set[str], version: str) -> list[str]:
    """Encodes entries in one loop, because function calls would cost more than their work."""
    plain = xml.is_plain("".join([entry.name for entry in entries]))
    with_ids = version >= _IDS_SINCE
    encoded = []
    properties = details = ""
    for entry in entries:
        name = entry.name
        shown = f"<Name>{name}</Name>" if plain else name_element("Name", name)
        if with_ids:
            shown += f"<FileId>{entry.id}</FileId>"
        if include:
            properties, details = _properties(entry, include), _details(entry, include)
        if entry.is_directory:
            wrapped = f"<Properties>{properties}</Properties>" if properties else "<Properties />"
            encoded.append(f"<Directory>{shown}{wrapped}{details}</Directory>")
        else:
            length = content_length(entry.node)
            encoded.append(
                f"<File>{shown}<Properties><Content-Length>{length}</Content-Length>{properties}"
                f"</Properties>{details}</File>"
            )
    return encoded


def _properties(entry: Entry, include: set[str]) -> str:
    shown = ""
    if TIMESTAMPS in include:
        times = entry.times
        written = created = changed = format_instant(times.written)
        # All times of a new file are the same.
        if times.created != times.written:
            created = format_instant(times.created)
        if times.changed != times.written:
            changed = format_instant(times.changed)
        # Times of access are not kept. The service, too, shows that of the creation after writes.
        accessed = created if times.accessed is None else format_instant(times.accessed)
        shown = (
            f"<CreationTime>{created}</CreationTime>"
            f"<LastAccessTime>{accessed}</LastAccessTime>"
            f"<LastWriteTime>{written}</LastWriteTime>"
            f"<ChangeTime>{changed}</ChangeTime>"
            f"<Last-Modified>{http_date(entry.stamp)}</Last-Modified>"
        )
    if ETAG in include:
        shown += f"<Etag>{format_etag(entry.stamp)}</Etag>"
    return shown


def _details(entry: Entry, include: set[str]) -> str:
    """Encodes the details after the properties. The entries of NFS shares have none of them."""
    if entry.posix is not None:
        return ""
    shown = _attributes(entry.attributes) if ATTRIBUTES in include else ""
    if PERMISSION_KEY in include:
        shown += _permission_key(entry.permission)
    return shown


# Cached, because the entries of a directory have few different ones.


@lru_cache(maxsize=1_024)
def _permission_key(permission: int) -> str:
    return f"<PermissionKey>{format_permission_key(permission)}</PermissionKey>"


@lru_cache(maxsize=256)
def _attributes(attributes: int) -> str:
    return f"<Attributes>{format_attributes(attributes)}</Attributes>"
