"""Workloads: random requests by a seed, with leases and snapshots that the client has seen."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.history.file.events import (
    LEASE_ACTIONS,
    RENAMES,
    ROOT,
    WRITES,
    Done,
    Operation,
    Request,
    Verb,
)

_WRITES_TOKEN: Final = frozenset(
    {Verb.CREATE, Verb.PUT, Verb.SET_METADATA, Verb.SMB_WRITE, Verb.SMB_WRITE_THROUGH}
)
_OF_DIRECTORIES: Final = frozenset({Verb.CREATE_DIRECTORY, Verb.DELETE_DIRECTORY, Verb.LIST})


class Workload(NamedTuple):
    """The paths of a share, and how often each verb is chosen."""

    weights: Mapping[Verb, int]
    files: tuple[str, ...] = ("f", "g")
    directories: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    """Of directories: from where to where. Never deeper, so that the tree does not grow."""
    leased: float = 0.0
    """The share of writes with a lease ID."""
    from_snapshot: float = 0.0
    """The share of reads from a snapshot."""
    snapshots_max: int = 2
    """How many a client keeps."""
    file_bytes: int = 1_024


REGISTERS: Final = Workload(
    {
        Verb.CREATE: 5,
        Verb.PUT: 10,
        Verb.CLEAR: 1,
        Verb.SET_METADATA: 3,
        Verb.GET: 10,
        Verb.DELETE: 1,
        Verb.RENAME: 3,
        Verb.LIST: 4,
    },
    file_bytes=140 * 512,
)
"""Two names, between which files are moved."""
TREE: Final = Workload(
    {
        Verb.CREATE: 10,
        Verb.PUT: 4,
        Verb.GET: 8,
        Verb.DELETE: 3,
        Verb.RENAME: 5,
        Verb.LIST: 8,
        Verb.CREATE_DIRECTORY: 10,
        Verb.DELETE_DIRECTORY: 4,
        Verb.RENAME_DIRECTORY: 8,
    },
    files=("f", "d/f", "e/f", "d/s/f", "e/s/f"),
    directories=("d", "e", "d/s", "e/s"),
    moves=(("d", "e"), ("e", "d"), ("d/s", "e/s"), ("e/s", "d/s"), ("d", "d/s"), ("e", "e/s")),
)
LEASES: Final = Workload(
    {
        Verb.CREATE: 5,
        Verb.PUT: 10,
        Verb.SET_METADATA: 2,
        Verb.GET: 6,
        Verb.DELETE: 1,
        Verb.RENAME: 3,
        Verb.ACQUIRE: 5,
        Verb.CHANGE: 2,
        Verb.RELEASE: 3,
        Verb.BREAK: 2,
    },
    leased=0.7,
)
SNAPSHOTS: Final = Workload(
    {
        Verb.CREATE: 6,
        Verb.PUT: 10,
        Verb.CLEAR: 1,
        Verb.SET_METADATA: 2,
        Verb.GET: 14,
        Verb.DELETE: 1,
        Verb.RENAME: 2,
        Verb.LIST: 5,
        Verb.CREATE_DIRECTORY: 4,
        Verb.DELETE_DIRECTORY: 1,
        Verb.RENAME_DIRECTORY: 2,
        Verb.SNAPSHOT: 4,
        Verb.DELETE_SNAPSHOT: 1,
    },
    files=("f", "g", "d/f", "e/f"),
    directories=("d", "e"),
    moves=(("d", "e"), ("e", "d")),
    from_snapshot=0.6,
)
OPEN_FILES: Final = Workload(
    {
        Verb.CREATE: 2,
        Verb.PUT: 2,
        Verb.SET_METADATA: 1,
        Verb.GET: 6,
        Verb.SNAPSHOT: 3,
        Verb.DELETE_SNAPSHOT: 1,
        Verb.SMB_WRITE: 14,
        Verb.SMB_WRITE_THROUGH: 4,
        Verb.SMB_FLUSH: 6,
        Verb.SMB_READ: 10,
    },
    from_snapshot=0.4,
    file_bytes=140 * 512,
)
"""Files that SMB clients keep open."""
WORKLOADS: Final[dict[str, Workload]] = {
    "registers": REGISTERS,
    "tree": TREE,
    "leases": LEASES,
    "snapshots": SNAPSHOTS,
    "open-files": OPEN_FILES,
}
"""By the name of the share that each is for."""


class _Memory:
    """A client's knowledge of a share."""

    def __init__(self) -> None:
        self.leases: dict[str, str] = {}
        """The lease that the client asked for last, by path. It may have it or not."""
        self.snapshots: list[str] = []
        self.deleted = ""
        """A snapshot that the client has deleted, or tried to."""


class FileChooser:
    """Chooses the requests of one client, with tokens that no other client uses."""

    def __init__(self, seed: int, client: int, workloads: Mapping[str, Workload]) -> None:
        self._client = client
        self._random = random.Random(f"{seed} {client}")
        self._workloads = workloads
        self._memories = {share: _Memory() for share in workloads}
        self._count = 0

    def choose(self) -> Request:
        share = self._random.choice(list(self._workloads))
        workload, memory = self._workloads[share], self._memories[share]
        (verb,) = self._random.choices(list(workload.weights), list(workload.weights.values()))
        if verb in (Verb.SNAPSHOT, Verb.DELETE_SNAPSHOT):
            return self._snapshot(share, verb, memory)
        if verb is Verb.RENAME_DIRECTORY:
            source, target = self._random.choice(workload.moves)
            return Request(verb, share, source, target)
        if verb in _OF_DIRECTORIES:
            roots = (ROOT,) if verb is Verb.LIST else ()
            path = self._random.choice((*roots, *workload.directories))
        else:
            path = self._random.choice(workload.files)
        if verb in (Verb.GET, Verb.LIST):
            return Request(verb, share, path, snapshot=self._some_snapshot(workload, memory))
        if verb is Verb.RENAME:
            return self._rename(share, path)
        if verb in LEASE_ACTIONS:
            return self._lease_action(share, verb, path)
        token = self._new_token() if verb in _WRITES_TOKEN else ""
        lease = self._some_lease(share, path) if verb in WRITES else ""
        return Request(verb, share, path, token=token, lease=lease)

    def _new_token(self) -> str:
        self._count += 1
        return f"{self._client}-{self._count}"

    def _snapshot(self, share: str, verb: Verb, memory: _Memory) -> Request:
        keeps = verb is Verb.SNAPSHOT or not memory.snapshots
        if keeps and len(memory.snapshots) < self._workloads[share].snapshots_max:
            return Request(Verb.SNAPSHOT, share)
        return Request(Verb.DELETE_SNAPSHOT, share, snapshot=memory.snapshots[0])

    def _some_snapshot(self, workload: Workload, memory: _Memory) -> str:
        if not memory.snapshots or self._random.random() >= workload.from_snapshot:
            return ""
        if memory.deleted and self._random.random() < 0.1:
            return memory.deleted
        return self._random.choice(memory.snapshots)

    def _rename(self, share: str, path: str) -> Request:
        others: Sequence[str] = [each for each in self._workloads[share].files if each != path]
        target = self._random.choice(others)
        return Request(
            Verb.RENAME,
            share,
            path,
            target,
            lease=self._some_lease(share, path),
            target_lease=self._some_lease(share, target) if self._random.random() < 0.3 else "",
            replace=self._random.random() < 0.6,
        )

    def _some_lease(self, share: str, path: str) -> str:
        leases = self._memories[share].leases
        if not leases or self._random.random() >= self._workloads[share].leased:
            return ""
        if self._random.random() < 0.1:
            return self._random.choice(list(leases.values()))
        return leases.get(path, "")

    def _lease_action(self, share: str, verb: Verb, path: str) -> Request:
        leases = self._memories[share].leases
        lease = leases.get(path) or self._new_token()
        if verb in (Verb.ACQUIRE, Verb.CHANGE):
            again = path in leases and self._random.random() < 0.2
            token = lease if again else self._new_token()
            return Request(verb, share, path, token=token, lease=lease)
        return Request(verb, share, path, lease=lease if verb is Verb.RELEASE else "")

    def learn(self, operation: Operation) -> None:
        request, outcome = operation.request, operation.outcome
        memory = self._memories[request.share]
        if request.verb in (Verb.ACQUIRE, Verb.CHANGE) and isinstance(outcome, Done):
            memory.leases[request.path] = request.token
        if request.verb in RENAMES and isinstance(outcome, Done) and request.path in memory.leases:
            memory.leases[request.target] = memory.leases[request.path]
        if request.verb is Verb.SNAPSHOT and isinstance(outcome, Done):
            memory.snapshots.append(outcome.snapshot)
        if request.verb is Verb.DELETE_SNAPSHOT:
            memory.snapshots.remove(request.snapshot)
            memory.deleted = request.snapshot
