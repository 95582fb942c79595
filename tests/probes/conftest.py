"""One server for the probes of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.probes.blob.endless_source import endless_source
from tests.probes.blob.fixture import BlobFixture
from tests.probes.file.fixture import FileFixture
from tests.probes.queue.fixture import QueueFixture
from tests.probes.service import ServiceFixture
from tests.probes.services import SERVICES
from tests.probes.table.fixture import TableFixture
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served


@pytest.fixture(scope="module")
def endless() -> Iterator[str]:
    """The host and port of a source from which a copy never ends."""
    with endless_source() as source:
        yield source


@pytest.fixture(scope="module")
def probed_server(tmp_path_factory: pytest.TempPathFactory, endless: str) -> Iterator[Server]:
    """A server with two accounts, whose log and exit code are checked at the end."""
    directory = tmp_path_factory.mktemp("probed") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with served(directory, "--account", account, "--copy-source", endless) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def _with_data(fixture: Any) -> Any:
    """Creates a target in each account, so that there is something that could change."""
    fixture.create()
    fixture.create(SECOND_ACCOUNT)
    return fixture


@pytest.fixture(scope="module")
def blobs(probed_server: Server, endless: str) -> Iterator[BlobFixture]:
    fixture = BlobFixture(probed_server, f"http://{endless}/")
    with fixture.client:
        yield _with_data(fixture)


@pytest.fixture(scope="module")
def queues(probed_server: Server) -> Iterator[QueueFixture]:
    fixture = QueueFixture(probed_server)
    with fixture.client:
        yield _with_data(fixture)


@pytest.fixture(scope="module")
def tables(probed_server: Server) -> Iterator[TableFixture]:
    fixture = TableFixture(probed_server)
    with fixture.client:
        yield _with_data(fixture)


@pytest.fixture(scope="module")
def files(probed_server: Server, endless: str) -> Iterator[FileFixture]:
    fixture = FileFixture(probed_server, f"http://{endless}/")
    with fixture.client:
        yield _with_data(fixture)


@pytest.fixture
def fixture(request: pytest.FixtureRequest) -> ServiceFixture[Any]:
    """The fixture of the service that the test is parametrized with, by name or by operation."""
    parameters = request.node.callspec.params
    service = (
        parameters["operation"].service if "operation" in parameters else parameters["service"]
    )
    found: ServiceFixture[Any] = request.getfixturevalue(f"{service}s")
    assert isinstance(found, SERVICES[service].fixture)
    return found
