"""docs/testing.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from etagere.testing import plugin
from etagere.testing.server import Server
from tests.server import ROOT, environment

PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")


def test_the_fixtures_are_documented() -> None:
    source = Path(plugin.__file__).read_text("utf-8")
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", source, re.MULTILINE)
    table = PAGE.split("| fixture |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == fixtures


def test_the_settings_in_the_example_exist() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    lines = tomllib.loads(example)["tool"]["pytest"]["ini_options"][plugin.SETTINGS_OPTION]
    Server(**dict(line.split("=") for line in lines))


def test_the_test_case_of_unittest(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import unittest\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "test_queue.py").write_text(program, "utf-8")
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unittest", "-q"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Ran 1 test" in shown.stderr
