"""The operations of one blob as the search sees them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.history.blob.events import Done, Operation, Seen, Verb
from tests.history.blob.lease_model import LeaseRequest
from tests.history.configurations import Part

UNSEEN: Final = "unseen"
"""What all contents and versions are called that nobody was shown."""


class Name(NamedTuple):
    """Of a version that a write in doubt may have made."""

    etag: str
    rank: int
    content: tuple[str, ...] | None
    """If anybody read it."""


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
    origin: str = ""
    """What it creates says that it was created by this."""
    names: tuple[Name, ...] = ()
    """The version that it makes may have one of these, or was not shown to anybody."""
    taken: frozenset[str] = frozenset()
    """The snapshot that it takes, if anybody asks for that."""
    kept: tuple[Seen, ...] = ()
    """What the snapshot that it takes was found to be."""

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


def last_seen(trials: Sequence[Trial]) -> dict[str, int]:
    """When the last one that was shown a content, by its token, or that asked for a snapshot, was
    answered."""
    return {
        name: trial.latest
        for trial in sorted(trials, key=lambda each: each.latest)
        for name in _names_used(trial)
    }


def _names_used(trial: Trial) -> Iterator[str]:
    if trial.verb is Verb.GET_SNAPSHOT:
        yield trial.operation.request.snapshot
    elif isinstance(trial.operation.outcome, Done):
        for seen in (trial.operation.outcome.seen, *trial.kept):
            yield from filter(None, (*(seen.content or ()), seen.origin))
