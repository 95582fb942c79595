"""Starts smbd on a loopback port, with everything it stores in one directory."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from smbtorture.servers import SmbServer

SMBD: Final = "/usr/sbin/smbd"
_USER_OF_ROOT: Final = "nobody"
"""smbd allows root everything, which the tests do not expect."""
_GUEST: Final = "daemon"
_PASSWORD: Final = "torture"
_START_SECONDS_MAX: Final = 20.0

_GLOBAL: Final = """\
[global]
server role = standalone
workgroup = WORKGROUP
bind interfaces only = yes
interfaces = 127.0.0.1
smb ports = {port}
disable netbios = yes
load printers = no
disable spoolss = yes
guest account = {guest}
passdb backend = tdbsam:{directory}/private/passdb.tdb
private dir = {directory}/private
state directory = {directory}/state
cache directory = {directory}/state
lock directory = {directory}/state
pid directory = {directory}/state
ncalrpc dir = {directory}/state/ncalrpc
log file = {directory}/smbd.log
# Nobody else uses the files.
kernel oplocks = no
kernel share modes = no
kernel change notify = no
posix locking = no
store dos attributes = yes
"""
_SHARE: Final = """\
[{name}]
path = {path}
read only = no
vfs objects = acl_xattr streams_xattr
"""


def is_installed() -> bool:
    return Path(SMBD).exists() and shutil.which("pdbedit") is not None


def version() -> str:
    told = subprocess.run([SMBD, "--version"], check=True, capture_output=True, text=True)
    return told.stdout.strip().removeprefix("Version ")


@contextlib.contextmanager
def samba(directory: Path, shares: Sequence[str]) -> Iterator[SmbServer]:
    """Runs smbd with its data in a directory, which others may enter."""
    port = _free_port()
    user = _USER_OF_ROOT if os.geteuid() == 0 else getpass.getuser()
    for name in ("private", "state"):
        (directory / name).mkdir(parents=True)
    text = _GLOBAL.format(port=port, guest=_GUEST, directory=directory)
    for share in shares:
        path = directory / "shares" / share
        path.mkdir(parents=True)
        shutil.chown(path, user)
        text += _SHARE.format(name=share, path=path)
    configuration = directory / "smb.conf"
    configuration.write_text(text, "utf-8")
    subprocess.run(
        ["pdbedit", f"--configfile={configuration}", "--create", f"--user={user}", "-t"],
        input=f"{_PASSWORD}\n{_PASSWORD}\n",
        check=True,
        capture_output=True,
        text=True,
    )
    command = [SMBD, "--foreground", "--no-process-group"]
    command += [f"--configfile={configuration}", f"--log-basename={directory}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_until_ready(process, port)
        yield SmbServer(port, user, _PASSWORD, tuple(shares), process.pid)
    finally:
        # Including the process of each connection.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"smbd ended with status {process.returncode}")
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise TimeoutError("smbd did not start")
