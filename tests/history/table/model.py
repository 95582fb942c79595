"""The sequential specification of a partition: outcomes of operations, and states after them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.history import linearizability
from tests.history.configurations import Part
from tests.history.events import NEVER, Refused, ServerKill, Unknown, latest_moment
from tests.history.table.events import (
    ANY,
    CONDITIONAL,
    MERGES,
    PROPERTIES,
    Change,
    Done,
    Entity,
    Operation,
    Verb,
)

NOTHING_CHANGED: Final = "ServerBusy"
"""An error that is right in every state."""
NO_VERSION: Final = "no version"
"""The version of an ETag that no entity ever had."""
UNSEEN: Final = "unseen"
"""The name of all tokens on which no outcome depends."""

State = tuple[tuple[str, Entity], ...]
"""The entities of a partition, by row."""


class SearchEntry(NamedTuple):
    """An operation as the search sees it, with versions in place of ETags."""

    operation: Operation
    part: Part
    began: int
    latest: int
    changes: tuple[Change, ...] = ()
    refusal: str | None = None
    alike: Hashable = None


def apply(state: State, changes: Sequence[Change]) -> State | str:
    """Returns the state after all changes, or the error code of the first that is refused."""
    entities = dict(state)
    for change in changes:
        entity = entities.get(change.row)
        if change.verb is Verb.INSERT and entity is not None:
            return "EntityAlreadyExists"
        if change.verb in CONDITIONAL:
            if entity is None:
                return "ResourceNotFound"
            if change.if_match not in (ANY, entity.version):
                return "UpdateConditionNotSatisfied"
        if change.verb is Verb.DELETE:
            del entities[change.row]
            continue
        old_properties = (
            entity.properties if entity and change.verb in MERGES else ("",) * len(PROPERTIES)
        )
        properties = tuple(
            change.token if name in change.properties else old
            for name, old in zip(PROPERTIES, old_properties, strict=True)
        )
        entities[change.row] = Entity(change.token, properties)
    return tuple(sorted(entities.items()))


class PartitionModel(linearizability.Model[State, SearchEntry]):
    """The sequential specification of a partition."""

    initial: State = ()

    def step(self, state: State, entry: SearchEntry, until: int) -> Iterator[State]:
        del until
        request, outcome = entry.operation.request, entry.operation.outcome
        if entry.refusal == NOTHING_CHANGED:
            yield state
        elif request.verb is Verb.GET:
            entity = dict(state).get(request.row)
            shown = outcome.entity if isinstance(outcome, Done) else None
            if entity == shown and (entity is not None or entry.refusal == "ResourceNotFound"):
                yield state
        else:
            after = apply(state, entry.changes)
            if isinstance(after, str):
                if after == entry.refusal:
                    yield state
            elif entry.refusal is None:
                yield after


def prepare(operations: Sequence[Operation], kills: tuple[ServerKill, ...]) -> list[SearchEntry]:
    """Returns the entries of the operations of one partition.

    A change with an unknown outcome whose token was read has been carried out before the first of
    these reads ended. Tokens on which no outcome depends get the same name, so that states that
    differ only in them are one. Unknown reads are left out, and so is what was sent while there
    was no server.
    """
    facts = _Facts(operations)
    entries = [facts.entry(operation, kills) for operation in operations]
    return [entry for entry in entries if entry is not None and entry.began <= entry.latest]


class _Facts:
    """Facts about the changes of a history, collected from its answers."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._versions: dict[tuple[str, str], str] = {}
        """Versions by row and ETag."""
        self._read_at: dict[str, int] = {}
        """When the first read of a token ended."""
        for operation in operations:
            self._learn(operation)
        preconditions = (
            self._versions.get((change.row, change.if_match), "")
            for operation in operations
            for change in operation.request.changes
        )
        self._named = {*preconditions, *self._read_at}
        """The tokens on which outcomes depend."""

    def _learn(self, operation: Operation) -> None:
        request, outcome = operation.request, operation.outcome
        if not isinstance(outcome, Done):
            return
        for change, etag in zip(request.changes, outcome.etags, strict=False):
            self._versions.setdefault((change.row, etag), change.token)
        if outcome.entity is not None:
            self._versions.setdefault((request.row, outcome.etags[0]), outcome.entity.version)
            for token in filter(None, (outcome.entity.version, *outcome.entity.properties)):
                self._read_at[token] = min(operation.ended, self._read_at.get(token, NEVER))

    def entry(self, operation: Operation, kills: tuple[ServerKill, ...]) -> SearchEntry | None:
        outcome, changes = operation.outcome, self._renamed(operation.request.changes)
        latest = latest_moment(operation, kills)
        entry = SearchEntry(operation, Part.PASSIVE, operation.began, latest, changes)
        if isinstance(outcome, Refused):
            return entry._replace(refusal=outcome.code)
        if isinstance(outcome, Done):
            return entry._replace(part=Part.ACTIVE) if changes else entry
        assert isinstance(outcome, Unknown)
        if not changes:
            return None
        read_at = min(self._read_at.get(each.token, NEVER) for each in operation.request.changes)
        if read_at < NEVER:
            latest = max(operation.began, min(latest, read_at))
            return entry._replace(part=Part.ACTIVE, latest=latest)
        return entry._replace(part=Part.DOUBTFUL, alike=changes)

    def _renamed(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        return tuple(
            Change(
                change.verb,
                change.row,
                change.token if change.token in self._named else UNSEEN,
                change.properties,
                self._version(change),
            )
            for change in changes
        )

    def _version(self, change: Change) -> str:
        if change.if_match in ("", ANY):
            return change.if_match
        return self._versions.get((change.row, change.if_match), NO_VERSION)
