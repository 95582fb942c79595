"""Prepares the operations of one blob for the search.

Operations with unknown outcomes make a search hard, since each may or may not have been carried
out. Three rules reduce the possibilities:

- A killed server does nothing. If a client gave up before the next server was started, its
  operation was carried out before the kill, or never.
- What an answer shows was carried out. If a client saw the token of a write, that write was carried
  out before the first such answer; likewise the grant of a lease id that was then used with
  success. It becomes an operation like any that was acknowledged.
- What no answer shows needs no name. Contents that no answer shows get the same name, and so do
  versions that only unknown writes made: no request can name one of them, because no client knows
  its ETag, so no outcome depends on which of them it was.

Versions of append and page blobs are known by their ETags. An ETag that reads show, but no answer
to a write, was made by a write with an unknown outcome; the search finds out by which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tests.history.blob.contents import size_of
from tests.history.blob.entries import UNSEEN, Name, SearchEntry
from tests.history.blob.events import (
    ANY,
    MAKES_VERSION,
    ONLY_ETAG_NAMES,
    READS,
    WRITES,
    Done,
    Operation,
    Request,
    Seen,
    Verb,
    number_of,
)
from tests.history.configurations import Part
from tests.history.events import NEVER, Refused, ServerKill, Unknown, latest_moment

NO_VERSION: Final = "no version"
"""The version of an ETag that no blob ever had."""


def prepare(operations: Sequence[Operation], kills: Iterable[ServerKill]) -> list[SearchEntry]:
    """Returns the entries of one blob.

    Unknown reads and unknown snapshots are left out, because they neither show nor change anything,
    and so are requests that were sent while there was no server.
    """
    entries = _Names(operations).entries(operations, tuple(kills))
    return [entry for entry in entries if entry.began <= entry.latest]


_CHANGES_NOTHING: Final = READS | {Verb.SNAPSHOT, Verb.GET_SNAPSHOT}
"""Verbs without an effect on other answers, if their own answer was lost."""


class _Names:
    """Facts about the writes of a history, collected from its answers."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._versions: dict[str, str] = {}
        """By ETag."""
        self._ranks: dict[str, int] = {}
        """By version, as are the contents."""
        self._contents: dict[str, tuple[str, ...]] = {}
        self._sighted: dict[tuple[str, str], int] = {}
        """When a version, a part of a content, or a lease id was first known to be there."""
        self._grants: dict[str, int] = {}
        """How many requests could have brought a lease id into force."""
        self._snapshots: dict[str, dict[Seen, None]] = {}
        """What reads of each snapshot showed."""
        for operation in operations:
            self._learn(operation)
        acknowledged = set(filter(None, map(_etag_made, operations)))
        self._orphans = [
            Name(version, self._ranks[version], self._contents.get(version))
            for etag, version in self._versions.items()
            if version == etag and etag not in acknowledged
        ]
        """Versions that no acknowledged write made."""

    def _learn(self, operation: Operation) -> None:
        request, outcome = operation.request, operation.outcome
        if request.proposed_id is not None:
            self._grants[request.proposed_id] = self._grants.get(request.proposed_id, 0) + 1
        if request.snapshot:
            self._snapshots.setdefault(request.snapshot, {})
        if not isinstance(outcome, Done):
            return
        seen = outcome.seen
        version = _version_shown(request, seen)
        if version:
            self._versions.setdefault(seen.etag, version)
            self._ranks.setdefault(version, number_of(seen.etag))
            self._sight("etag", seen.etag, operation.ended)
        if request.verb in READS:
            self._sight("version", seen.version, operation.ended)
        if request.snapshot:
            self._snapshots[request.snapshot][seen] = None
        for token in filter(None, (*(seen.content or ()), seen.origin)):
            self._sight("content", token, operation.ended)
        if seen.content is not None:
            self._contents.setdefault(version, seen.content)
        # A change may succeed because the lease has the new id already: it proves nothing.
        if request.lease_id is not None and request.verb is not Verb.CHANGE:
            self._sight("lease", request.lease_id, operation.ended)

    def _sight(self, kind: str, name: str, moment: int) -> None:
        self._sighted[kind, name] = min(moment, self._sighted.get((kind, name), NEVER))

    def entries(
        self, operations: Sequence[Operation], kills: tuple[ServerKill, ...]
    ) -> list[SearchEntry]:
        return [
            self._entry(operation, kills)
            for operation in operations
            if not isinstance(operation.outcome, Unknown)
            or operation.request.verb not in _CHANGES_NOTHING
        ]

    def _entry(self, operation: Operation, kills: tuple[ServerKill, ...]) -> SearchEntry:
        request, outcome = operation.request, operation.outcome
        version_made = self._version_made(operation)
        token = request.token if ("content", request.token) in self._sighted else UNSEEN
        entry = SearchEntry(
            operation,
            Part.PASSIVE,
            operation.began,
            latest_moment(operation, kills),
            version_made if version_made in self._ranks else UNSEEN,
            token,
            self._version(request.if_match),
            self._version(request.if_none_match),
            self._ranks.get(self._version(request.if_match) or "", 0),
            made_content=self._contents.get(version_made),
            rank=self._ranks.get(version_made, 0),
            origin=token,
        )
        if isinstance(outcome, Refused):
            return entry._replace(refusal=outcome.code)
        if isinstance(outcome, Done):
            return self._done(entry, outcome.seen)
        entry = entry._replace(names=self._names_for(operation))
        sighted = self._first_sight(operation)
        if sighted is not None:
            latest = max(entry.began, min(entry.latest, sighted))
            return _with_kind(entry._replace(part=Part.ACTIVE, latest=latest))
        return _with_kind(entry._replace(part=Part.DOUBTFUL))

    def _done(self, entry: SearchEntry, seen: Seen) -> SearchEntry:
        verb = entry.verb
        if verb is Verb.GET_SNAPSHOT:
            return entry
        if verb in WRITES and verb is not Verb.SEAL:
            return _with_kind(entry._replace(part=Part.ACTIVE))
        shows = seen.version or self._versions.get(seen.etag)
        # A seal may show an older version, whose content is compared where that version was made.
        entry = entry._replace(made_content=None, shows=shows, rank=self._ranks.get(shows or "", 0))
        if verb is Verb.SNAPSHOT and seen.snapshot in self._snapshots:
            reads = tuple(self._snapshots[seen.snapshot])
            entry = entry._replace(snapshots=frozenset({seen.snapshot}), snapshot_reads=reads)
        return entry if verb in READS else entry._replace(part=Part.ACTIVE)

    def _version_made(self, operation: Operation) -> str:
        """Returns the token or ETag of the version that the operation makes."""
        if operation.request.verb not in ONLY_ETAG_NAMES:
            return operation.request.token
        return operation.outcome.seen.etag if isinstance(operation.outcome, Done) else ""

    def _names_for(self, operation: Operation) -> tuple[Name, ...]:
        """Returns possible names of the version that this unknown write made: first shown after it
        began, and with its token in the content."""
        request = operation.request
        if request.verb not in ONLY_ETAG_NAMES:
            return ()
        return tuple(
            name
            for name in self._orphans
            if self._sighted["etag", name.etag] >= operation.began
            and (
                name.content is None
                or request.verb not in (Verb.APPEND, Verb.PUT_PAGES)
                or request.token in name.content
            )
        )

    def _version(self, etag: str | None) -> str | None:
        return etag if etag in (None, ANY) else self._versions.get(etag, NO_VERSION)

    def _first_sight(self, operation: Operation) -> int | None:
        request = operation.request
        if request.proposed_id is not None:
            only = self._grants[request.proposed_id] == 1
            return self._sighted.get(("lease", request.proposed_id)) if only else None
        moments = [
            self._sighted[key]
            for key in (("version", request.token), ("content", request.token))
            if request.token and key in self._sighted
        ]
        return min(moments, default=None)


def _with_kind(entry: SearchEntry) -> SearchEntry:
    """Marks a write with the effect that equal writes share.

    The effect of a write with a lease id depends on the time, and a version that was seen was made
    once.
    """
    request = entry.operation.request
    if request.verb not in WRITES or request.lease_id is not None or entry.rank:
        return entry
    names = (entry.version, entry.content, entry.if_match, entry.if_none_match, entry.names)
    blocks = (request.block, request.blocks, request.position)
    size = size_of(request.token) if request.verb is Verb.APPEND else 0
    pages = (request.first, request.count, request.comparison, request.action, request.number)
    return entry._replace(alike=(entry.part, request.verb, *names, *blocks, size, *pages))


def _etag_made(operation: Operation) -> str | None:
    """Returns the ETag that this write made; a seal may show the ETag of another."""
    makes = operation.request.verb in MAKES_VERSION
    return operation.outcome.seen.etag if makes and isinstance(operation.outcome, Done) else None


def _version_shown(request: Request, seen: Seen) -> str:
    """Returns the version that the answer shows, or an empty string."""
    verb = request.verb
    if verb in ONLY_ETAG_NAMES or verb in (Verb.SNAPSHOT, Verb.GET_SNAPSHOT):
        return seen.etag
    if verb in MAKES_VERSION:
        return request.token
    return (seen.version or seen.etag) if verb in READS else ""
