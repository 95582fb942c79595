"""The services through the JavaScript SDKs: each file below tests/javascript is one test.

package-lock.json is generated with

    npm install --before=2025-06-30 --omit-lockfile-registry-resolved

because later versions of the SDKs and their dependencies do not run on the Node.js of Debian 12.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clusters.ports import free_ports
from tests.server import ROOT, SERVICES, Server, development_port, served

DIRECTORY: Final = ROOT / "tests/javascript"
LOCK: Final = DIRECTORY / "package-lock.json"
INSTALLED: Final = DIRECTORY / "node_modules/.installed"
FILES: Final = [
    (service, file.name)
    for service in SERVICES
    for file in sorted((DIRECTORY / service).glob("*.test.mjs"))
]

DEBIAN_NODE: Final = 18
TIMEOUT_S: Final = 120.0


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Installs the locked packages once per checkout and lock file."""
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = lock.read()
        if INSTALLED.exists() and INSTALLED.read_bytes() == wanted:
            return
        run("npm", "ci", "--engine-strict", "--ignore-scripts", "--no-audit", "--no-fund")
        INSTALLED.write_bytes(wanted)


def run(name: str, *arguments: str, **variables: str) -> None:
    """Runs a command; if it fails, its output is the reason."""
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
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        command = " ".join((name, *arguments))
        pytest.fail(f"{command} exited with {done.returncode}:\n{done.stdout}", pytrace=False)


def run_tests(file: str, connection_string: str, **variables: str) -> None:
    run(
        "node",
        "--test-reporter=spec",
        file,
        AZURE_STORAGE_CONNECTION_STRING=connection_string,
        # Otherwise the SDK would send requests to loopback through a configured proxy.
        NO_PROXY="127.0.0.1",
        **variables,
    )


@pytest.mark.parametrize(("service", "file"), FILES)
def test_javascript(server: Server, service: str, file: str) -> None:
    run_tests(f"{service}/{file}", server.connection_string(service))


def test_development_storage(tmp_path: Path) -> None:
    """`UseDevelopmentStorage=true` reaches a server with the default port."""
    with development_port() as port, served(tmp_path / "data", "--blob-port", str(port)):
        run_tests("blob/blobs.test.mjs", "UseDevelopmentStorage=true")


def test_pending_rehydration(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--rehydrate-high-seconds", "1000") as server:
        run_tests("blob/slow_rehydration/tiers.test.mjs", server.connection_string("blob"))


def test_copies_from_another_server(tmp_path: Path) -> None:
    """The JavaScript test starts the server that the copies read from."""
    (port,) = free_ports()
    with served(tmp_path / "data", "--copy-source", f"127.0.0.1:{port}") as server:
        run_tests(
            "blob/external_source/copies.test.mjs",
            server.connection_string("blob"),
            ORIGIN_PORT=str(port),
        )


def test_lock_file() -> None:
    """It has hashes and no download addresses, and every package runs on Debian's Node.js."""
    locked = json.loads(LOCK.read_text("utf-8"))["packages"]
    del locked[""]  # the tests themselves
    assert locked
    for name, package in locked.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        oldest = re.match(r">= ?(\d+)", package.get("engines", {}).get("node", ">=0"))
        assert oldest is not None, name
        assert int(oldest[1]) <= DEBIAN_NODE, name
