"""`etagere.testing.Server`, as the tests of an application use it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient
from azure.storage.queue import QueueServiceClient

from etagere.testing import Account, Server, ServerError
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, SERVICES, environment, eventually

# Each creates a resource and returns the names of all resources of its kind.
ROUND_TRIPS: dict[str, Callable[[str], list[str | None]]] = {}


def round_trip(service: str) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    def register(run: Callable[[str], Any]) -> Callable[[str], Any]:
        ROUND_TRIPS[service] = run
        return run

    return register


@round_trip("blob")
def blob_round_trip(connection_string: str) -> list[str]:
    with BlobServiceClient.from_connection_string(connection_string, retry_total=0) as service:
        service.create_container("things")
        return [found.name for found in service.list_containers()]


@round_trip("queue")
def queue_round_trip(connection_string: str) -> list[str | None]:
    with QueueServiceClient.from_connection_string(connection_string, retry_total=0) as service:
        service.create_queue("things").close()
        return [found.name for found in service.list_queues()]


@round_trip("table")
def table_round_trip(connection_string: str) -> list[str]:
    with TableServiceClient.from_connection_string(connection_string, retry_total=0) as service:
        service.create_table("things").close()
        return [found.name for found in service.list_tables()]


@round_trip("file")
def file_round_trip(connection_string: str) -> list[str | None]:
    with ShareServiceClient.from_connection_string(connection_string, retry_total=0) as service:
        service.create_share("things").close()
        return [found.name for found in service.list_shares()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


# Accounts


@pytest.mark.parametrize("service", SERVICES)
def test_connection_strings_of_new_accounts(server: Server, service: str) -> None:
    """Two accounts have nothing in common, with a key or a token."""
    with_key, with_token = server.new_account(), server.new_account()
    assert ROUND_TRIPS[service](with_key.connection_string) == ["things"]
    assert ROUND_TRIPS[service](with_token.sas_connection_string()) == ["things"]


def test_clients(server: Server) -> None:
    account = server.new_account()
    with (
        account.blob_service(retry_total=0) as blobs,
        account.queue_service() as queues,
        account.table_service() as tables,
        account.share_service() as shares,
    ):
        names = [client.account_name for client in (blobs, queues, tables, shares)]
        assert names == [account.name] * 4
        assert [*blobs.list_containers(), *queues.list_queues()] == []
        assert [*tables.list_tables(), *shares.list_shares()] == []


def test_tokens_are_limited(server: Server) -> None:
    account = server.new_account()
    cases = (
        ("AuthorizationPermissionMismatch", account.sas("rl")),
        ("AuthorizationServiceMismatch", account.sas(services="q")),
        ("AuthorizationResourceTypeMismatch", account.sas(resource_types="o")),
        ("AuthenticationFailed", account.sas(lifetime=-timedelta(minutes=1))),
    )
    for code, token in cases:
        with pytest.raises(HttpResponseError) as refused:
            blob_round_trip(account.sas_connection_string(token))
        assert getattr(refused.value, "error_code", "") == code


def test_names_of_accounts(server: Server) -> None:
    account = server.new_account("photos")
    assert account.name == "photos"
    assert account.url("queue").endswith("/photos")
    with pytest.raises(ValueError, match="photos"):
        server.new_account("photos")
    with pytest.raises(ValueError, match="No capitals"):
        server.new_account("No capitals")


def test_keys_are_not_shown(server: Server) -> None:
    account = server.new_account()
    assert account.key not in repr(account)
    assert account.key not in repr(server)
    assert account.key not in server.log()


def test_new_accounts_in_an_event_loop(server: Server) -> None:
    async def run() -> Account:
        return server.new_account()

    assert blob_round_trip(asyncio.run(run()).connection_string) == ["things"]


def test_the_development_account(server: Server) -> None:
    assert server.account.name == "devstoreaccount1"
    assert queue_round_trip(server.connection_string) == ["things"]


# Settings


def test_settings() -> None:
    configured = f"{SECOND_ACCOUNT}:{SECOND_KEYS[0]}"
    with Server(smb=False, accounts=[configured], oauth=None) as server:
        assert list(server.endpoints) == list(SERVICES)
        account = Account(SECOND_ACCOUNT, SECOND_KEYS[0], server.endpoints)
        assert blob_round_trip(account.connection_string) == ["things"]


def test_tls() -> None:
    with Server(tls="self-signed") as server:
        account = server.new_account()
        assert account.url("blob").startswith("https://")
        with account.blob_service(retry_total=0) as client:
            assert list(client.list_containers()) == []
        with account.share_service() as shares:
            assert list(shares.list_shares()) == []


def test_variables_of_the_caller_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETAGERE_BLOB_PORT", "1")
    monkeypatch.setenv("ETAGERE_CONFIG", "/missing")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with Server() as server:
        assert not server.endpoints["blob"].endswith(":1")


def test_modules_of_the_application_have_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('wrong module')\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with Server() as server:
        assert server.pid


def test_data_directory(tmp_path: Path) -> None:
    server = Server(data=tmp_path / "data")
    with server:
        assert server.data == tmp_path / "data"
        account = server.new_account()
        assert blob_round_trip(account.connection_string) == ["things"]
    with server, BlobServiceClient(server.endpoints["blob"] + f"/{account.name}", account.key) as b:
        assert [found.name for found in b.list_containers()] == ["things"]


# Errors


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="'worker' is not a setting; did you mean workers"):
        Server(worker=2)


def test_errors_show_why_the_server_does_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ServerError, match=rf"cannot listen on port {port} "),
            Server(blob_port=port),
        ):
            pass
    with pytest.raises(ServerError, match="ETAGERE_WORKERS: 'many' is not an integer"):
        Server(workers="many").start()  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="not ready after"):
        Server(data=tmp_path / "data", start_seconds_max=0.01).start()


def test_a_server_that_is_not_running() -> None:
    server = Server()
    server.stop()
    for use in (lambda: server.endpoints, lambda: server.pid, server.new_account):
        with pytest.raises(ServerError, match="not running"):
            use()


def test_a_server_that_failed() -> None:
    server = Server()
    server.start()
    with pytest.raises(ServerError, match="started already"):
        server.start()
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ServerError, match=r"has failed \(exit status -9\)(.|\n)*started writer"):
        server.stop()
    server.stop()
    assert "started writer" in server.log()


def test_the_error_of_the_test_is_not_replaced() -> None:
    with pytest.raises(KeyError), Server() as server:
        os.kill(server.pid, signal.SIGKILL)
        raise KeyError


# Ends


def test_the_thread_that_started_it_may_end() -> None:
    server = Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert blob_round_trip(server.new_account().connection_string) == ["things"]
    server.stop()


def test_it_ends_with_a_process_that_is_killed() -> None:
    program = (
        "import time; from etagere.testing import Server; server = Server(); server.start(); "
        "print(server.pid, server.data, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment(), text=True
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert Path(directory).is_dir()
        owner.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the server to end")
    assert not Path(directory).exists()


def test_a_forked_process_does_not_stop_it(server: Server) -> None:
    pid = os.fork()
    if pid == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert blob_round_trip(server.new_account().connection_string) == ["things"]


# Time

START_SECONDS_MAX = 0.5
NEW_ACCOUNT_SECONDS_MAX = 0.02
STARTS_MAX = 10
CONTROL = "sum(range(2_000_000))"
"""A program that takes some processor time."""
PROCESSES = 4
"""Of a server, which share the processors when it starts."""


@pytest.mark.alone
def test_start_to_first_answer() -> None:
    """A slow start shows every time. On a busy machine every process waits for a processor; the
    control shows how long."""
    measured = []
    for _ in range(STARTS_MAX):
        began = time.monotonic()
        with Server() as server:
            with server.account.blob_service(retry_total=0) as client:
                assert list(client.list_containers()) == []
            start = time.monotonic() - began
            began = time.monotonic()
            server.new_account()
            new_account = time.monotonic() - began
        busy = delay()
        measured.append((start, new_account, busy))
        if start < START_SECONDS_MAX * busy and new_account < NEW_ACCOUNT_SECONDS_MAX * busy:
            return
    raise AssertionError(measured)


def delay() -> float:
    """Returns how many times as long as on an idle machine programs take now; at least 1."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", CONTROL]) for _ in range(PROCESSES)]
    assert [program.wait() for program in running] == [0] * PROCESSES
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return max(1.0, seconds * min(os.cpu_count() or 1, PROCESSES) / used)
