"""The statement that validates cached records of several collections in one snapshot.

It is one statement, because all parts of one statement see the same snapshot, also outside a
transaction. Its first row is the fence; the others are the records whose version differs from the
cached one, as

    collection  the place of the collection in the statement; -1 in the row of the fence
    ordinal     the place of the key among those of its collection, from 1; the database's clock
    version     0: there is no such record; the renewals of the fence
    value       NULL: there is no such record; the time of the fence
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import pq

from etagere.engine.postgres import fence
from etagere.engine.postgres.binary import bigint_array, bytea_array, to_int
from etagere.engine.postgres.record_cache import ABSENT_VERSION, CachedRecord
from etagere.engine.records import Collection, RecordKey

Collections = tuple[Collection[Any, Any], ...]

_FENCE_ROW: Final = 0
_FIRST_RECORD: Final = 1


def sql(collections: Collections, clock: str) -> str:
    """Returns the statement for some collections. Its parameters are keys and versions of each.
    `clock` is the SQL expression of the database's clock."""
    parts = [
        "SELECT -1::int AS collection, f.clock AS ordinal, f.renewals AS version, f.time AS value,"  # noqa: S608
        " f.at AS at, f.wal_timeline AS wal_timeline"
        f" FROM ({fence.select_sql(clock)}) AS f (clock, at, renewals, wal_timeline, time)"
    ]
    parts += [
        f"SELECT {place}, k.ordinal, coalesce(t.version, {ABSENT_VERSION}), t.value, NULL, NULL"  # noqa: S608
        f" FROM unnest(${2 * place + 1}::bytea[], ${2 * place + 2}::bigint[])"
        " WITH ORDINALITY AS k (key, version, ordinal)"
        f" LEFT JOIN {collection.name} AS t ON t.key = k.key AND t.digest = ''"
        f" WHERE coalesce(t.version, {ABSENT_VERSION}) <> k.version"
        for place, collection in enumerate(collections)
    ]
    return " UNION ALL ".join(parts)


class KeyGroups:
    """The keys to validate, grouped by collection."""

    __slots__ = ("_groups",)

    def __init__(self, entries: Mapping[RecordKey, CachedRecord]) -> None:
        groups: dict[Collection[Any, Any], list[tuple[RecordKey, int]]] = {}
        for record_key, entry in entries.items():
            group = groups.get(record_key[0])
            if group is None:
                group = groups[record_key[0]] = []
            group.append((record_key, entry.version))
        self._groups = groups

    @property
    def collections(self) -> frozenset[Collection[Any, Any]]:
        return frozenset(self._groups)

    def parameters(self, collections: Collections) -> list[bytes]:
        """Returns the parameters of the statement for these collections, at least its own."""
        parameters: list[bytes] = []
        for collection in collections:
            group = self._groups.get(collection, ())
            parameters.append(bytea_array([record_key[1] for record_key, _ in group]))
            parameters.append(bigint_array([version for _, version in group]))
        return parameters

    def record_key(self, collection: Collection[Any, Any], ordinal: int) -> RecordKey:
        return self._groups[collection][ordinal - 1][0]


class ChangedRow(NamedTuple):
    """A record that is not as cached."""

    record_key: RecordKey
    version: int
    value: bytes | None


def fence_reading(result: pq.abc.PGresult, known: fence.Fence | None) -> fence.Reading:
    """Returns the fence in a result. `known` is the last one that was read from this server."""
    value = result.get_value
    clock, renewals = to_int(value(_FENCE_ROW, 1)), to_int(value(_FENCE_ROW, 2))
    at = to_int(value(_FENCE_ROW, 4))
    if known is not None and (known.renewals, known.at) == (renewals, at):
        return fence.Reading(clock, known)
    wal_timeline = (value(_FENCE_ROW, 5) or b"").decode()
    return fence.decode_reading(clock, at, renewals, wal_timeline, value(_FENCE_ROW, 3) or b"")


def changed_rows(
    result: pq.abc.PGresult, groups: KeyGroups, collections: Sequence[Collection[Any, Any]]
) -> Iterator[ChangedRow]:
    """Returns the records in a result."""
    value = result.get_value
    for row in range(_FIRST_RECORD, result.ntuples):
        collection = collections[to_int(value(row, 0))]
        record_key = groups.record_key(collection, to_int(value(row, 1)))
        yield ChangedRow(record_key, to_int(value(row, 2)), value(row, 3))
