"""The addresses of sources: what they name, whether that is here, and whether it may be read.

One strict parser decides, and what is fetched is put together from its result, so that nobody
further down can read another host out of the same text. Names are compared as they are written,
before anything is resolved: what the operator did not write cannot be reached, whatever it
resolves to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from etagere.auth.request import SECONDARY
from etagere.settings import CopySource

ADDRESS_CHARACTERS_MAX: Final = 16 << 10
"""Room for the longest name of a blob, percent-encoded, and a token."""
_PORT_MAX = 65_535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PUBLIC_BLOB_DOMAIN: Final = "blob.core.windows.net"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

# Neither a name before the host nor anything that one reader takes for the end of the host and
# another does not.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^\x00-\x20\x7f?#]*)?(?:\?(?P<query>[^\x00-\x20\x7f#]*))?",
    re.IGNORECASE | re.ASCII,
)
_HOST = re.compile(r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


class SourceAddress(NamedTuple):
    """An address, taken apart. Path and query are still percent-encoded."""

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

    def shown(self) -> str:
        """The address without what may give the right to read it: all of the query but what
        names a snapshot or a version."""
        kept = [pair for pair in self.query.split("&") if _name(pair) in ("snapshot", "versionid")]
        query = "?" + "&".join(kept) if kept else ""
        return f"{self.scheme}://{self.authority}{self.path}{query}"


def _name(pair: str) -> str:
    return pair.partition("=")[0].lower()


def parse(written: str) -> SourceAddress | None:
    """None for what is no absolute address of HTTP."""
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


def is_here(source: SourceAddress, host: str, scheme: str, port: int) -> bool:
    """Whether an address is one of this server: that which a request was sent to (`host` is its
    header), or this machine and our port. The name of an account may stand before either."""
    base = _without_account(source.host)
    if base in _LOOPBACK and source.port == port:
        return True
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    asked_port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    asked = _without_account(found["host"].strip("[]"))
    return (base, source.port) == (asked, asked_port)


def _without_account(host: str) -> str:
    labels = host.split(".", 2)
    return labels[2] if len(labels) == 3 and labels[1] == "blob" else host


def is_public_endpoint_of(source: SourceAddress, account: str) -> bool:
    """Whether an address is below the endpoint that an account of this name has in the public
    cloud. The Azure CLI writes the source of a copy so, whatever endpoint it was given."""
    owner, _, domain = source.host.partition(".")
    return (
        domain == _PUBLIC_BLOB_DOMAIN
        and owner.removesuffix(SECONDARY) == account
        and source.port == _DEFAULT_PORTS[source.scheme]
    )


def is_allowed(source: SourceAddress, allowed: Iterable[CopySource]) -> bool:
    """Whether the operator named this host, and this port or, without one, the usual one."""
    usual = source.port == _DEFAULT_PORTS[source.scheme]
    return any(
        one.host == source.host and (usual if one.port is None else one.port == source.port)
        for one in allowed
    )
