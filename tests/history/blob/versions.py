"""A check that ETags name versions, and that ETags and dates never go backwards."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tests.history.blob.events import MAKES_VERSION, READS, Done, Operation, Seen, number_of
from tests.history.events import describe

Sight = tuple[Operation, Seen, str]
"""An answer, what it shows, and the version that it shows, if known."""


def confused_versions(operations: Sequence[Operation]) -> str | None:
    """Returns what is wrong with the ETags or dates in the operations of one blob."""
    sights = [
        (operation, operation.outcome.seen, _version(operation, operation.outcome.seen))
        for operation in operations
        if isinstance(operation.outcome, Done) and operation.outcome.seen.etag
    ]
    of_today = [sight for sight in sights if not sight[0].request.snapshot]
    return _two_for_one(sights) or _backwards(of_today)


def _version(operation: Operation, seen: Seen) -> str:
    makes = operation.request.verb in MAKES_VERSION
    return operation.request.token if makes else seen.version


def _two_for_one(sights: Sequence[Sight]) -> str | None:
    """An ETag has one version, one content and one date, and a version has one ETag."""
    first: dict[tuple[str, str, str], tuple[object, Operation]] = {}
    for operation, seen, version in sights:
        facts: list[tuple[tuple[str, str, str], object]] = [
            (("ETag", seen.etag, "Last-Modified"), seen.modified)
        ]
        if version:
            facts.append((("ETag", seen.etag, "version"), version))
            facts.append((("version", version, "ETag"), seen.etag))
        if operation.request.verb in READS or operation.request.snapshot:
            for what in ("content", "length", "blocks", "sealed", "number"):
                value = getattr(seen, what)
                if value is not None:
                    facts.append((("ETag", seen.etag, what), value))
        snapshot = operation.request.snapshot or seen.snapshot
        if snapshot:
            facts.append((("snapshot", snapshot, "ETag"), seen.etag))
        for fact, value in facts:
            known, source = first.setdefault(fact, (value, operation))
            if known != value:
                what = f"the {fact[0]} {fact[1]} has two of this: {fact[2]}"
                return _tell(what, source, operation)
    return None


def _backwards(sights: Sequence[Sight]) -> str | None:
    """Whoever begins after an answer sees what it showed, or something newer."""
    ended: list[tuple[int, int]] = []
    newest = newest_date = -1
    for number, (operation, seen, _) in enumerate(sights):
        while ended and ended[0][0] < operation.began:
            done = heapq.heappop(ended)[1]
            newest = max(newest, done, key=lambda each: _order(sights, each))
            newest_date = max(newest_date, done, key=lambda each: _date(sights, each))
        if _order(sights, newest) > _order(sights, number):
            return _tell("the ETag went backwards", sights[newest][0], operation)
        if _date(sights, newest_date) > seen.modified:
            return _tell("Last-Modified went backwards", sights[newest_date][0], operation)
        heapq.heappush(ended, (operation.ended, number))
    return None


def _order(sights: Sequence[Sight], number: int) -> int:
    return -1 if number < 0 else number_of(sights[number][1].etag)


def _date(sights: Sequence[Sight], number: int) -> int:
    return -1 if number < 0 else sights[number][1].modified


def _tell(what: str, one: Operation, other: Operation) -> str:
    return "\n".join((f"{what}:", *(describe(each, one.began) for each in (one, other))))
