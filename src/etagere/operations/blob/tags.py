"""Operations on blob tags, and the index to find blobs by tags.

One function updates the index in the transaction that changes the tags. It contains each tag twice:
by value, and by blob. Snapshots are not indexed.

A search always visits blobs in the order of container and name, so that its pages are consistent
although blobs change between them: a blob that matches all the time is listed exactly once. It uses
the tag with the fewest blobs. Blobs with one value are in this order already; those with a range of
values are sorted if they are few. If they are many, all blobs with the tag are visited, a bounded
number per page. The index only yields candidates; the tags of the blobs decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from etagere.engine.interface import ReadTxn, Steps, WriteTxn, operation
from etagere.engine.records import Collection, Span
from etagere.model.blobs import BlobResult, GetBlob, Tags
from etagere.model.containers import ContainerName
from etagere.model.tags import SetBlobTags, TaggedBlob, TaggedContainer, TagValue
from etagere.operations.blob import preconditions
from etagere.operations.blob.collections import (
    BLOBS,
    CONTAINERS,
    TAG_VALUES,
    TAGGED_BLOBS,
    TAGGED_CONTAINERS,
)
from etagere.operations.blob.containers import find
from etagere.operations.blob.lookup import find_blob, find_ref_for_change
from etagere.operations.pages import FilledPage, FillPage
from etagere.rules.tag_expressions import Search, ValueInterval

_TAGGED: Final = TaggedBlob()

# Set and get


@operation
def set_blob_tags(txn: WriteTxn, command: SetBlobTags) -> None:
    """Sets tags, which changes neither the ETag nor the date."""
    found = find_ref_for_change(txn, command.ref)
    blob = found.blob
    preconditions.check_change(blob, command.conditions, command.lease_id, txn.steady_now)
    found.put(txn, msgspec.structs.replace(blob, tags=command.tags))
    if command.ref.is_current:
        index(txn, found.key, command.blob.container, blob.tags, command.tags)


def get_blob_tags(txn: ReadTxn, command: GetBlob) -> BlobResult:
    """Returns a blob for its tags. Conditions that are not met always fail with 412."""
    blob = find_blob(txn, command.ref)
    preconditions.check_tag_read(blob, command.conditions, command.lease_id, txn.steady_now)
    return BlobResult(txn.steady_now, blob)


# The index


def index(
    txn: WriteTxn, key: tuple[bytes, str], container: ContainerName, old: Tags, new: Tags
) -> None:
    """Updates the index for a guarded blob whose tags change, or that is created or deleted."""
    if old == new:
        return
    container_id, blob = key
    if not old and txn.get(TAGGED_CONTAINERS, (container_id,)) is None:
        record = TaggedContainer(container.account, container.name)
        txn.put(TAGGED_CONTAINERS, (container_id,), record)
    place = container.name, container_id, blob
    names = {name for name, _ in new}
    for name, value in old:
        if (name, value) not in new:
            txn.delete(TAGGED_BLOBS, (container.account, name, value, *place))
        if name not in names:
            txn.delete(TAG_VALUES, (container.account, name, *place))
    for name, value in new:
        if (name, value) not in old:
            txn.put(TAGGED_BLOBS, (container.account, name, value, *place), _TAGGED)
            txn.put(TAG_VALUES, (container.account, name, *place), TagValue(value))


def forget(txn: WriteTxn, key: tuple[bytes, str], tags: Tags) -> int:
    """Removes a blob of a deleted container from the index; returns the number of rows."""
    record = txn.get(TAGGED_CONTAINERS, (key[0],)) if tags else None
    if record is None:
        return 0
    index(txn, key, ContainerName(record.account, record.name), tags, ())
    return 2 * len(tags)


# Search

_PROBES: Final = (64, 512, 4_096)
_STEPS: Final = (64, 1_024)
_VISITED_MAX: Final = 10_000


class BlobPlace(NamedTuple):
    """The place of a blob, in the order of a search."""

    container: str
    container_id: bytes
    blob: str


class FindBlobs(NamedTuple):
    """A search. It is not sent to another process, so it may contain compiled conditions."""

    account: str
    search: Search
    limit: int
    container: ContainerName | None = None
    """Search only this container."""
    start: BlobPlace | None = None
    """Where to begin."""


TaggedBlobRow = tuple[BlobPlace, Tags]
"""A row of a search: the place of a blob, and those of its tags that the search names."""

_ROWS_AT_ONCE: Final = 64


def find_blobs(
    txn: ReadTxn, command: FillPage[FindBlobs, TaggedBlobRow]
) -> Steps[FilledPage[TaggedBlobRow]]:
    """Fills a page from one snapshot. It ends when it is full, when enough blobs were visited, or
    when the snapshot is overdue."""
    asked = command.asked
    within = _container(txn, asked)
    page = command.new_page(txn.steady_now)
    if within is _NOWHERE or asked.search.finds_nothing:
        return FilledPage(page, None)
    search = _TagSearch(txn, asked, within)
    asked_for = dict(asked.search.wanted)
    count = 0
    rows: list[TaggedBlobRow] = []
    following: TaggedBlobRow | None = None
    for looked_at, place in enumerate(search.places()):
        if looked_at and not looked_at % _ROWS_AT_ONCE:
            yield
            if txn.is_overdue:
                following = place, ()
                break
        if count == asked.limit or looked_at == _VISITED_MAX:
            following = place, ()
            break
        if not search.is_alive(place):
            continue
        blob = txn.get(BLOBS, (place.container_id, place.blob))
        if blob is None or not asked.search.matches(dict(blob.tags)):
            continue
        shown = tuple((name, value) for name, value in blob.tags if name in asked_for)
        rows.append((place, shown))
        count += 1
        if len(rows) == _ROWS_AT_ONCE:
            added = page.add(rows)
            if added < len(rows):
                return FilledPage(page, rows[added])
            rows = []
    added = page.add(rows)
    return FilledPage(page, rows[added] if added < len(rows) else following)


_Within = tuple[str, bytes] | tuple[()]
"""The name and id of the container to search; empty: all containers."""
_NOWHERE: Final[tuple[str, bytes]] = ("", b"")


def _container(txn: ReadTxn, command: FindBlobs) -> _Within:
    wanted = command.search.containers
    if command.container is not None:
        container = find(txn, command.container)
        name = command.container.name
        return (name, container.id) if wanted <= {name} else _NOWHERE
    if not wanted:
        return ()
    (name,) = sorted(wanted)[:1]
    named = txn.get(CONTAINERS, (command.account, name))
    return (name, named.id) if named is not None else _NOWHERE


class _TagSearch:
    """Yields the places of candidates."""

    def __init__(self, txn: ReadTxn, command: FindBlobs, within: _Within) -> None:
        self._txn = txn
        self._account = command.account
        self._wanted = command.search.wanted
        self._within = within
        self._start = command.start
        self._alive: dict[str, bytes | None] = {}

    def is_alive(self, place: BlobPlace) -> bool:
        """Returns whether the container of a place still exists. Rows of a deleted one stay until
        they are purged, and its name may be in use again."""
        name = place.container
        if name not in self._alive:
            container = self._txn.get(CONTAINERS, (self._account, name))
            self._alive[name] = container.id if container is not None else None
        return self._alive[name] == place.container_id

    def places(self) -> Iterable[BlobPlace]:
        if len(self._wanted) == 1 and self._wanted[0][1].is_point:
            return self._with_value(*self._wanted[0])
        for size in _PROBES:
            probed = [self._probe(name, values, size) for name, values in self._wanted]
            short = [places for places in probed if places is not None]
            if short:
                return min(short, key=len)
        for name, values in self._wanted:
            if values.is_point:
                return self._with_value(name, values)
        return self._with_tag(self._wanted[0][0])

    def _probe(self, name: str, values: ValueInterval, size: int) -> list[BlobPlace] | None:
        """Returns all places where a tag has one of these values, in order; None if there are more
        than `size`."""
        span = self._span_of(name, values)
        if values.is_point:
            span = self._from_start(TAGGED_BLOBS, span, (self._account, name, values.first))
        rows = self._txn.scan(TAGGED_BLOBS, span, size)
        if len(rows) == size:
            return None
        places = [BlobPlace(*key[3:]) for key, _ in rows]
        if values.is_point:
            return places
        start, within = self._start, self._within
        return sorted(
            place
            for place in places
            if (start is None or place >= start) and (not within or place[:2] == within)
        )

    def _span_of(self, name: str, values: ValueInterval) -> Span:
        if values.is_point:
            return TAGGED_BLOBS.under((self._account, name, values.first, *self._within))
        first = TAGGED_BLOBS.under((self._account, name, values.first))
        start = first.start if values.with_first else first.stop
        if values.last is None:
            return Span(start, TAGGED_BLOBS.under((self._account, name)).stop)
        last = TAGGED_BLOBS.under((self._account, name, values.last))
        return Span(start, last.stop if values.with_last else last.start)

    def _with_value(self, name: str, values: ValueInterval) -> Iterator[BlobPlace]:
        prefix = self._account, name, values.first
        return self._walk(TAGGED_BLOBS, prefix)

    def _with_tag(self, name: str) -> Iterator[BlobPlace]:
        return self._walk(TAG_VALUES, (self._account, name))

    def _walk(self, rows_of: Collection[Any, Any], prefix: tuple[str, ...]) -> Iterator[BlobPlace]:
        """Yields the places under a prefix, in order; only one of each deleted container, so that
        its remaining rows cost little."""
        span = self._from_start(rows_of, rows_of.under((*prefix, *self._within)), prefix)
        step, step_max = _STEPS
        while rows := self._txn.scan(rows_of, span, step):
            for key, _ in rows:
                place = BlobPlace(*key[len(prefix) :])
                yield place
                if not self.is_alive(place):
                    span = Span(rows_of.under(key[:-1]).stop, span.stop)
                    break
            else:
                if len(rows) < step:
                    return
                span = rows_of.after(span, rows[-1][0])
                step = min(step_max, step * 4)

    def _from_start(
        self, rows_of: Collection[Any, Any], span: Span, prefix: tuple[str, ...]
    ) -> Span:
        if self._start is None:
            return span
        return rows_of.starting(span, (*prefix, *self._start))
