"""Requests to queues with something wrong: each is answered, and nothing dies or stays behind.

A case is made from the seed and its number alone, so that a failure can be replayed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

import pytest

from tests.probes.client import Answer, NotHttp, Request, shared_key, shared_key_lite
from tests.probes.judgement import faults, faults_unreadable, readable
from tests.probes.mutations import IN_ADDRESSES, MUTATIONS, Mutation, spoiled
from tests.probes.tokens import account_token
from tests.sdk.queue.forms import FORMS, MESSAGE, Place, queue_token
from tests.sdk.queue.sentry import Sentry
from tests.server import ACCOUNT, KEY, ROOT, Server

SEED: Final = 20_261_115
CASES: Final = 2_400
THREADS: Final = 4
ROUNDS_BEFORE_RENEWAL: Final = 12
AS_BYTES: Final = 0.2
FAILURES_SHOWN: Final = 8

SIGN: Final = shared_key(ACCOUNT, KEY)
CODES: Final[dict[str, int]] = json.loads((ROOT / "tests/data/error_codes.json").read_text("utf-8"))

NUMBERS: Final = ("0", "1", "-1", "2", "32", "33", "604800", "604801", "2147483647", "2147483648")
PARAMETERS: Final = ("numofmessages", "visibilitytimeout", "messagettl", "popreceipt", "peekonly")
TEXTS: Final = (
    b"", b"a" * 65_536, b"a" * 65_537, b"\x00", b"\xff", b"\xed\xa0\x80", b"&#0;", b"&#x1F984;",
    b"&nope;", b"<b>", b"<b/>" * 2_000, b"<b>" * 300 + b"</b>" * 300, b"<![CDATA[<a>]]>", b"]]>",
    b"<!-- -->" * 9_000, b"&amp;" * 65_536, b"&amp;" * 65_537, "é\u2028\ufffd".encode(),
)  # fmt: skip


# What only queues can be asked wrongly


def parameter(chance: random.Random, request: Request) -> Request:
    name = chance.choice(PARAMETERS)
    if chance.random() < 0.7:
        request = request.asking_not(name)
    return request.asking((name, chance.choice((*NUMBERS, *IN_ADDRESSES, "true", "AAAAAAAAAAE="))))


def message(chance: random.Random, request: Request) -> Request:
    body = MESSAGE.replace(b"another", chance.choice(TEXTS))
    if chance.random() < 0.2:
        body = body.replace(b"MessageText", chance.choice((b"", b"Other", b"messagetext", b"x:y")))
    return replace(request, body=body).lacking("Content-Length")


def message_id(chance: random.Random, request: Request) -> Request:
    before, _, _ = request.path.partition("/messages")
    return replace(request, path=f"{before}/messages/{chance.choice(IN_ADDRESSES)}")


OWN: Final[tuple[Mutation, ...]] = (parameter, parameter, message, message_id)


# Cases


def signed(chance: random.Random, request: Request) -> Request:
    """By any of the ways to be let in."""
    match chance.randrange(6):
        case 0:
            return shared_key_lite(ACCOUNT, KEY)(request)
        case 1:
            return account_token(ACCOUNT, KEY, services="q").put_on(request)
        case 2:
            _, queue, *_ = [*request.path[1:].split("/"), ""]
            decoded = unquote(queue, errors="surrogateescape")
            options = {"si": "readers"} if chance.random() < 0.5 else {}
            return queue_token(ACCOUNT, KEY, decoded, **options).put_on(request)
        case _:
            return SIGN(request)


def undocumented(answer: Answer) -> Iterator[str]:
    """A refusal by a code that no client knows, or with another status than it has."""
    if answer.status >= 400 and CODES.get(answer.code) != answer.status:
        yield f"{answer.status} {answer.code}"


class Attacker:
    """Sends the cases of one thread to a queue of its own, which it makes anew at times."""

    def __init__(self, server: Server) -> None:
        self._sentry = Sentry(server)
        self._place = Place("never")

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
        request = signed(chance, request)
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
            answer = client.ask(request)
            yield from faults(answer, head=request.method == "HEAD")
            yield from undocumented(answer)


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


# What the ledger cannot hold, in every field that reaches it

NOT_UTF8: Final = ("%FF", "a%C0%AF", "%ED%A0%80", "%F4%90%80%80")
CONTROL: Final = ("%00", "%01", "a%00b", "%0A", "%0D%0Ax-injected%3A%201", "%7F")
LONG: Final = "a" * 9_000


@pytest.fixture(scope="module")
def sentry(server: Server) -> Iterator[Sentry]:
    sentry = Sentry(server)
    with sentry.client:
        yield sentry


def _require_answer(sentry: Sentry, request: Request) -> None:
    answer = sentry.client.ask(SIGN(request))
    head = request.method == "HEAD"
    assert not [*faults(answer, head=head), *undocumented(answer)], answer
    assert "x-injected" not in answer.headers


@pytest.mark.parametrize("name", ["prefix", "marker", "include", "maxresults", "comp", "timeout"])
@pytest.mark.parametrize(
    "value", [*NOT_UTF8, *CONTROL, LONG, "_w==", "AAAA", "YWFh" * 4_000, "1" * 5_000]
)
def test_parameters_of_a_list(sentry: Sentry, name: str, value: str) -> None:
    query = (("comp", "list"),) if name != "comp" else ()
    _require_answer(sentry, Request("GET", f"/{ACCOUNT}/", (*query, (name, value))))


@pytest.mark.parametrize("name", [*NOT_UTF8, *CONTROL, LONG, "..", "%2e%2e", "%2F", "$root"])
@pytest.mark.parametrize("below", ["", "/messages", "/messages/{}"])
def test_names(sentry: Sentry, name: str, below: str) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        path = f"/{ACCOUNT}/{name}{below.format(name)}"
        _require_answer(sentry, Request(method, path, (("popreceipt", "AAAAAAAAAAE="),)))


@pytest.mark.parametrize(
    "receipt", [*NOT_UTF8, *CONTROL, LONG, "%2F" * 11 + "%3D", "__________8=", "٣".encode().hex()]
)
def test_receipts(sentry: Sentry, receipt: str) -> None:
    place = sentry.make()
    path = f"/{ACCOUNT}/{place.queue}/messages/{place.message}"
    for method in ("PUT", "DELETE"):
        query = (("popreceipt", receipt), ("visibilitytimeout", "0"))
        _require_answer(sentry, Request(method, path, query))
    assert (
        b"one"
        in sentry.own(
            Request("GET", f"/{ACCOUNT}/{place.queue}/messages", (("peekonly", "true"),))
        ).body
    )
    sentry.remove(place)
