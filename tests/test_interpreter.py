"""The choice of interpreter for the environment that `make` creates."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parent.parent / "scripts/python.sh"
_SYSTEM = "/usr/bin/python3"
_COMPLETE = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"


def _chosen(path: str) -> str:
    environment = os.environ | {"PATH": path}
    done = subprocess.run([_SCRIPT], env=environment, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def _is_complete(interpreter: str) -> bool:
    try:
        return subprocess.run([interpreter, "-c", _COMPLETE], check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_the_system_interpreter_is_preferred(tmp_path: Path) -> None:
    if not _is_complete(_SYSTEM):
        pytest.skip(f"{_SYSTEM} is too old or has no venv")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
    other.chmod(0o755)
    assert _chosen(f"{tmp_path}:{os.environ['PATH']}") == _SYSTEM


def test_the_chosen_interpreter_can_create_an_environment() -> None:
    if not (_is_complete(_SYSTEM) or _is_complete("python3")):
        pytest.skip("a package has to be installed first")
    assert _is_complete(_chosen(os.environ["PATH"]))
