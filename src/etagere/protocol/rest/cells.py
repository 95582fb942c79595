"""Finding the cell that serves a request, if accounts are in several cells.

The ledger of a cell decides whether the cell serves an account. The account map only tells where to
look for an account that is not in this cell.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from http import HTTPStatus
from typing import Final, Protocol

from etagere.engine.interface import Engine, Fault, Refused
from etagere.errors import Refusal
from etagere.model.accounts import Account
from etagere.model.cells import AccountMove, MoveState
from etagere.operations.account_moves import locate_account
from etagere.protocol.http.messages import Response
from etagere.protocol.relay.relaying import Relay
from etagere.protocol.rest.exchange import Exchange
from etagere.rules.accounts import check_account_name

logger = logging.getLogger(__name__)

_SERVED: Final = (MoveState.DRAINING, MoveState.FROZEN)
"""The states of a move in which the source still serves the account."""


class AccountCells(Protocol):
    """Knows the cells of accounts."""

    own_cell: str

    async def cell_of(self, account: str) -> str:
        """Returns the cell of an account; "" if it is in none. Raises `Fault` if it is not
        known."""
        ...

    def expire(self, account: str) -> None:
        """Makes the next request look up the cell of an account again, if that is possible."""
        ...


class Cells:
    """Finds the accounts of requests in this cell, and relays requests to others."""

    def __init__(
        self,
        engine: Engine,
        account_cells: AccountCells,
        configured: Collection[str],
        relay: Relay,
    ) -> None:
        """`configured` are accounts that are not in the ledger, and served by every cell."""
        self._engine = engine
        self._account_cells = account_cells
        self._configured = configured
        self.relay = relay

    async def look_up(self, exchange: Exchange) -> str:
        """Looks up the account of a request. Returns the cell that it is in; "" if it is this one,
        or none. Raises `Refused` while the account cannot be served."""
        name = exchange.request.account
        if name in self._configured or check_account_name(name) is not None:
            return ""
        account, move = await self._engine.read(locate_account, name)
        if account is not None and (move is None or move.state in _SERVED):
            exchange.stored_account = account
            return ""
        if move is not None and move.state is MoveState.INCOMING:
            return await self._cell_of_incoming(name, move)
        return await self._other_cell(name, move)

    async def _cell_of_incoming(self, name: str, move: AccountMove) -> str:
        """Returns the cell that serves an account whose data has arrived here. That is the source,
        unless the move was cancelled and the account has moved to a third cell since."""
        try:
            return await self._other_cell(name, move)
        except Fault:
            return move.cell

    async def _other_cell(self, name: str, move: AccountMove | None) -> str:
        cell = await self._account_cells.cell_of(name)
        if cell not in ("", self._account_cells.own_cell):
            return cell
        # The map is changed after the account has moved.
        return "" if move is None else move.cell

    async def find_for_smb(self, name: str) -> Account | None:
        """Returns the account of a name, which may be any text, if it is in this cell. Clients that
        know its key are refused while it moves (`smb/draining.py`), others at any time. SMB is not
        relayed, so the log says where the account is."""
        account, move = await self._engine.read(locate_account, name)
        if account is not None:
            return account
        if check_account_name(name) is None:
            with contextlib.suppress(Fault):  # the logon fails anyway
                cell = await self._other_cell(name, move)
                if cell:
                    logger.info(
                        "SMB clients of account %s have to use a node of cell %s", name, cell
                    )
        return None

    def expire(self, account: str) -> None:
        """Makes the next request look up the cell of an account again: the cached one did not
        serve it."""
        self._account_cells.expire(account)

    async def relayed(self, exchange: Exchange, cell: str) -> Response:
        """Returns the response of a cell to a request."""
        if exchange.http.is_relayed or exchange.is_nested:
            # The cached answer of the map is outdated, in this node or in the one that relays.
            raise Refused(Refusal("ServerBusy"))
        response = await self.relay.relay(cell, exchange.request.service, exchange.http)
        if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            # Perhaps because the account has moved from that cell.
            self.expire(exchange.request.account)
        for name, value in response.headers:
            if name == b"x-ms-request-id":
                # The ID that the client knows.
                exchange.request_id = value.decode("latin-1")
        return response
