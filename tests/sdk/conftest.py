"""Servers of the SDK tests, and checksums for their clients."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from awscrt.checksums import crc64nvme

from tests.sdk.origin import Origin
from tests.server import (
    PREMIUM_ACCOUNT,
    PREMIUM_KEY,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    Server,
    served,
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("shared") / "data"
    second = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    premium = f"{PREMIUM_ACCOUNT}:{PREMIUM_KEY}"
    flags = ("--account", second, "--account", premium, "--premium-file-account", PREMIUM_ACCOUNT)
    with served(directory, *flags) as shared:
        yield shared
        assert shared.stop() == 0


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield started
        started.go_on.set()
        started.shutdown()


@pytest.fixture
def own(tmp_path: Path, origin: Origin) -> Iterator[Server]:
    """A server for one test that may copy from the other server."""
    flags = ("--copy-source", f"127.0.0.1:{origin.server_port}", "--workers", "1")
    with served(tmp_path / "data", *flags) as started:
        yield started


@pytest.fixture
def client_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK imports its CRC64 from its own extension; any implementation works."""
    checksums = ModuleType("azure.storage.extensions.checksums")
    checksums.crc64 = SimpleNamespace(compute=crc64nvme)  # type: ignore[attr-defined]
    extensions = ModuleType("azure.storage.extensions")
    extensions.checksums = checksums  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.storage.extensions", extensions)
    monkeypatch.setitem(sys.modules, "azure.storage.extensions.checksums", checksums)
