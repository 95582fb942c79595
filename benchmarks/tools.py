"""External tools: Azurite and nginx for comparison, and wrk as the load generator."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".bench"
"""Ignored by git; can be removed at any time."""

_NPM_SECONDS_MAX = 300.0
_APT_SECONDS_MAX = 300.0


def tell(text: str) -> None:
    """Prints which figures are omitted, and why."""
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


@functools.cache
def wrk(*, install: bool) -> str | None:
    found = _command("wrk", "wrk", install=install)
    if found is None:
        tell("wrk is not available; omitting puts and gets over HTTP")
    return found


@functools.cache
def nginx(*, install: bool) -> str | None:
    if not install:
        return None
    found = _command("nginx", "nginx-light", install=True)
    if found is None:
        tell("nginx is not available; omitting the comparison")
    return found


@functools.cache
def azurite(service: str) -> list[str] | None:
    """Returns the command that starts a service of Azurite; installs Azurite the first time."""
    prefix = CACHE / "azurite"
    script = prefix / f"node_modules/azurite/dist/src/{service}/main.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or (npm is None and not script.exists()):
        tell("npm is not available; omitting the comparison with Azurite")
        return None
    if npm is not None and not script.exists():
        prefix.mkdir(parents=True, exist_ok=True)
        flags = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
        if not _ran([npm, "install", *flags, "--prefix", str(prefix), "azurite"], _NPM_SECONDS_MAX):
            tell("npm cannot install Azurite; omitting the comparison")
            return None
    return [node, str(script)]


def _command(name: str, package: str, *, install: bool) -> str | None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    found = shutil.which(name, path=path)
    if found is not None or not install:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return None
    if not _ran([apt, "install", "-qq", "-y", "--no-install-recommends", package]):
        _ran([apt, "update", "-qq"])
        _ran([apt, "install", "-qq", "-y", "--no-install-recommends", package])
    return shutil.which(name, path=path)


def _ran(command: list[str], seconds_max: float = _APT_SECONDS_MAX) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            timeout=seconds_max,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
