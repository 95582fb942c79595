"""What authentication needs to know of a request.

A parser fills a `SignedRequest` with what it has at hand, exactly as it came over the wire.
All that takes work (lower-cased names, decoded parameters) is made when it is first asked
for, so a request pays only for the scheme it uses.

Text stands for bytes: it is decoded by `text`, which loses nothing, and `octets` gives the same
bytes back to be signed, whatever the client's idea of an encoding was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

SERVICES: Final = ("blob", "queue", "table", "file", "dfs")
SECONDARY: Final = "-secondary"
ROOT_CONTAINER: Final = "$root"


def text(octets: bytes) -> str:
    """Bytes of a request as text."""
    return octets.decode("utf-8", "surrogateescape")


def octets(text: str) -> bytes:
    """The bytes that a text of a request stands for."""
    return text.encode("utf-8", "surrogateescape")


def percent_decoded(written: str) -> str:
    """Percent signs that begin no escape stay as they are; so does `+`."""
    if "%" not in written:
        return written
    return text(unquote_to_bytes(octets(written)))


# Whose request it is


class Address(NamedTuple):
    """How a request names its account."""

    account: str
    secondary: bool
    path_style: bool


def address(host: str, path: str) -> Address:
    """Reads the account from a host `{account}.{service}.…`, else from the path's first segment."""
    labels = host.lower().partition(":")[0].split(".", 2)
    path_style = len(labels) < 2 or labels[1] not in SERVICES
    name = path[1:].partition("/")[0] if path_style else labels[0]
    secondary = name.endswith(SECONDARY)
    return Address(name.removesuffix(SECONDARY), secondary, path_style)


# The request


class SignedRequest:
    """A request as its signer saw it."""

    __slots__ = (
        "_fields",
        "_parameters",
        "account",
        "client",
        "headers",
        "method",
        "path",
        "path_style",
        "query",
        "scheme",
        "secondary",
        "service",
    )

    def __init__(
        self,
        service: str,
        method: str,
        address: Address,
        path: str,
        query: str,
        headers: Sequence[tuple[str, str]],
        *,
        scheme: str = "http",
        client: str = "",
        fields: dict[str, str] | None = None,
    ) -> None:
        """`path` and `query` are still percent-encoded, and part where the first `?` stood.

        `headers` keep their order and case; a parser that has made the lower-cased lookup
        already passes it as `fields`. `client` is the address the connection comes from.
        """
        self.service = service
        self.method = method
        self.account, self.secondary, self.path_style = address
        self.path = path
        self.query = query
        self.headers = headers
        self.scheme = scheme
        self.client = client
        self._fields = fields
        self._parameters: dict[str, str] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """Headers by lower-cased name; the values of a repeated one are joined by commas."""
        fields = self._fields
        if fields is None:
            fields = self._fields = {}
            for written, value in self.headers:
                name = written.lower()
                fields[name] = f"{fields[name]},{value}" if name in fields else value
        return fields

    @property
    def parameters(self) -> dict[str, str]:
        """Query parameters, decoded, by lower-cased name.

        Several values of one name are sorted and joined by commas. Everyone who looks at a
        parameter looks here: a request that says a thing twice must not be signed as one of
        the two and carried out as the other.
        """
        parameters = self._parameters
        if parameters is None:
            parameters = self._parameters = _parameters(self.query) if self.query else {}
        return parameters

    @property
    def resource_path(self) -> str:
        """The path below the account, still encoded and without its first slash."""
        if self.path_style:
            return self.path[1:].partition("/")[2]
        return self.path[1:]

    @property
    def resource(self) -> tuple[str, str]:
        """Container, queue, share or table, and what lies below it; decoded, "" where absent.

        A blob named without a container lies in the root container: what tells it from a
        container is that requests to those say `restype`.
        """
        container, _, below = self.resource_path.partition("/")
        container, below = percent_decoded(container), percent_decoded(below)
        if self.service == "blob" and container and not below and "restype" not in self.parameters:
            return ROOT_CONTAINER, container
        return container, below


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        name = percent_decoded(name).lower()
        value = percent_decoded(value)
        if name in found:
            repeated.setdefault(name, [found[name]]).append(value)
        else:
            found[name] = value
    for name, values in repeated.items():
        found[name] = ",".join(sorted(values))
    return found
