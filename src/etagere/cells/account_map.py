"""The account map, as a process of a node uses it.

Answers are cached for a few seconds. They may be outdated: the ledger of a cell decides whether the
cell serves an account. While the map cannot be read, the last answer is used, whatever its age.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from etagere.engine.interface import Conflict, Engine, Fault, FaultReason, Unknown
from etagere.model.cells import AccountCell, NamedCellNode
from etagere.operations.account_map import (
    get_account_cell,
    get_account_cells,
    get_account_entry,
    list_cell_nodes,
)
from etagere.rules.accounts import check_account_name
from etagere.telemetry.context import no_request

logger = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 5.0
"""The age at which a cached answer is looked up again."""
_KNOWN_WAIT_SECONDS_MAX: Final = 0.5
"""How long a request waits for the map before it uses an older answer."""
_UNKNOWN_WAIT_SECONDS_MAX: Final = 3.0
"""How long a request waits for the map if there is no older answer."""
_RETRY_SECONDS: Final = 1.0
"""How long the map is not read after a lookup has failed."""
_ACCOUNTS_MAX: Final = 20_000
_CELLS_MAX: Final = 1_000
_LOOKUPS_MAX: Final = 1_000
"""The most lookups under way at the same time."""

V = TypeVar("V")


class _Answer(NamedTuple, Generic[V]):
    """What the map answered, and when, by the monotonic clock."""

    value: V
    at: float


class _Lookups(Generic[V]):
    """Answers of the map by key. If there are too many, the least recently used one is dropped.
    Concurrent lookups of a key share one query."""

    def __init__(
        self, look_up: Callable[[str], Awaitable[V]], entries_max: int, now: Callable[[], float]
    ) -> None:
        self._look_up = look_up
        self._entries_max = entries_max
        self._now = now
        self._known: OrderedDict[str, _Answer[V]] = OrderedDict()
        self._absent: OrderedDict[str, _Answer[V]] = OrderedDict()
        """Empty answers. Anybody can ask for any number of accounts that do not exist, and the
        others must not be forgotten for them."""
        self._running: dict[str, asyncio.Task[V]] = {}
        self._retry_at = 0.0

    async def get(self, key: str) -> V:
        """Returns the answer for a key. Raises `Fault` if there is none."""
        answers = self._absent if key in self._absent else self._known
        known, now = answers.get(key), self._now()
        if known is not None:
            answers.move_to_end(key)
            if now - known.at < ANSWER_SECONDS_MAX or now < self._retry_at:
                return known.value
        elif now < self._retry_at or len(self._running) >= _LOOKUPS_MAX:
            raise Fault(FaultReason.UNAVAILABLE, "the account map cannot be read")
        wait = _UNKNOWN_WAIT_SECONDS_MAX if known is None else _KNOWN_WAIT_SECONDS_MAX
        task = self._task_of(key)
        await asyncio.wait((task,), timeout=wait)
        try:
            if task.done():
                return task.result()
            detail = f"no answer within {wait:g} s"
        except (Fault, Unknown, Conflict) as error:
            detail = str(error)
        self._note_failure(detail)
        if known is None:
            raise Fault(FaultReason.UNAVAILABLE, f"the account map cannot be read: {detail}")
        return known.value

    def expire(self, key: str) -> None:
        """Makes the next request look up a key again. The answer stays, in case that fails."""
        for answers in (self._known, self._absent):
            answer = answers.get(key)
            if answer is not None:
                answers[key] = answer._replace(at=-math.inf)

    def _task_of(self, key: str) -> asyncio.Task[V]:
        """Returns the task that looks up a key. It continues if the request that needs it ends."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self._look_up_and_store(key), context=no_request()
            )
            self._running[key] = task
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    async def _look_up_and_store(self, key: str) -> V:
        value = await self._look_up(key)
        self._known.pop(key, None)
        self._absent.pop(key, None)
        answers = self._known if value else self._absent
        answers[key] = _Answer(value, self._now())
        if len(answers) > self._entries_max:
            answers.popitem(last=False)
        self._retry_at = 0.0
        return value

    def _ended(self, key: str, task: asyncio.Task[V]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    def _note_failure(self, detail: str) -> None:
        now = self._now()
        if now >= self._retry_at:
            self._retry_at = now + _RETRY_SECONDS
            logger.warning("the account map cannot be read: %s", detail)

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AccountMap:
    """Which cell an account is in, and the nodes of each cell; belongs to one event loop."""

    def __init__(
        self,
        engine: Engine,
        own_cell: str,
        secret: bytes,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        closes_engine: bool = False,
    ) -> None:
        """`engine` is that of the ledger with the map."""
        self._engine = engine
        self._closes_engine = closes_engine
        self.own_cell = own_cell
        self.secret = secret
        """The secret with which the nodes of all cells authenticate each other."""
        self._cells: _Lookups[str] = _Lookups(
            lambda account: engine.read(get_account_cell, account), _ACCOUNTS_MAX, monotonic
        )
        self._nodes: _Lookups[Sequence[NamedCellNode]] = _Lookups(
            lambda cell: engine.read(list_cell_nodes, cell), _CELLS_MAX, monotonic
        )

    def __repr__(self) -> str:
        return f"AccountMap({self.own_cell!r})"

    async def cell_of(self, account: str) -> str:
        """Returns the name of the cell of an account, which may be any text; "" if it is in none.
        Raises `Fault` if the map cannot be read, and has not been before."""
        if check_account_name(account) is not None:
            return ""
        return await self._cells.get(account)

    async def nodes_of(self, cell: str) -> Sequence[NamedCellNode]:
        """Returns the nodes of a cell, in the order of their names; raises as `cell_of`."""
        return await self._nodes.get(cell)

    async def stored_nodes_of(self, cell: str) -> Sequence[NamedCellNode]:
        """Reads the nodes of a cell from the map, not from the cache. Raises `Fault`."""
        return await self._engine.read(list_cell_nodes, cell)

    async def stored_cells_of(self, accounts: Sequence[str]) -> dict[str, str]:
        """Reads the cells of accounts from the map, not from the cache. Raises `Fault`."""
        cells = await self._engine.read_in_thread(get_account_cells, tuple(accounts))
        return dict(zip(accounts, cells, strict=True))

    async def stored_entry(self, account: str) -> AccountCell | None:
        """Reads what the map has for an account, not from the cache. Raises `Fault`."""
        return await self._engine.read(get_account_entry, account)

    def expire(self, account: str) -> None:
        """Makes the next request look up the cell of an account again, because the cached one may
        be outdated."""
        self._cells.expire(account)

    async def close(self) -> None:
        await self._cells.close()
        await self._nodes.close()
        if self._closes_engine:
            await self._engine.close()
