"""Helper processes of a test, each running the methods it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

_SECONDS_MAX = 30.0


class HelperError(Exception):
    """A method raised an exception in a helper process."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class HelperProcess:
    """A process forked from this one. It creates a session and runs the methods it is sent. Fork it
    before anything is opened in this process: it inherits everything, locks included."""

    _running: set[HelperProcess] = set()  # noqa: RUF012 - one for all, on purpose

    def __init__(self, session: Callable[[], object]) -> None:
        self._pipe, child_pipe = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(child_pipe, session)
        child_pipe.close()
        HelperProcess._running.add(self)

    def _become(self, pipe: Connection[Any, Any], session: Callable[[], object]) -> None:
        try:
            # Otherwise they would not notice the end of the test.
            for other in (self, *HelperProcess._running):
                other._pipe.close()
            asyncio.run(_serve(pipe, session()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def call(self, method: str, *arguments: object) -> Any:
        """Runs a method; returns what it returns, raises `HelperError` if it raises."""
        self.send(method, *arguments)
        return self.receive()

    def send(self, method: str, *arguments: object) -> None:
        self._pipe.send((method, arguments))

    def receive(self, seconds_max: float = _SECONDS_MAX) -> Any:
        if not self._pipe.poll(seconds_max):
            raise TimeoutError("a helper process does not answer")
        succeeded, answer = self._pipe.recv()
        if not succeeded:
            raise HelperError(*answer)
        return answer

    def kill(self) -> None:
        """Kills the process, as in a crash."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self._pipe.close()
            HelperProcess._running.discard(self)

    def __enter__(self) -> HelperProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


async def _serve(pipe: Connection[Any, Any], session: object) -> None:
    """Runs methods until the other end closes. The event loop runs between two commands, so that
    connections and tasks of the session live as in a server."""
    arrived = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), arrived.set)
    while True:
        await arrived.wait()
        arrived.clear()
        while pipe.poll():
            try:
                method, arguments = pipe.recv()
            except EOFError:
                return
            pipe.send(await _answer(getattr(session, method), arguments))


async def _answer(method: Callable[..., Any], arguments: tuple[object, ...]) -> tuple[bool, Any]:
    try:
        return True, await method(*arguments)
    except Exception as error:
        return False, (type(error).__name__, str(error))
