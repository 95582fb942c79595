"""A process that moves accounts between cells."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from typing import Final

import msgspec
import psycopg

from etagere.node.account_move import endpoints_of, move_account
from etagere.node.account_move_steps import Moved, Step
from etagere.postgresql import SCHEMA
from etagere.settings.loading import load
from tests.clusters.cells import Cell
from tests.server import environment

KEY: Final = base64.b64encode(bytes([7]) * 64).decode()
"""Of accounts that are moved."""
_SECONDS_MAX: Final = 120.0


def add_account(cell: Cell, name: str) -> None:
    done = cell.command("account", "add", name, "--key", KEY)
    assert done.returncode == 0, done.stderr


def check(cell: Cell) -> str:
    """Runs `etagere check`; returns what it finds."""
    done = cell.command("check", "--bodies", cell.bodies)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def has_purged(cell: Cell) -> bool:
    """Returns whether the records of all accounts, containers and shares that have moved or were
    deleted are gone."""
    with psycopg.connect(cell.dsn, options=f"-c search_path={SCHEMA}") as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM accounts_to_purge)"
            " + (SELECT count(*) FROM deleted_containers)"
            " + (SELECT count(*) FROM shares_to_purge)"
        ).fetchone()
    return row == (0,)


def run_move(
    account: str, source: Cell, target: Cell, *words: str
) -> subprocess.CompletedProcess[str]:
    """Runs `etagere account move`."""
    files = ["--config", str(source.configuration()), "--to", str(target.configuration())]
    return source.command("account", "move", account, *files, *words)


def start(
    account: str, source: Cell, target: Cell, kill_after: Step | None = None
) -> subprocess.Popen[str]:
    """Moves an account in a process of its own, which kills itself after a step."""
    step = "" if kill_after is None else kill_after.name
    words = [account, str(source.configuration()), str(target.configuration()), step]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.clusters.moving", *words],
        env={**environment(), **source.variables, **target.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def move(account: str, source: Cell, target: Cell) -> Moved:
    """Moves an account."""
    process = start(account, source, target)
    output, error = process.communicate(timeout=_SECONDS_MAX)
    assert process.returncode == 0, error
    return msgspec.json.decode(output, type=Moved)


def move_until(account: str, source: Cell, target: Cell, step: Step) -> None:
    """Begins to move an account, and kills the process that does after a step."""
    process = start(account, source, target, step)
    _, error = process.communicate(timeout=_SECONDS_MAX)
    assert process.returncode == -signal.SIGKILL, error


def _main() -> None:
    account, source, target, kill_after = sys.argv[1:]

    def report(step: Step) -> None:
        print(step, file=sys.stderr, flush=True)
        if step.name == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    endpoints = endpoints_of(load({"config": source}, {}), load({"config": target}, {}))
    moved = move_account(account, endpoints, keep_seconds=0, report=report)
    print(msgspec.json.encode(moved).decode())


if __name__ == "__main__":
    _main()
