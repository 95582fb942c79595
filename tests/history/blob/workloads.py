"""Workloads: random requests by a seed, with what the client has seen itself."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from tests.history.blob.events import (
    ANY,
    CHANGES_PAGES,
    CREATES,
    MAKES_VERSION,
    READS,
    WRITES,
    Done,
    Operation,
    Request,
    Seen,
    Verb,
)
from tests.history.events import Refused

BLOCKS: Final = ("block-a", "block-b", "block-c")
BREAK_SECONDS: Final = (None, 0, 1, 3)
PAGES_MIN, PAGES_MAX = 3, 5
COMPARISONS: Final = ("lte", "lt", "eq")
SEQUENCE_ACTIONS: Final = ("increment", "max", "update")
NUMBERS_MAX: Final = 6
SNAPSHOTS_REMEMBERED: Final = 2


class Workload(NamedTuple):
    """How often each verb is chosen, and which share of the writes ask for something."""

    weights: Mapping[Verb, int]
    conditional: float = 0.4
    leased: float = 0.0
    lease_seconds: tuple[int | None, ...] = (None, 15, 15, 20)
    acquired_again: float = 0.2
    """Mostly a client acquires a lease of its own, else the one it has, or had, once more."""


OVERWRITES: Final = Workload(
    {Verb.PUT: 8, Verb.DESCRIBE: 3, Verb.DELETE: 2, Verb.GET: 6, Verb.HEAD: 4}
)
STAGED_BLOCKS: Final = Workload(
    {
        Verb.STAGE: 10,
        Verb.COMMIT: 6,
        Verb.PUT: 1,
        Verb.DESCRIBE: 1,
        Verb.DELETE: 1,
        Verb.GET: 7,
    },
    conditional=0.2,
)
LEASES: Final = Workload(
    {
        Verb.PUT: 8,
        Verb.DESCRIBE: 2,
        Verb.DELETE: 1,
        Verb.GET: 3,
        Verb.HEAD: 4,
        Verb.ACQUIRE: 5,
        Verb.RENEW: 2,
        Verb.CHANGE: 2,
        Verb.RELEASE: 2,
        Verb.BREAK: 2,
    },
    conditional=0.1,
    leased=0.8,
)
EXPIRING_LEASES: Final = Workload(
    {Verb.PUT: 30, Verb.GET: 20, Verb.HEAD: 80, Verb.ACQUIRE: 10, Verb.RENEW: 1},
    conditional=0.0,
    leased=0.8,
    lease_seconds=(15,),
    acquired_again=0.0,
)
"""Most of them end by expiry."""
APPENDS: Final = Workload(
    {
        Verb.CREATE_APPEND: 5,
        Verb.APPEND: 48,
        Verb.SEAL: 3,
        Verb.DELETE: 1,
        Verb.GET: 24,
        Verb.HEAD: 8,
        Verb.SNAPSHOT: 4,
        Verb.GET_SNAPSHOT: 8,
    },
    conditional=0.1,
)
PAGES: Final = Workload(
    {
        Verb.CREATE_PAGES: 5,
        Verb.PUT_PAGES: 40,
        Verb.CLEAR_PAGES: 12,
        Verb.RENUMBER: 10,
        Verb.RESIZE: 5,
        Verb.DELETE: 1,
        Verb.GET: 32,
        Verb.HEAD: 8,
        Verb.LIST_PAGES: 8,
        Verb.SNAPSHOT: 8,
        Verb.GET_SNAPSHOT: 16,
    },
    conditional=0.2,
)


class _Memory:
    """A client's knowledge of a blob."""

    def __init__(self) -> None:
        self.etag = '"0x1"'
        self.lease_id: str | None = None
        self.length = 0
        self.number = 0
        self.snapshots: list[str] = []


WORKLOADS: Final[dict[str, Workload]] = {
    "overwrites": OVERWRITES,
    "blocks": STAGED_BLOCKS,
    "leases": LEASES,
    "expiring": EXPIRING_LEASES,
    "appends": APPENDS,
    "pages": PAGES,
}
"""By the name of the blob that each is for."""


class BlobChooser:
    """Chooses the requests of one client, with tokens and lease ids that no other client uses."""

    def __init__(self, seed: int, client: int, workloads: Mapping[str, Workload]) -> None:
        """The workloads by the names of the blobs that they are for."""
        self._client = client
        self._workloads = workloads
        self._random = random.Random(f"{seed} {client}")
        self._count = 0
        self._memories = {blob: _Memory() for blob in workloads}

    def choose(self) -> Request:
        blob = self._random.choice(sorted(self._workloads))
        workload = self._workloads[blob]
        verbs = sorted(workload.weights, key=lambda verb: verb.value)
        weights = [workload.weights[verb] for verb in verbs]
        (verb,) = self._random.choices(verbs, weights)
        self._count += 1
        if verb in READS:
            return Request(verb, blob)
        if verb in WRITES:
            return self._with_details(self._write(verb, blob, workload))
        if verb is Verb.SNAPSHOT:
            return Request(verb, blob)
        if verb is Verb.GET_SNAPSHOT:
            known = self._memories[blob].snapshots
            if not known:
                return Request(Verb.SNAPSHOT, blob)
            return Request(verb, blob, snapshot=self._random.choice(known))
        return self._lease_action(verb, blob, workload)

    def _write(self, verb: Verb, blob: str, workload: Workload) -> Request:
        token = "" if verb is Verb.DELETE else f"{self._client}-{self._count}"
        if_match, if_none_match = self._condition(verb, blob, workload.conditional)
        return Request(
            verb,
            blob,
            token,
            if_match,
            if_none_match,
            self._memories[blob].lease_id if self._random.random() < workload.leased else None,
            block=self._random.choice(BLOCKS) if verb is Verb.STAGE else "",
            blocks=self._block_list() if verb is Verb.COMMIT else (),
        )

    def _condition(self, verb: Verb, blob: str, share: float) -> tuple[str | None, str | None]:
        """If-Match and If-None-Match; staging a block takes neither."""
        if verb is Verb.STAGE or self._random.random() >= share:
            return None, None
        etag = self._memories[blob].etag
        choices: list[tuple[str | None, str | None]] = [(etag, None)] * 3
        if verb in CREATES | {Verb.PUT, Verb.COMMIT}:
            choices += [(None, ANY), (None, etag), (ANY, None)]
        return self._random.choice(choices)

    def _with_details(self, request: Request) -> Request:
        """What writes of append and page blobs ask for besides."""
        verb, memory = request.verb, self._memories[request.blob]
        if verb in (Verb.APPEND, Verb.SEAL) and self._random.random() < 0.3:
            return replace(request, position=memory.length)
        if verb is Verb.CREATE_PAGES:
            first_number = self._random.randint(0, NUMBERS_MAX)
            return replace(request, count=self._page_count(), number=first_number)
        if verb is Verb.RESIZE:
            return replace(request, count=self._page_count())
        if verb in CHANGES_PAGES:
            first = self._random.randrange(PAGES_MAX - 1)
            count = self._random.randint(1, PAGES_MAX - first)
            return self._with_number(replace(request, first=first, count=count))
        if verb is Verb.RENUMBER:
            action = self._random.choice(SEQUENCE_ACTIONS)
            number = None if action == "increment" else self._random.randint(0, NUMBERS_MAX)
            return replace(request, action=action, number=number)
        return request

    def _page_count(self) -> int:
        return self._random.randint(PAGES_MIN, PAGES_MAX)

    def _with_number(self, request: Request) -> Request:
        """Now and then a condition that is about as often met as not."""
        if self._random.random() < 0.6:
            return request
        number = max(0, self._memories[request.blob].number + self._random.choice((-1, 0, 0, 1)))
        comparison = self._random.choice(COMPARISONS)
        return replace(request, comparison=comparison, number=number)

    def _block_list(self) -> tuple[str, ...]:
        return tuple(self._random.sample(BLOCKS, self._random.randint(1, len(BLOCKS))))

    def _lease_action(self, verb: Verb, blob: str, workload: Workload) -> Request:
        own_id = self._memories[blob].lease_id or self._new_lease_id()
        if verb is Verb.ACQUIRE:
            again = self._random.random() < workload.acquired_again
            proposed = own_id if again else self._new_lease_id()
            seconds = self._random.choice(workload.lease_seconds)
            return Request(verb, blob, proposed_id=proposed, seconds=seconds)
        if verb is Verb.BREAK:
            return Request(verb, blob, seconds=self._random.choice(BREAK_SECONDS))
        proposed_id = self._new_lease_id() if verb is Verb.CHANGE else None
        return Request(verb, blob, lease_id=own_id, proposed_id=proposed_id)

    def _new_lease_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def learn(self, operation: Operation) -> None:
        """Of lease ids the client remembers one that it may hold; of ETags only those that came
        together with their version, since the versions of the others are unknown."""
        request, outcome = operation.request, operation.outcome
        memory = self._memories[request.blob]
        if isinstance(outcome, Done):
            self._look(memory, request.verb, outcome.seen)
        elif isinstance(outcome, Refused):
            self._forget_snapshot(memory, request)
        if request.proposed_id is not None and not isinstance(outcome, Refused):
            memory.lease_id = request.proposed_id
        # Now and then it insists on a lease that it gave up or lost.
        if request.verb is Verb.RELEASE or isinstance(outcome, Refused):
            about_lease = request.lease_id is not None and request.lease_id == memory.lease_id
            if about_lease and self._random.random() < 0.3:
                memory.lease_id = None

    def _forget_snapshot(self, memory: _Memory, request: Request) -> None:
        """Now and then it insists on one that is gone."""
        if request.snapshot in memory.snapshots and self._random.random() < 0.7:
            memory.snapshots.remove(request.snapshot)

    def _look(self, memory: _Memory, verb: Verb, seen: Seen) -> None:
        if seen.etag and verb in READS | MAKES_VERSION:
            memory.etag = seen.etag
        if verb in CREATES:
            memory.length = 0
        if verb is Verb.GET_SNAPSHOT:
            return
        memory.length = memory.length if seen.length is None else seen.length
        memory.number = memory.number if seen.number is None else seen.number
        if seen.snapshot:
            memory.snapshots = [*memory.snapshots, seen.snapshot][-SNAPSHOTS_REMEMBERED:]
