"""A table in memory, with at most one planted bug."""

from __future__ import annotations

import enum
import random
from typing import NamedTuple

import msgspec

from tests.history.events import Refused
from tests.history.table.events import (
    ANY,
    CONDITIONAL,
    MERGES,
    Change,
    Done,
    Entity,
    Request,
    Verb,
)
from tests.history.table.model import apply


class Bug(enum.Enum):
    CONDITION_IGNORED = "a change is made although its If-Match is not met"
    STALE_READ = "a read shows the version before"
    TORN_READ = "a read shows a property of the version before"
    ACKNOWLEDGED_LOST = "a kill undoes a change that was acknowledged"
    APPLIED_TWICE = "a change without an answer is made again after a kill"
    FAILED_BUT_DONE = "a change is made and answered with an error"
    DELETE_UNDONE = "a kill brings back a deleted entity"
    INSERT_REPLACES = "an insert replaces an existing entity"
    MERGE_REPLACES = "a merge removes the other properties"
    REPLACE_MERGES = "a replace keeps the other properties"
    HALF_GROUP = "only the first change of a group is made"
    GROUP_NOT_UNDONE = "the first change of a refused group stays"
    GROUP_VISIBLE_EARLY = "the first change of a group is visible before the others"
    ETAG_REUSED = "a change does not change the ETag"


class Row(NamedTuple):
    """An entity and its ETag."""

    entity: Entity
    etag: str


Partition = dict[str, Row]


class Store:
    """The partitions of a table."""

    def __init__(self, source: random.Random, bug: Bug | None) -> None:
        self._random = source
        self._bug = bug
        self._partitions: dict[str, Partition] = {}
        self._before: dict[str, Partition] = {}
        """Each partition before its last change."""
        self._deleted: list[tuple[str, str, Row]] = []
        self._stamp = 0

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        """Whether the bug strikes now."""
        return self._bug is bug and self._random.random() < chance

    def kill(self) -> None:
        if self.has(Bug.ACKNOWLEDGED_LOST) and self._before:
            name = self._random.choice(sorted(self._before))
            self._partitions[name] = self._before[name]
        if self.has(Bug.DELETE_UNDONE) and self._deleted:
            partition, name, row = self._deleted[-1]
            self._partitions[partition] = {**self._partitions[partition], name: row}

    def carry_out(self, request: Request, moment: int) -> Done | Refused:
        del moment
        if request.verb is Verb.GET:
            return self._read(request)
        outcome = self._change(request)
        busy = isinstance(outcome, Done) and self.has(Bug.FAILED_BUT_DONE, 0.05)
        return Refused("ServerBusy") if busy else outcome

    def show_part_of_group(self, request: Request) -> None:
        """Makes the first change of a group that will succeed."""
        old = self._partitions.get(request.partition, {})
        changes = self._changes(old, request)
        if len(changes) > 1 and not isinstance(apply(_state(old), changes), str):
            self._store(request.partition, old, changes[:1])

    def _read(self, request: Request) -> Done | Refused:
        now = self._partitions.get(request.partition, {}).get(request.row)
        before = self._before.get(request.partition, {}).get(request.row)
        if before is not None and self.has(Bug.STALE_READ, 0.1):
            now = before
        if now is None:
            return Refused("ResourceNotFound")
        entity = now.entity
        if before is not None and self.has(Bug.TORN_READ, 0.2):
            properties = (before.entity.properties[0], *entity.properties[1:])
            entity = Entity(entity.version, properties)
        return Done((now.etag,), entity)

    def _change(self, request: Request) -> Done | Refused:
        old = self._partitions.get(request.partition, {})
        changes = self._changes(old, request)
        after = apply(_state(old), changes)
        if isinstance(after, str):
            first = apply(_state(old), changes[:1])
            if len(changes) > 1 and not isinstance(first, str) and self.has(Bug.GROUP_NOT_UNDONE):
                self._store(request.partition, old, changes[:1])
            return Refused(after)
        applied = changes[:1] if self.has(Bug.HALF_GROUP, 0.3) else changes
        etags = self._store(request.partition, old, applied)
        etags_shown = (etags.get(change.row) or self._next_etag() for change in changes)
        return Done(
            tuple(
                "" if change.verb is Verb.DELETE else etag
                for change, etag in zip(changes, etags_shown, strict=True)
            )
        )

    def _changes(self, old: Partition, request: Request) -> tuple[Change, ...]:
        """The changes with versions in place of ETags, as bugs understand them."""
        return tuple(self._understood(old.get(each.row), each) for each in request.changes)

    def _understood(self, row: Row | None, change: Change) -> Change:
        verb, if_match = change.verb, change.if_match
        if verb in CONDITIONAL and if_match != ANY:
            matches = row is not None and row.etag == if_match
            matches = matches or self.has(Bug.CONDITION_IGNORED, 0.5)
            if_match = row.entity.version if row is not None and matches else "other"
        if verb is Verb.INSERT and self.has(Bug.INSERT_REPLACES, 0.5):
            verb = Verb.INSERT_OR_REPLACE
        if verb in MERGES and self.has(Bug.MERGE_REPLACES, 0.3):
            verb = Verb.REPLACE if verb is Verb.MERGE else Verb.INSERT_OR_REPLACE
        if verb is Verb.REPLACE and self.has(Bug.REPLACE_MERGES, 0.3):
            verb = Verb.MERGE
        return msgspec.structs.replace(change, verb=verb, if_match=if_match)

    def _store(self, name: str, old: Partition, changes: tuple[Change, ...]) -> dict[str, str]:
        after = apply(_state(old), changes)
        assert not isinstance(after, str)
        new: Partition = {}
        for row, entity in after:
            known = old.get(row)
            changed = known is None or known.entity != entity
            keeps = known is not None and self.has(Bug.ETAG_REUSED, 0.1)
            etag = known.etag if known and (keeps or not changed) else self._next_etag()
            new[row] = Row(entity, etag)
        self._deleted += [(name, row, old[row]) for row in old.keys() - new.keys()]
        self._before[name] = old
        self._partitions[name] = new
        return {row: each.etag for row, each in new.items()}

    def _next_etag(self) -> str:
        self._stamp += 1
        return f"W/{self._stamp}"


def _state(partition: Partition) -> tuple[tuple[str, Entity], ...]:
    return tuple(sorted((name, row.entity) for name, row in partition.items()))
