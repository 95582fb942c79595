"""`etagere certificate` as a user runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etagere.cli.main import main
from tests.test_cli import is_one_line


def certificate(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["certificate", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["certificate", *map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert is_one_line(shown.err)
    return shown.err


def verifies(folder: Path, name: str) -> bool:
    """Returns whether OpenSSL, in its strict mode, accepts the certificate for a name."""
    check = "-verify_ip" if name[0].isdigit() else "-verify_hostname"
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver"]
    command += ["-CAfile", str(folder / "ca.pem"), check, name, str(folder / "server.pem")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "certificates"
    shown = certificate(capsys, folder, "--name", "storage.example", "--name", "10.1.2.3")
    assert f"--tls-cert {folder / 'server.pem'} --tls-key {folder / 'server.key'}" in shown
    assert f"export NODE_EXTRA_CA_CERTS={folder / 'ca.pem'}" in shown
    names = ("localhost", "127.0.0.1", "a.blob.localhost", "storage.example", "10.1.2.3")
    assert all(verifies(folder, name) for name in names)
    assert not verifies(folder, "other.example")

    # A renewal keeps the CA and the names; other types of keys are possible.
    authority, server = (folder / "ca.pem").read_bytes(), (folder / "server.pem").read_bytes()
    certificate(capsys, folder, "--rsa")
    assert (folder / "ca.pem").read_bytes() == authority
    assert (folder / "server.pem").read_bytes() != server
    assert all(verifies(folder, name) for name in names)

    # Another name needs another CA.
    error = refused(capsys, folder, "--name", "other.example")
    assert "cannot issue certificates for other.example; create another one with --new-ca" in error
    certificate(capsys, folder, "--name", "other.example", "--new-ca")
    assert (folder / "ca.pem").read_bytes() != authority
    assert verifies(folder, "other.example")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "a b"), "--name: 'a b' is neither a DNS name nor an IP address"),
        (("--days", "0"), "--days: must be an integer from 1 to 397"),
        (("--days", "398"), "--days: must be an integer from 1 to 397"),
        (("--days", "x"), "--days: must be an integer from 1 to 397"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, tmp_path / "new", *arguments)
    assert not (tmp_path / "new").exists()


def test_files_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate(capsys, tmp_path)
    (tmp_path / "ca.pem").write_text("?")
    assert f"{tmp_path / 'ca.pem'} has no PEM certificate" in refused(capsys, tmp_path)
    certificate(capsys, tmp_path, "--new-ca")
    assert "ca.pem cannot be used: Not a directory" in refused(capsys, tmp_path / "ca.pem")
