"""Prepares the operations of one blob for the search.

Operations whose outcome is unknown are what makes a search hard, since each may or may not have
happened. Three things are known of them after all:

- A server that is dead does nothing. If a client gave up before the next server was started,
  its operation happened before the last one was dead, or never.
- What was seen has happened. If somebody saw the token of a write, that write was carried out
  before whoever saw it first was answered; likewise the grant of a lease id that was then used
  with success. It becomes an operation like any that was acknowledged.
- What nobody ever saw has no name. Contents that no answer showed are all called alike, and so are
  versions that only unknown writes made: no request can refer to one of them (an ETag that was
  never told cannot be asked for), so no outcome depends on which of them it was.

Versions of append and page blobs are known by their ETags. An ETag that was shown, but not told to
any write, was made by one of those in doubt; the search finds out by which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tests.history.blob.contents import size_of
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
from tests.history.blob.trials import UNSEEN, Name, Trial
from tests.history.configurations import Part
from tests.history.events import NEVER, Death, Refused, Unknown, latest_moment

NO_VERSION: Final = "no version"
"""What an ETag names that no blob ever had."""


def prepare(operations: Sequence[Operation], deaths: Iterable[Death]) -> list[Trial]:
    """The trials of one blob. Unknown reads are left out: they neither show nor change anything,
    nor does a snapshot whose name nobody was told; and so is what was only asked while there was
    no server, and was not seen."""
    trials = _Names(operations).trials(operations, tuple(deaths))
    return [trial for trial in trials if trial.began <= trial.latest]


_CHANGES_NOTHING: Final = READS | {Verb.SNAPSHOT, Verb.GET_SNAPSHOT}
"""As far as others are shown, if its own answer was lost."""


class _Names:
    """What the answers of a history say about its writes."""

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
        """What was shown of those that somebody asked for."""
        for operation in operations:
            self._learn(operation)
        told = set(filter(None, map(_etag_made, operations)))
        self._orphans = [
            Name(version, self._ranks[version], self._contents.get(version))
            for etag, version in self._versions.items()
            if version == etag and etag not in told
        ]
        """Versions whose makers were not told so."""

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

    def trials(self, operations: Sequence[Operation], deaths: tuple[Death, ...]) -> list[Trial]:
        return [
            self._trial(operation, deaths)
            for operation in operations
            if not isinstance(operation.outcome, Unknown)
            or operation.request.verb not in _CHANGES_NOTHING
        ]

    def _trial(self, operation: Operation, deaths: tuple[Death, ...]) -> Trial:
        request, outcome = operation.request, operation.outcome
        made = self._version_made(operation)
        token = request.token if ("content", request.token) in self._sighted else UNSEEN
        trial = Trial(
            operation,
            Part.PASSIVE,
            operation.began,
            latest_moment(operation, deaths),
            made if made in self._ranks else UNSEEN,
            token,
            self._version(request.if_match),
            self._version(request.if_none_match),
            self._ranks.get(self._version(request.if_match) or "", 0),
            made=self._contents.get(made),
            rank=self._ranks.get(made, 0),
            origin=token,
        )
        if isinstance(outcome, Refused):
            return trial._replace(refusal=outcome.code)
        if isinstance(outcome, Done):
            return self._done(trial, outcome.seen)
        trial = trial._replace(names=self._names_for(operation))
        sighted = self._first_sight(operation)
        if sighted is not None:
            latest = max(trial.began, min(trial.latest, sighted))
            return _with_kind(trial._replace(part=Part.ACTIVE, latest=latest))
        return _with_kind(trial._replace(part=Part.DOUBTFUL))

    def _done(self, trial: Trial, seen: Seen) -> Trial:
        verb = trial.verb
        if verb is Verb.GET_SNAPSHOT:
            return trial
        if verb in WRITES and verb is not Verb.SEAL:
            return _with_kind(trial._replace(part=Part.ACTIVE))
        shows = seen.version or self._versions.get(seen.etag)
        # What a seal shows may be older than it, so its content was asked of whoever made it.
        trial = trial._replace(made=None, shows=shows, rank=self._ranks.get(shows or "", 0))
        if verb is Verb.SNAPSHOT and seen.snapshot in self._snapshots:
            kept = tuple(self._snapshots[seen.snapshot])
            trial = trial._replace(taken=frozenset({seen.snapshot}), kept=kept)
        return trial if verb in READS else trial._replace(part=Part.ACTIVE)

    def _version_made(self, operation: Operation) -> str:
        """By a name that it has if anybody was shown it."""
        if operation.request.verb not in ONLY_ETAG_NAMES:
            return operation.request.token
        return operation.outcome.seen.etag if isinstance(operation.outcome, Done) else ""

    def _names_for(self, operation: Operation) -> tuple[Name, ...]:
        """What the version may be called that was made by this write in doubt: something that was
        not shown before it began, and is made of what it wrote."""
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


def _with_kind(trial: Trial) -> Trial:
    """What an operation does that has to do with a lease depends on the moment at which it
    began, and each version that was seen was made once."""
    asked = trial.operation.request
    if asked.verb not in WRITES or asked.lease_id is not None or trial.rank:
        return trial
    names = (trial.version, trial.content, trial.if_match, trial.if_none_match, trial.names)
    blocks = (asked.block, asked.blocks, asked.position)
    size = size_of(asked.token) if asked.verb is Verb.APPEND else 0
    pages = (asked.first, asked.count, asked.comparison, asked.action, asked.number)
    return trial._replace(alike=(trial.part, asked.verb, *names, *blocks, size, *pages))


def _etag_made(operation: Operation) -> str | None:
    """What is certain to have been made by this. A seal may show what another one made."""
    makes = operation.request.verb in MAKES_VERSION
    return operation.outcome.seen.etag if makes and isinstance(operation.outcome, Done) else None


def _version_shown(request: Request, seen: Seen) -> str:
    """Empty if it cannot be told."""
    verb = request.verb
    if verb in ONLY_ETAG_NAMES or verb in (Verb.SNAPSHOT, Verb.GET_SNAPSHOT):
        return seen.etag
    if verb in MAKES_VERSION:
        return request.token
    return (seen.version or seen.etag) if verb in READS else ""
