"""One request on its way through a service: what was asked, by whom, and how it is answered.

The same for every REST service: versions, request ids, authentication, and the one place where
refusals, faults and unknown outcomes become answers.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from etagere.auth.permissions import Permit
from etagere.auth.principal import Principal
from etagere.auth.request import Address, SignedRequest, address, octets, text
from etagere.engine.interface import Lane
from etagere.errors import Refusal
from etagere.model.ids import draw
from etagere.protocol.http.messages import Request

VERSION_NEWEST: Final = "2026-10-06"
"""The newest version of the protocol that is spoken; newer requests are served as this."""

_CLIENT_REQUEST_ID_MAX = 1024
_VERSION = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def new_request_id() -> str:
    drawn = draw().hex()
    return f"{drawn[:8]}-{drawn[8:12]}-{drawn[12:16]}-{drawn[16:20]}-{drawn[20:]}"


@lru_cache(maxsize=256)
def _is_version(written: str) -> bool:
    return _VERSION.fullmatch(written) is not None


class Exchange:
    """A request, taken apart as far as every service needs it."""

    __slots__ = (
        "_asked_version",
        "http",
        "names_version",
        "permit",
        "principal",
        "request_id",
        "signed",
        "version",
    )

    principal: Principal
    permit: Permit

    def __init__(self, service: str, http: Request) -> None:
        self.http = http
        self.request_id = new_request_id()
        target, _, query = text(http.target).partition("?")
        fields = {text(name): text(value) for name, value in http.fields.items()}
        self.signed = SignedRequest(
            service,
            http.method,
            address(fields.get("host", ""), target),
            target,
            query,
            fields,
            scheme="https" if http.secure else "http",
            client=http.client,
        )
        asked = self.signed.fields.get("x-ms-version") or self.signed.parameters.get("sv", "")
        self.names_version = bool(asked)
        self._asked_version = asked or VERSION_NEWEST
        # What is no version is not repeated in the answer: it may have come percent-encoded.
        known = _is_version(self._asked_version)
        self.version = min(self._asked_version, VERSION_NEWEST) if known else VERSION_NEWEST

    def inside(self, method: str, query: str, fields: Mapping[str, str]) -> Exchange:
        """A request that came inside of this one, from the same sender to the same account."""
        inner = copy.copy(self)
        outer = self.signed
        named = Address(outer.account, outer.secondary, outer.path_style)
        host = {"host": outer.fields.get("host", "")}
        inner.signed = SignedRequest(
            outer.service,
            method,
            named,
            outer.path,
            query,
            {**fields, **host},
            scheme=outer.scheme,
            client=outer.client,
        )
        return inner

    def part(self, method: str, target: str, fields: Mapping[str, str]) -> Exchange:
        """A request that came inside of this one, but has its own address and its own sender, and
        is told apart from the others. It is served as this version, whatever it says."""
        part = copy.copy(self)
        del part.principal, part.permit
        part.request_id = new_request_id()
        outer = self.signed
        path, _, query = target.partition("?")
        host = outer.fields.get("host", "")
        part.signed = SignedRequest(
            outer.service,
            method,
            address(host, path),
            path,
            query,
            {**fields, "host": host},
            scheme=outer.scheme,
            client=outer.client,
        )
        return part

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
        """The version that decides how an anonymous request is refused. A request that names no
        version is refused as one of the first versions."""
        return self.version if self.names_version else ""

    def lane(self, kind: str) -> Lane:
        """Where a long read for this request waits for its turn."""
        return Lane(kind, self.signed.client)

    def header(self, name: str) -> str | None:
        return self.signed.fields.get(name)

    def parameter(self, name: str) -> str | None:
        return self.signed.parameters.get(name)

    def common_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer has."""
        headers = [
            (b"x-ms-request-id", self.request_id.encode()),
            (b"x-ms-version", octets(self.version)),
        ]
        client_id = self.signed.fields.get("x-ms-client-request-id")
        if client_id is not None and len(client_id) <= _CLIENT_REQUEST_ID_MAX:
            headers.append((b"x-ms-client-request-id", octets(client_id)))
        return headers
