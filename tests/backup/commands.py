"""`etagere backup` and `etagere restore`, as a user runs them and, where it makes no difference, in
the process of the test, which takes less time."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from etagere.cli.main import main
from tests.server import environment

COMMAND = [sys.executable, "-m", "etagere"]
_SECONDS_MAX = 120.0


def etagere_here(*arguments: str | Path, status: int = 0) -> str:
    """Runs a command in this process; returns its output, or its error if it is expected to
    fail."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        returned = main([str(argument) for argument in arguments])
    assert returned == status, errors.getvalue()
    return errors.getvalue() if status == 2 else out.getvalue()


def etagere(*arguments: str | Path, status: int = 0) -> str:
    """Runs a command; returns its output, or its error if it is expected to fail."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == status, done
    return done.stderr if status == 2 else done.stdout


def back_up(backup: Path, directory: Path, *flags: str) -> dict[str, Any]:
    """Takes a backup; returns its point."""
    output = etagere("backup", backup, "--data", directory, "--json", *flags)
    point: dict[str, Any] = json.loads(output)["point"]
    return point
