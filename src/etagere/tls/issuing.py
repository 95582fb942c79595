"""Issues certificates for development: of a certificate authority (CA), and of servers.

The authority may only issue certificates for the names that it was created for (RFC 5280, section
4.2.1.10), and only for servers: constraints on names do not restrict certificates for e-mail or
code. So trusting it puts nothing else at risk if its key is stolen.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_DAYS_MAX: Final = 397
"""The longest lifetime that browsers accept."""
AUTHORITY_DAYS: Final = 3650
_RSA_BITS: Final = 2048
_SERVERS_ONLY: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
# The clocks of clients may be a little behind.
_BACKDATED: Final = datetime.timedelta(hours=1)

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Name: TypeAlias = str | IpAddress
"""A DNS name, which may begin with `*.`, or an IP address."""
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LOCAL_NAMES: Final[tuple[Name, ...]] = (
    "localhost",
    *(f"*.{service}.localhost" for service in ("blob", "queue", "table", "file")),
    ipaddress.IPv4Address("127.0.0.1"),
    ipaddress.IPv6Address("::1"),
)
"""The names of a server for clients on the same machine."""
_LOCAL_NETWORKS: Final[tuple[IpNetwork, ...]] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)

_LABEL: Final = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_DNS_NAME: Final = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_DNS_NAME_CHARACTERS_MAX: Final = 253


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def parse_name(text: str) -> Name:
    """Parses a DNS name or an IP address. Raises ValueError if the text is neither."""
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        name = text.lower().removesuffix(".")
    if len(name) > _DNS_NAME_CHARACTERS_MAX or _DNS_NAME.fullmatch(name) is None:
        raise ValueError(f"{text!r} is neither a DNS name nor an IP address")
    return name


def new_authority(names: Iterable[Name], now: datetime.datetime) -> Issued:
    """Creates an authority for these names, in addition to those of the local machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Tells apart several authorities in a list of trusted ones.
    number = secrets.token_hex(4)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Etagere"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Etagere development CA {number}"),
        ]
    )
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        _builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_SERVERS_ONLY, critical=False)
        .add_extension(x509.NameConstraints(_permitted(names), None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Issued(certificate, key)


def new_server_certificate(
    authority: Issued, names: Sequence[Name], now: datetime.datetime, *, days: int, use_rsa: bool
) -> Issued:
    """Issues a certificate for these names, which the authority must permit. It does not outlive
    the authority."""
    key: PrivateKey
    if use_rsa:
        key = rsa.generate_private_key(public_exponent=65_537, key_size=_RSA_BITS)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Etagere"),
            x509.NameAttribute(NameOID.COMMON_NAME, "Etagere server"),
        ]
    )
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = _builder(subject, issuer.subject, key, now, days, issuer.not_valid_after_utc)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True, key_encipherment=use_rsa), critical=True)
        .add_extension(_SERVERS_ONLY, critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Issued(certificate, key)


def names_of(certificate: x509.Certificate) -> list[Name]:
    """Returns the names that a server certificate is valid for."""
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [
        name.value
        for name in extension.value
        if isinstance(name, x509.DNSName | x509.IPAddress)
        and not isinstance(name.value, ipaddress.IPv4Network | ipaddress.IPv6Network)
    ]


def permits(authority: x509.Certificate, name: Name) -> bool:
    """Returns whether an authority may issue certificates for a name."""
    try:
        extension = authority.extensions.get_extension_for_class(x509.NameConstraints)
    except x509.ExtensionNotFound:
        return True
    return any(_covers(subtree, name) for subtree in extension.value.permitted_subtrees or ())


def _covers(subtree: x509.GeneralName, name: Name) -> bool:
    if isinstance(name, str):
        domain = subtree.value if isinstance(subtree, x509.DNSName) else None
        return domain is not None and f".{_domain(name)}".endswith(f".{domain}")
    network = subtree.value if isinstance(subtree, x509.IPAddress) else None
    return isinstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network) and name in network


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    now: datetime.datetime,
    days: int,
    ends_at_most: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    begins = now - _BACKDATED
    ends = begins + datetime.timedelta(days=days)
    if ends_at_most is not None:
        ends = min(ends, ends_at_most)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _key_usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _permitted(names: Iterable[Name]) -> list[x509.GeneralName]:
    """Returns the subtrees of names that an authority may issue certificates for."""
    domains, networks = {"localhost": None}, dict.fromkeys(_LOCAL_NETWORKS)
    for name in names:
        if isinstance(name, str):
            domains[_domain(name)] = None
        elif not any(name in network for network in networks):
            networks[ipaddress.ip_network(name)] = None
    return [*map(x509.DNSName, domains), *map(x509.IPAddress, networks)]


def _domain(name: str) -> str:
    return name.removeprefix("*.")


def _general(name: Name) -> x509.GeneralName:
    return x509.DNSName(name) if isinstance(name, str) else x509.IPAddress(name)
