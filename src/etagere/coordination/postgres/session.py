"""The one connection that a process has for coordination, and the thread that uses it.

A thread, because heartbeats must not wait for a busy event loop. It runs requests of the process
between heartbeats, and connects again when the connection is lost.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

import psycopg

from etagere import postgresql
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.postgresql import BoundedConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS_MAX: Final = 6.0
"""How long a request waits while the database is unavailable."""
ANSWER_SECONDS_MAX: Final = 3.0
"""A server that takes longer is considered to hang. A process has three attempts before its
membership expires."""
_RECONNECT_SECONDS: Final = 0.3
_CLOSE_SECONDS_MAX: Final = 2 * ANSWER_SECONDS_MAX


class DeclaredDead(Exception):
    """This process was declared dead."""


class _Request(NamedTuple):
    function: Callable[[BoundedConnection], Any]
    future: Future[Any]
    deadline: float


class Session:
    """Runs heartbeats and requests on one connection."""

    def __init__(
        self,
        connect: Callable[[], BoundedConnection],
        beat: Callable[[BoundedConnection], float],
        on_declared_dead: Callable[[], None],
    ) -> None:
        """`beat` returns the time until the next heartbeat in seconds, or raises `DeclaredDead`."""
        self._connect = connect
        self._beat = beat
        self._on_declared_dead = on_declared_dead
        self._connection: BoundedConnection | None = None
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        """None wakes the thread up."""
        self._waiting: list[_Request] = []
        """Requests that could not be run, in order."""
        self._ending = False
        self._is_unavailable = False
        self._thread = threading.Thread(target=self._run, name="coordination", daemon=True)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def start(self, connection: BoundedConnection) -> None:
        """Starts the heartbeats, on a connection that is open already."""
        self._connection = connection
        self._thread.start()

    def submit(self, function: Callable[[BoundedConnection], T]) -> Future[T]:
        """Runs a function on the connection, again if the connection is lost meanwhile. The future
        may raise `CoordinatorUnavailable`."""
        future: Future[T] = Future()
        if self._ending:
            future.set_exception(CoordinatorUnavailable("this process has ended its membership"))
        else:
            deadline = time.monotonic() + REQUEST_SECONDS_MAX
            self._requests.put(_Request(function, future, deadline))
        return future

    def close(self, leave: Callable[[BoundedConnection], object]) -> None:
        """Ends the heartbeats; `leave` is the last request."""
        if self._ending:
            return
        self._ending = True
        self._requests.put(None)
        self._thread.join(_CLOSE_SECONDS_MAX)
        connection = self._connection
        if self._thread.is_alive() or connection is None:
            return
        try:
            leave(connection)
        except psycopg.Error as error:
            logger.warning("cannot tell others that this process ends: %s", _describe(error))
        self._disconnect()

    def _run(self) -> None:
        next_beat = time.monotonic()
        try:
            while not self._ending:
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + self._try_beat()
                self._take_requests(next_beat)
                if not self._is_unavailable:
                    self._run_requests(next_beat)
                self._fail_overdue()
        except DeclaredDead:
            self._ending = True
            self._disconnect()
            self._on_declared_dead()
        except Exception:
            # Without heartbeats the process must not continue.
            logger.exception("coordination failed")
            self._ending = True
            self._on_declared_dead()
        finally:
            self._take_requests(0.0)
            for request in self._waiting:
                _fail(request)

    def _try_beat(self) -> float:
        """Returns the time until the next heartbeat."""
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._connect()
            pause = self._beat(connection)
        except psycopg.Error as error:
            self._lose_connection(error)
            return _RECONNECT_SECONDS * random.uniform(0.5, 1.5)
        if self._is_unavailable:
            self._is_unavailable = False
            logger.info("the coordination database answers again")
        return pause

    def _take_requests(self, until: float) -> None:
        """Waits for requests until a time, or until the first one arrives."""
        wait_seconds = until - time.monotonic()
        if self._waiting and not self._is_unavailable:
            wait_seconds = 0.0
        try:
            request = self._requests.get(timeout=max(0.0, wait_seconds))
            while True:
                if request is not None:
                    self._waiting.append(request)
                request = self._requests.get_nowait()
        except queue.Empty:
            pass

    def _run_requests(self, until: float) -> None:
        """Runs requests, at least one of them, until a time: a server that is slow to answer each
        must not keep this process from its heartbeats."""
        while self._waiting:
            request = self._waiting[0]
            connection = self._connection
            if connection is None:
                return
            if request.future.running() or request.future.set_running_or_notify_cancel():
                try:
                    request.future.set_result(request.function(connection))
                except psycopg.Error as error:
                    self._lose_connection(error)
                    return
                except Exception as error:
                    request.future.set_exception(error)
            del self._waiting[0]
            if time.monotonic() >= until:
                return

    def _fail_overdue(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0].deadline <= now:
            _fail(self._waiting.pop(0))

    def _lose_connection(self, error: psycopg.Error) -> None:
        if not self._is_unavailable:
            self._is_unavailable = True
            logger.warning("the coordination database does not answer: %s", _describe(error))
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _fail(request: _Request) -> None:
    future = request.future
    if future.running() or future.set_running_or_notify_cancel():
        future.set_exception(CoordinatorUnavailable("the coordination database does not answer"))


def _describe(error: psycopg.Error) -> str:
    return postgresql.describe(error)
