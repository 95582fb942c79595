"""The health status of a running server."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import BlobSasPermissions, generate_blob_sas

from etagere.jobs.health import HealthSocket, ask
from etagere.processes import ProcessHealth
from tests.sdk.blob.clients import blob_service
from tests.server import ACCOUNT, KEY, Server, environment, eventually, served

JOBS = {
    "collecting",
    "purging",
    "ending copies",
    "folding 1",
    "folding 2",
    "indexing",
    "reaching the writer",
    "returning memory",
    "storing uses of indexes",
    "dropping unused indexes",
}


class Status(NamedTuple):
    exit_status: int
    report: dict[str, Any]

    @property
    def problems(self) -> list[str]:
        problems: list[str] = self.report["problems"]
        return problems

    def process(self, name: str) -> dict[str, Any]:
        (process,) = (each for each in self.report["processes"] if each["name"] == name)
        found: dict[str, Any] = process
        return found


def status_of(directory: Path) -> Status:
    command = [sys.executable, "-m", "etagere", "status", "--data", str(directory), "--json"]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False)
    return Status(done.returncode, json.loads(done.stdout))


def test_a_healthy_server(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        status = status_of(server.directory)
        assert status.exit_status == 0, status
        assert status.report["healthy"]
        assert status.report["pid"] == server.pid
        assert status.report["disk"]["reserve_is_whole"]
        pids = [process["pid"] for process in status.report["processes"]]
        assert sorted(pids) == sorted(server.children())
        for name in ("front end 1", "front end 2"):
            assert {job["name"] for job in status.process(name)["jobs"]} >= JOBS
        assert server.stop() == 0
        status = status_of(server.directory)
        assert status.exit_status == 1
        assert status.problems == ["no server is running"]


def test_only_the_owner_may_query_the_status(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        place = server.directory / "health"
        assert place.stat().st_mode & 0o077 == 0
        assert [path for path in place.iterdir() if path.stat().st_mode & 0o077] == []


def test_restarted_and_stuck_processes(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--workers", "1") as server:
        first = status_of(server.directory).process("front end 1")
        os.kill(first["pid"], signal.SIGKILL)
        eventually(lambda: _answers(server, "front end 1"), "another front end")
        second = status_of(server.directory).process("front end 1")
        assert second["pid"] != first["pid"]
        assert (first["restarts"], second["restarts"]) == (0, 1)
        assert second["last_end"] == "signal 9"
        os.kill(second["pid"], signal.SIGSTOP)
        try:
            status = status_of(server.directory)
        finally:
            os.kill(second["pid"], signal.SIGCONT)
        assert status.exit_status == 1
        assert status.problems == [f"front end 1 (pid {second['pid']}) does not respond"]


def _answers(server: Server, name: str) -> bool:
    report = status_of(server.directory)
    return bool(report.report["processes"] and report.process(name)["jobs"])


def test_jobs_survive_a_lack_of_descriptors(tmp_path: Path) -> None:
    """They are reported as failing, recover when there are descriptors, and do not disturb a clean
    stop."""
    with served(tmp_path / "data", "--workers", "1") as server:
        pid = status_of(server.directory).process("front end 1")["pid"]
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        eventually(lambda: _failing(server) >= {"collecting", "purging"}, "failures that are seen")
        assert status_of(server.directory).exit_status == 1
        assert "Too many open files" in server.log()
        assert "Traceback" in server.log()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: status_of(server.directory).exit_status == 0, "jobs that work again", 60)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        time.sleep(0.5)
        assert server.stop() == 0
        assert "did not stop" not in server.log()


def _failing(server: Server) -> set[str]:
    report = status_of(server.directory).process("front end 1")
    return {job["name"] for job in report["jobs"] or () if job["consecutive_failures"] >= 3}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_starts_while_another_drains(tmp_path: Path, workers: str) -> None:
    """On the same ports: it waits for as long as the other may take."""
    with served(tmp_path / "data", "--workers", workers) as server:
        with blob_service(server) as service:
            service.create_container("container")
        ports = [
            word
            for name, endpoint in server.endpoints.items()
            for word in (f"--{name}-port", endpoint.rpartition(":")[2])
        ]
        with _unfinished_upload(server):
            began = time.monotonic()
            os.kill(server.pid, signal.SIGTERM)
            successor = Server(server.directory, "--workers", workers, *ports)
            successor.start_seconds_max = 60.0
            try:
                successor.start()
                assert time.monotonic() - began > 5, "the first did not drain"
                assert status_of(server.directory).exit_status == 0
                assert successor.stop() == 0
            finally:
                successor.kill()


def _unfinished_upload(server: Server) -> socket.socket:
    """Returns a connection with a request that the server waits for."""
    token = generate_blob_sas(
        ACCOUNT,
        "container",
        "blob",
        account_key=KEY,
        permission=BlobSasPermissions(write=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    address = urlsplit(server.url("blob"))
    upload = socket.create_connection((str(address.hostname), int(address.port or 0)))
    head = f"PUT {address.path}/container/blob?{token} HTTP/1.1\r\nHost: {address.netloc}\r\n"
    upload.sendall(
        f"{head}x-ms-blob-type: BlockBlob\r\nContent-Length: 10\r\n"
        "Expect: 100-continue\r\n\r\n".encode()
    )
    assert upload.recv(100).startswith(b"HTTP/1.1 100 ")
    upload.sendall(b"half")
    return upload


# Processes that end while they are queried


def _asking(directory: Path) -> Future[dict[str, ProcessHealth]]:
    threads = ThreadPoolExecutor(1)
    answers = threads.submit(ask, directory, {"one": ProcessHealth}, 20.0)
    threads.shutdown(wait=False)
    return answers


def _has_query(health: HealthSocket) -> bool:
    return bool(select.select([health], [], [], 10.0)[0])


def test_a_process_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    health = HealthSocket(tmp_path, "one")
    answers = _asking(tmp_path)
    assert _has_query(health)
    health._socket.close()  # as when it is killed, which leaves the name
    assert answers.result(timeout=10.0) == {}


def test_the_successor_of_a_process_is_asked(tmp_path: Path) -> None:
    killed = HealthSocket(tmp_path, "one")
    answers = _asking(tmp_path)
    assert _has_query(killed)
    health = HealthSocket(tmp_path, "one")
    killed._socket.close()
    assert _has_query(health)
    health.answer(lambda: ProcessHealth(2, 2.0))
    assert answers.result(timeout=10.0) == {"one": ProcessHealth(2, 2.0)}
    health.close()


def test_a_process_that_is_slow_gets_one_query(tmp_path: Path) -> None:
    health, asked = HealthSocket(tmp_path, "one"), 0

    def report() -> ProcessHealth:
        nonlocal asked
        asked += 1
        return ProcessHealth(1, 1.0)

    answers = _asking(tmp_path)
    assert _has_query(health)
    assert not wait([answers], timeout=1.0).done
    health.answer(report)
    assert answers.result(timeout=10.0) == {"one": ProcessHealth(1, 1.0)}
    assert asked == 1
    health.close()
