"""What the documents promise is run."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from etagere.config import Config

ROOT = Path(__file__).parents[1]
_EXAMPLE = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)


def _run(*command: str, directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_the_worked_example_of_contributing_works(tmp_path: Path) -> None:
    """It is added to a copy of the sources; then the linters and its own test must pass."""
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    examples = _EXAMPLE.findall(page)
    assert len(examples) == 4
    for path, source in examples:
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        package = file.parent / "__init__.py"
        if not package.exists():
            package.touch()
        file.write_text(source, encoding="utf-8")
    written = [path for path, _ in examples]
    _run(_tool("ruff"), "check", *written, directory=tmp_path)
    _run(_tool("ruff"), "format", "--check", *written, directory=tmp_path)
    _run(_tool("lint-imports"), directory=tmp_path, PYTHONPATH=str(tmp_path / "src"))
    tests = [path for path in written if path.startswith("tests/")]
    _run(sys.executable, "-m", "pytest", "-q", *tests, directory=tmp_path)


def test_the_page_on_configuration_names_every_setting() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", page, re.MULTILINE))))
    settings = {field.name for field in dataclasses.fields(Config)}
    assert named == settings - {"sqlite_vfs"}  # only for tests
