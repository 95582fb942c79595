"""A table service with a memory engine and without a connection; the test chooses the caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from etagere.auth.principal import EntityRange, KeyOwner, Principal, TokenHolder, TokenKind
from etagere.auth.request import octets, text
from etagere.engine.memory import MemoryEngine
from etagere.jobs.indexing import Indexing
from etagere.protocol.access_log import AccessLog
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.table.service import TableService
from etagere.settings import Settings
from tests.protocol.flows import CompleteBodyFlow
from tests.protocol.table.batches import BATCH_TYPE, PartAnswer, answers_in, change_set

ACCOUNT = "devstoreaccount1"
OWNER = KeyOwner(ACCOUNT)
HOST = "tables.example:10002"
ADDRESS = f"http://{HOST}/{ACCOUNT}"


def sas_caller(
    permissions: str = "raud", table: str = "people", keys: EntityRange | None = None
) -> TokenHolder:
    """Returns a caller with a SAS token for a table, or for some of its entities."""
    return TokenHolder(
        account=ACCOUNT,
        kind=TokenKind.SERVICE,
        version="2019-02-02",
        permissions=permissions,
        service="table",
        scope=table,
        keys=keys,
    )


class Answer(NamedTuple):
    """A status, headers by their names in lower case, and a body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Returns the error code, from the body or from the header."""
        if self.status < 400:
            return ""
        if "x-ms-error-code" in self.headers:
            return self.headers["x-ms-error-code"]
        return str(self.json()["odata.error"]["code"])

    @property
    def refusal(self) -> tuple[int, str]:
        return self.status, self.code

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def rows(self) -> list[str]:
        return [entity["RowKey"] for entity in self.json()["value"]]


class _FakeAuthenticator(Authenticator):
    """Accepts the caller that a test sets; other tests cover authentication."""

    caller: Principal = OWNER

    async def authenticate(self, _exchange: Exchange) -> Principal:
        return self.caller


def request(
    method: str, target: str, body: bytes | dict[str, Any] = b"", **headers: str
) -> Request:
    """Returns a request for a path below the account; underscores in header names become dashes."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    arrived = RequestBody(CompleteBodyFlow(), len(sent))
    if sent:
        arrived.feed(sent)
    arrived.feed_end()
    named = {"Host": HOST, "x-ms-version": "2019-02-02", **headers}
    pairs = [(name.replace("_", "-").encode(), octets(value)) for name, value in named.items()]
    fields = {name.lower(): value for name, value in pairs}
    return Request(method, f"/{ACCOUNT}/{target}".encode(), pairs, fields, arrived)


def _noting(read: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    def noting(operation: Callable[..., Any], *arguments: Any) -> Any:
        names.append(operation.__name__)
        return read(operation, *arguments)

    return noting


class TableServiceFixture:
    """A table service with short methods for requests."""

    def __init__(self, runner: asyncio.Runner) -> None:
        engine = self._engine = MemoryEngine()
        self._authenticator = _FakeAuthenticator(engine, Settings(), {})
        self._runner = runner
        self.service = TableService(engine, self._authenticator, AccessLog(), Indexing(engine))

    @contextmanager
    def as_caller(self, caller: Principal) -> Iterator[None]:
        self._authenticator.caller = caller
        try:
            yield
        finally:
            self._authenticator.caller = OWNER

    @contextmanager
    def counted_reads(self) -> Iterator[list[str]]:
        """Records the names of the read operations, each of which has its own snapshot."""
        names: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            # This engine uses the same method for background reads.
            patch.setattr(self._engine, "read", _noting(self._engine.read, names))
            yield names

    def ask(
        self, method: str, target: str, body: bytes | dict[str, Any] = b"", **headers: str
    ) -> Answer:
        asked = request(method, target, body, **headers)
        response = self._runner.run(self.service.handle(asked))
        assert isinstance(response.body, bytes)
        result = {name.decode().lower(): text(value) for name, value in response.headers}
        return Answer(response.status, result, response.body)

    def group(self, *parts: bytes) -> list[PartAnswer]:
        """Returns the responses to a change set."""
        return self.batch(change_set(parts))

    def batch(self, body: bytes) -> list[PartAnswer]:
        answer = self.ask("POST", "$batch", body, Content_Type=BATCH_TYPE)
        assert answer.status == 202, answer
        return answers_in(answer.headers["content-type"], answer.body)

    def insert(self, partition: str, *rows: str, table: str = "People", **values: Any) -> None:
        for row in rows:
            entity = {"PartitionKey": partition, "RowKey": row, **values}
            answer = self.ask("POST", table, entity)
            assert answer.status == 201, answer

    def rows(self, query: str = "", table: str = "People") -> list[str]:
        """Returns the row keys of all entities, on one page."""
        answer = self.ask("GET", f"{table}()?{query}")
        assert answer.status == 200, answer
        return answer.rows
