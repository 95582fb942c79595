"""The operations of one blob, made ready for the search: what each showed, and when at the latest
it was carried out.

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
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from tests.history.events import (
    ANY,
    MAKES_VERSION,
    NEVER,
    READS,
    WRITES,
    Death,
    Done,
    Operation,
    Refused,
    Unknown,
    Verb,
    number_of,
)
from tests.history.lease_model import LeaseRequest

UNSEEN: Final = "unseen"
NO_VERSION: Final = "no version"
"""What an ETag names that no blob ever had."""


class Part(enum.Enum):
    """What an operation can do to an explanation."""

    ACTIVE = enum.auto()
    """It happened, and changed the blob."""
    PASSIVE = enum.auto()
    """It happened, and showed something: a read, or a refusal."""
    DOUBTFUL = enum.auto()
    """It changed the blob, if it happened."""


class Trial(NamedTuple):
    """An operation as the search sees it, with versions in place of ETags."""

    operation: Operation
    part: Part
    began: int
    latest: int
    """When it had been carried out, if ever."""
    version: str = ""
    """The version that it makes."""
    content: str = ""
    """What it adds to contents."""
    if_match: str | None = None
    if_none_match: str | None = None
    asked_rank: int = 0
    """The rank of the version that If-Match asks for."""
    refusal: str | None = None
    made: tuple[str, ...] | None = None
    """The content of the version that it makes, if anybody read that."""
    shows: str | None = None
    """The version that its answer shows, if it does."""
    rank: int = 0
    """The number of the ETag of the version that it makes or shows, if it was ever told."""
    alike: Hashable = None
    """Operations of which this is the same do the same, whenever they are done; None: it is
    the only one of its kind."""

    @property
    def verb(self) -> Verb:
        return self.operation.request.verb

    @property
    def lease_request(self) -> LeaseRequest:
        asked = self.operation.request
        lease_id, proposed_id = asked.lease_id or "", asked.proposed_id or ""
        return LeaseRequest(
            asked.verb, lease_id, proposed_id, asked.seconds, self.began, self.latest
        )


def latest_moment(operation: Operation, deaths: Iterable[Death]) -> int:
    """After which the operation was not carried out any more."""
    if not isinstance(operation.outcome, Unknown):
        return operation.ended
    return min((death.ended for death in deaths if operation.ended <= death.revived), default=NEVER)


def prepare(operations: Sequence[Operation], deaths: Iterable[Death]) -> list[Trial]:
    """The trials of one blob. Unknown reads are left out: they neither show nor change anything;
    and so is what was only asked while there was no server, and was not seen."""
    trials = _Names(operations).trials(operations, tuple(deaths))
    return [trial for trial in trials if trial.began <= trial.latest]


def last_seen(trials: Sequence[Trial]) -> dict[str, int]:
    """When the last one that was shown a content, by its token, was answered."""
    return {
        token: trial.latest
        for trial in sorted(trials, key=lambda each: each.latest)
        if isinstance(trial.operation.outcome, Done)
        for token in trial.operation.outcome.seen.content or ()
    }


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
        for operation in operations:
            self._learn(operation)

    def _learn(self, operation: Operation) -> None:
        request, outcome = operation.request, operation.outcome
        if request.proposed_id is not None:
            self._grants[request.proposed_id] = self._grants.get(request.proposed_id, 0) + 1
        if not isinstance(outcome, Done):
            return
        seen = outcome.seen
        if request.verb in MAKES_VERSION | READS:
            version = seen.version or request.token
            self._versions.setdefault(seen.etag, version)
            self._ranks.setdefault(version, number_of(seen.etag))
        if request.verb in READS:
            self._sight("version", seen.version, operation.ended)
        if seen.content is not None:
            self._contents.setdefault(seen.version, seen.content)
            for token in seen.content:
                self._sight("content", token, operation.ended)
        # A change may succeed because the lease has the new id already: it proves nothing.
        if request.lease_id is not None and request.verb is not Verb.CHANGE:
            self._sight("lease", request.lease_id, operation.ended)

    def _sight(self, kind: str, name: str, moment: int) -> None:
        self._sighted[kind, name] = min(moment, self._sighted.get((kind, name), NEVER))

    def trials(self, operations: Sequence[Operation], deaths: tuple[Death, ...]) -> list[Trial]:
        return [
            self._trial(operation, deaths)
            for operation in operations
            if not (isinstance(operation.outcome, Unknown) and operation.request.verb in READS)
        ]

    def _trial(self, operation: Operation, deaths: tuple[Death, ...]) -> Trial:
        request, outcome = operation.request, operation.outcome
        trial = Trial(
            operation,
            Part.PASSIVE,
            operation.began,
            latest_moment(operation, deaths),
            request.token if request.token in self._ranks else UNSEEN,
            request.token if ("content", request.token) in self._sighted else UNSEEN,
            self._version(request.if_match),
            self._version(request.if_none_match),
            self._ranks.get(self._version(request.if_match) or "", 0),
            made=self._contents.get(request.token),
            rank=self._ranks.get(request.token, 0),
        )
        if isinstance(outcome, Refused):
            return trial._replace(refusal=outcome.code)
        if isinstance(outcome, Done):
            shows = outcome.seen.version or self._versions.get(outcome.seen.etag)
            if request.verb in WRITES:
                return _with_kind(trial._replace(part=Part.ACTIVE))
            part = Part.PASSIVE if request.verb in READS else Part.ACTIVE
            return trial._replace(part=part, shows=shows, rank=self._ranks.get(shows or "", 0))
        sighted = self._first_sight(operation)
        if sighted is not None:
            latest = max(trial.began, min(trial.latest, sighted))
            return _with_kind(trial._replace(part=Part.ACTIVE, latest=latest))
        return _with_kind(trial._replace(part=Part.DOUBTFUL))

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
    names = (trial.version, trial.content, trial.if_match, trial.if_none_match)
    return trial._replace(alike=(trial.part, asked.verb, asked.block, asked.blocks, *names))
