"""Reports the state of the server to the service manager that started it (`sd_notify(3)`)."""

from __future__ import annotations

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"
_VARIABLE = "NOTIFY_SOCKET"


def notify(*assignments: str) -> None:
    """Sends a state, and does nothing if no service manager waits for it. A message that cannot be
    sent is dropped: it must not disturb the server."""
    path = os.environ.get(_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path[0] == "@" else path
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as client,
    ):
        client.sendto("\n".join(assignments).encode(), address)


def notify_reloading() -> None:
    """Announces a reload, which ends with `READY`."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
