"""Sends thousands of mutated requests, and checks every answer.

A case is made from the seed and its number alone, so that a failure can be replayed: it is printed
with both, and with the bytes that were sent. `run.send(range(n, n + 1))` sends case n again.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, NamedTuple
from urllib.parse import unquote

from tests.probes.answers import answer_faults, is_readable, unreadable_faults
from tests.probes.client import NotHttp, Request
from tests.probes.mutations import Mutation, mutate_bytes
from tests.probes.service import Operation, ServiceFixture, TargetT
from tests.server import Server

CASES_PER_TARGET: Final = 12
"""A target may have been deleted, archived, sealed or leased by then."""
BYTES_SHOWN: Final = 1_500
SHARE_OF_BYTES: Final = 0.2
"""The share of requests of which bytes are changed after signing."""


class Failure(NamedTuple):
    """A case with an unexpected answer."""

    seed: int
    number: int
    sent: bytes
    fault: str

    def __str__(self) -> str:
        shown = self.sent[:BYTES_SHOWN]
        return f"seed {self.seed} case {self.number}: {self.fault}\n    {shown!r}"


class MutationRun(ABC, Generic[TargetT]):
    """The cases of one thread, sent to targets of its own."""

    fixture_class: ClassVar[Any]
    operations: ClassVar[Sequence[Operation[Any]]]

    def __init__(self, server: Server, seed: int) -> None:
        self.fixture: Any = self.fixture_class(server)
        self._seed = seed

    @abstractmethod
    def create_target(self) -> TargetT:
        """Creates a target on which all operations can be sent."""

    @abstractmethod
    def choose(self, chance: random.Random, operation: Operation[TargetT]) -> list[Mutation]:
        """Chooses mutations for a request of this operation."""

    @abstractmethod
    def sign(self, chance: random.Random, target: TargetT, request: Request) -> Request:
        """Authorizes a request in one of the ways that there are."""

    def request(self, operation: Operation[TargetT], target: TargetT) -> Request:
        return operation.request(target)

    def send(self, numbers: range) -> list[Failure]:
        """Sends the cases with these numbers."""
        fixture: ServiceFixture[TargetT] = self.fixture
        with fixture.client:
            failures: list[Failure] = []
            for at in range(0, len(numbers), CASES_PER_TARGET):
                target = self.create_target()
                for number in numbers[at : at + CASES_PER_TARGET]:
                    failures += self._send_case(target, number)
                fixture.remove(target)
            return failures

    def _send_case(self, target: TargetT, number: int) -> list[Failure]:
        chance = random.Random(f"{self._seed}/{number}")
        operation = chance.choice(self.operations)
        request = self.request(operation, target)
        as_bytes = chance.random() < SHARE_OF_BYTES
        if not as_bytes:
            for mutation in self.choose(chance, operation):
                request = mutation(chance, request)
        if request.method == "HEAD" and (as_bytes or not is_readable(request)):
            # The HTTP layer answers with a body, as it cannot tell that the method is HEAD.
            request = replace(request, method="GET")
        request = self.sign(chance, target, request)
        data = mutate_bytes(chance, request.raw()) if as_bytes else request.raw()
        try:
            faults = list(self._faults(request, data, as_bytes=as_bytes))
        except (NotHttp, OSError, ValueError) as error:
            faults = [f"{type(error).__name__}: {error}"]
        return [Failure(self._seed, number, data, fault) for fault in faults]

    def _faults(self, request: Request, data: bytes, *, as_bytes: bool) -> Iterator[str]:
        client, service = self.fixture.client, self.fixture.service
        if is_readable(request) and not as_bytes:
            head = request.method == "HEAD"
            yield from answer_faults(client.ask(request), service, head=head)
        else:
            yield from unreadable_faults(client.send_bytes(data), service)


def resource_in(request: Request) -> str:
    """Returns the decoded name behind the account in the path, or an empty string."""
    _, name, *_ = [*request.path[1:].split("/"), ""]
    return unquote(name, errors="surrogateescape")
