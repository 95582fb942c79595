"""The example project, in an environment with nothing but the wheel and what it depends on."""

from __future__ import annotations

import email.parser
import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.server import ROOT, environment

PROJECT = ROOT / "examples" / "pytest_project"
TESTS = 50
EXTRA = "pytest"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command without the sources of this repository; returns its output."""
    variables = {
        name: text
        for name, text in environment().items()
        if not name.startswith(("PYTHON", "PYTEST_", "AZURE_"))
    }
    shown = subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


def requirements(names: list[str], extra: str) -> list[Requirement]:
    """Returns the requirements of a distribution that apply here."""
    all_of_them = map(Requirement, names)
    return [
        required
        for required in all_of_them
        if required.marker is None or required.marker.evaluate({"extra": extra})
    ]


def with_dependencies(wheel: Path) -> dict[str, importlib.metadata.Distribution]:
    """Returns all distributions that pip would install with the wheel, from this environment."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.BytesParser().parsebytes(archive.read(name))
    missing = requirements(metadata.get_all("Requires-Dist", []), EXTRA)
    found: dict[str, importlib.metadata.Distribution] = {}
    while missing:
        required = missing.pop()
        name = canonicalize_name(required.name)
        if name not in found:
            distribution = found[name] = importlib.metadata.distribution(name)
            for extra in required.extras or {""}:
                missing += requirements(distribution.requires or [], extra)
    return found


def link(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """Makes an installed distribution part of another environment."""
    for file in distribution.files or ():
        if ".." not in file.parts:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(str(file.locate()))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which only `etagere[pytest]` was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", where).strip())
    for distribution in with_dependencies(wheel).values():
        link(distribution, packages)
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", f"etagere[{EXTRA}] @ {wheel.as_uri()}")
    return python


def test_the_example_project(python: Path, tmp_path: Path) -> None:
    origin = run(python, "-c", "import etagere; print(etagere.__file__)", cwd=tmp_path)
    assert Path(origin).is_relative_to(python.parents[1])
    shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    shown = run(python, "-m", "pytest", "-q", cwd=tmp_path / "project")
    assert f"\n{TESTS} passed in " in shown
