"""A request in a service, with its version, id, sender and permit."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from etagere.auth.permissions import Permit
from etagere.auth.principal import Principal
from etagere.auth.request import RestRequest, address, octets, text
from etagere.engine.interface import ReadClass
from etagere.errors import Refusal
from etagere.metrics.counters import UNKNOWN
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
def _is_version(written: str) -> bool:
    return _VERSION.fullmatch(written) is not None


class Exchange:
    """A request, parsed as far as every service needs it."""

    __slots__ = (
        "_asked_version",
        "http",
        "names_version",
        "operation",
        "permit",
        "principal",
        "request",
        "request_id",
        "version",
    )

    principal: Principal
    permit: Permit

    def __init__(self, service: str, http: Request) -> None:
        self.http = http
        self.request_id = new_request_id()
        self.operation = UNKNOWN
        """The name of the operation, once it is known; for the metrics and the log."""
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
        asked = self.request.fields.get("x-ms-version") or self.request.parameters.get("sv", "")
        self.names_version = bool(asked)
        self._asked_version = asked or VERSION_NEWEST
        # An invalid version is not repeated in the response: it may have been percent-encoded.
        known = _is_version(self._asked_version)
        self.version = min(self._asked_version, VERSION_NEWEST) if known else VERSION_NEWEST

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
        return nested

    def check_version(self) -> Refusal | None:
        if _is_version(self._asked_version):
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

    def header(self, name: str) -> str | None:
        return self.request.fields.get(name)

    def parameter(self, name: str) -> str | None:
        return self.request.parameters.get(name)

    def common_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers of every response."""
        headers = [
            (b"x-ms-request-id", self.request_id.encode()),
            (b"x-ms-version", octets(self.version)),
        ]
        client_id = self.request.fields.get("x-ms-client-request-id")
        if client_id is not None and len(client_id) <= CLIENT_REQUEST_ID_MAX:
            headers.append((b"x-ms-client-request-id", octets(client_id)))
        return headers
