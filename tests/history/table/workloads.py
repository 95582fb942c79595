"""Random requests by a seed, with ETags that the client has seen itself."""

from __future__ import annotations

import random
from typing import Final

from tests.history.table.events import (
    ANY,
    CONDITIONAL,
    PROPERTIES,
    Change,
    Done,
    Operation,
    Request,
    Verb,
)

PARTITIONS: Final = ("p0", "p1", "p2")
ROWS: Final = ("r0", "r1", "r2")
WEIGHTS: Final = {
    Verb.INSERT: 4,
    Verb.REPLACE: 4,
    Verb.MERGE: 4,
    Verb.INSERT_OR_REPLACE: 2,
    Verb.INSERT_OR_MERGE: 2,
    Verb.DELETE: 3,
    Verb.GET: 10,
    Verb.GROUP: 5,
}
CHANGES: Final = tuple(verb for verb in WEIGHTS if verb not in (Verb.GET, Verb.GROUP))
UNKNOWN_ETAG: Final = "W/\"datetime'2000-01-01T00%3A00%3A00Z'\""
MATCHES_ANY: Final = 0.3
"""The share of conditional changes with `If-Match: *`."""


class EntityChooser:
    """Chooses the requests of one client, with tokens that no other client uses."""

    def __init__(self, seed: int, client: int) -> None:
        self._client = client
        self._random = random.Random(f"{seed} {client}")
        self._count = 0
        self._etags: dict[tuple[str, str], str] = {}
        """The last ETag that the client has seen of each entity."""

    def choose(self) -> Request:
        (verb,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        partition = self._random.choice(PARTITIONS)
        if verb is Verb.GET:
            return Request(verb, partition, self._random.choice(ROWS))
        if verb is Verb.GROUP:
            rows = self._random.sample(ROWS, self._random.randint(2, len(ROWS)))
            verbs = self._random.choices(CHANGES, k=len(rows))
            changes = tuple(
                self._change(each, partition, row) for each, row in zip(verbs, rows, strict=True)
            )
            return Request(verb, partition, changes=changes)
        row = self._random.choice(ROWS)
        return Request(verb, partition, changes=(self._change(verb, partition, row),))

    def _change(self, verb: Verb, partition: str, row: str) -> Change:
        if_match = ""
        if verb in CONDITIONAL:
            known = self._etags.get((partition, row), UNKNOWN_ETAG)
            if_match = ANY if self._random.random() < MATCHES_ANY else known
        if verb is Verb.DELETE:
            return Change(verb, row, if_match=if_match)
        self._count += 1
        properties = self._random.choice((*PROPERTIES, "".join(PROPERTIES)))
        return Change(verb, row, f"{self._client}-{self._count}", properties, if_match)

    def learn(self, operation: Operation) -> None:
        request, outcome = operation.request, operation.outcome
        if not isinstance(outcome, Done):
            return
        if request.verb is Verb.GET:
            self._etags[request.partition, request.row] = outcome.etags[0]
        for change, etag in zip(request.changes, outcome.etags, strict=False):
            if etag:
                self._etags[request.partition, change.row] = etag
