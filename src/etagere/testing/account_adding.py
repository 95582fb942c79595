"""Adding accounts to a running server. Apart from `server`, because its imports take time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from etagere.engine.interface import Refused
from etagere.engine.sqlite import SqliteEngine
from etagere.model.accounts import AddAccount, new_key
from etagere.operations.accounts import add_account


def add(directory: Path, name: str) -> bytes:
    """Adds an account with random keys to the server that uses this directory; returns its first
    key. Raises ValueError if the server refuses the name."""
    command = AddAccount(name, new_key(), new_key())
    # In a thread: this one may be running an event loop.
    with ThreadPoolExecutor(1, "etagere-account") as thread:
        thread.submit(_run, directory, command).result()
    return command.key1


def _run(directory: Path, command: AddAccount) -> None:
    # Not the loop of the application's policy, which may return a loop that does not support this.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_write(directory, command))


async def _write(directory: Path, command: AddAccount) -> None:
    engine = SqliteEngine(directory)
    try:
        await engine.write(add_account, command)
    except Refused as refused:
        raise ValueError(f"account {command.name}: {refused.refusal.message}") from None
    finally:
        await engine.close()
