"""Ports for servers that cannot choose a free one themselves."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_FIRST: Final = 15_000
_LAST: Final = 31_999
"""Below those that the kernel gives to outgoing connections, so that a server finds its port free
when it starts again."""


def free_ports(count: int = 1) -> list[int]:
    """Returns free ports of the loopback address."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(_FIRST, _LAST)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def is_listening(port: int) -> bool:
    """Returns whether a server accepts connections on a port of the loopback address."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        return True
    return False
