"""The URLs of sources: parsing, and whether a source is on this server or on an allowed one.

One strict parser decides, and the URL to fetch is built from its result, so that no other parser
can find another host in the same text. Host names are compared before they are resolved: only hosts
that the operator listed can be reached, whatever they resolve to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from etagere.auth.request import SECONDARY
from etagere.settings import CopySource

ADDRESS_CHARACTERS_MAX: Final = 16 << 10
"""Enough for the longest blob name, percent-encoded, and a token."""
_PORT_MAX = 65_535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PUBLIC_BLOB_DOMAIN: Final = "blob.core.windows.net"
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
        kept = [pair for pair in self.query.split("&") if _name(pair) in ("snapshot", "versionid")]
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


def is_this_server(source: SourceAddress, host: str, scheme: str, port: int) -> bool:
    """Returns whether a URL is on this server: at the host that the request was sent to (`host` is
    its header), or on this machine with our port. The name of an account may precede either."""
    base = _without_account(_without_root(source.host))
    if base in _LOOPBACK and source.port == port:
        return True
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    asked_port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    asked = _without_account(_without_root(found["host"].strip("[]")))
    return (base, source.port) == (asked, asked_port)


def _without_root(host: str) -> str:
    """Returns a host name without the dot of an absolute DNS name."""
    return host.removesuffix(".")


def _without_account(host: str) -> str:
    labels = host.split(".", 2)
    return labels[2] if len(labels) == 3 and labels[1] == "blob" else host


def is_public_endpoint_of(source: SourceAddress, account: str) -> bool:
    """Returns whether a URL is below the public cloud endpoint of an account. The Azure CLI sends
    the source of a copy like this, whatever endpoint it was given."""
    owner, _, domain = _without_root(source.host).partition(".")
    return (
        domain == _PUBLIC_BLOB_DOMAIN
        and owner.removesuffix(SECONDARY) == account
        and source.port == _DEFAULT_PORTS[source.scheme]
    )


def is_allowed(source: SourceAddress, allowed: Iterable[CopySource]) -> bool:
    """Returns whether the operator allows this host, and this port or, without one, the default
    port."""
    usual = source.port == _DEFAULT_PORTS[source.scheme]
    return any(
        one.host == source.host and (usual if one.port is None else one.port == source.port)
        for one in allowed
    )
