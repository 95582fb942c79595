"""Tables through the JavaScript SDK: each file of tests/javascript/table is one case.

What they need is pinned as in tests/javascript, in a lock of its own.
"""

from __future__ import annotations

import fcntl
from typing import Final

import pytest

from tests.sdk import test_javascript as blobs
from tests.sdk.server import ACCOUNT, KEY, Server
from tests.sdk.table.clients import url

DIRECTORY: Final = blobs.DIRECTORY / "table"
LOCK: Final = DIRECTORY / "package-lock.json"
INSTALLED: Final = DIRECTORY / "node_modules/.installed"
FILES: Final = sorted(file.name for file in DIRECTORY.glob("*.test.mjs"))


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """What the lock names, installed once for this checkout and lock, whoever comes first."""
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = lock.read()
        if INSTALLED.exists() and INSTALLED.read_bytes() == wanted:
            return
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund")
        blobs.run("npm", "ci", "--prefix", DIRECTORY.name, "--engine-strict", *quiet)
        INSTALLED.write_bytes(wanted)


@pytest.mark.parametrize("file", FILES)
def test_javascript(server: Server, file: str) -> None:
    account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
    blobs.run_tests(f"{DIRECTORY.name}/{file}", f"{account};TableEndpoint={url(server)}")


def test_the_lock_is_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "LOCK", LOCK)
    blobs.test_the_lock_is_for_everybody()
