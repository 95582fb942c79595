"""Decoding of copies of files."""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Engine
from etagere.model.file_copies import CopyTimes, FileDestination, FromSource
from etagere.model.files import NewPermission, PosixChange
from etagere.model.ids import new_id
from etagere.protocol.file import decode, decode_entries, decode_permissions
from etagere.protocol.file.decode_entries import (
    ATTRIBUTES_HEADER,
    CHANGE_TIME_HEADER,
    CREATION_TIME_HEADER,
    LAST_WRITE_TIME_HEADER,
)
from etagere.protocol.rest import checksums, leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata
from etagere.protocol.rest.requests import invalid_header

_PERMISSION_COPY_MODE: Final = "x-ms-file-permission-copy-mode"
_OWNER_COPY_MODE: Final = "x-ms-file-owner-copy-mode"
_MODE_COPY_MODE: Final = "x-ms-file-mode-copy-mode"
_SOURCE_VALUE_HEADERS: Final = (
    ATTRIBUTES_HEADER,
    CREATION_TIME_HEADER,
    LAST_WRITE_TIME_HEADER,
    CHANGE_TIME_HEADER,
    _PERMISSION_COPY_MODE,
    _OWNER_COPY_MODE,
    _MODE_COPY_MODE,
)
"""The headers that may have the value `source`. Only files have these properties."""
_TIMES_OF_COPY_SINCE: Final = "2019-07-07"
"""The first version in which a copy has times of its own; older ones take those of the source."""


async def destination(exchange: Exchange, engine: Engine) -> FileDestination:
    """Returns the destination of a copy; the address of its source is added later."""
    default = "source" if exchange.version < _TIMES_OF_COPY_SINCE else "now"
    return FileDestination(
        decode.path_to_change(exchange),
        copy_id=new_id(),
        source="",
        content_id=new_id(),
        lease_id=leases.lease_id(exchange),
        only_if_absent=exchange.permit.only_if_absent,
        ignore_read_only=_ignores_read_only(exchange),
        metadata=read_metadata(exchange),
        times=CopyTimes(
            _time(exchange, CREATION_TIME_HEADER, "now"),
            _time(exchange, LAST_WRITE_TIME_HEADER, default),
            _time(exchange, CHANGE_TIME_HEADER, default),
        ),
        attributes=_attributes(exchange),
        sets_archive=decode.switch(exchange, "x-ms-file-copy-set-archive"),
        permission=await _permission(exchange, engine),
        posix=_posix(exchange),
        copies_owner=_is_copied(exchange, _OWNER_COPY_MODE),
        copies_mode=_is_copied(exchange, _MODE_COPY_MODE),
    )


def require_file_source(exchange: Exchange) -> None:
    """Refuses a copy that asks for properties of a source that is not a file."""
    for name in _SOURCE_VALUE_HEADERS:
        written = exchange.header(name)
        if written is not None and written.lower() == "source":
            raise invalid_header(name, written)


def _ignores_read_only(exchange: Exchange) -> bool:
    """Some clients spell the header differently."""
    names = ("x-ms-file-copy-ignore-readonly", "x-ms-file-copy-ignore-read-only")
    return any(decode.switch(exchange, name) for name in names)


def _time(exchange: Exchange, name: str, default: str) -> int | FromSource | None:
    """Returns a time; None: that of the copy."""
    if (exchange.header(name) or default).lower() == "source":
        return "source"
    return decode_entries.time_of(exchange, name)


def _attributes(exchange: Exchange) -> int | FromSource:
    if (exchange.header(ATTRIBUTES_HEADER) or "").lower() == "source":
        return "source"
    return int(decode_entries.attributes(exchange) or 0)


async def _permission(
    exchange: Exchange, engine: Engine
) -> int | NewPermission | FromSource | None:
    given = await decode_permissions.permission_of_new(exchange, engine)
    if not _is_copied(exchange, _PERMISSION_COPY_MODE):
        return given
    if given is not None:
        raise invalid_header(_PERMISSION_COPY_MODE, "source")
    return "source"


def _posix(exchange: Exchange) -> PosixChange:
    given = decode_entries.posix(exchange)
    if given.mode is not None and _is_copied(exchange, _MODE_COPY_MODE):
        raise invalid_header(_MODE_COPY_MODE, "source")
    if (given.owner or given.group) and _is_copied(exchange, _OWNER_COPY_MODE):
        raise invalid_header(_OWNER_COPY_MODE, "source")
    return given


def _is_copied(exchange: Exchange, name: str) -> bool:
    """Returns whether a property is copied from the source rather than set by the request."""
    written = exchange.header(name)
    if not written or written.lower() == "override":
        return False
    if written.lower() != "source":
        raise invalid_header(name, written)
    return True


# Ranges


def source_checksums(exchange: Exchange) -> checksums.SourceChecksums:
    """Returns the checksum that the bytes of a source must have, and those they must not have."""
    return checksums.source_checksums(exchange)._replace(
        if_match=_crc64(exchange, "x-ms-source-if-match-crc64"),
        if_none_match=_crc64(exchange, "x-ms-source-if-none-match-crc64"),
    )


def _crc64(exchange: Exchange, name: str) -> int | None:
    found = checksums.digest(exchange, name, checksums.CRC64_BYTES, "InvalidHeaderValue")
    return None if found is None else int.from_bytes(found, "little")
