"""The harness that the probes of all services share.

A service describes its operations as requests that succeed (`Operation`), and creates, removes and
dumps its data (`ServiceFixture`). The tests attack every operation of every service, and compare
the dumps to see that nothing was changed.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import pytest

from tests.authorization import Rule, rule_of
from tests.probes.client import (
    VERSION,
    Answer,
    Client,
    Request,
    Signer,
    md5,
    shared_key,
    shared_key_lite,
    table_shared_key,
    table_shared_key_lite,
)
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server

KEYS: Final = {ACCOUNT: KEY, SECOND_ACCOUNT: SECOND_KEYS[0]}
POLICIES: Final = (
    b"<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy>"
    b"<Expiry>2099-01-01T00:00:00Z</Expiry><Permission>r</Permission></AccessPolicy>"
    b"</SignedIdentifier></SignedIdentifiers>"
)
PROPERTIES: Final = (
    b"<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete>"
    b"<Read>false</Read><Write>false</Write><RetentionPolicy><Enabled>false</Enabled>"
    b"</RetentionPolicy></Logging></StorageServiceProperties>"
)
_DEFAULT_PROPERTIES: Final = PROPERTIES.replace(b"true", b"false")
_SERVICE_PROPERTIES: Final = (("restype", "service"), ("comp", "properties"))
_VERSIONED: Final = (("x-ms-version", VERSION),)
_VOLATILE_HEADERS: Final = {"date", "x-ms-request-id"}

Dump = dict[str, object]
TargetT = TypeVar("TargetT", bound=Any)
"""A service's named tuple of existing and free names, with the `account` that they are in."""


@dataclass(frozen=True)
class Operation(ABC, Generic[TargetT]):
    """A request that succeeds if its sender is authorized."""

    service: ClassVar[str]

    name: str
    row: str
    """The name of its row in the permission table, without the service."""
    method: str

    def __str__(self) -> str:
        return f"{self.service}-{self.name}"

    @property
    def rule(self) -> Rule:
        """What its sender needs."""
        return rule_of(self.service, self.name)

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """Marks for tests that are parametrized by operation."""
        return ()

    @property
    def is_conditional(self) -> bool:
        """Whether it evaluates If-Match, If-None-Match and the dates."""
        return False

    @property
    @abstractmethod
    def changes_state(self) -> bool:
        """Whether a dump is different after it succeeded."""

    @abstractmethod
    def request(self, target: TargetT) -> Request:
        """Builds the unsigned request."""

    def neutral_headers(self, request: Request) -> dict[str, str]:
        """Standard headers that are signed, with values that do not change the outcome."""
        return {
            "Content-Encoding": "gzip",
            "Content-Language": "en",
            "Content-MD5": md5(request.body),
            "Content-Type": request.header("content-type") or "text/plain",
            "Range": "bytes=0-1",
        }


@dataclass(frozen=True)
class SignedParts:
    """The parts of a request that a signing scheme covers, besides path and date."""

    headers: frozenset[str] | None = None
    """Names of the standard headers, None for all."""
    extension_headers: bool = True
    method: bool = True
    query: frozenset[str] | None = None
    """Names of the parameters, None for all."""
    content_length: bool = False


class SigningScheme(NamedTuple):
    """A way to sign a request with an account key."""

    name: str
    signer: Callable[[str, str], Signer]
    """Returns the signer for an account name and a key."""
    covers: SignedParts

    def __str__(self) -> str:
        return self.name


SCHEMES: Final = (
    SigningScheme("SharedKey", shared_key, SignedParts(content_length=True)),
    SigningScheme(
        "SharedKeyLite",
        shared_key_lite,
        SignedParts(frozenset({"Content-MD5", "Content-Type"}), query=frozenset({"comp"})),
    ),
)
"""The schemes of the blob, queue and file services."""
TABLE_SCHEMES: Final = (
    SigningScheme(
        "SharedKey",
        table_shared_key,
        SignedParts(
            frozenset({"Content-MD5", "Content-Type"}),
            extension_headers=False,
            query=frozenset({"comp"}),
        ),
    ),
    SigningScheme(
        "SharedKeyLite",
        table_shared_key_lite,
        SignedParts(frozenset(), extension_headers=False, method=False, query=frozenset({"comp"})),
    ),
)


class ServiceFixture(ABC, Generic[TargetT]):
    """The owner's side of a probe: creates targets and dumps everything that is stored."""

    service: ClassVar[str]
    schemes: ClassVar[tuple[SigningScheme, ...]]
    """Shared Key and Shared Key Lite."""
    default_properties: ClassVar[bytes] = _DEFAULT_PROPERTIES
    """The properties of the service before an operation changed them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = Client(server.endpoints[self.service])

    @classmethod
    def sign_as_owner(cls, request: Request, account: str = ACCOUNT) -> Request:
        return cls.schemes[0].signer(account, KEYS[account])(request)

    def send_as_owner(self, request: Request, account: str = ACCOUNT) -> Answer:
        """Sends a signed request and asserts that it succeeds."""
        answer = self.client.ask(self.sign_as_owner(request, account))
        assert answer.status < 300, (request, answer)
        return answer

    def ask(self, request: Request) -> Answer:
        """Sends a request and returns the outcome of its operation."""
        return self.outcome(self.client.ask(request))

    def outcome(self, answer: Answer) -> Answer:
        """Returns the answer to the operation itself, which may be part of another answer."""
        return answer

    @abstractmethod
    def create(self, account: str = ACCOUNT) -> TargetT:
        """Creates a target with some data."""

    @abstractmethod
    def remove(self, target: TargetT) -> None:
        """Removes a target, whatever state it is in."""

    @abstractmethod
    def set_policies(self, target: TargetT, document: bytes) -> None:
        """Replaces the stored access policies of the target."""

    @abstractmethod
    def dump_resources(self, account: str) -> Iterator[tuple[str, object]]:
        """Yields the name and the content of everything in an account."""

    def create_for(self, operation: Any) -> TargetT:
        """Creates a target with all that the operation needs to succeed."""
        del operation
        return self.create()

    @contextlib.contextmanager
    def target_for(self, operation: Operation[TargetT]) -> Iterator[TargetT]:
        target = self.create_for(operation)
        try:
            yield target
        finally:
            self.remove(target)
            if operation.row == f"set_{self.service}_service_properties":
                path = f"/{ACCOUNT}/"
                self.send_as_owner(
                    Request("PUT", path, _SERVICE_PROPERTIES, _VERSIONED, self.default_properties)
                )

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Asserts that everything is stored afterwards as it was before."""
        before = self.dump()
        assert len(before) > 2 * len(KEYS), "there is nothing that could change"
        yield
        assert self.dump() == before

    def dump(self) -> Dump:
        """Returns everything that the owners of all accounts can read."""
        dump: Dump = {}
        for account in KEYS:
            properties = Request("GET", f"/{account}/", _SERVICE_PROPERTIES)
            dump[f"/{account}"] = self.send_as_owner(properties, account).body
            for name, content in self.dump_resources(account):
                dump[f"/{account}{name}"] = content
        return dump


def lasting(answer: Answer) -> tuple[dict[str, str], bytes]:
    """Returns the headers and the body without what differs from answer to answer."""
    headers = {name: text for name, text in answer.headers.items() if name not in _VOLATILE_HEADERS}
    return headers, answer.body
