"""The shared server of the SDK tests that do not stop it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("shared") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with served(directory, "--account", account) as shared:
        yield shared
        assert shared.stop() == 0
