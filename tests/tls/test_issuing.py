"""Rules of certificates for development: names, lifetimes, renewal."""

from __future__ import annotations

import datetime
import errno
import ipaddress
import stat
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from etagere.tls import DIRECTORY_NAME, development
from etagere.tls.contexts import BadCertificate
from etagere.tls.development import DevelopmentCertificates
from etagere.tls.issuing import (
    LOCAL_NAMES,
    SERVER_DAYS_MAX,
    Name,
    names_of,
    new_authority,
    parse_name,
    permits,
)
from etagere.tls.self_signed import SelfSignedTls

NOW = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("localhost", "localhost"),
        ("Storage.Example.", "storage.example"),
        ("*.blob.storage.example", "*.blob.storage.example"),
        ("10.0.0.1", ipaddress.ip_address("10.0.0.1")),
        ("[::1]", ipaddress.ip_address("::1")),
    ],
)
def test_names(text: str, name: Name) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "text", ["", "*", "a..b", "a b", "-a.b", "*.*.b", "é.b", "a" * 64, "a." * 127 + "b"]
)
def test_wrong_names(text: str) -> None:
    with pytest.raises(ValueError, match="neither a DNS name nor an IP address"):
        parse_name(text)


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("localhost", True),
        ("a.blob.localhost", True),
        ("storage.example", True),
        ("*.blob.storage.example", True),
        ("mystorage.example", False),
        ("example", False),
        ("127.9.9.9", True),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("::1", True),
        ("::2", False),
    ],
)
def test_names_that_a_ca_permits(name: str, permitted: bool) -> None:
    authority = new_authority([parse_name("storage.example"), parse_name("10.0.0.1")], NOW)
    assert permits(authority.certificate, parse_name(name)) is permitted


def test_a_ca_issues_certificates_for_servers_only() -> None:
    extensions = new_authority([], NOW).certificate.extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [*usage] == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_files_and_lifetimes(tmp_path: Path) -> None:
    certificates = DevelopmentCertificates(tmp_path / "tls")
    assert certificates.ensure([], NOW)
    files = certificates.files
    for path in (files.authority_key, files.server_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server = certificates.server()
    assert server is not None
    certificate = server.certificate
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime == SERVER_DAYS_MAX * DAY
    assert names_of(certificate) == list(LOCAL_NAMES)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca


def test_renewal(tmp_path: Path) -> None:
    """A CA is kept as long as possible, and a certificate until it expires soon."""
    certificates = DevelopmentCertificates(tmp_path)
    files = certificates.files
    certificates.ensure([], NOW)

    def ensure(*names: str, after_days: int) -> tuple[bool, bool]:
        """Returns whether the CA and the certificate were replaced."""
        before = files.authority.read_bytes(), files.server.read_bytes()
        is_new = certificates.ensure(map(parse_name, names), NOW + after_days * DAY)
        after = files.authority.read_bytes(), files.server.read_bytes()
        assert is_new is (before[0] != after[0])
        return is_new, before[1] != after[1]

    days = SERVER_DAYS_MAX - development.RENEW_DAYS
    assert ensure(after_days=days - 1) == (False, False)
    assert ensure(after_days=days) == (False, True)
    assert ensure("a.localhost", after_days=days) == (False, True)
    assert ensure("storage.example", after_days=days) == (True, True)
    # What an interrupted renewal leaves behind.
    files.server_key.write_bytes(files.authority_key.read_bytes())
    assert ensure("storage.example", after_days=days) == (False, True)
    files.authority_key.write_bytes(b"")
    assert ensure("storage.example", after_days=days) == (True, True)
    assert ensure(after_days=days + 3640) == (True, True)


def test_a_certificate_does_not_outlive_its_ca(tmp_path: Path) -> None:
    certificates = DevelopmentCertificates(tmp_path)
    authority = certificates.create_authority([], NOW)
    server = certificates.create_server(authority, [], NOW + 3600 * DAY)
    assert server.certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_certificate_that_cannot_be_renewed_is_used_until_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path, _data: bytes, _mode: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    before = datetime.datetime.now(datetime.UTC) - (SERVER_DAYS_MAX - 5) * DAY
    DevelopmentCertificates(tmp_path / DIRECTORY_NAME).ensure([], before)
    monkeypatch.setattr(development, "_write", fail)
    tls = SelfSignedTls(tmp_path, "127.0.0.1")
    assert tls.expires > before.timestamp()
    assert "not renewed" in caplog.text
    with pytest.raises(BadCertificate, match="No space"):
        SelfSignedTls(tmp_path / "new", "127.0.0.1")
