"""The sockets that a server listens on."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import Final

from etagere.data_directory import CannotUse
from etagere.settings import Settings

_BACKLOG = 1024
WILDCARD_ADDRESSES: Final = ("0.0.0.0", "::")
"""Addresses to listen on, but not to connect to."""


def bind_services(settings: Settings, held: ExitStack) -> dict[str, socket.socket]:
    """Returns the listening sockets of the services, which `held` closes."""
    ports = settings.rest_ports
    if settings.smb:
        ports["smb"] = settings.smb_port
    return {
        service: held.enter_context(bind(settings.host, port, f"--{service}-port"))
        for service, port in ports.items()
    }


def bind_admin(settings: Settings, held: ExitStack) -> socket.socket | None:
    """Returns the listening socket of the admin port, which `held` closes; None without one."""
    if settings.admin_port is None:
        return None
    return held.enter_context(
        bind(settings.admin_host, settings.admin_port, "--admin-port", "--admin-host")
    )


def bind(host: str, port: int, port_flag: str, host_flag: str = "--host") -> socket.socket:
    """Returns a listening socket. Raises `CannotUse`, which names the flags."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = f"cannot listen on port {port} of {host}: {error.strerror}"
            raise CannotUse(f"{why}; choose another with {port_flag}") from error
        # A name that cannot even be looked up is a TypeError.
        why = getattr(error, "strerror", "not an address")
        raise CannotUse(
            f"cannot listen on host {host!r}: {why}; choose another with {host_flag}"
        ) from error
    listener.setblocking(False)
    return listener
