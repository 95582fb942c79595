"""A server that accepts the tokens of anybody, over HTTPS, and clients of it."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.sdk.delegation.clients import Clients
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """Writes a certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "server.crt", directory / "server.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


ROLES = (
    "roles:owners=owner",
    "roles:readers=blob-reader,queue-reader,file-reader",
    "roles:writers=blob-contributor,queue-contributor,file-contributor",
    "roles:senders=queue-message-sender,queue-delegator",
    "roles:delegators=blob-delegator",
    "roles:strangers=table-reader",
)


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("delegation")


@pytest.fixture(scope="package")
def server(directory: Path) -> Iterator[Server]:
    certificate, key = write_certificate(directory)
    flags = ["--oauth", "development", "--workers", "2"]
    flags += ["--tls-cert", str(certificate), "--tls-key", str(key)]
    flags += ["--account", ":".join((SECOND_ACCOUNT, *SECOND_KEYS))]
    for role in ROLES:
        flags += ["--oauth-role", role]
    with served(directory / "data", *flags) as started:
        yield started


@pytest.fixture(scope="package")
def clients(server: Server, directory: Path) -> Clients:
    return Clients(server, str(directory / "server.crt"))
