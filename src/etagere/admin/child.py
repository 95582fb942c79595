"""The admin process as a child of the supervisor: who may use it, and how it starts.

What the process itself needs is imported by the process, not by the supervisor: the client library
of Prometheus takes tens of milliseconds to import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Final

from etagere.config import Config
from etagere.front.storage import Storage
from etagere.processes import ChildMain
from etagere.rules.accounts import is_loopback, is_loopback_host
from etagere.settings import Settings
from etagere.tls.contexts import ServerTls

ADMIN_NAME: Final = "admin"
TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_CHARACTERS_MAX: Final = 4_096
# The characters that a client can send after `Bearer` (RFC 6750, section 2.1).
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class BadAdminToken(Exception):
    """The admin port needs a token that it does not have. The message shows no token."""


@dataclass(frozen=True)
class AdminAccess:
    """Who may use the admin port."""

    is_local: bool
    """Whether it listens on a loopback address."""
    token: bytes | None = field(repr=False)
    """None: requests need no token."""


def admin_access(settings: Settings) -> AdminAccess:
    """Returns who may use the admin port. Raises `BadAdminToken`."""
    host, path = settings.admin_host, settings.admin_token_file
    if path is not None:
        return AdminAccess(is_local(host), _read_token(path))
    if not is_local(host):
        raise BadAdminToken(
            f"other machines can reach --admin-host {host}: set --admin-token-file too"
        )
    return AdminAccess(True, None)


def is_local(host: str) -> bool:
    """Returns whether only this machine can reach a port of this address."""
    return is_loopback(host) or is_loopback_host(host)


def _read_token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_CHARACTERS_MAX + 2).strip()
    except OSError as error:
        raise BadAdminToken(f"{path} cannot be read: {error.strerror}") from error
    is_long_enough = TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX
    if not is_long_enough or _TOKEN.fullmatch(token) is None:
        raise BadAdminToken(
            f"{path} must contain one token of {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} "
            "letters, digits and characters of -._~+/"
        )
    return token


def admin_main(
    directory: Path,
    config: Config,
    storage: Storage,
    listening: socket,
    access: AdminAccess,
    others: tuple[str, ...],
    tls: ServerTls | None,
) -> ChildMain:
    """Returns the main function of the admin process. `others` are the names of the other
    children."""

    def main(lifeline: int) -> None:
        from etagere.admin.process import AdminProcess  # noqa: PLC0415 (see above)

        AdminProcess(directory, config, storage, listening, access, others, tls).run(lifeline)

    return main
