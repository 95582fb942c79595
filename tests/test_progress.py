"""The progress lines of a run of the long tests."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.progress import _EXPECTED_SECONDS, minutes

ROOT = Path(__file__).parents[1]

TESTS = """
import time, pytest
@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_many_kills(number):
    time.sleep(0.1)
@pytest.mark.long
def test_short():
    pass
def test_other():
    pass
"""


def run(directory: Path, *flags: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(directory)]
    command += ["-o", "markers=long", *flags, "test_some.py"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_estimates_come_from_the_table_and_then_from_the_last_run(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, "utf-8")
    first = run(tmp_path, "-m", "long")
    assert "4 long tests, about 45 min in all" in first
    assert re.search(
        r"1 of 4 done, \d+ s elapsed, about 30 min left; test_some\.py::test_many_kills\[1\]", first
    )
    assert re.search(r"4 long tests, about \d+ s in all", run(tmp_path, "-m", "long"))
    assert "long tests" not in run(tmp_path)


def test_progress_with_workers(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, "utf-8")
    output = run(tmp_path, "-m", "long", "-n", "2", "--dist", "worksteal")
    assert output.count("4 long tests, about 45 min in all") == 1
    # Of 3 tests of 15 minutes each, at most one per worker runs at the start.
    assert re.search(
        r"0 of 4 done, \d+ s elapsed, about 23 min left; test_some\.py::test_many_kills\[", output
    )


def test_the_table_names_tests_that_are_there() -> None:
    names = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(_EXPECTED_SECONDS) <= names


def test_minutes() -> None:
    assert [minutes(seconds) for seconds in (0, 89.4, 91, 3_000)] == [
        "0 s",
        "89 s",
        "2 min",
        "50 min",
    ]
