"""TLS contexts of the server, and replacing them while the server runs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from etagere.directories import open_regular, read_regular

PEM_BYTES_MAX: Final = 1 << 20
"""The length of a file with certificates or a key."""

# Every supported client offers these with TLS 1.2: forward secrecy and authenticated encryption.
# The suites of TLS 1.3 have both, and are not affected by this list.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_PROTOCOL: Final = "http/1.1"


class BadCertificate(Exception):
    """A certificate or its key cannot be used; the message says why, in one line."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Returns the context for a certificate chain and its private key, both in PEM. Raises
    BadCertificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols([_PROTOCOL])
    # A client of TLS 1.2 could otherwise make the server repeat the handshake, which costs it most.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        with _opened(certificate) as certificate_path, _opened(key) as key_path:
            _require_certificates(certificate, certificate_path)
            # Without this argument the library would ask for a password on the terminal.
            context.load_cert_chain(certificate_path, key_path, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the private key in {key} does not match {certificate}"
        else:
            why = f"{key} has no PEM private key without a password"
        raise BadCertificate(why) from error
    except OSError as error:
        raise BadCertificate(f"{error.filename} cannot be read: {error.strerror}") from error
    return context


class ServerTls:
    """The files of a server's certificate, and the context that was made from them.

    A reload makes a new context. Loading the files into the existing one would keep an old
    certificate with another type of key, and an error could leave it without a key.
    """

    authority: Path | None = None
    """The certificate of the CA, if this server created it."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """May raise BadCertificate."""
        self._certificate = certificate
        self._key = key
        self.reload()

    def renew(self) -> None:
        """Renews the certificate, if this server created it and it expires soon. May raise
        BadCertificate."""

    def reload(self) -> None:
        """Makes a new context of the files. Raises BadCertificate, and keeps the old context, if
        they cannot be used."""
        context, expires = server_context(self._certificate, self._key), _expiry(self._certificate)
        self.context = context
        self.expires = expires
        """In seconds since 1970."""


def _expiry(path: Path) -> float:
    """Returns when a certificate, the first in its file, expires."""
    # Not at the top: only servers with TLS need this import, which takes a while.
    from cryptography import x509  # noqa: PLC0415

    try:
        certificate = x509.load_pem_x509_certificate(read_regular(path, PEM_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise BadCertificate(f"{path} has no PEM certificate") from error
    return certificate.not_valid_after_utc.timestamp()


@contextmanager
def _opened(path: Path) -> Iterator[str]:
    """Opens a file; returns a path for the library, which takes no descriptors. By its own path,
    the library might open something else, such as a named pipe, and wait."""
    descriptor = open_regular(path, PEM_BYTES_MAX)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _require_certificates(path: Path, opened: str) -> None:
    """Checks the certificates alone: an error for both files does not say which one is wrong."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(opened)
    except ssl.SSLError as error:
        raise BadCertificate(f"{path} has no PEM certificate") from error
