"""The systemd units, and what the server reports to systemd."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from etagere.cli import FAILED
from etagere.cli.main import build_parser
from etagere.processes import EXIT_FINAL, STOP_SECONDS_MAX
from etagere.settings import SETTINGS
from tests.server import ROOT, Server, environment

UNITS = ROOT / "packaging/systemd"
_EXPOSURE_MAX = 20
"""Of 100, by the measure of `systemd-analyze security`."""


def parse_unit(name: str) -> dict[str, list[str]]:
    """Returns the values by key, of all sections."""
    values = defaultdict(list)
    for line in (UNITS / name).read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            values[key].append(value)
    return values


@pytest.mark.parametrize("name", ["etagere.service", "etagere-backup.service"])
def test_commands_and_settings_exist(name: str) -> None:
    unit = parse_unit(name)
    (command,) = unit["ExecStart"]
    build_parser().parse_args(shlex.split(command)[1:])
    variables = {setting.variable for setting in SETTINGS}
    assert {text.partition("=")[0] for text in unit["Environment"]} <= variables


def test_the_service() -> None:
    service = parse_unit("etagere.service")
    assert service["RestartPreventExitStatus"] == [f"{FAILED} {EXIT_FINAL}"]
    assert int(service["TimeoutStopSec"][0]) > STOP_SECONDS_MAX
    assert service["User"] == parse_unit("etagere-backup.service")["User"] == ["etagere"]
    assert (UNITS / "etagere.conf").read_text("utf-8").splitlines()[-1].startswith("u etagere ")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in UNITS.glob("etagere*.[st]*"):
        text = path.read_text("utf-8").replace("/opt/etagere/bin/etagere", sys.executable)
        # The man page need not be installed here.
        lines = [line for line in text.splitlines() if not line.startswith("Documentation=")]
        (tmp_path / path.name).write_text("\n".join(lines))
    names = [str(path) for path in tmp_path.iterdir()]
    assert len(names) == 3
    analyze = ("systemd-analyze", "--no-pager")
    done = subprocess.run([*analyze, "verify", *names], capture_output=True, text=True, check=False)
    if "Failed to" in done.stderr and "etagere" not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    service = str(tmp_path / "etagere.service")
    threshold = f"--threshold={_EXPOSURE_MAX}"
    subprocess.run(
        [*analyze, "security", "--offline=true", threshold, service],
        capture_output=True,
        check=True,
    )


def test_notifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reports when it is ready, reloads and stops."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        assert environment()["NOTIFY_SOCKET"] == path
        server = Server(tmp_path / "data", "--workers", "1")
        server.start()
        try:
            assert manager.recv(1024) == b"READY=1"
            os.kill(server.pid, signal.SIGHUP)
            assert manager.recv(1024).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert manager.recv(1024) == b"READY=1"
            assert server.stop() == 0
            assert manager.recv(1024) == b"STOPPING=1"
        finally:
            server.kill()
