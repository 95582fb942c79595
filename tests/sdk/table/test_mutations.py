"""Requests to tables with something wrong: each is answered, and nothing dies or stays behind.

A case is made from the seed and its number alone, so that a failure can be replayed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tests.probes.client import NotHttp, Request
from tests.probes.judgement import readable
from tests.probes.mutations import ANYWHERE, IN_ADDRESSES, MUTATIONS, Mutation, spoiled
from tests.probes.tokens import account_token
from tests.protocol.table.batches import BATCH_TYPE
from tests.sdk.table.forms import FORMS, Place, table_key, table_key_lite, table_token
from tests.sdk.table.sentry import Sentry, faults, faults_unreadable
from tests.server import ACCOUNT, KEY, Server

SEED: Final = 20_261_115
CASES: Final = 2_400
THREADS: Final = 4
ROUNDS_BEFORE_RENEWAL: Final = 12
AS_BYTES: Final = 0.15
FAILURES_SHOWN: Final = 8

SIGN: Final = table_key(ACCOUNT, KEY)

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
OF_PARAMETERS: Final = (
    "0", "1", "1000", "1001", "*", "Age", "Age,,Age", "1!4!cA", "1!2!cA", "1!0!", "1!4!AAAA",
    "application/json;odata=fullmetadata", "json", "atom", *IN_ADDRESSES,
)  # fmt: skip
HEADERS: Final = (
    "Accept", "If-Match", "Prefer", "Content-Type", "X-HTTP-Method", "DataServiceVersion", "Origin",
)  # fmt: skip
OF_HEADERS: Final = (
    "*", 'W/"x"', "W/\"datetime'2026-11-15T02%3A25%3A08.1234567Z'\"", "return-content", "MERGE",
    "return-no-content", "application/atom+xml", "application/json;odata=verbose", BATCH_TYPE,
    "multipart/mixed", "DELETE", "GET", "PUT,PUT", "text/plain", *ANYWHERE,
)  # fmt: skip
IN_BODIES: Final = (
    b"", b"{", b"}", b"[", b"null", b"\\ud800", b"\\u0000", b"\xff", b"\x00", b'"', b":", b",",
    b"\r\n", b"--", b"--batch_1", b"--changeset_1--", b"9" * 400, b"1e400", b"NaN", b"[" * 500,
    b'"Age":1,', b'"A@odata.type":5,', b'"Age@odata.type":"Edm.Guid",', b'"RowKey":"x",',
    b"x" * 40_000, b"HTTP/1.1",
)  # fmt: skip


# What only tables can be asked wrongly


def filtered(chance: random.Random, request: Request) -> Request:
    words = chance.choices(WORDS, k=chance.randint(1, 9))
    text = "%20".join(quote(word, safe="'()%") for word in words)
    return request.asking_not("$filter").asking(("$filter", text))


def parameter(chance: random.Random, request: Request) -> Request:
    name = chance.choice(PARAMETERS)
    return request.asking_not(name).asking((name, chance.choice(OF_PARAMETERS)))


def header(chance: random.Random, request: Request) -> Request:
    return request.setting(chance.choice(HEADERS), chance.choice(OF_HEADERS))


def body(chance: random.Random, request: Request) -> Request:
    spoilt = bytearray(request.body or b"{}")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(spoilt) + 1)
        match chance.randrange(3):
            case 0:
                spoilt[at:at] = chance.choice(IN_BODIES)
            case 1:
                del spoilt[at : at + chance.randint(1, 20)]
            case _:
                spoilt[at : at + 1] = bytes([chance.randrange(256)])
    return replace(request, body=bytes(spoilt)).lacking("Content-Length")


def address(chance: random.Random, request: Request) -> Request:
    junk = quote(chance.choice(("'", "''", "(", ")", ",", "=", " ", "", "é")), safe="'(),=")
    at = chance.randint(min(len(f"/{ACCOUNT}/"), len(request.path)), len(request.path))
    path = request.path[:at] + chance.choice((junk, *IN_ADDRESSES)) + request.path[at:]
    return replace(request, path=path)


OWN: Final[tuple[Mutation, ...]] = (filtered, parameter, header, body, body, address)


# Cases


def signed(chance: random.Random, place: Place, request: Request) -> Request:
    """By any of the ways to be let in."""
    match chance.randrange(6):
        case 0:
            return table_key_lite(ACCOUNT, KEY)(request)
        case 1:
            return account_token(ACCOUNT, KEY, services="t").put_on(request)
        case 2:
            bounds = {"spk": "p", "epk": "p"} if chance.random() < 0.5 else {}
            return table_token(ACCOUNT, KEY, place.table, **bounds).put_on(request)
        case _:
            return SIGN(request)


class Attacker:
    """Sends the cases of one thread to a table of its own, which it makes anew at times."""

    def __init__(self, server: Server) -> None:
        self._sentry = Sentry(server)
        self._place = Place("Never")

    def attack(self, numbers: range) -> list[str]:
        with self._sentry.client:
            found = []
            for turn, number in enumerate(numbers):
                if turn % ROUNDS_BEFORE_RENEWAL == 0:
                    self._sentry.remove(self._place)
                    self._place = self._sentry.make()
                found += self._case(number)
            self._sentry.remove(self._place)
            return found

    def _case(self, number: int) -> list[str]:
        chance = random.Random(f"{SEED}/{number}")
        request = chance.choice(FORMS).request(self._place)
        as_bytes = chance.random() < AS_BYTES
        if not as_bytes:
            for mutation in chance.choices((*MUTATIONS, *OWN * 4), k=chance.randint(1, 3)):
                request = mutation(chance, request)
        if request.method == "HEAD" and (as_bytes or not readable(request)):
            # Whoever cannot read it does not know that its answer has no body.
            request = replace(request, method="GET")
        request = signed(chance, self._place, request)
        data = spoiled(chance, request.raw()) if as_bytes else request.raw()
        try:
            wrong = list(self._send(request, data, as_bytes=as_bytes))
        except (NotHttp, OSError, ValueError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
        return [f"case {number}: {told}\n    {data[:1_500]!r}" for told in wrong]

    def _send(self, request: Request, data: bytes, *, as_bytes: bool) -> Iterator[str]:
        client = self._sentry.client
        if as_bytes or not readable(request):
            yield from faults_unreadable(client.send_bytes(data))
        else:
            yield from faults(client.ask(request), head=request.method == "HEAD")


def test_mutated_requests(server: Server) -> None:
    processes, logged = server.children(), len(server.log())
    attackers = [Attacker(server) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        shares = [range(first, CASES, THREADS) for first in range(THREADS)]
        found = [
            told for share in threads.map(Attacker.attack, attackers, shares) for told in share
        ]
    shown = "\n".join(found[:FAILURES_SHOWN])
    assert not found, f"{len(found)} of {CASES} cases:\n{shown}"
    assert "Traceback" not in server.log()[logged:]
    assert server.children() == processes
