"""The server through the JavaScript SDK: each file of tests/javascript is one case.

What they need is pinned in package-lock.json, made with

    npm install --before=2025-06-30 --omit-lockfile-registry-resolved

because later versions of the SDK, and of what it stands on, no longer run on the Node of Debian 12.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.sdk.server import ACCOUNT, KEY, ROOT, Server, development_port, served

DIRECTORY: Final = ROOT / "tests/javascript"
LOCK: Final = DIRECTORY / "package-lock.json"
INSTALLED: Final = DIRECTORY / "node_modules/.installed"
FILES: Final = sorted(file.name for file in DIRECTORY.glob("*.test.mjs"))

DEBIAN_NODE: Final = 18
SECONDS_MAX = 120.0


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """What the lock names, installed once for this checkout and lock, whoever comes first."""
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = lock.read()
        if INSTALLED.exists() and INSTALLED.read_bytes() == wanted:
            return
        run("npm", "ci", "--engine-strict", "--ignore-scripts", "--no-audit", "--no-fund")
        INSTALLED.write_bytes(wanted)


def run(name: str, *arguments: str, **variables: str) -> None:
    """A command that must succeed; if it does not, what it said is the reason."""
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"{name} is missing: install the Debian packages nodejs and npm", pytrace=False)
    done = subprocess.run(
        [program, *arguments],
        cwd=DIRECTORY,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        command = " ".join((name, *arguments))
        pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}", pytrace=False)


def run_tests(file: str, connection_string: str, **variables: str) -> None:
    run(
        "node",
        "--test-reporter=spec",
        file,
        AZURE_STORAGE_CONNECTION_STRING=connection_string,
        # The SDK would ask the proxy of whoever runs the tests for this machine too.
        NO_PROXY="127.0.0.1",
        **variables,
    )


@pytest.mark.parametrize("file", FILES)
def test_javascript(server: Server, file: str) -> None:
    account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
    run_tests(file, f"{account};BlobEndpoint={server.url()}")


def test_development_storage(tmp_path: Path) -> None:
    """The address that everybody knows, and nothing else said."""
    with development_port() as port, served(tmp_path / "data", "--blob-port", str(port)):
        run_tests("blobs.test.mjs", "UseDevelopmentStorage=true")


def test_the_lock_is_for_everybody() -> None:
    """It says what the packages are, not where they came from, and all run on Debian's Node."""
    locked = json.loads(LOCK.read_text("utf-8"))["packages"]
    del locked[""]  # the tests themselves
    assert locked
    for name, package in locked.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        oldest = re.match(r">= ?(\d+)", package.get("engines", {}).get("node", ">=0"))
        assert oldest is not None, name
        assert int(oldest[1]) <= DEBIAN_NODE, name


def test_copies_from_elsewhere(tmp_path: Path) -> None:
    """From a server that the tests themselves start, on a port that ours may read from."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(tmp_path / "data", "--copy-source", f"127.0.0.1:{port}") as server:
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        address = f"{account};BlobEndpoint={server.url()}"
        run_tests("elsewhere/copies.test.mjs", address, ORIGIN_PORT=str(port))
