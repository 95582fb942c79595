"""Fixtures of pytest for tests against a server.

pytest loads this module in every project that has it installed, so it imports nothing that takes
time; the fixtures do.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from azure.data.tables import TableServiceClient
    from azure.storage.blob import BlobServiceClient
    from azure.storage.fileshare import ShareServiceClient
    from azure.storage.queue import QueueServiceClient

    from etagere.testing.accounts import Account
    from etagere.testing.server import Server

SETTINGS_OPTION: Final = "etagere_settings"
CONNECTION_STRING_VARIABLE: Final = "AZURE_STORAGE_CONNECTION_STRING"
_LOG_CHARACTERS_MAX: Final = 4_000
_LOG_SECONDS_MAX: Final = 2.0
"""How long the report of a failure waits for the lines of the last requests."""
_NEXT_LINE_SECONDS_MAX: Final = 0.1
"""How long it waits for a line after another."""
_LOG_SINCE: Final = pytest.StashKey[tuple["Server", int]]()
"""The server of a test, and the size of its log when the test began."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SETTINGS_OPTION,
        "settings of the etagere server of the tests, each in the form NAME=VALUE",
        type="linelist",
    )


@pytest.fixture(scope="session")
def etagere_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server that is started when the first test needs it, and stopped at the end of the session.

    With pytest-xdist, each worker has a server of its own.
    """
    from etagere.testing.server import Server  # noqa: PLC0415

    settings = {}
    for line in pytestconfig.getini(SETTINGS_OPTION):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{SETTINGS_OPTION}: {line!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    try:
        server = Server(**settings)
    except TypeError as error:
        raise pytest.UsageError(f"{SETTINGS_OPTION}: {error}") from None
    with server:
        yield server


@pytest.fixture
def etagere_account(etagere_server: Server, request: pytest.FixtureRequest) -> Account:
    """A new, empty account for each test, so that no test sees the data of another."""
    request.node.stash[_LOG_SINCE] = etagere_server, etagere_server.log_size()
    return etagere_server.new_account()


@pytest.fixture
def etagere_connection_string(etagere_account: Account) -> str:
    """The connection string of the account of the test."""
    return etagere_account.connection_string


@pytest.fixture
def etagere_environment(etagere_account: Account, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Sets AZURE_STORAGE_CONNECTION_STRING to the account of the test, for applications that read
    it; returns the account."""
    monkeypatch.setenv(CONNECTION_STRING_VARIABLE, etagere_account.connection_string)
    return etagere_account


@pytest.fixture
def blob_service(etagere_account: Account) -> Iterator[BlobServiceClient]:
    """A client of Blob for the account of the test."""
    with etagere_account.blob_service() as client:
        yield client


@pytest.fixture
def queue_service(etagere_account: Account) -> Iterator[QueueServiceClient]:
    """A client of Queue for the account of the test."""
    with etagere_account.queue_service() as client:
        yield client


@pytest.fixture
def table_service(etagere_account: Account) -> Iterator[TableServiceClient]:
    """A client of Table for the account of the test."""
    with etagere_account.table_service() as client:
        yield client


@pytest.fixture
def share_service(etagere_account: Account) -> Iterator[ShareServiceClient]:
    """A client of File for the account of the test."""
    with etagere_account.share_service() as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the server logged during a test to the report of its failure."""
    report = yield
    if report.failed and _LOG_SINCE in item.stash:
        server, start = item.stash[_LOG_SINCE]
        log = _complete_log(server, start)[-_LOG_CHARACTERS_MAX:]
        if log:
            report.sections.append(("etagere log", log))
    return report


def _complete_log(server: Server, start: int) -> str:
    """Returns the log from `start` on, with the line of the last request: the server writes it
    after it has sent the response."""
    size = start
    deadline = end = time.monotonic() + _LOG_SECONDS_MAX
    while time.monotonic() < deadline:
        time.sleep(0.01)
        if server.log_size() != size:
            size = server.log_size()
            deadline = min(end, time.monotonic() + _NEXT_LINE_SECONDS_MAX)
    return server.log(start)
