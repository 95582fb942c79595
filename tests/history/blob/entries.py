"""The operations of one blob as the search sees them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.history.blob.events import Done, Operation, Seen, Verb
from tests.history.blob.lease_model import LeaseRequest
from tests.history.configurations import Part

UNSEEN: Final = "unseen"
"""The name of all contents and versions that no answer shows."""


class Name(NamedTuple):
    """The name of a version that a write with an unknown outcome may have made."""

    etag: str
    rank: int
    content: tuple[str, ...] | None
    """None if no client read it."""


class SearchEntry(NamedTuple):
    """An operation as the search sees it, with versions in place of ETags."""

    operation: Operation
    part: Part
    began: int
    latest: int
    """The time by which it had been carried out, if ever."""
    version: str = ""
    """The version that it makes."""
    content: str = ""
    """The token that it adds to contents."""
    if_match: str | None = None
    if_none_match: str | None = None
    asked_rank: int = 0
    """The rank of the version that If-Match asks for."""
    refusal: str | None = None
    made_content: tuple[str, ...] | None = None
    """The content of the version that it makes; None if no client read it."""
    shows: str | None = None
    """The version that its answer shows, if any."""
    rank: int = 0
    """The number in the ETag of the version that it makes or shows; 0 if unknown."""
    alike: Hashable = None
    """Entries for which this is equal have the same effect at any time; None if unique."""
    origin: str = ""
    """The token in the metadata of the blob that it creates."""
    names: tuple[Name, ...] = ()
    """Possible names of the version that it makes, unless no answer shows it."""
    snapshots: frozenset[str] = frozenset()
    """The snapshot that it takes, if a request names it."""
    snapshot_reads: tuple[Seen, ...] = ()
    """What reads of its snapshot showed."""

    @property
    def verb(self) -> Verb:
        return self.operation.request.verb

    @property
    def lease_request(self) -> LeaseRequest:
        request = self.operation.request
        lease_id, proposed_id = request.lease_id or "", request.proposed_id or ""
        return LeaseRequest(
            request.verb, lease_id, proposed_id, request.seconds, self.began, self.latest
        )


def last_seen(entries: Sequence[SearchEntry]) -> dict[str, int]:
    """Returns the time of the last answer that shows a content, by token, or names a snapshot."""
    return {
        name: entry.latest
        for entry in sorted(entries, key=lambda each: each.latest)
        for name in _names_used(entry)
    }


def _names_used(entry: SearchEntry) -> Iterator[str]:
    if entry.verb is Verb.GET_SNAPSHOT:
        yield entry.operation.request.snapshot
    elif isinstance(entry.operation.outcome, Done):
        for seen in (entry.operation.outcome.seen, *entry.snapshot_reads):
            yield from filter(None, (*(seen.content or ()), seen.origin))
