"""A process that keeps a snapshot of a ledger."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from etagere.engine import ledger

_READ = """
import sqlite3, sys
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM timeline").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def foreign_reader(directory: Path) -> Iterator[None]:
    """Holds a snapshot of the ledger in a directory as long as the context is open."""
    command = [sys.executable, "-c", _READ, str(ledger.database_path(directory))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        yield
        process.communicate()
