"""Recorded requests as cases: setup, request and expected response."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from etagere.rules.opens import Access
from tests.probes.client import (
    Answer,
    Client,
    Request,
    Signer,
    encoded,
    shared_key,
    table_shared_key,
)
from tests.sdk.file.front_end import FileFrontEnd
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server

VERSIONS: Final = {
    "blob": ("2019-02-02", "2021-08-06"),
    "queue": ("2018-03-28", "2021-02-12"),
    "table": ("2019-02-02",),
    "file": ("2019-02-02", "2021-06-08"),
}
"""The versions of most of the recorded requests."""

OPENS: Final = "opens"
"""The front end of the file service that has open files."""

_numbers = itertools.count(1)


class Target:
    """A server with two accounts, and connections to it, one per thread and endpoint."""

    def __init__(self, server: Server, endless: str, front_end: FileFrontEnd) -> None:
        """`endless` is the address of what can be copied for ever; `front_end` serves the files of
        the server, and clients have them open there."""
        self.server = server
        self.endless = endless
        self.front_end = front_end
        self._endpoints = {**server.endpoints, OPENS: front_end.url}
        self._of_thread = threading.local()
        self._clients: list[Client] = []

    def client(self, endpoint: str) -> Client:
        """Returns a connection to a service, or to the front end that knows the open files."""
        known: dict[str, Client] = self._of_thread.__dict__
        if endpoint not in known:
            known[endpoint] = Client(self._endpoints[endpoint])
            self._clients.append(known[endpoint])
        return known[endpoint]

    def close(self) -> None:
        for client in self._clients:
            client.close()


class CaseContext:
    """Setup of a case, signed with the account key and with unique names."""

    def __init__(self, target: Target, service: str, version: str, account: str = ACCOUNT) -> None:
        self.target = target
        self.service = service
        self.version = version
        self.account = account
        self.endpoint = target.server.endpoints[service]
        self.endless = target.endless
        self.name = f"recorded{os.getpid()}x{next(_numbers)}"
        """The name of a container, a queue or a table."""
        self.afterwards: list[Request] = []
        """Sent after the comparison."""
        self.sign = signer(service, account)
        self._asked = service

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | str = b"",
    ) -> Request:
        """Returns a request; `path` is below the account and not encoded yet."""
        common = {"x-ms-version": self.version, "x-ms-client-request-id": str(uuid4())}
        sent = {name: value for name, value in {**common, **(headers or {})}.items() if value}
        return Request(
            method,
            f"/{self.account}/{quote(path, safe='/(),=')}",
            encoded((query or {}).items()),
            tuple(sent.items()),
            body.encode() if isinstance(body, str) else body,
        )

    def do(self, *arguments: Any, **options: Any) -> Answer:
        """Sends a request that must succeed."""
        return self.do_request(self.request(*arguments, **options))

    def do_request(self, request: Request) -> Answer:
        answer = self.ask(self.sign(request))
        assert answer.status < 300, (request, answer)
        return answer

    def ask(self, request: Request) -> Answer:
        return self.target.client(self._asked).ask(request)

    # Open files

    def use_opens(self) -> None:
        """Sends the requests from now on to the front end that knows what is open."""
        self._asked = OPENS

    def open(self, path: str, access: Access = Access.READ) -> None:
        """Opens a file or directory of the share, as an SMB client does."""
        self.target.front_end.open(self.name, path, access)

    def close_opens(self) -> None:
        if self._asked == OPENS:
            self.target.front_end.close_all(self.name)


def other_account(context: CaseContext) -> CaseContext:
    return CaseContext(
        context.target, context.service, context.version or "2021-08-06", SECOND_ACCOUNT
    )


def signer(service: str, account: str = ACCOUNT) -> Signer:
    key = KEY if account == ACCOUNT else SECOND_KEYS[0]
    return (table_shared_key if service == "table" else shared_key)(account, key)


@dataclass(frozen=True)
class Case:
    """One kind of request and its expected response."""

    service: str
    operation: str
    status: int
    make: Callable[[CaseContext], Request]
    code: str = ""
    name: str = ""
    body: str = ""
    """The form of the error's body, where both were recorded."""
    having: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    values: dict[str, str] = field(default_factory=dict)
    elements: tuple[str, ...] = ()
    share: float | str = ""
    """How many of the recorded responses are of this variant, or the header that identifies
    them."""
    signs: bool = True
    """Whether the request is signed with the account key."""
    versions: tuple[str, ...] = ()
    cors: bool = True
    """Whether it is also sent to an account with CORS rules, if it is a read."""

    @property
    def title(self) -> str:
        sent = (self.operation, str(self.status), self.code, self.body, self.name)
        return " ".join(word for word in sent if word)


class Catalogue:
    """Collects the cases of a service."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.cases: list[Case] = []

    def case(
        self, operation: str, status: int, code: str = "", **options: Any
    ) -> Callable[[Callable[[CaseContext], Request]], Callable[[CaseContext], Request]]:
        """Decorates a function that does the setup and returns the request."""

        def add(make: Callable[[CaseContext], Request]) -> Callable[[CaseContext], Request]:
            self.add(operation, status, code, make=make, **options)
            return make

        return add

    def add(
        self,
        operation: str,
        status: int,
        code: str = "",
        *,
        make: Callable[[CaseContext], Request],
        having: Iterable[str] = (),
        lacking: Iterable[str] = (),
        **options: Any,
    ) -> None:
        known = {"having": frozenset(having), "lacking": frozenset(lacking), **options}
        self.cases.append(Case(self.service, operation, status, make, code, **known))
