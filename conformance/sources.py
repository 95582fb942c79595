"""Downloads the tests from the source distributions on PyPI.

This repository contains none of their code. Everything is pinned by version and hash, and cached in
a directory that can be removed at any time.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = ROOT / ".conformance"
"""Ignored by git."""

_LOCK = ROOT / "requirements/dev.txt"
_REQUIREMENTS = ROOT / "conformance/requirements.txt"
_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


class Pin(NamedTuple):
    """One entry of a lock file: the files that are accepted for a package."""

    name: str
    version: str
    hashes: frozenset[str]

    @property
    def line(self) -> str:
        hashes = " ".join(f"--hash=sha256:{one}" for one in sorted(self.hashes))
        return f"{self.name}=={self.version} {hashes}\n"


def find_pin(lock: str, name: str) -> Pin:
    """Finds the pin of a package in the text of a lock file."""
    found = re.search(rf"^{re.escape(name)}==(\S+) \\\n((?:    --hash=\S+(?: \\)?\n)+)", lock, re.M)
    if found is None:
        raise LookupError(f"{name} is not pinned")
    return Pin(name, found[1], frozenset(re.findall(r"sha256:([0-9a-f]{64})", found[2])))


def environment() -> Path:
    """Creates the environment of the tests if needed; returns its interpreter."""
    directory = CACHE / "venv"
    python = directory / "bin/python"
    stamp = directory / ".installed"
    wanted = f"{sys.version} {hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()}"
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        _tell("installing the dependencies of the tests")
        venv.create(directory, clear=True, with_pip=True)
        install = ("install", "--require-hashes", "-r", str(_REQUIREMENTS))
        subprocess.run([python, *_PIP, *install], check=True)
        stamp.write_text(wanted, "utf-8")
    return python


def tests_of(package: str, python: Path) -> Path:
    """Returns the directory with the tests of a package, in the pinned version."""
    pin = find_pin(_LOCK.read_text("utf-8"), package)
    stem = f"{package.replace('-', '_')}-{pin.version}"
    archive = CACHE / "sources" / f"{stem}.tar.gz"
    if not archive.exists():
        _tell(f"fetching the source of {package} {pin.version}")
        _download(pin, archive.parent, python)
    if hashlib.sha256(archive.read_bytes()).hexdigest() not in pin.hashes:
        raise ValueError(f"{archive} is not the file that {_LOCK.name} pins; remove it")
    tests = archive.parent / stem / "tests"
    if not tests.exists():
        with tarfile.open(archive) as source, tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            members = [one for one in source if one.name.startswith(f"{stem}/tests/")]
            # The archive is the pinned one. Python before 3.11.4, such as Debian 12's, has no
            # filters.
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            source.extractall(temporary, members, **safely)
            (Path(temporary) / stem).rename(tests.parent)
    return tests


def _download(pin: Pin, directory: Path, python: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        requirement = Path(temporary) / "requirement.txt"
        requirement.write_text(pin.line, "utf-8")
        # pip asks the build backend for the metadata; use the pinned one.
        flags = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
        download = ("download", *flags, "-r", str(requirement), "--dest", str(directory))
        subprocess.run([python, *_PIP, *download], check=True)


def _tell(text: str) -> None:
    print(f"conformance: {text}", file=sys.stderr, flush=True)
