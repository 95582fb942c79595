"""The certificate that a server creates for itself, with `--tls self-signed`."""

from __future__ import annotations

import datetime
import ipaddress
import logging
from pathlib import Path

from etagere.tls import DIRECTORY_NAME
from etagere.tls.contexts import BadCertificate, ServerTls
from etagere.tls.development import DevelopmentCertificates
from etagere.tls.issuing import Name, parse_name

logger = logging.getLogger(__name__)


class SelfSignedTls(ServerTls):
    """A certificate in the data directory. It is kept when the server restarts, and renewed by the
    same CA before it expires, so that clients have to trust the CA only once."""

    def __init__(self, data: Path, host: str) -> None:
        """`host` is the address that the server listens on. May raise BadCertificate."""
        self._certificates = DevelopmentCertificates(data / DIRECTORY_NAME)
        self._names = _names(host)
        files = self._certificates.files
        try:
            self.renew()
        except BadCertificate as error:
            if not files.server.exists():
                raise
            # Such as on a full disk, where clients must be able to delete something.
            logger.error("the certificate was not renewed: %s", error)
        super().__init__(files.server, files.server_key)
        self.authority = files.authority

    def renew(self) -> None:
        try:
            is_new = self._certificates.ensure(self._names, datetime.datetime.now(datetime.UTC))
        except OSError as error:
            path = error.filename or self._certificates.files.directory
            raise BadCertificate(f"{path} cannot be used: {error.strerror}") from error
        if is_new:
            logger.info("created a CA, which clients have to trust")


def _names(host: str) -> list[Name]:
    """Returns the names of the server besides those of the local machine. A wildcard address adds
    none: the names of this machine may change, and each change would need another CA."""
    try:
        name = parse_name(host)
    except ValueError:
        return []
    if isinstance(name, ipaddress.IPv4Address | ipaddress.IPv6Address) and name.is_unspecified:
        return []
    return [name]
