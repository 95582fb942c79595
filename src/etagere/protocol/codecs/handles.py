"""Lists of open handles as XML."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.opens.handles import Handle
from etagere.protocol.codecs import xml
from etagere.rules.dates import format_http_date
from etagere.rules.opens import Access

_ACCESS_RIGHTS_SINCE: Final = "2023-01-03"
_CLIENT_NAME_SINCE: Final = "2024-02-04"
_STEP_HANDLES: Final = 64
_NAMES: Final = ((Access.READ, "Read"), (Access.WRITE, "Write"), (Access.DELETE, "Delete"))


def _access_rights(access: Access) -> str:
    rights = "".join(f"<AccessRight>{name}</AccessRight>" for one, name in _NAMES if access & one)
    return f"<AccessRightList>{rights}</AccessRightList>" if rights else "<AccessRightList />"


_RIGHTS: Final = {access: _access_rights(access) for access in map(Access, range(8))}


class EncodedHandles(NamedTuple):
    """The encoded handles of a page."""

    text: str
    handles: int
    """How many of the handles there was room for."""


def encode(
    handles: Sequence[Handle], version: str, bytes_max: int
) -> Generator[None, None, EncodedHandles]:
    """Encodes handles, at least one and as many as fit into `bytes_max`, in steps."""
    parts: list[str] = []
    left = bytes_max
    for count, handle in enumerate(handles):
        text = _handle(handle, version)
        left -= len(text.encode())
        if left < 0 and parts:
            break
        parts.append(text)
        if not count % _STEP_HANDLES:
            yield
    return EncodedHandles("".join(parts), len(parts))


def _handle(handle: Handle, version: str) -> str:
    entry, session = handle.entry, handle.session
    path = xml.name_element("Path", entry.path) if entry.path else "<Path />"
    rights = name = reconnected = ""
    if version >= _ACCESS_RIGHTS_SINCE:
        rights = _RIGHTS[handle.mode.access]
    if version >= _CLIENT_NAME_SINCE:
        name = xml.element("ClientName", session.client_name)
    if handle.reconnected is not None:
        reconnected = f"<LastReconnectTime>{_date(handle.reconnected)}</LastReconnectTime>"
    return (
        f"<Handle><HandleId>{handle.id}</HandleId>{path}<FileId>{entry.id}</FileId>"
        f"<ParentId>{entry.parent_id}</ParentId><SessionId>{session.id}</SessionId>{rights}"
        f"<ClientIp>{xml.escape(session.client_address)}</ClientIp>{name}"
        f"<OpenTime>{_date(handle.opened)}</OpenTime>{reconnected}</Handle>"
    )


def _date(ticks: int) -> str:
    return format_http_date(ticks // TICKS_PER_SECOND)
