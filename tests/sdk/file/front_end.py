"""A front end of the file service in the process of the test, whose table of opens tests use.

It serves the data of a running server, next to the front ends of that server, and is put together
from the same parts. Tests open handles in its table, as SMB clients do in that of a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.front import file
from etagere.front.process import FrontEndContext
from etagere.model.files import EntryPath
from etagere.model.shares import ShareName, ShareRef
from etagere.node.embedded import attach
from etagere.opens.client import ShareClient, connect
from etagere.opens.handles import Handle, Session
from etagere.opens.requests import CachingRequest, OpenRequest
from etagere.opens.table import OpenTable
from etagere.operations.file import shares
from etagere.protocol.access_log import AccessLog
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.sharing import single_front_end
from etagere.protocol.http.server import HttpServer
from etagere.protocol.rest.authentication import Authenticator
from etagere.rules.opens import EVERYTHING, Access, OpenMode
from etagere.settings import Settings
from tests.server import ACCOUNT, SECONDS_MAX, SERVICES, Server

T = TypeVar("T")

SESSION = Session(41, "10.0.0.1:50000", "workstation & <co>")


class FileFrontEnd:
    """The front end, and the clients that have files open."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._clients: dict[str, ShareClient] = {}
        self._steps: list[Callable[[], Awaitable[object]]] = []
        self.told: list[Handle] = []
        """The handles that others have closed."""

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        directory, config, settings = self._server.directory, Config(), Settings()
        storage = await attach(directory, config)
        self.engine = storage.engine
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        context = FrontEndContext(
            directory,
            config,
            settings,
            dict.fromkeys(SERVICES, 0) | {"file": self.port},
            storage,
            Authenticator(self.engine, settings, {"file": shares.policies_of}),
            AccessLog(),
            single_front_end(),
            MemoryBudget(),
        )
        self.table = OpenTable(self.engine)
        assembly = file.assemble_with(context, self.table)
        (service,) = assembly.services
        http = HttpServer(service, listener)
        http.start()
        self._steps = [
            lambda: http.drain(0.0),
            *(step for _, step in assembly.closing),
            storage.store.close,
            self.engine.close,
        ]

    def stop(self) -> None:
        try:
            self.run(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS_MAX)
            self._loop.close()

    async def _stop(self) -> None:
        for step in self._steps:
            await step()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the front end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)

    def call(self, change: Any, *arguments: Any) -> None:
        """Calls a function in the front end."""

        async def work() -> None:
            change(*arguments)

        self.run(work())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    # Clients

    def client(self, share: str) -> ShareClient:
        if share not in self._clients:
            name = ShareName(ACCOUNT, share)
            connecting = connect(
                self.engine, self.table, name, SESSION, SystemClock(), self.told.append
            )
            self._clients[share] = self.run(connecting)
        return self._clients[share]

    def open(
        self,
        share: str,
        path: str,
        access: Access = Access.READ,
        share_mode: Access = EVERYTHING,
        *,
        snapshot: int | None = None,
        caching: CachingRequest | None = None,
    ) -> Handle:
        components = tuple(path.split("/")) if path else ()
        at = EntryPath(ShareRef(ShareName(ACCOUNT, share), snapshot), components)
        mode = OpenMode(access, share_mode)
        request = OpenRequest(at, mode, caching=caching)
        return self.run(self.client(share).open(request)).handle

    def close(self, share: str, *handles: Handle) -> None:
        for handle in handles:
            self.run(self.client(share).close(handle))

    def close_all(self, share: str) -> None:
        client = self._clients.pop(share, None)
        if client is not None:
            self.run(client.disconnect())


@contextlib.contextmanager
def file_front_end(server: Server) -> Iterator[FileFrontEnd]:
    front_end = FileFrontEnd(server)
    front_end.start()
    try:
        yield front_end
    finally:
        front_end.stop()
