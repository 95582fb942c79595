"""A request in a service, with its version, id, sender and permit."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from etagere.auth.permissions import Permit
from etagere.auth.principal import Principal
from etagere.auth.request import RestRequest, address, octets, text
from etagere.engine.interface import ReadClass
from etagere.errors import Refusal
from etagere.metrics.counters import UNKNOWN
from etagere.model.accounts import Account
from etagere.model.ids import random_bytes
from etagere.protocol.http.messages import Request

VERSION_NEWEST: Final = "2026-10-06"
"""The newest supported version; newer requests are served as this."""

CLIENT_REQUEST_ID_MAX: Final = 1024
_VERSION = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def new_request_id() -> str:
    random = random_bytes().hex()
    return f"{random[:8]}-{random[8:12]}-{random[12:16]}-{random[16:20]}-{random[20:]}"


@lru_cache(maxsize=256)
def _served_version(asked: str) -> str | None:
    """Returns the version as which a request is served; None if it asks for one that is invalid."""
    return min(asked, VERSION_NEWEST) if _VERSION.fullmatch(asked) else None


class Exchange:
    """A request, parsed as far as every service needs it."""

    __slots__ = (
        "_asked_version",
        "header",
        "http",
        "is_nested",
        "names_version",
        "operation",
        "parameter",
        "permit",
        "principal",
        "request",
        "request_id",
        "stored_account",
        "version",
    )

    principal: Principal
    permit: Permit
    # Methods of the mappings themselves, because every request calls them dozens of times.
    header: Callable[[str], str | None]
    """Returns the value of the header with a name in lower case, if there is one."""
    parameter: Callable[[str], str | None]
    """Returns the value of the query parameter with a name in lower case, if there is one."""

    def __init__(self, service: str, http: Request) -> None:
        self.http = http
        self.request_id = new_request_id()
        self.operation = UNKNOWN
        """The name of the operation, once it is known; for the metrics and the log."""
        self.is_nested = False
        self.stored_account: Account | None = None
        """The account in the ledger, if it has been looked up."""
        target, _, query = text(http.target).partition("?")
        # As `text`, without the calls.
        fields = {
            name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
            for name, value in http.fields.items()
        }
        self.request = RestRequest(
            service,
            http.method,
            address(fields.get("host", ""), target),
            target,
            query,
            fields,
            scheme="https" if http.secure else "http",
            client=http.client,
        )
        self.header, self.parameter = self.request.fields.get, self.request.parameters.get
        asked = self.header("x-ms-version") or self.parameter("sv")
        self.names_version = bool(asked)
        self._asked_version = asked or VERSION_NEWEST
        # An invalid version is not repeated in the response: it may have been percent-encoded.
        self.version = _served_version(self._asked_version) or VERSION_NEWEST

    def nested(
        self,
        method: str,
        target: str,
        fields: Mapping[str, str],
        *,
        host: str | None = None,
        scheme: str | None = None,
        service: str | None = None,
        same_sender: bool = False,
    ) -> Exchange:
        """Returns a request nested in this one: a part of a batch, or the read of a source that the
        sender could have requested.

        It has the version of this request and, unless they are given, its host and service. It must
        be authenticated and authorized separately, unless `same_sender` is set: then it has the
        principal, the permit and the id of this request.
        """
        nested = copy.copy(self)
        nested.is_nested = True
        nested.stored_account = None
        if not same_sender:
            del nested.principal, nested.permit
            nested.request_id = new_request_id()
            nested.operation = UNKNOWN
        outer = self.request
        path, _, query = target.partition("?")
        host = outer.fields.get("host", "") if host is None else host
        nested.request = RestRequest(
            service or outer.service,
            method,
            address(host, path),
            path,
            query,
            {**fields, "host": host},
            scheme=outer.scheme if scheme is None else scheme,
            client=outer.client,
        )
        nested.header, nested.parameter = nested.request.fields.get, nested.request.parameters.get
        return nested

    def check_version(self) -> Refusal | None:
        if _served_version(self._asked_version) is not None:
            return None
        facts: dict[str, str | int] = {
            "HeaderName": "x-ms-version",
            "HeaderValue": self._asked_version,
        }
        return Refusal("InvalidHeaderValue", facts)

    @property
    def challenge_version(self) -> str:
        """The version that determines how an anonymous request is refused. A request that names no
        version is refused as one of the first versions."""
        return self.version if self.names_version else ""

    def read_class(self, kind: str) -> ReadClass:
        """Returns the scheduling class of a long read for this request."""
        return ReadClass(kind, self.request.client)

    def common_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers of every response."""
        headers = [
            (b"x-ms-request-id", self.request_id.encode()),
            (b"x-ms-version", octets(self.version)),
        ]
        client_id = self.header("x-ms-client-request-id")
        if client_id is not None and len(client_id) <= CLIENT_REQUEST_ID_MAX:
            headers.append((b"x-ms-client-request-id", octets(client_id)))
        return headers
