"""Mutations of requests to the queue service: messages, receipts and timeouts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from tests.probes.client import Request, shared_key, shared_key_lite
from tests.probes.mutation_run import MutationRun, resource_in
from tests.probes.mutations import MUTATIONS, URL_VALUES, Mutation
from tests.probes.queue.fixture import QueueFixture
from tests.probes.queue.operations import MESSAGE, OPERATIONS, QueueTarget
from tests.probes.service import Operation
from tests.probes.tokens import account_token, queue_token
from tests.server import ACCOUNT, KEY

NUMBERS: Final = ("0", "1", "-1", "2", "32", "33", "604800", "604801", "2147483647", "2147483648")
PARAMETERS: Final = ("numofmessages", "visibilitytimeout", "messagettl", "popreceipt", "peekonly")
TEXTS: Final = (
    b"", b"a" * 65_536, b"a" * 65_537, b"\x00", b"\xff", b"\xed\xa0\x80", b"&#0;", b"&#x1F984;",
    b"&nope;", b"<b>", b"<b/>" * 2_000, b"<b>" * 300 + b"</b>" * 300, b"<![CDATA[<a>]]>", b"]]>",
    b"<!-- -->" * 9_000, b"&amp;" * 65_536, b"&amp;" * 65_537, "é\u2028\ufffd".encode(),
)  # fmt: skip


def parameter(chance: random.Random, request: Request) -> Request:
    name = chance.choice(PARAMETERS)
    if chance.random() < 0.7:
        request = request.asking_not(name)
    return request.asking((name, chance.choice((*NUMBERS, *URL_VALUES, "true", "AAAAAAAAAAE="))))


def message(chance: random.Random, request: Request) -> Request:
    body = MESSAGE.replace(b"another", chance.choice(TEXTS))
    if chance.random() < 0.2:
        body = body.replace(b"MessageText", chance.choice((b"", b"Other", b"messagetext", b"x:y")))
    return replace(request, body=body).lacking("Content-Length")


def message_id(chance: random.Random, request: Request) -> Request:
    before, _, _ = request.path.partition("/messages")
    return replace(request, path=f"{before}/messages/{chance.choice(URL_VALUES)}")


QUEUE_MUTATIONS: Final[tuple[Mutation, ...]] = (parameter, parameter, message, message_id)


class QueueMutations(MutationRun[QueueTarget]):
    """Mutated requests to a queue of the run's own."""

    fixture_class = QueueFixture
    operations = OPERATIONS

    def create_target(self) -> QueueTarget:
        target: QueueTarget = self.fixture.create()
        return target

    def choose(self, chance: random.Random, operation: Operation[QueueTarget]) -> list[Mutation]:
        return chance.choices((*MUTATIONS, *QUEUE_MUTATIONS * 4), k=chance.randint(1, 3))

    def sign(self, chance: random.Random, target: QueueTarget, request: Request) -> Request:
        match chance.randrange(6):
            case 0:
                return shared_key_lite(ACCOUNT, KEY)(request)
            case 1:
                return account_token(ACCOUNT, KEY, services="q").put_on(request)
            case 2:
                options = {"si": "readers"} if chance.random() < 0.5 else {}
                return queue_token(ACCOUNT, KEY, resource_in(request), **options).put_on(request)
            case _:
                return shared_key(ACCOUNT, KEY)(request)
