"""Random sequences of changes, groups and queries, compared with a dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.model.tables import ChangeKind, Edm, Entity, EntityChange, Keys, Properties, Value
from etagere.operations.table.entities import INDEX
from etagere.operations.table.queries import Query
from tests.operations.table.fixture import PEOPLE, TableFixture, filter_of, table_property_test

PARTITIONS: Final = ("", "p", "q")
ROWS: Final = ("", "r", "r ", "é", "\U0001f984")
SEEN: Final = ("none", "last", "stale")
UPSERTS: Final = (ChangeKind.INSERT_OR_MERGE, ChangeKind.INSERT_OR_REPLACE)
FILTERS: Final = (
    "",
    "PartitionKey eq 'p'",
    "PartitionKey ge 'p' and RowKey ge 'r '",
    "A eq 1",
    "not (A eq 1)",
    "B eq 'x' or PartitionKey eq ''",
    "PartitionKey eq 'p' and RowKey eq 'r'",
)

Cells = dict[str, tuple[str, Value]]
"""The type and value of each property, by name."""


@dataclass(frozen=True)
class RandomChange:
    """One change of a group, in the partition of the group."""

    change: ChangeKind
    row: str
    cells: tuple[tuple[str, str, Value], ...]
    seen: str


@dataclass(frozen=True)
class Group:
    partition: str
    wanted: tuple[RandomChange, ...]


@dataclass(frozen=True)
class Look:
    filter: str
    limit: int


@dataclass(frozen=True)
class Recreate:
    pass


@dataclass(frozen=True)
class Purge:
    rows_max: int


Step = Group | Look | Recreate | Purge

_CELLS: Final = st.sampled_from(
    (
        (),
        (("A", Edm.INT32.value, 1),),
        (("A", Edm.STRING.value, "1"), ("B", Edm.STRING.value, "x")),
        (("B", Edm.BINARY.value, b"x"), ("A", Edm.INT64.value, 1)),
        (("C", Edm.DOUBLE.value, 0.5),),
    )
)
_WANTED: Final = st.builds(
    RandomChange, st.sampled_from(ChangeKind), st.sampled_from(ROWS), _CELLS, st.sampled_from(SEEN)
)
_WISHES: Final = st.lists(_WANTED, min_size=1, max_size=4, unique_by=lambda wanted: wanted.row).map(
    tuple
)
_GROUP: Final = st.builds(Group, st.sampled_from(PARTITIONS), _WISHES)
STEPS: Final = st.lists(
    st.one_of(
        _GROUP,
        _GROUP,
        _GROUP,
        st.builds(Look, st.sampled_from(FILTERS), st.integers(1, 20)),
        st.builds(Recreate),
        st.builds(Purge, st.integers(1, 3)),
    ),
    min_size=1,
    max_size=20,
)


class Model:
    """The expected entities and the expected result of a group."""

    def __init__(self) -> None:
        self.entities: dict[Keys, tuple[int, Cells]] = {}
        self.last_seen: dict[Keys, list[int]] = {}

    def if_match(self, wanted: RandomChange, keys: Keys) -> int | None:
        seen = self.last_seen.get(keys)
        if wanted.seen == "none" or not seen or wanted.change in (ChangeKind.INSERT, *UPSERTS):
            return None
        return seen[-1] if wanted.seen == "last" else seen[0] - 1

    def outcome(self, wanted: RandomChange, keys: Keys, if_match: int | None) -> Cells | str | None:
        """Returns the stored properties, an error code, or None."""
        there = self.entities.get(keys)
        if wanted.change is ChangeKind.INSERT and there is not None:
            return "EntityAlreadyExists"
        if there is None and wanted.change in (
            ChangeKind.REPLACE,
            ChangeKind.MERGE,
            ChangeKind.DELETE,
        ):
            return "ResourceNotFound"
        if there is not None and if_match is not None and if_match != there[0]:
            return "UpdateConditionNotSatisfied"
        if wanted.change is ChangeKind.DELETE:
            return None
        cells: Cells = {name: (letter, value) for name, letter, value in wanted.cells}
        merges = (
            wanted.change in (ChangeKind.MERGE, ChangeKind.INSERT_OR_MERGE) and there is not None
        )
        return {**there[1], **cells} if merges and there is not None else cells


class Comparison:
    """Runs each step on the table and on the model, and compares the results."""

    def __init__(self, table: TableFixture) -> None:
        self._table = table
        self._model = Model()

    async def step(self, step: Step) -> None:
        match step:
            case Group():
                await self._group(step)
            case Look():
                await self._look(step)
            case Recreate():
                await self._table.delete_table()
                await self._table.create()
                self._model.entities.clear()
            case Purge():
                await self._table.purge_step(step.rows_max)

    async def _group(self, group: Group) -> None:
        model, changes, expected = self._model, list[EntityChange](), dict[Keys, Cells | None]()
        refused: tuple[str, int] | None = None
        for index, wanted in enumerate(group.wanted):
            keys = Keys(group.partition, wanted.row)
            if_match = model.if_match(wanted, keys)
            changes.append(EntityChange(wanted.change, keys, _properties(wanted), if_match))
            outcome = model.outcome(wanted, keys, if_match)
            if isinstance(outcome, str):
                refused = refused or (outcome, index)
            else:
                expected[keys] = outcome
        try:
            stamps = await self._table.change(*changes)
        except Refused as error:
            assert (error.refusal.code, error.refusal.facts[INDEX]) == refused
            return
        assert refused is None
        for (keys, cells), stamp in zip(expected.items(), stamps, strict=True):
            if cells is None:
                assert stamp == 0
                del model.entities[keys]
                continue
            seen = model.last_seen.setdefault(keys, [])
            assert all(stamp > earlier for earlier in seen)
            seen.append(stamp)
            model.entities[keys] = (stamp, cells)

    async def _look(self, look: Look) -> None:
        chosen = filter_of(look.filter)
        expected = {k: e for k, e in self._expected_entities().items() if chosen.matches(k, e)}
        query, found = Query(PEOPLE, look.limit, chosen), list[tuple[Keys, Entity]]()
        while True:
            page = await self._table.query(query)
            found += page.entities
            if page.following is None:
                break
            query = query._replace(start=page.following)
        assert found == list(expected.items())

    def _expected_entities(self) -> dict[Keys, Entity]:
        return {
            keys: Entity(
                stamp,
                Properties(
                    tuple(cells),
                    "".join(letter for letter, _ in cells.values()),
                    tuple(value for _, value in cells.values()),
                ),
            )
            for keys, (stamp, cells) in sorted(self._model.entities.items())
        }

    async def compare(self) -> None:
        result = self._expected_entities()
        assert await self._table.contents() == result
        for keys, entity in result.items():
            assert await self._table.get(keys) == entity


def _properties(wanted: RandomChange) -> Properties:
    if wanted.change is ChangeKind.DELETE:
        return Properties()
    names = tuple(name for name, _, _ in wanted.cells)
    types = "".join(letter for _, letter, _ in wanted.cells)
    return Properties(names, types, tuple(value for _, _, value in wanted.cells))


@table_property_test(STEPS, count=100)
async def test_random_sequences_match_the_model(table: TableFixture, steps: list[Step]) -> None:
    run = Comparison(table)
    for step in steps:
        await run.step(step)
        await run.compare()
    await table.purge()
    await run.compare()
    assert await table.orphaned_records() == 0
