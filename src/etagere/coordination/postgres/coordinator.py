"""The coordinator for processes of several machines: rows that expire, in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import psycopg

from etagere import postgresql
from etagere.coordination.interface import CoordinatorUnavailable, PinnedSegments
from etagere.coordination.pins import CountedPin
from etagere.coordination.postgres import statements
from etagere.coordination.postgres.published import (
    PublishedPins,
    SharedPins,
    StartedPinRounds,
    pinned_segments,
)
from etagere.coordination.postgres.session import ANSWER_SECONDS_MAX, DeclaredDead, Session
from etagere.model.ids import new_id
from etagere.postgresql import BoundedConnection, fetch_value

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Timing:
    """How often processes renew their membership. All processes of a cluster use the same."""

    heartbeat_seconds: float = 1.0
    lifetime_seconds: float = 10.0
    """How long a process without heartbeats is considered alive while the database answers."""
    gap_seconds_max: float = 2.5
    """If no process at all could renew its membership for longer, the database was unavailable."""


def exit_process() -> None:
    """Ends a process that was declared dead, at once: what it had is no longer its own."""
    os._exit(1)


class PostgresCoordinator:
    """Knows the other processes of the cluster that use a database."""

    def __init__(
        self,
        dsn: str,
        *,
        node: str = "",
        name: str = "process",
        schema: str = postgresql.SCHEMA,
        on_declared_dead: Callable[[], None] = exit_process,
        on_draining: Callable[[bool], None] = lambda _: None,
        timing: Timing | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        replaces_predecessor: bool = False,
    ) -> None:
        """Joins the cluster; waits for the database, and may raise `CoordinatorUnavailable`.

        `replaces_predecessor`: no other process of the node has this name, so that one with the
        same name is a predecessor that has ended. Nobody has to wait until its membership expires.

        `on_declared_dead` is called when this process was declared dead, and `on_draining` when its
        node is drained or resumed; both are called by another thread."""
        self._name = f"{name} of node {node}" if node else name
        self._dsn, self._schema = dsn, schema
        self._on_declared_dead, self._on_draining = on_declared_dead, on_draining
        self._timing = timing or Timing()
        self._clock = clock
        self.process_id = new_id()
        self.is_draining = False
        """Whether the node of this process is being drained."""
        self._pins = SharedPins()
        self._started_rounds = StartedPinRounds()
        self._published: bytes | None = None
        """The segments that the row of this process lists."""
        self._tasks: set[str] = set()
        """The tasks that this process works on, or is about to."""
        self._session = Session(self._connect, self._beat, self._stop_process)
        try:
            connection = self._join(node, name, replaces_predecessor=replaces_predecessor)
        except psycopg.Error as error:
            raise CoordinatorUnavailable(postgresql.describe(error)) from error
        self._session.start(connection)

    def _join(self, node: str, name: str, *, replaces_predecessor: bool) -> BoundedConnection:
        """Adds this process to the cluster. Returns the connection for its heartbeats."""
        lifetime = self._timing.lifetime_seconds
        member = {"id": self.process_id, "node": node, "name": name, "lifetime": lifetime}
        connection = self._connect()
        try:
            statements.create_tables(connection, self._schema)
            if replaces_predecessor:
                connection.execute(statements.REPLACE, member)
            connection.execute(statements.JOIN, member)
            self._beat(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> BoundedConnection:
        self._published = None
        return postgresql.connect(
            self._dsn,
            f"etagere {self._name}",
            self._schema,
            answer_seconds_max=ANSWER_SECONDS_MAX,
        )

    def is_connected(self) -> bool:
        """Returns whether this process has a connection for its heartbeats."""
        return self._session.is_connected

    def close(self) -> None:
        parameters = {"id": self.process_id}
        self._session.close(lambda connection: connection.execute(statements.LEAVE, parameters))

    async def _ask(self, function: Callable[[BoundedConnection], T]) -> T:
        return await asyncio.wrap_future(self._session.submit(function))

    # Heartbeats, by the thread of the session

    def _beat(self, connection: BoundedConnection) -> float:
        self._renew(connection)
        return self._timing.heartbeat_seconds

    def _renew(self, connection: BoundedConnection) -> None:
        """Renews the membership and publishes the pins. Publishes them again at once if there is a
        new pin round: pins count for it only if they were captured after this process had seen
        it."""
        pins = self._pins
        while True:
            pin_round = pins.last_pin_round
            captured = pins.capture()
            is_known = captured.segments == self._published
            row = connection.execute(
                statements.HEARTBEAT,
                {
                    "id": self.process_id,
                    "pin_round": pin_round,
                    "oldest": captured.oldest,
                    "segments": None if is_known else captured.segments,
                },
            ).fetchone()
            if row is None:
                raise DeclaredDead
            self._published = captured.segments
            last_pin_round, seconds_since_sweep, is_draining, held = row
            self._release_unused(connection, held)
            if abs(seconds_since_sweep) >= self._timing.heartbeat_seconds:
                self._sweep(connection)
            if is_draining != self.is_draining:
                self.is_draining = is_draining
                self._on_draining(is_draining)
            if last_pin_round <= pin_round:
                return
            pins.last_pin_round = last_pin_round

    def _sweep(self, connection: BoundedConnection) -> None:
        """Declares processes dead whose membership has expired."""
        timing = self._timing
        limits = {"pause": timing.heartbeat_seconds, "gap_max": timing.gap_seconds_max}
        for process_id, node, name in connection.execute(statements.SWEEP, limits):
            logger.warning(
                "%s of node %s (%s) is considered dead: it did not renew its membership for %g s",
                name,
                node or "-",
                process_id.hex(),
                timing.lifetime_seconds,
            )

    def _release_unused(self, connection: BoundedConnection, held: list[str]) -> None:
        """Releases tasks that this process has but does not work on: it could not release them, was
        cancelled while it waited for them, or got no answer. A request without an answer may give
        it the task much later, when the standby that it waits for is back."""
        unused = [task for task in held if task not in self._tasks]
        if unused:
            parameters = {"id": self.process_id, "tasks": unused}
            connection.execute(statements.RELEASE_UNUSED, parameters)

    def _stop_process(self) -> None:
        logger.critical(
            "%s was declared dead, because it did not renew its membership in time; it stops",
            self._name,
        )
        self._on_declared_dead()

    # Liveness

    async def is_alive(self, process_id: bytes) -> bool:
        parameters = {"id": process_id}
        is_alive = await self._ask(
            lambda connection: fetch_value(connection, statements.IS_ALIVE, parameters)
        )
        return bool(is_alive)

    # Tasks

    @contextlib.asynccontextmanager
    async def sole_worker(self, task: str) -> AsyncIterator[PostgresTaskLock | None]:
        if task in self._tasks or self.is_draining:
            yield None
            return
        self._tasks.add(task)
        try:
            epoch = await self._take(task)
            if epoch is None:
                yield None
                return
            try:
                yield PostgresTaskLock(self, task, epoch)
            finally:
                # If the database is unavailable, a later heartbeat releases it.
                with contextlib.suppress(CoordinatorUnavailable):
                    await self._release(task, epoch)
        finally:
            self._tasks.discard(task)

    async def _take(self, task: str) -> int | None:
        """Returns the epoch of the task, None if another process has it."""
        parameters = {"id": self.process_id, "task": task}

        def take(connection: BoundedConnection) -> int | None:
            row = connection.execute(statements.TAKE_TASK, parameters).fetchone()
            return None if row is None else row[0]

        return await self._ask(take)

    async def _release(self, task: str, epoch: int) -> None:
        parameters = {"id": self.process_id, "task": task, "epoch": epoch}
        await self._ask(lambda connection: connection.execute(statements.RELEASE_TASK, parameters))

    async def holds(self, task: str, epoch: int) -> bool:
        """Returns whether this process has a task since it was given this epoch."""
        parameters = {"id": self.process_id, "task": task, "epoch": epoch}

        return bool(
            await self._ask(
                lambda connection: fetch_value(connection, statements.HOLDS_TASK, parameters)
            )
        )

    # Pins

    def pin(self) -> CountedPin:
        return self._pins.pin()

    def timestamp(self) -> int:
        return self._clock()

    async def pinned(self) -> PinnedSegments:
        """Starts a pin round, and waits until each process has published its pins or is dead."""
        started_at = self._clock()
        pin_round = await self._ask(
            lambda connection: fetch_value(connection, statements.START_PIN_ROUND)
        )
        self._started_rounds.add(pin_round, started_at)
        while True:
            pinned = await self._ask(lambda connection: self._pinned_in(connection, pin_round))
            if pinned is not None:
                return pinned
            await asyncio.sleep(_POLL_SECONDS)

    def _pinned_in(self, connection: BoundedConnection, pin_round: int) -> PinnedSegments | None:
        """Returns what is pinned, None if a process has not published its pins in the round yet."""
        own = self._pins.capture()
        rows = connection.execute(statements.PUBLISHED, {"id": self.process_id}).fetchall()
        if any(last_pin_round < pin_round for last_pin_round, _, _ in rows):
            return None
        published = [own, *(PublishedPins(*pins) for _, *pins in rows)]
        return pinned_segments(published, self._started_rounds)


class PostgresTaskLock:
    """A task that this process has, until it is declared dead."""

    def __init__(self, coordinator: PostgresCoordinator, task: str, epoch: int) -> None:
        self._coordinator = coordinator
        self._task = task
        self.epoch = epoch

    async def is_held(self) -> bool:
        return await self._coordinator.holds(self._task, self.epoch)
