"""The servers that smbtorture is run against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from azure.storage.fileshare import ShareServiceClient

from tests.server import ACCOUNT, KEY, Server


class SmbServer(NamedTuple):
    """What a client needs to know."""

    port: int
    user: str
    password: str
    shares: tuple[str, ...]
    pid: int
    """Of the process that started the others."""


@contextlib.contextmanager
def etagere(directory: Path, shares: Sequence[str]) -> Iterator[SmbServer]:
    """Runs a new server, as a user would start it; its log stays beside the directory."""
    server = Server(directory, "--smb-port", "0", "--workers", "1")
    server.start()
    try:
        service = ShareServiceClient.from_connection_string(server.connection_string("file"))
        with service:
            for share in shares:
                service.create_share(share)
        port = urlsplit(server.endpoints["smb"]).port
        assert port is not None
        yield SmbServer(port, ACCOUNT, KEY, tuple(shares), server.pid)
    finally:
        server.kill()
