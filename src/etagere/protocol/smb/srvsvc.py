"""The Server Service Remote Protocol ([MS-SRVS]): which shares there are, for `net view` and
`smbclient -L`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from etagere.protocol.smb.ndr import NdrReader, NdrWriter
from etagere.protocol.smb.rpc import BAD_STUB_DATA, Interface, RpcFault

PIPE: Final = "srvsvc"
_UUID: Final = UUID("4b324fc8-1670-01d3-1278-5a47bf6ee188").bytes_le
_VERSION: Final = 3

_DISK: Final = 0x0000_0000
_IPC: Final = 0x8000_0003
"""STYPE_IPC with STYPE_SPECIAL ([MS-SRVS] 2.2.2.4)."""
_USERS_MAX: Final = 0xFFFF_FFFF
_PLATFORM_NT: Final = 500
_SERVER_TYPE: Final = 0x0000_9003
"""A workstation and server of type NT ([MS-SRVS] 2.2.2.7)."""
_VERSION_MAJOR: Final = 10
_VERSION_MINOR: Final = 0

_SUCCESS: Final = 0
_MORE_DATA: Final = 234
_INVALID_LEVEL: Final = 124
_NET_NAME_NOT_FOUND: Final = 2310

_LEVELS: Final = (0, 1, 2)
_ENTRY_BYTES: Final = 128
"""About what a share takes in a response, to keep within the length that a client prefers."""
SHARES_MAX: Final = 5_000
"""The maximum number of shares in a response."""


class ListedShares(NamedTuple):
    """Shares in the order of their names."""

    names: Sequence[str]
    following: str
    """The name of the next one; empty: there is none."""


ListShares = Callable[[str, int], Awaitable[ListedShares]]
"""Lists shares: from which name on, and how many at most."""
HasShare = Callable[[str], Awaitable[bool]]


class _Row(NamedTuple):
    name: str
    type: int
    comment: str = ""


_IPC_ROW: Final = _Row("IPC$", _IPC, "Remote IPC")


class ServerService:
    """The calls of the protocol, for one client."""

    def __init__(self, server_name: str, list_shares: ListShares, has_share: HasShare) -> None:
        self._server_name = server_name
        self._list_shares = list_shares
        self._has_share = has_share
        self._resume = (0, "")
        """How many shares the client has got, and the name of the next one."""

    def interface(self) -> Interface:
        calls = {
            15: self._enumerate_shares,
            16: self._get_share_info,
            21: self._get_server_info,
        }
        return Interface(PIPE, _UUID, _VERSION, calls)

    async def _enumerate_shares(self, parameters: memoryview) -> bytes:
        """NetrShareEnum ([MS-SRVS] 3.1.4.8)."""
        reader = NdrReader(parameters)
        if reader.pointer():
            reader.string()
        level, switch = reader.word(), reader.word()
        if switch != level:
            raise RpcFault(BAD_STUB_DATA)
        if reader.pointer():
            reader.word()
            if reader.pointer():
                # A client has no shares to tell, so the array is empty if it is there at all.
                raise RpcFault(BAD_STUB_DATA)
        bytes_max = reader.word()
        resumed = reader.word() if reader.pointer() else None
        writer = NdrWriter()
        if level not in _LEVELS:
            _write_container(writer, level, None)
            _write_end(writer, 0, None, _INVALID_LEVEL)
            return writer.getvalue()
        skipped, marker = self._resume if resumed == self._resume[0] else (0, "")
        limit = min(SHARES_MAX, max(1, bytes_max // _ENTRY_BYTES))
        listed = await self._list_shares(marker, limit)
        rows = [_Row(name, _DISK) for name in listed.names]
        known = skipped + len(rows)
        is_complete = not listed.following
        self._resume = (0, "") if is_complete else (known, listed.following)
        if is_complete:
            rows.append(_IPC_ROW)
        _write_container(writer, level, rows)
        resume = None if resumed is None else self._resume[0]
        _write_end(writer, known + 1, resume, _SUCCESS if is_complete else _MORE_DATA)
        return writer.getvalue()

    async def _get_share_info(self, parameters: memoryview) -> bytes:
        """NetrShareGetInfo ([MS-SRVS] 3.1.4.10)."""
        reader = NdrReader(parameters)
        if reader.pointer():
            reader.string()
        name, level = reader.string(), reader.word()
        row, status = None, _SUCCESS
        if level not in _LEVELS:
            status = _INVALID_LEVEL
        elif name.upper() == _IPC_ROW.name:
            row = _IPC_ROW
        elif await self._has_share(name.lower()):
            row = _Row(name.lower(), _DISK)
        else:
            status = _NET_NAME_NOT_FOUND
        writer = NdrWriter()
        writer.word(level)
        writer.pointer(is_null=row is None)
        if row is not None:
            _write_rows(writer, level, [row])
        writer.word(status)
        return writer.getvalue()

    async def _get_server_info(self, parameters: memoryview) -> bytes:
        """NetrServerGetInfo ([MS-SRVS] 3.1.4.17), levels 100 and 101."""
        reader = NdrReader(parameters)
        if reader.pointer():
            reader.string()
        level = reader.word()
        writer = NdrWriter()
        writer.word(level)
        if level not in (100, 101):
            writer.pointer(is_null=True)
            writer.word(_INVALID_LEVEL)
            return writer.getvalue()
        writer.pointer()
        writer.word(_PLATFORM_NT)
        writer.pointer()
        if level == 101:
            writer.word(_VERSION_MAJOR)
            writer.word(_VERSION_MINOR)
            writer.word(_SERVER_TYPE)
            writer.pointer()
        writer.string(self._server_name)
        if level == 101:
            writer.string("")
        writer.word(_SUCCESS)
        return writer.getvalue()


def _write_container(writer: NdrWriter, level: int, rows: Sequence[_Row] | None) -> None:
    """SHARE_ENUM_STRUCT ([MS-SRVS] 2.2.4.38)."""
    writer.word(level)
    writer.word(level)
    writer.pointer(is_null=rows is None)
    if rows is None:
        return
    writer.word(len(rows))
    writer.pointer()
    writer.word(len(rows))
    _write_rows(writer, level, rows)


def _write_rows(writer: NdrWriter, level: int, rows: Sequence[_Row]) -> None:
    """SHARE_INFO_0, SHARE_INFO_1 and SHARE_INFO_2 ([MS-SRVS] 2.2.4.22 to 2.2.4.24): first all
    structures, then the strings that they point to."""
    for row in rows:
        writer.pointer()
        if level >= 1:
            writer.word(row.type)
            writer.pointer()
        if level == 2:
            writer.word(0)
            writer.word(_USERS_MAX)
            writer.word(0)
            writer.pointer()
            writer.pointer(is_null=True)
    for row in rows:
        writer.string(row.name)
        if level >= 1:
            writer.string(row.comment)
        if level == 2:
            writer.string("")


def _write_end(writer: NdrWriter, total: int, resume: int | None, status: int) -> None:
    writer.word(total)
    writer.pointer(is_null=resume is None)
    if resume is not None:
        writer.word(resume)
    writer.word(status)
