"""A request as authentication needs it.

A parser creates a `RestRequest` from the request, unchanged. The decoded names of its resource are
computed when they are first used.

Text represents bytes: `text` decodes them without loss, and `octets` returns the same bytes for the
signature, whatever encoding the client used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

SERVICES: Final = ("blob", "queue", "table", "file", "dfs")
SECONDARY: Final = "-secondary"
ROOT_CONTAINER: Final = "$root"


def text(octets: bytes) -> str:
    """Decodes bytes of a request as text."""
    return octets.decode("utf-8", "surrogateescape")


def octets(text: str) -> bytes:
    """Returns the bytes that a text of a request represents."""
    return text.encode("utf-8", "surrogateescape")


def is_text(written: str) -> bool:
    """Returns whether it represents valid UTF-8, and so can be stored, compared and looked up."""
    return written.isascii() or not any("\ud800" <= character <= "\udfff" for character in written)


def percent_decoded(written: str) -> str:
    """Decodes a path. `+` and percent signs that do not begin an escape stay unchanged."""
    if "%" not in written:
        return written
    return text(unquote_to_bytes(octets(written)))


def query_decoded(written: str) -> str:
    """Decodes a name or value of a query, where the service reads `+` as a space."""
    return percent_decoded(written.replace("+", " "))


# The account


class Address(msgspec.Struct, frozen=True, gc=False):
    """How a request names its account."""

    account: str
    secondary: bool
    path_style: bool


def address(host: str, path: str) -> Address:
    """Reads the account from a host `{account}.{service}.…`, else from the path's first segment."""
    in_host = _account_in(host) if len(host) <= _HOST_CHARACTERS_MAX else None
    name = path[1:].partition("/")[0] if in_host is None else in_host
    secondary = name.endswith(SECONDARY)
    return Address(name.removesuffix(SECONDARY), secondary, in_host is None)


_HOST_CHARACTERS_MAX = 255 + len(":65535")


@lru_cache(maxsize=256)
def _account_in(host: str) -> str | None:
    """Returns the account in a host name. Cached, because clients use few hosts."""
    labels = host.lower().partition(":")[0].split(".", 2)
    return None if len(labels) < 2 or labels[1] not in SERVICES else labels[0]


# The request


class RestRequest:
    """A request in the form in which it was signed."""

    __slots__ = (
        "_resource",
        "account",
        "client",
        "fields",
        "method",
        "parameters",
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
        fields: Mapping[str, str],
        *,
        scheme: str = "http",
        client: str = "",
    ) -> None:
        """`path` and `query` are percent-encoded, and were separated at the first `?`.

        `fields` are the headers by lower-cased name; the values of a repeated one are joined by
        commas. `client` is the address the connection comes from.
        """
        self.service = service
        self.method = method
        self.account = address.account
        self.secondary = address.secondary
        self.path_style = address.path_style
        self.path = path
        self.query = query
        self.fields = fields
        self.scheme = scheme
        self.client = client
        is_short = len(query) <= _REMEMBERED_CHARACTERS_MAX
        self.parameters: Mapping[str, str] = (_remembered if is_short else _parse)(query)
        """Query parameters, decoded, by lower-cased name.

        Several values of one name are sorted and joined by commas. All code reads parameters from
        here: a request with a repeated parameter must not be signed with one value and executed
        with the other.
        """
        self._resource: tuple[str, str] | None = None

    @property
    def resource_path(self) -> str:
        """The path below the account, still encoded and without its first slash."""
        if self.path_style:
            return self.path[1:].partition("/")[2]
        return self.path[1:]

    @property
    def resource(self) -> tuple[str, str]:
        """The container, queue, share or table, and the path below it; decoded, "" where absent.

        A blob without a container is in the root container. Requests for a container are
        distinguished by their `restype`.
        """
        resource = self._resource
        if resource is None:
            resource = self._resource = self._decoded_resource()
        return resource

    def _decoded_resource(self) -> tuple[str, str]:
        container, _, below = self.resource_path.partition("/")
        container, below = percent_decoded(container), percent_decoded(below)
        if self.service == "blob":
            # The service treats both slashes in a name alike, and clients sign it so.
            below = below.replace("\\", "/")
        if self.service == "blob" and container and not below and not self._names_container():
            return ROOT_CONTAINER, container
        return container, below

    def _names_container(self) -> bool:
        """Returns whether a path of one segment names a container rather than a blob in the root
        container."""
        parameters = self.parameters
        return "restype" in parameters or is_access_control_request(parameters)


def is_access_control_request(parameters: Mapping[str, str]) -> bool:
    """Returns whether this is the request with which Data Lake clients find out whether an account
    has a hierarchical namespace."""
    return parameters.get("action", "").lower() == "getaccesscontrol"


# A client sends the same token, and little else, with every request.
_REMEMBERED_CHARACTERS_MAX = 2_048
# The service decodes the expression of Find Blobs by Tags like a path: tags may contain a plus, and
# clients that encode spaces as plus signs elsewhere encode them as `%20` here.
_PLUS_KEPT: Final = "where"


def _parse(query: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        name = query_decoded(name).lower()
        value = percent_decoded(value) if name == _PLUS_KEPT else query_decoded(value)
        if name in found:
            repeated.setdefault(name, [found[name]]).append(value)
        else:
            found[name] = value
    for name, values in repeated.items():
        found[name] = ",".join(sorted(values))
    return MappingProxyType(found)


_remembered = lru_cache(maxsize=512)(_parse)
