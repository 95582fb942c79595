"""What others have to bring: Azurite and nginx to compare with, wrk to ask with."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".bench"
"""Ignored by git; may be removed at any time."""

_NPM_SECONDS_MAX = 300.0
_APT_SECONDS_MAX = 300.0


def tell(text: str) -> None:
    """Says what is left out of the figures, and why."""
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


@functools.cache
def wrk(*, install: bool) -> str | None:
    found = _command("wrk", "wrk", install=install)
    if found is None:
        tell("there is no wrk, so puts and gets over HTTP are left out")
    return found


@functools.cache
def nginx(*, install: bool) -> str | None:
    if not install:
        return None
    found = _command("nginx", "nginx-light", install=True)
    if found is None:
        tell("there is no nginx, so nothing is compared with it")
    return found


@functools.cache
def azurite(service: str) -> list[str] | None:
    """How to start this service of Azurite's; it is fetched the first time."""
    prefix = CACHE / "azurite"
    script = prefix / f"node_modules/azurite/dist/src/{service}/main.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or (npm is None and not script.exists()):
        tell("there is no npm, so nothing is compared with Azurite")
        return None
    if npm is not None and not script.exists():
        prefix.mkdir(parents=True, exist_ok=True)
        flags = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
        if not _ran([npm, "install", *flags, "--prefix", str(prefix), "azurite"], _NPM_SECONDS_MAX):
            tell("npm could not install Azurite, so nothing is compared with it")
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
