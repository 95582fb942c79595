"""SMB with Samba's clients: large files, and opens and closes, compared with smbd."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, development_sas
from benchmarks.services import FILE, Service, ask, etagere
from etagere.config import MIB
from etagere.settings.values import DEVELOPMENT_ACCOUNT
from smbtorture import samba
from smbtorture.servers import SmbServer

_FILE_BYTES: Final = 64 * MIB
_SECONDS: Final = 3
"""Of opening and closing."""
_SECONDS_MAX: Final = 120
_SHARE: Final = "bench"
_OPENS: Final = re.compile(r"open\[num/s=(\d+)")
"""smbtorture repeats the average since the start."""


class _Protection(NamedTuple):
    """How messages are protected, and the options of smbclient for it."""

    key: str
    text: str
    options: tuple[str, ...]


_PROTECTIONS: Final = (
    _Protection(
        "gmac",
        "signed with AES-128-GMAC",
        ("--client-protection=sign", "--option=client smb3 signing algorithms=aes-128-gmac"),
    ),
    _Protection(
        "gcm",
        "encrypted with AES-128-GCM",
        ("--client-protection=encrypt", "--option=client smb3 encryption algorithms=aes-128-gcm"),
    ),
)
# Overwriting is measured too, because the servers differ in it: smbd frees the memory of the old
# file before it writes the new one. On a virtual machine, writing a file into memory that was not
# used before took eight times as long as into memory that had just been freed.
_TRANSFERS: Final = {
    "put": "put of 64 MiB, a new file",
    "overwrite": "put of 64 MiB over a file",
    "get": "get of 64 MiB",
}


async def measure(settings: Settings) -> AsyncIterator[Round]:
    if shutil.which("smbclient") is None:
        return
    size = settings.scaled(_FILE_BYTES, MIB)
    with (
        tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory) as name,
        contextlib.ExitStack() as ends,
    ):
        directory = Path(name)
        file = _file(directory, size)
        service = etagere(directory, ends, FILE)
        servers = {"ours": _prepared(service)}
        if not settings.quick and samba.is_installed():
            servers["smbd"] = ends.enter_context(samba.samba(directory / "samba", [_SHARE]))
        for server in servers.values():
            _check(server, file)
        for number in range(settings.rounds):
            told: Round = {}
            for side in sorted(servers, reverse=bool(number % 2)):
                server = servers[side]
                for protection in _PROTECTIONS:
                    for transfer in _TRANSFERS:
                        key = f"smb.{transfer}_{protection.key}_{side}"
                        cpu_before = service.cpu_seconds()
                        stored = f"{protection.key}-{number}"
                        told[key] = (
                            size / MIB / _seconds(server, protection, transfer, file, stored)
                        )
                        if side == "ours":
                            cpu = service.cpu_seconds() - cpu_before
                            told[f"{key}_cpu"] = 1000 * cpu * 1024 * MIB / size
                if shutil.which("smbtorture") is not None:
                    told[f"smb.opens_{side}"] = _opens(server, 1 if settings.quick else _SECONDS)
            yield told | _ratios(told)


def _file(directory: Path, size: int) -> Path:
    """Returns the file to store, in a directory that smbd can enter as another user."""
    directory.chmod(0o755)
    file = directory / "file"
    file.write_bytes(os.urandom(size))
    return file


def _prepared(service: Service) -> SmbServer:
    """Creates the share."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    with contextlib.closing(connection):
        ask(connection, "PUT", f"/{ACCOUNT}/{_SHARE}?restype=share&{development_sas()}")
    key = base64.b64encode(DEVELOPMENT_ACCOUNT.keys[0]).decode()
    return SmbServer(service.ports["smb"], ACCOUNT, key, (_SHARE,), service.processes()[0])


def _check(server: SmbServer, file: Path) -> None:
    """Checks that a file that was stored is the one that is read."""
    read = file.with_name("read")
    _smbclient(server, _PROTECTIONS[0], f"put {file} checked; get checked {read}; del checked")
    if read.read_bytes() != file.read_bytes():
        raise RuntimeError("the file that was read is not the one that was stored")
    read.unlink()


def _seconds(
    server: SmbServer, protection: _Protection, transfer: str, file: Path, stored: str
) -> float:
    """Returns the time that a transfer takes, including the start of the client and its logon."""
    command = f"get {stored} /dev/null" if transfer == "get" else f"put {file} {stored}"
    began = time.perf_counter()
    _smbclient(server, protection, command)
    return time.perf_counter() - began


def _smbclient(server: SmbServer, protection: _Protection, command: str) -> None:
    _run(
        "smbclient",
        f"--port={server.port}",
        f"--user={server.user}%{server.password}",
        "--max-protocol=SMB3_11",
        *protection.options,
        f"//127.0.0.1/{_SHARE}",
        "-c",
        command,
    )


def _opens(server: SmbServer, seconds: int) -> float:
    """Returns how many times a second one file is opened and closed, by four connections."""
    output = _run(
        "smbtorture",
        f"--smb-ports={server.port}",
        f"--user={server.user}%{server.password}",
        f"--option=torture:timelimit={seconds}",
        f"//127.0.0.1/{_SHARE}",
        "smb2.bench.path-contention-shared",
    )
    return float(_OPENS.findall(output)[-1])


def _run(*command: str) -> str:
    """Runs a program of Samba without the configuration of this machine; returns its output."""
    program, *arguments = command
    done = subprocess.run(
        [program, "--configfile=/dev/null", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stdout[-1000:]}")
    return done.stdout


def _ratios(told: Round) -> Round:
    return {
        f"{key.removesuffix('_smbd')}_to_smbd": told[f"{key.removesuffix('_smbd')}_ours"] / value
        for key, value in told.items()
        if key.endswith("_smbd")
    }


def _transfer_figures(transfer: str, protection: _Protection) -> tuple[Figure, ...]:
    key = f"smb.{transfer}_{protection.key}"
    text = f"smbclient {_TRANSFERS[transfer]}, {protection.text}"
    return (
        Figure(f"{key}_to_smbd", f"{text}, relative to smbd", " x", at_least=0.5),
        Figure(f"{key}_ours", "  ours", " MiB/s"),
        Figure(f"{key}_smbd", "  smbd", " MiB/s"),
        Figure(f"{key}_ours_cpu", "  CPU time per GiB", " ms"),
    )


GROUP = Group(
    "smb",
    measure,
    (
        *(
            figure
            for protection in _PROTECTIONS
            for transfer in _TRANSFERS
            for figure in _transfer_figures(transfer, protection)
        ),
        Figure("smb.opens_to_smbd", "opens and closes, relative to smbd", " x", at_least=0.333),
        Figure("smb.opens_ours", "  ours", "/s"),
        Figure("smb.opens_smbd", "  smbd", "/s"),
    ),
)
