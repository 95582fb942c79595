"""One server for the probes of a module, so that what one leaves behind is not dumped by all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.probes.endless import endless_source
from tests.probes.stage import Stage
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, served


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("probed") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with (
        endless_source() as source,
        served(directory, "--account", account, "--copy-source", source) as server,
    ):
        stage = Stage(server, f"http://{source}/")
        stage.make()
        stage.make(account=SECOND_ACCOUNT)
        with stage.client:
            yield stage
        assert "Traceback" not in server.log()
        assert server.stop() == 0
