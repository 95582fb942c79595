"""Thousands of requests with something wrong: each is answered, and nothing dies or stays behind.

A case is made from the seed and its number alone, so that a failure can be replayed: it is printed
with both, and with the bytes that were sent. `Attacker(server, seed).attack(range(n, n + 1))` sends
case n once more.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from tests.probes.blob_mutations import SPOILED, special
from tests.probes.client import NotHttp, Request, shared_key, shared_key_lite
from tests.probes.judgement import faults, faults_unreadable, readable
from tests.probes.mutations import MUTATIONS, spoiled
from tests.probes.operations import LEASE, PAGE, Operation, Place
from tests.probes.stage import Stage
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, Server, eventually, unique

WORKERS = 6
ROUNDS_BEFORE_RENEWAL = 12
FAILURES_SHOWN = 8
BYTES_SHOWN = 1_500
AS_BYTES = 0.2
KINDS = ("BlockBlob", "AppendBlob", "PageBlob")
# For the files of bodies that are written meanwhile.
FILES_SPARE = 8


class Failure(NamedTuple):
    """A case that did not end as it should."""

    seed: int
    number: int
    sent: bytes
    told: str

    def __str__(self) -> str:
        shown = self.sent[:BYTES_SHOWN]
        return f"seed {self.seed} case {self.number}: {self.told}\n    {shown!r}"


def signed(chance: random.Random, request: Request) -> Request:
    """By any of the ways to be let in."""
    match chance.randrange(6):
        case 0:
            return shared_key_lite(ACCOUNT, KEY)(request)
        case 1:
            return account_token(ACCOUNT, KEY).put_on(request)
        case 2:
            _, container, *_ = [*request.path[1:].split("/"), ""]
            decoded = unquote(container, errors="surrogateescape")
            options = {"si": "readers"} if chance.random() < 0.5 else {}
            return service_token(ACCOUNT, KEY, decoded, **options).put_on(request)
        case _:
            return shared_key(ACCOUNT, KEY)(request)


class Attacker:
    """Sends the cases of one thread to a container of its own, and at times to another."""

    def __init__(self, server: Server, seed: int) -> None:
        self._stage = Stage(server)
        self._seed = seed
        self._place = Place(unique("mutant"), copy_id=LEASE)

    def attack(self, numbers: range) -> list[Failure]:
        with self._stage.client:
            found = []
            for turn, number in enumerate(numbers):
                if turn % ROUNDS_BEFORE_RENEWAL == 0:
                    self._renew()
                found += self._case(number)
            return found

    def _renew(self) -> None:
        """What was archived, sealed or leased meanwhile is no place for more."""
        self._stage.remove(self._place)
        self._place = Place(unique("mutant"), copy_id=LEASE)
        path = f"/{ACCOUNT}/{self._place.container}"
        self._stage.own(Request("PUT", path, (("restype", "container"),)))
        for kind in KINDS:
            for blob in (kind, f"source/{kind}"):
                self._stage.put(self._place, blob, kind, b"s" * PAGE)
        snapshot = Request("PUT", f"{path}/source/PageBlob", (("comp", "snapshot"),))
        taken = self._stage.own(snapshot).headers["x-ms-snapshot"]
        self._place = self._place._replace(snapshot=taken)

    def _for(self, operation: Operation) -> Place:
        """Where there is a blob of its kind, and a source."""
        place = self._place._replace(blob=operation.kind, source=f"source/{operation.source}")
        return place if operation.source == "PageBlob" else place._replace(snapshot="")

    def _case(self, number: int) -> list[Failure]:
        chance = random.Random(f"{self._seed}/{number}")
        operation = chance.choice(SPOILED)
        request = operation.request(self._for(operation))
        as_bytes = chance.random() < AS_BYTES
        if not as_bytes:
            mutations = chance.choices(MUTATIONS, k=chance.randint(0, 3))
            fitting = special(operation)
            if fitting and (not mutations or chance.random() < 0.7):
                mutations = [*chance.choices(fitting, k=chance.randint(1, 2)), *mutations[:1]]
            for mutation in mutations:
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
        return [Failure(self._seed, number, data, told) for told in wrong]

    def _send(self, request: Request, data: bytes, *, as_bytes: bool) -> Iterator[str]:
        client = self._stage.client
        if readable(request) and not as_bytes:
            yield from faults(client.ask(request), head=request.method == "HEAD")
        else:
            yield from faults_unreadable(client.send_bytes(data))


# The server, seen from outside


def _descriptors(server: Server) -> tuple[int, int]:
    """How many sockets its processes hold, and how many descriptors of any kind."""
    held = []
    for pid in server.children():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            # One that is closed at this moment is not held.
            with contextlib.suppress(FileNotFoundError):
                held.append(str(descriptor.readlink()))
    return sum(name.startswith("socket:") for name in held), len(held)


def _has_let_go(server: Server, sockets: int, descriptors: int) -> bool:
    sockets_now, descriptors_now = _descriptors(server)
    spare = FILES_SPARE * len(server.children())
    return sockets_now <= sockets and descriptors_now <= descriptors + spare


def attacked(stage: Stage, seed: int, count: int) -> None:
    server = stage.server
    processes, held = server.children(), _descriptors(server)
    logged = len(server.log())
    attackers = [Attacker(server, seed) for _ in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as threads:
        shares = [range(first, count, WORKERS) for first in range(WORKERS)]
        found = [
            failure
            for failures in threads.map(Attacker.attack, attackers, shares)
            for failure in failures
        ]
    shown = "\n".join(map(str, found[:FAILURES_SHOWN]))
    assert not found, f"{len(found)} of {count} cases:\n{shown}"
    assert "Traceback" not in server.log()[logged:]
    assert server.children() == processes
    eventually(lambda: _has_let_go(server, *held), "the end of all connections")
    # It still serves.
    stage.remove(stage.make())


def test_mutated_requests(stage: Stage) -> None:
    attacked(stage, seed=20_261_115, count=4_500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_mutated_requests(stage: Stage, seed: int) -> None:
    attacked(stage, seed, count=40_000)
