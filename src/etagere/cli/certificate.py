"""`etagere certificate`: creates a CA and a server certificate for development."""

from __future__ import annotations

import argparse
import datetime
import shlex
from pathlib import Path
from typing import Final

from etagere.cli import CLEAN, CommandError
from etagere.tls.contexts import BadCertificate
from etagere.tls.development import DevelopmentCertificates, must_replace
from etagere.tls.issuing import (
    SERVER_DAYS_MAX,
    Issued,
    Name,
    names_of,
    parse_name,
    permits,
)

_DIRECTORY_DEFAULT: Final = Path("etagere-certificates")

_TRUST: Final = (
    ("Python SDKs, Azure CLI", "export REQUESTS_CA_BUNDLE={path}"),
    ("Python SDKs, asynchronous", "export SSL_CERT_FILE={path}"),
    ("one client of a Python SDK", "BlobServiceClient(..., connection_verify={literal})"),
    ("Node.js", "export NODE_EXTRA_CA_CERTS={path}"),
    ("Go, AzCopy, .NET on Linux", "export SSL_CERT_FILE={path}"),
    (
        "Java",
        "keytool -importcert -noprompt -cacerts -storepass changeit \\\n"
        "  -alias etagere -file {path}",
    ),
    ("curl", "curl --cacert {path} ..., or export CURL_CA_BUNDLE={path}"),
    (
        "Debian, Ubuntu",
        "sudo cp {path} /usr/local/share/ca-certificates/etagere.crt &&\n"
        "  sudo update-ca-certificates",
    ),
    (
        "Fedora, Red Hat",
        "sudo cp {path} /etc/pki/ca-trust/source/anchors/etagere.pem &&\n  sudo update-ca-trust",
    ),
    ("Windows", "certutil -user -addstore Root {path}"),
    (
        "macOS",
        "security add-trusted-cert -r trustRoot \\\n"
        "  -k ~/Library/Keychains/login.keychain-db {path}",
    ),
    ("Chrome on Linux", "certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n etagere -i {path}"),
    ("Firefox", "Settings, Certificates, View Certificates, Authorities, Import: {path}"),
)
"""How to make clients trust a CA: `path` is quoted for a shell, `literal` for Python."""


def _trust(ca: str) -> str:
    path, literal = shlex.quote(ca), repr(ca)
    lines = []
    for client, how in _TRUST:
        first, *more = how.format(path=path, literal=literal).splitlines()
        lines += [f"  {client:<27} {first}", *(f"{'':30}{line}" for line in more)]
    return "\n".join(lines)


NAME = "certificate"
SUMMARY = "create or renew a certificate for development"
DESCRIPTION = f"""\
Creates a certificate authority (CA) and a server certificate for development, in DIR:

  ca.pem      the certificate of the CA, which clients have to trust
  ca.key      its private key
  server.pem  the certificate of the server, for --tls-cert
  server.key  its private key, for --tls-key

The certificate is valid for localhost, 127.0.0.1, ::1, the names of accounts such as
ACCOUNT.blob.localhost, and each --name. Without --name, a renewed certificate keeps the names
of the one that it replaces.

If DIR has a CA, the command keeps it and issues a new certificate: clients go on trusting it.
The CA can only issue certificates for the names that it was created for. To add another name,
create a new CA with --new-ca. A running server uses the new certificate after SIGHUP.

`etagere serve --tls self-signed` creates the same files in the directory `tls` of the data
directory, and renews the certificate when the server starts or receives SIGHUP.

To make clients trust the CA:

{_trust("ca.pem")}

REQUESTS_CA_BUNDLE and SSL_CERT_FILE replace the authorities that a client trusts otherwise."""
EXAMPLES = """\
etagere certificate                       # in ./etagere-certificates
etagere certificate /etc/etagere/tls --name storage.example --name '*.blob.storage.example'
etagere serve --tls-cert etagere-certificates/server.pem --tls-key etagere-certificates/server.key
curl --cacert etagere-certificates/ca.pem https://localhost:10000/devstoreaccount1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=_DIRECTORY_DEFAULT,
        help=f"the directory of the files (default: {_DIRECTORY_DEFAULT})",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="a DNS name or an IP address of the server; may be repeated",
    )
    parser.add_argument(
        "--days",
        metavar="COUNT",
        default=str(SERVER_DAYS_MAX),
        help=f"the lifetime of the server certificate, 1 to {SERVER_DAYS_MAX} days (default: "
        f"{SERVER_DAYS_MAX}); browsers accept no more",
    )
    parser.add_argument(
        "--rsa",
        action="store_true",
        help="use a key of RSA, for old clients, instead of one of ECDSA",
    )
    parser.add_argument(
        "--new-ca", action="store_true", help="replace the CA; clients have to trust the new one"
    )


def run(arguments: argparse.Namespace) -> int:
    certificates = DevelopmentCertificates(arguments.directory)
    try:
        issued = _issue(certificates, arguments)
    except BadCertificate as error:
        raise CommandError(f"{error}; `--new-ca` replaces the files") from None
    except OSError as error:
        path = error.filename or arguments.directory
        raise CommandError(f"{path} cannot be used: {error.strerror}") from error
    print(_report(certificates, issued))
    return CLEAN


def _issue(certificates: DevelopmentCertificates, arguments: argparse.Namespace) -> Issued:
    """Issues the certificate, by a new CA if there is none or it is to be replaced."""
    now = datetime.datetime.now(datetime.UTC)
    names, days = _names(arguments.name), _days(arguments.days)
    authority = None if arguments.new_ca else certificates.authority()
    if not names and not arguments.new_ca:
        replaced = certificates.server()
        names = [] if replaced is None else names_of(replaced.certificate)
    if authority is not None and must_replace(authority, names, now):
        for name in names:
            if not permits(authority.certificate, name):
                raise CommandError(
                    f"the CA in {arguments.directory} cannot issue certificates for {name}; "
                    "create another one with --new-ca"
                )
        raise CommandError(
            f"the CA in {arguments.directory} expires soon; create another one with --new-ca"
        )
    if authority is None:
        authority = certificates.create_authority(names, now)
    return certificates.create_server(authority, names, now, days=days, use_rsa=arguments.rsa)


def _names(texts: list[str]) -> list[Name]:
    try:
        return [parse_name(text) for text in texts]
    except ValueError as error:
        raise CommandError(f"--name: {error}") from None


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= SERVER_DAYS_MAX):
        raise CommandError(f"--days: must be an integer from 1 to {SERVER_DAYS_MAX}")
    return int(text)


def _report(certificates: DevelopmentCertificates, issued: Issued) -> str:
    files = certificates.files
    ca = str(files.authority.absolute())
    server, key = (shlex.quote(str(path.absolute())) for path in (files.server, files.server_key))
    names = ", ".join(map(str, names_of(issued.certificate)))
    return f"""\
CA           {shlex.quote(ca)}
certificate  {server}
key          {key}
names        {names}
valid until  {issued.certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC

Start the server with:

  etagere serve --tls-cert {server} --tls-key {key}

Make clients trust the CA:

{_trust(ca)}"""
