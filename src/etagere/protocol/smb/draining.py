"""Ends the SMB sessions of accounts that move to another cell, before they are frozen.

A write is acknowledged before it is in the ledger (`opens/contents.py`), and a frozen account
cannot be written to. So the sessions end first, then their writes are stored, and only then is the
account frozen.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from etagere.engine.interface import Engine, Fault, Unknown
from etagere.model.cells import FreezeAccount
from etagere.opens.contents import FileContents
from etagere.opens.table import OpenTable
from etagere.operations.account_moves import (
    freeze_account,
    get_move,
    list_cancellable,
    list_draining,
)
from etagere.protocol.smb.session_table import SessionTable
from etagere.protocol.smb.sessions import end_session
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_SECONDS_MAX: Final = 20.0
"""How long an account is drained in one round; the next round continues."""
_POLL_SECONDS: Final = 0.02


class AccountDrains:
    """Drains the accounts that are to move, in the process that serves files."""

    def __init__(
        self,
        engine: Engine,
        opens: OpenTable,
        contents: FileContents | None,
        sessions: SessionTable,
    ) -> None:
        """`contents`: None if SMB is not served."""
        self._engine = engine
        self._opens = opens
        self._contents = contents
        self._sessions = sessions
        self._closed: set[str] = set()

    def is_closed(self, account: str) -> bool:
        """Returns whether an account was draining when this process last looked."""
        return account in self._closed

    async def is_moving(self, account: str) -> bool:
        """Returns whether an account is moving according to the ledger."""
        return await self._engine.read(get_move, account) is not None

    async def run(self) -> None:
        """Drains the accounts whose moves have begun."""
        draining = await self._engine.read(list_draining, None)
        # Before anything else is awaited: a logon that read the ledger earlier must find it.
        self._closed.update([one.account for one in draining])
        await asyncio.gather(*[self._try_to_drain(one) for one in draining])
        if self._closed:
            # The others have moved, and are unknown here, or are served again.
            names = tuple(sorted(self._closed))
            self._closed.intersection_update(await self._engine.read(list_cancellable, names))

    async def _try_to_drain(self, draining: FreezeAccount) -> None:
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                await self._drain(draining)
        except (Fault, Unknown, TimeoutError) as error:
            logger.warning(
                "cannot freeze account %s yet: %s", draining.account, describe_exception(error)
            )

    async def _drain(self, draining: FreezeAccount) -> None:
        account = draining.account
        ending = []
        for session, connection in self._sessions.authenticated():
            if session.account == account:
                logger.info(
                    "ended a session of SMB client %s: account %s moves to another cell",
                    connection.client,
                    account,
                )
                ending.append(end_session(connection, session))
        await asyncio.gather(*ending)
        # Sessions that ended before may still have requests.
        while self._opens.is_used_over_smb(account):
            if self._contents is not None:
                await self._contents.flush_account(account)
            await asyncio.sleep(_POLL_SECONDS)
        await self._engine.write(freeze_account, draining)
