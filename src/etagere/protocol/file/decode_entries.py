"""Decoding of the properties of directories and files in requests: times, attributes, owners,
content headers and leases."""

from __future__ import annotations

from typing import Final

from etagere.auth.request import is_text
from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.model.common import ContentHeaders
from etagere.model.files import (
    PRESERVE_TIME,
    ChangedTimes,
    GetEntry,
    NewEntry,
    NewTimes,
    PosixChange,
)
from etagere.model.leases import Acquire, FileLeaseAction, Renew
from etagere.protocol.file import decode, decode_permissions
from etagere.protocol.rest import checksums, leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata
from etagere.protocol.rest.requests import integer_header, invalid_header, required_header
from etagere.rules.dates import parse_instant
from etagere.rules.file_attributes import FileAttributes, parse_attributes
from etagere.rules.file_ranges import FILE_BYTES_MAX
from etagere.rules.posix import is_id, parse_mode

_FILETIME_YEAR_MIN: Final = 1601
"""The first year that Windows can represent as the time of a file."""

ATTRIBUTES_HEADER: Final = "x-ms-file-attributes"
CREATION_TIME_HEADER: Final = "x-ms-file-creation-time"
LAST_WRITE_TIME_HEADER: Final = "x-ms-file-last-write-time"
CHANGE_TIME_HEADER: Final = "x-ms-file-change-time"
_LENGTH: Final = "x-ms-content-length"
_CONTENT_MD5: Final = "x-ms-content-md5"
_SEMANTICS: Final = "x-ms-file-property-semantics"

# Before these versions files had no such properties, and from the second one on they are optional.
_PROPERTIES_SINCE: Final = "2019-02-02"
_PROPERTIES_OPTIONAL_SINCE: Final = "2021-06-08"


def get_file(exchange: Exchange) -> GetEntry:
    return GetEntry(decode.path_to_read(exchange), leases.lease_id(exchange))


# Creation


async def new_entry(exchange: Exchange, engine: Engine) -> NewEntry:
    """Returns the properties of an entry that a request creates."""
    require_properties(exchange)
    return NewEntry(
        NewTimes(
            time_of(exchange, CREATION_TIME_HEADER),
            time_of(exchange, LAST_WRITE_TIME_HEADER),
            time_of(exchange, CHANGE_TIME_HEADER),
        ),
        int(attributes(exchange) or FileAttributes.NONE),
        await decode_permissions.permission_of_new(exchange, engine),
        read_metadata(exchange),
        posix(exchange),
        restores=_restores(exchange),
    )


def require_properties(exchange: Exchange) -> None:
    """Refuses a request without the properties that some versions require."""
    if not _PROPERTIES_SINCE <= exchange.version < _PROPERTIES_OPTIONAL_SINCE:
        return
    for name in (ATTRIBUTES_HEADER, CREATION_TIME_HEADER, LAST_WRITE_TIME_HEADER):
        required_header(exchange, name)
    if not exchange.header("x-ms-file-permission-key"):
        required_header(exchange, "x-ms-file-permission")


def _restores(exchange: Exchange) -> bool:
    """Returns whether the attributes are to be stored exactly as they were sent."""
    written = exchange.header(_SEMANTICS)
    if not written:
        return False
    if written.lower() not in ("new", "restore"):
        raise invalid_header(_SEMANTICS, written)
    return written.lower() == "restore"


def require_type_file(exchange: Exchange) -> None:
    written = required_header(exchange, "x-ms-type")
    if written.lower() != "file":
        raise invalid_header("x-ms-type", written)


def require_regular_file(exchange: Exchange) -> None:
    """Refuses any other kind of file than NFS shares can store as bytes."""
    name = "x-ms-file-file-type"
    written = _sent(exchange, name)
    if written and written.lower() != "regular":
        raise invalid_header(name, written)


def length(exchange: Exchange) -> int:
    """Returns the length of a file that is created."""
    found = new_length(exchange)
    if found is None:
        raise Refused(Refusal("MissingRequiredHeader", {"HeaderName": _LENGTH}))
    return found


# Changes


def new_length(exchange: Exchange) -> int | None:
    """Returns the length that a file is to have; None: it keeps its length."""
    return (
        integer_header(exchange, _LENGTH, 0, FILE_BYTES_MAX) if _sent(exchange, _LENGTH) else None
    )


def changed_times(exchange: Exchange) -> ChangedTimes:
    return ChangedTimes(
        _changed_time(exchange, CREATION_TIME_HEADER, "preserve"),
        _changed_time(exchange, LAST_WRITE_TIME_HEADER, "preserve"),
        _changed_time(exchange, CHANGE_TIME_HEADER, "now"),
    )


def new_attributes(exchange: Exchange) -> int | None:
    """Returns the attributes that an entry is to have; None: it keeps its attributes."""
    if (exchange.header(ATTRIBUTES_HEADER) or "").lower() == "preserve":
        return None
    found = attributes(exchange)
    return None if found is None else int(found)


# One property each


def _sent(exchange: Exchange, name: str) -> str:
    """Returns a header; "" if it is absent. Some clients send empty headers instead of none."""
    return exchange.header(name) or ""


def attributes(exchange: Exchange) -> FileAttributes | None:
    written = _sent(exchange, ATTRIBUTES_HEADER)
    if not written:
        return None
    found = parse_attributes(written)
    if found is None:
        raise invalid_header(ATTRIBUTES_HEADER, written)
    return found


def time_of(exchange: Exchange, name: str) -> int | None:
    """Returns a time; None: that of the operation."""
    written = _sent(exchange, name)
    if not written or written.lower() == "now":
        return None
    parsed = parse_instant(written, year_min=_FILETIME_YEAR_MIN)
    if parsed is None:
        raise invalid_header(name, written)
    return parsed


def _changed_time(exchange: Exchange, name: str, default: str) -> int | None:
    if (_sent(exchange, name) or default).lower() == "preserve":
        return PRESERVE_TIME
    return time_of(exchange, name)


def posix(exchange: Exchange) -> PosixChange:
    """Returns owner, group and mode, which the entries of NFS shares have."""
    mode = _sent(exchange, "x-ms-mode")
    parsed = parse_mode(mode) if mode else None
    if mode and parsed is None:
        raise invalid_header("x-ms-mode", mode)
    return PosixChange(_id(exchange, "x-ms-owner"), _id(exchange, "x-ms-group"), parsed)


def _id(exchange: Exchange, name: str) -> str | None:
    written = _sent(exchange, name)
    if written and not is_id(written):
        raise invalid_header(name, written)
    return written or None


def content_headers_of_new(exchange: Exchange) -> ContentHeaders:
    """Returns the headers that downloads of a new file will have. The request may have them under
    their usual names as well."""
    return _content_headers(exchange, ("x-ms-", ""), ContentHeaders().content_type)


def content_headers(exchange: Exchange) -> ContentHeaders:
    """Returns the headers that downloads of a file are to have. Those that are absent are
    cleared."""
    return _content_headers(exchange, ("x-ms-",), "")


def _content_headers(
    exchange: Exchange, prefixes: tuple[str, ...], default_type: str
) -> ContentHeaders:
    def value(name: str) -> str:
        for prefix in prefixes:
            found = exchange.header(prefix + name)
            if found is not None:
                return _text(prefix + name, found)
        return ""

    return ContentHeaders(
        value("content-type") or default_type,
        value("content-encoding"),
        value("content-language"),
        value("content-disposition"),
        value("cache-control"),
        _content_md5(exchange),
    )


def _content_md5(exchange: Exchange) -> bytes | None:
    """Returns the MD5 to set. It is not compared with the content, so it may have any size."""
    if not _sent(exchange, _CONTENT_MD5):
        return None
    return checksums.digest(exchange, _CONTENT_MD5, None, "InvalidMd5")


def _text(name: str, written: str) -> str:
    if not is_text(written):
        raise invalid_header(name, written)
    return written


def content_type(exchange: Exchange) -> str | None:
    """Returns the content type that a renamed file is to have; None: it keeps its own."""
    written = _sent(exchange, "x-ms-content-type")
    return _text("x-ms-content-type", written) if written else None


# Leases


def lease_action(exchange: Exchange) -> FileLeaseAction:
    """Returns the action on the lease of a file, which is infinite and is not renewed."""
    action = leases.lease_action(exchange)
    if isinstance(action, Renew):
        raise invalid_header("x-ms-lease-action", _sent(exchange, "x-ms-lease-action"))
    if isinstance(action, Acquire) and action.duration_seconds is not None:
        raise invalid_header("x-ms-lease-duration", _sent(exchange, "x-ms-lease-duration"))
    return action
