"""The URLs of sources: parsing, and whether a source is on this server or on an allowed one.

One strict parser decides, and the URL to fetch is built from its result, so that no other parser
can find another host in the same text. Host names are compared before they are resolved: only hosts
that the operator listed can be reached, whatever they resolve to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from etagere.auth.request import SECONDARY
from etagere.settings.values import CopySource

ADDRESS_CHARACTERS_MAX: Final = 32 << 10
"""Enough for the longest path of a file, percent-encoded (18 KiB), and a token."""
_PORT_MAX = 65_535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PUBLIC_DOMAIN: Final = "core.windows.net"
SOURCE_SERVICES: Final = ("blob", "file")
"""The services whose objects can be sources."""
_NAMING: Final = ("snapshot", "versionid", "sharesnapshot")
"""The parameters that name a state of an object."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

# No user name, and no characters that some parsers, but not others, treat as the end of the host.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^\x00-\x20\x7f?#]*)?(?:\?(?P<query>[^\x00-\x20\x7f#]*))?",
    re.IGNORECASE | re.ASCII,
)
_HOST = re.compile(r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


class SourceAddress(NamedTuple):
    """A parsed URL. Path and query are percent-encoded."""

    scheme: str
    host: str
    """In lower case, without brackets or a port."""
    port: int
    path: str
    query: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def without_secrets(self) -> str:
        """Returns the URL without secrets: of the query only what names a snapshot or a version."""
        kept = [pair for pair in self.query.split("&") if _name(pair) in _NAMING]
        query = "?" + "&".join(kept) if kept else ""
        return f"{self.scheme}://{self.authority}{self.path}{query}"


def _name(pair: str) -> str:
    return pair.partition("=")[0].lower()


def parse(written: str) -> SourceAddress | None:
    """Parses a URL; returns None if it is not an absolute HTTP URL."""
    if len(written) > ADDRESS_CHARACTERS_MAX:
        return None
    found = _ADDRESS.fullmatch(written)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    if not 1 <= port <= _PORT_MAX:
        return None
    host = found["host"].lower().strip("[]")
    return SourceAddress(scheme, host, port, found["path"] or "/", found["query"] or "")


def service_here(
    source: SourceAddress, host: str, scheme: str, service: str, ports: Mapping[str, int]
) -> str | None:
    """Returns the service of this server that a URL is for; None if it is on another server.

    `host` is the header of a request to `service`, and `ports` are those of all services. The URL
    is on this server if it names the host of the request, or this machine, and a port of the
    server. The name of an account and a service may precede the host. They determine the service if
    the URL has the port of the request: behind a proxy, all services may have one port, which may
    also be that of one service.
    """
    base, named = _split_host(source.host)
    found = _HOST.fullmatch(host.lower())
    asked = None if found is None else _split_host(found["host"].strip("[]"))[0]
    if found is not None and base == asked:
        asked_port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
        if source.port == asked_port:
            return named or service
    if base in _LOOPBACK or base == asked:
        for one, port in ports.items():
            if source.port == port:
                return one if one in SOURCE_SERVICES else None
    return None


def _split_host(host: str) -> tuple[str, str | None]:
    """Returns a host without the account and the service that may precede it, and the service. An
    absolute DNS name may end in a dot."""
    host = host.removesuffix(".")
    labels = host.split(".", 2)
    if len(labels) == 3 and labels[1] in SOURCE_SERVICES:
        return labels[2], labels[1]
    return host, None


def service_of_public_endpoint(source: SourceAddress, account: str) -> str | None:
    """Returns the service of a URL below the public cloud endpoint of an account, or None. The
    Azure CLI sends the source of a copy like this, whatever endpoint it was given."""
    domain, service = _split_host(source.host)
    owner = source.host.partition(".")[0]
    is_endpoint = (
        domain == _PUBLIC_DOMAIN
        and owner.removesuffix(SECONDARY) == account
        and source.port == _DEFAULT_PORTS[source.scheme]
    )
    return service if is_endpoint else None


def is_allowed(source: SourceAddress, allowed: Iterable[CopySource]) -> bool:
    """Returns whether the operator allows this host, and this port or, without one, the default
    port."""
    usual = source.port == _DEFAULT_PORTS[source.scheme]
    return any(
        one.host == source.host and (usual if one.port is None else one.port == source.port)
        for one in allowed
    )
