"""Reloading the certificate while the server runs: in the supervisor, and in its children."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Iterable
from typing import Protocol

from etagere.processes import RELOAD_SIGNAL
from etagere.tls.contexts import BadCertificate, ServerTls

logger = logging.getLogger(__name__)

_DAY_SECONDS = 24 * 3600
_WARNING_SECONDS = 14 * _DAY_SECONDS


class TlsListener(Protocol):
    """A server with connections that use TLS."""

    def use_tls(self, context: ssl.SSLContext) -> None: ...


def reload_in_supervisor(tls: ServerTls | None) -> bool:
    """Reloads the certificate for children that are started later. Returns whether the running
    children have to reload it too."""
    if tls is None:
        logger.info("there is no certificate to reload")
        return False
    try:
        tls.renew()
        tls.reload()
    except BadCertificate as error:
        logger.error("the certificate was not reloaded, and the old one stays in use: %s", error)
        return False
    warn_if_expiring(tls)
    return True


def warn_if_expiring(tls: ServerTls | None) -> None:
    """Logs a warning if there is a certificate that has expired or expires soon."""
    if tls is None:
        return
    seconds = tls.expires - time.time()
    if seconds < 0:
        logger.warning("the certificate has expired")
    elif seconds < _WARNING_SECONDS:
        logger.warning("the certificate expires in %.1f days", seconds / _DAY_SECONDS)


def reload_on_signal(tls: ServerTls | None, name: str, listeners: Iterable[TlsListener]) -> None:
    """Makes a child use the new certificate for new connections after the reload signal."""
    if tls is None:
        return

    def reload() -> None:
        try:
            tls.reload()
        except BadCertificate as error:
            logger.error("%s keeps its certificate: %s", name, error)
            return
        for listener in listeners:
            listener.use_tls(tls.context)
        logger.info("%s uses the new certificate", name)

    asyncio.get_running_loop().add_signal_handler(RELOAD_SIGNAL, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {RELOAD_SIGNAL})
