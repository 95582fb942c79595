"""The files of a development CA and of the server certificate that it issued."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from etagere import directories
from etagere.tls.contexts import PEM_BYTES_MAX, BadCertificate
from etagere.tls.issuing import (
    LOCAL_NAMES,
    SERVER_DAYS_MAX,
    Issued,
    Name,
    names_of,
    new_authority,
    new_server_certificate,
    permits,
)

RENEW_DAYS: Final = 30
"""A certificate with a shorter remaining lifetime is renewed."""
_RENEW: Final = datetime.timedelta(days=RENEW_DAYS)


@dataclass(frozen=True)
class CertificateFiles:
    """The names of the files in a directory. Only their owner can read the keys."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def server(self) -> Path:
        return self.directory / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.directory / "server.key"


class DevelopmentCertificates:
    """A development CA and a server certificate in a directory. Operations may raise BadCertificate
    and OSError."""

    def __init__(self, directory: Path) -> None:
        self.files = CertificateFiles(directory)

    def authority(self) -> Issued | None:
        """Returns the CA; None if there is none."""
        return _load(self.files.authority, self.files.authority_key)

    def server(self) -> Issued | None:
        """Returns the server certificate; None if there is none."""
        return _load(self.files.server, self.files.server_key)

    def create_authority(self, names: Iterable[Name], now: datetime.datetime) -> Issued:
        """Replaces the CA by one that may issue certificates for these names."""
        authority = new_authority(names, now)
        self._store(authority, self.files.authority, self.files.authority_key)
        return authority

    def create_server(
        self,
        authority: Issued,
        names: Iterable[Name],
        now: datetime.datetime,
        *,
        days: int = SERVER_DAYS_MAX,
        use_rsa: bool = False,
    ) -> Issued:
        """Replaces the server certificate. The names of the local machine are added."""
        every = tuple(dict.fromkeys((*LOCAL_NAMES, *names)))
        server = new_server_certificate(authority, every, now, days=days, use_rsa=use_rsa)
        self._store(server, self.files.server, self.files.server_key)
        return server

    def ensure(self, names: Iterable[Name], now: datetime.datetime) -> bool:
        """Creates or renews what is missing, expires soon or lacks one of the names. Returns
        whether there is a new CA, which clients have to trust."""
        wanted = tuple(names)
        authority, server = _if_good(self.authority), _if_good(self.server)
        new = authority is None or must_replace(authority, wanted, now)
        if authority is None or new:
            authority = self.create_authority(wanted, now)
        if (
            server is None
            or expires_soon(server.certificate, now)
            or not set(wanted) <= set(names_of(server.certificate))
            or not _is_issued_by(server.certificate, authority.certificate)
        ):
            self.create_server(authority, wanted, now)
        return new

    def _store(self, issued: Issued, certificate: Path, key: Path) -> None:
        """Writes the key first: the certificate without its key would be useless."""
        directories.make(self.files.directory)
        _write(key, issued.key_pem, 0o600)
        _write(certificate, issued.certificate_pem, 0o644)
        directories.sync(self.files.directory)


def _if_good(load: Callable[[], Issued | None]) -> Issued | None:
    """Returns None for files that do not belong together, which an interrupted renewal leaves."""
    try:
        return load()
    except BadCertificate:
        return None


def expires_soon(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_after_utc - now < _RENEW


def must_replace(authority: Issued, names: Iterable[Name], now: datetime.datetime) -> bool:
    """Returns whether a CA cannot issue a certificate for these names."""
    certificate = authority.certificate
    return expires_soon(certificate, now) or not all(permits(certificate, name) for name in names)


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # a wrong issuer, type of key or signature, each with its own type
        return False
    return True


def _load(certificate_path: Path, key_path: Path) -> Issued | None:
    try:
        certificate_pem = directories.read_regular(certificate_path, PEM_BYTES_MAX)
        key_pem = directories.read_regular(key_path, PEM_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError:
        raise BadCertificate(f"{certificate_path} has no PEM certificate") from None
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError):
        raise BadCertificate(f"{key_path} has no PEM private key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise BadCertificate(f"{key_path} is neither an ECDSA nor an RSA key")
    if key.public_key() != certificate.public_key():
        raise BadCertificate(f"the private key in {key_path} does not match {certificate_path}")
    return Issued(certificate, key)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replaces a file in one step, so that no reader sees a part of it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = directories.open_private(temporary, os.O_WRONLY | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)  # all of it, or an error
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    temporary.replace(path)
