"""Malformed messages of an authenticated client: each is refused, and nothing breaks.

A message is a valid one with a few bytes changed. To repeat a run, set `SEED`.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest
from azure.storage.fileshare import ShareClient

from etagere.protocol.smb.header import Command
from tests.protocol.smb.frames import SocketClient, negotiate_body
from tests.server import Server
from tests.smb.fuzzing import Fuzzer, connect

SEED: Final = 20_260_101
SHORT_MESSAGES: Final = 1_500
LONG_MESSAGES: Final = 100_000


def fuzz(server: Server, share: str, seed: int, messages: int) -> None:
    async def run() -> None:
        client = await connect(server, share)
        fuzzer = Fuzzer(client, share, seed)
        try:
            await fuzzer.run(messages)
        finally:
            client.writer.close()
        # Most commands got past their first check now and then.
        assert fuzzer.statuses[0] > messages / 10, fuzzer.statuses

    asyncio.run(run())
    assert "Traceback" not in server.log()


def test_changed_messages(server: Server, share: ShareClient) -> None:
    fuzz(server, share.share_name, SEED, SHORT_MESSAGES)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_many_changed_messages(server: Server, share: ShareClient, seed: int) -> None:
    fuzz(server, share.share_name, seed, LONG_MESSAGES)


def test_changed_negotiations(server: Server) -> None:
    async def run() -> None:
        changes = Fuzzer.__new__(Fuzzer)
        changes.random = random.Random(SEED)
        port = int(server.endpoints["smb"].rpartition(":")[2])
        for _ in range(200):
            client = SocketClient(*await asyncio.open_connection("127.0.0.1", port))
            body = negotiate_body([0x210, 0x311], 1, 0x44, (1, 2), (0, 1, 2), None)
            client.give(client.message(Command.NEGOTIATE, changes.changed(body)))
            client.writer.write_eof()
            assert await client.is_closed()
            client.writer.close()

    asyncio.run(run())
    assert "Traceback" not in server.log()
