"""The kernel's view of the sockets of a server's processes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.server import Server

_ESTABLISHED = "01"


def connections_by_process(server: Server, port: int) -> dict[int, int]:
    """Returns how many established connections to a port each process of the server has."""
    inodes = _established_inodes(port)
    return {pid: len(_socket_inodes(pid) & inodes) for pid in server.children()}


def _established_inodes(port: int) -> set[str]:
    inodes = set()
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[3] == _ESTABLISHED and int(words[1].rpartition(":")[2], 16) == port:
            inodes.add(words[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    for descriptor in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = str(Path(descriptor.path).readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes
