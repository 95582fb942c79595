"""The named pipes of IPC$."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etagere.engine.interface import ReadClass, ReadTxn, Refused, Steps
from etagere.model.shares import GetShare, ListShares, ShareName, ShareProtocol, ShareRef, ShareRow
from etagere.nt_status import NtStatus
from etagere.operations.file import listing
from etagere.operations.file.shares import get_share
from etagere.operations.pages import FillPage
from etagere.protocol.smb.rpc import RpcPipe
from etagere.protocol.smb.srvsvc import PIPE, ListedShares, ServerService
from etagere.protocol.smb.status import SmbError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etagere.engine.interface import Engine
    from etagere.protocol.smb.services import SmbServices

_ROWS_AT_ONCE: Final = 500


def open_pipe(services: SmbServices, account: str, name: str) -> RpcPipe:
    """Opens a pipe by its name; raises `SmbError`."""
    if name.lower() != PIPE:
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    shares = _AccountShares(services.engine, account)
    service = ServerService(services.name, shares.list, shares.contains)
    return RpcPipe(service.interface())


class _AccountShares:
    """The shares of an account that SMB clients can use."""

    def __init__(self, engine: Engine, account: str) -> None:
        self._engine = engine
        self._account = account

    async def list(self, marker: str, limit: int) -> ListedShares:
        asked = ListShares(self._account, limit=limit, marker=marker)
        command = FillPage(asked, lambda _now: _SharePage())
        read_class = ReadClass("listing", self._account)
        return await self._engine.read_in_steps(_list_names, command, read_class)

    async def contains(self, name: str) -> bool:
        try:
            found = await self._engine.read(
                get_share, GetShare(ShareRef(ShareName(self._account, name)))
            )
        except Refused:
            return False
        return found.share.settings.protocol is ShareProtocol.SMB


class _SharePage:
    """The names of the shares of a page."""

    rows_at_once = _ROWS_AT_ONCE

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, rows: Sequence[ShareRow]) -> int:
        is_smb = ShareProtocol.SMB
        self.names += [row.name for row in rows if row.share.settings.protocol is is_smb]
        return len(rows)


def _list_names(txn: ReadTxn, command: FillPage[ListShares, ShareRow]) -> Steps[ListedShares]:
    filled = yield from listing.list_shares(txn, command)
    page, following = filled.page, filled.following
    assert isinstance(page, _SharePage)
    return ListedShares(page.names, "" if following is None else following.name)
