"""The admin port of a running server: pages, access, and clients that misbehave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from etagere.admin.child import BadAdminToken, admin_access
from etagere.settings import Settings
from tests.admin.client import address, get, scrape
from tests.server import Server, environment, eventually, served

TOKEN = "token-of-the-test-0123456789"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/healthz", {}, 200),
        ("GET", "/readyz", {}, 200),
        ("GET", "/metrics", {}, 200),
        ("GET", "/metrics?name[]=up", {}, 200),
        ("HEAD", "/healthz", {}, 200),
        ("GET", "/", {}, 404),
        ("GET", "/metrics/", {}, 404),
        ("GET", "/..%2fmetrics", {}, 404),
        ("POST", "/metrics", {}, 405),
        ("OPTIONS", "/metrics", {}, 405),
        ("GET", "/metrics", {"Host": "localhost"}, 200),
        ("GET", "/metrics", {"Host": "127.0.0.1:1"}, 200),
        ("GET", "/metrics", {"Host": "[::1]:1"}, 200),
        ("GET", "/metrics", {"Host": "attacker.example"}, 403),
        ("GET", "/metrics", {"Host": "127.0.0.1.attacker.example"}, 403),
        ("GET", "/metrics", {"Host": "10.0.0.1"}, 403),
        ("GET", "/healthz", {"Host": "attacker.example"}, 403),
        ("GET", "/metrics", {"Host": ""}, 403),
        ("GET", "/metrics", {"Accept": "x" * 20_000}, 431),
        ("GET", "/" + "x" * 3_000, {}, 414),
    ],
)
def test_pages(
    used_server: Server, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = get(used_server, path, method, **headers)
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith("text/plain")
    if method == "HEAD":
        assert answer.text == ""


def test_openmetrics(used_server: Server) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = get(used_server, "/metrics", Accept=accept)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    parse: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
    families = {family.name for family in parse(answer.text)}
    assert families == {family.name for family in scrape(used_server).families}


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: b\x00c\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100 + b"\r\n",
    ],
)
def test_malformed_requests(used_server: Server, data: bytes) -> None:
    with _connected(used_server) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer = client.makefile("rb").read()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
    assert b"Traceback" not in answer
    assert get(used_server, "/healthz").status == 200


def test_a_probe_without_a_host_name(used_server: Server) -> None:
    with _connected(used_server) as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").read().endswith(b"\r\n\r\nready\n")


def test_a_body_is_not_awaited(used_server: Server) -> None:
    with _connected(used_server) as client:
        head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n"
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 405 ")


def test_idle_connections_do_not_keep_others_out(used_server: Server) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(150):
            client = opened.enter_context(_connected(used_server))
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert get(used_server, "/healthz").status == 200


def _connected(server: Server) -> socket.socket:
    host, _, port = address(server).rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10.0)


# Readiness


def test_stuck_processes(used_server: Server) -> None:
    pids = {name: used_server.pid_of(name) for name in ("writer", "front end 1")}
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        # The answer of a moment ago may be given again.
        eventually(lambda: get(used_server, "/readyz").status == 503, "an answer that it is stuck")
        began = time.monotonic()
        problems = [f"{name} (pid {pid}) does not respond" for name, pid in pids.items()]
        assert get(used_server, "/readyz").text.splitlines() == problems
        assert get(used_server, "/healthz").status == 200
        measured = scrape(used_server)
        assert time.monotonic() - began < 15.0
        assert measured.total("etagere_ready") == 0
        for process in ("writer", "front-end-1"):
            assert measured.total("etagere_process_up", process=process) == 0
            assert measured.total("etagere_process_resident_memory_bytes", process=process) > 0
        assert measured.total("etagere_process_up", process="front-end-2") == 1
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: get(used_server, "/readyz").status == 200, "a server that is ready")


def test_killed_processes(tmp_path: Path) -> None:
    """Their counters begin at 0; those of other processes and the number of restarts stay."""
    with served(tmp_path / "data", "--workers", "1", "--admin-port", "0") as server:
        before = scrape(server)
        assert before.total("etagere_write_duration_seconds_count", process="front-end-1")
        os.kill(server.pid_of("front end 1"), signal.SIGKILL)
        eventually(lambda: scrape(server).total("etagere_process_restarts_total") == 1, "a restart")
        eventually(lambda: get(server, "/readyz").status == 200, "a server that is ready")
        after = scrape(server)
        for name, labels in before.labels.items():
            if name.endswith(("_total", "_count")) and "process" in labels:
                for process in ("writer", "file-front-end", "supervisor"):
                    known = before.total(name, process=process)
                    assert after.total(name, process=process) >= known, name
        pid = server.pid_of("admin")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.pid_of("admin") != pid, "another admin process")
        # The supervisor keeps the port open, so that connections wait.
        assert get(server, "/healthz").status == 200
        assert scrape(server).total("etagere_process_restarts_total", process="admin") == 1
        assert server.stop() == 0


# Access


def test_tokens(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{TOKEN}\n")
    flags = ("--admin-port", "0", "--admin-host", "0.0.0.0", "--admin-token-file", str(token_file))
    with served(tmp_path / "data", "--workers", "1", *flags) as server:
        cases = {
            "": 401,
            TOKEN: 401,
            f"Basic {TOKEN}": 401,
            f"Bearer {TOKEN}x": 401,
            f"Bearer {TOKEN[:-1]}": 401,
            f"Bearer {TOKEN}, Bearer {TOKEN}": 401,
            "Bearer ": 401,
            f"Bearer {TOKEN}": 200,
            f"bearer {TOKEN}": 200,
        }
        for path in ("/healthz", "/readyz", "/metrics"):
            for given, status in cases.items():
                assert get(server, path, Authorization=given).status == status, (path, given)
            assert get(server, path).headers["WWW-Authenticate"] == "Bearer"
        authorized = {"Authorization": f"Bearer {TOKEN}", "Host": "storage.example"}
        answer = get(server, "/metrics", **authorized)
        assert answer.status == 200
        assert TOKEN not in answer.text
        assert TOKEN not in Path(f"/proc/{server.pid}/cmdline").read_text()
        assert server.stop() == 0
        assert TOKEN not in server.log()


@pytest.mark.parametrize(
    ("host", "token", "reason"),
    [
        ("0.0.0.0", None, "other machines can reach --admin-host 0.0.0.0"),
        ("::", None, "set --admin-token-file"),
        ("storage.example", None, "set --admin-token-file"),
        ("127.0.0.1", b"short", "must contain one token of 16"),
        ("127.0.0.1", b"two tokens, 0123456789", "must contain one token of 16"),
        ("127.0.0.1", b"x" * 5_000, "must contain one token of 16"),
        ("127.0.0.1", b"\xff" * 16, "must contain one token of 16"),
        ("127.0.0.1", b"", "must contain one token of 16"),
    ],
)
def test_refused_access(tmp_path: Path, host: str, token: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    if token is not None:
        path.write_bytes(token)
    settings = Settings(admin_host=host, admin_token_file=None if token is None else path)
    with pytest.raises(BadAdminToken) as raised:
        admin_access(settings)
    assert reason in str(raised.value)
    assert not token or repr(token)[2:-1] not in str(raised.value)


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    access = admin_access(Settings(admin_token_file=path))
    assert (access.is_local, access.token) == (True, TOKEN.encode())
    assert TOKEN not in repr(access)


def test_a_server_that_others_could_query_does_not_start(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"), "--admin-port", "0", "--admin-host", "0.0.0.0")
    command = [sys.executable, "-m", "etagere", "serve", *flags]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "set --admin-token-file too" in done.stderr
    assert not (tmp_path / "data").exists()
