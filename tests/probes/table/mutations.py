"""Mutations of requests to the table service: filters, entities and entity groups."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tests.probes.client import Request, table_shared_key, table_shared_key_lite
from tests.probes.mutation_run import MutationRun
from tests.probes.mutations import MUTATIONS, URL_VALUES, VALUES, Mutation
from tests.probes.service import Operation
from tests.probes.table.fixture import TableFixture
from tests.probes.table.operations import OPERATIONS, TableTarget
from tests.probes.tokens import account_token, table_token
from tests.protocol.table.batches import BATCH_TYPE
from tests.server import ACCOUNT, KEY

WORDS: Final = (
    "PartitionKey", "RowKey", "Timestamp", "Age", "Nothing", "eq", "ne", "gt", "ge", "lt", "le",
    "and", "or", "not", "(", ")", "'p'", "'r'", "'", "''", "5", "5L", "1e999", "NaN", "INF", "-INF",
    "true", "datetime'2026-01-01'", "datetime'x'", "guid'x'", "X'00'", "X'0'", "binary'ff'", "%00",
    "%FF", "%ED%A0%80", "%F0%9F%A6%84", "\\", "substringof", ",", "((((", "))))", "not not",
)  # fmt: skip
PARAMETERS: Final = (
    "$filter", "$select", "$top", "$format", "$orderby", "NextPartitionKey", "NextRowKey",
    "NextTableName", "comp", "timeout", "tn", "spk", "epk",
)  # fmt: skip
PARAMETER_VALUES: Final = (
    "0", "1", "1000", "1001", "*", "Age", "Age,,Age", "1!4!cA", "1!2!cA", "1!0!", "1!4!AAAA",
    "application/json;odata=fullmetadata", "json", "atom", *URL_VALUES,
)  # fmt: skip
HEADERS: Final = (
    "Accept", "If-Match", "Prefer", "Content-Type", "X-HTTP-Method", "DataServiceVersion", "Origin",
)  # fmt: skip
TABLE_HEADER_VALUES: Final = (
    "*", 'W/"x"', "W/\"datetime'2026-11-15T02%3A25%3A08.1234567Z'\"", "return-content", "MERGE",
    "return-no-content", "application/atom+xml", "application/json;odata=verbose", BATCH_TYPE,
    "multipart/mixed", "DELETE", "GET", "PUT,PUT", "text/plain", *VALUES,
)  # fmt: skip
BODY_FRAGMENTS: Final = (
    b"", b"{", b"}", b"[", b"null", b"\\ud800", b"\\u0000", b"\xff", b"\x00", b'"', b":", b",",
    b"\r\n", b"--", b"--batch_1", b"--changeset_1--", b"9" * 400, b"1e400", b"NaN", b"[" * 500,
    b'"Age":1,', b'"A@odata.type":5,', b'"Age@odata.type":"Edm.Guid",', b'"RowKey":"x",',
    b"x" * 40_000, b"HTTP/1.1",
)  # fmt: skip


def filtered(chance: random.Random, request: Request) -> Request:
    words = chance.choices(WORDS, k=chance.randint(1, 9))
    text = "%20".join(quote(word, safe="'()%") for word in words)
    return request.asking_not("$filter").asking(("$filter", text))


def parameter(chance: random.Random, request: Request) -> Request:
    name = chance.choice(PARAMETERS)
    return request.asking_not(name).asking((name, chance.choice(PARAMETER_VALUES)))


def header(chance: random.Random, request: Request) -> Request:
    return request.setting(chance.choice(HEADERS), chance.choice(TABLE_HEADER_VALUES))


def body(chance: random.Random, request: Request) -> Request:
    mutated = bytearray(request.body or b"{}")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(3):
            case 0:
                mutated[at:at] = chance.choice(BODY_FRAGMENTS)
            case 1:
                del mutated[at : at + chance.randint(1, 20)]
            case _:
                mutated[at : at + 1] = bytes([chance.randrange(256)])
    return replace(request, body=bytes(mutated)).lacking("Content-Length")


def address(chance: random.Random, request: Request) -> Request:
    junk = quote(chance.choice(("'", "''", "(", ")", ",", "=", " ", "", "é")), safe="'(),=")
    at = chance.randint(min(len(f"/{ACCOUNT}/"), len(request.path)), len(request.path))
    path = request.path[:at] + chance.choice((junk, *URL_VALUES)) + request.path[at:]
    return replace(request, path=path)


TABLE_MUTATIONS: Final[tuple[Mutation, ...]] = (filtered, parameter, header, body, body, address)


class TableMutations(MutationRun[TableTarget]):
    """Mutated requests to a table of the run's own."""

    fixture_class = TableFixture
    operations = OPERATIONS

    def create_target(self) -> TableTarget:
        target: TableTarget = self.fixture.create()
        return target

    def choose(self, chance: random.Random, operation: Operation[TableTarget]) -> list[Mutation]:
        return chance.choices((*MUTATIONS, *TABLE_MUTATIONS * 4), k=chance.randint(1, 3))

    def sign(self, chance: random.Random, target: TableTarget, request: Request) -> Request:
        match chance.randrange(6):
            case 0:
                return table_shared_key_lite(ACCOUNT, KEY)(request)
            case 1:
                return account_token(ACCOUNT, KEY, services="t").put_on(request)
            case 2:
                bounds = {"spk": "p", "epk": "p"} if chance.random() < 0.5 else {}
                return table_token(ACCOUNT, KEY, target.table, **bounds).put_on(request)
            case _:
                return table_shared_key(ACCOUNT, KEY)(request)
