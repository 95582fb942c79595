"""A token for a key range reaches no other entities."""

from __future__ import annotations

import pytest

from tests.probes.answers import AUTHENTICATION_FAILED, refusal_fault
from tests.probes.table.fixture import TableFixture
from tests.probes.table.operations import OPERATIONS, TABLE_KIND, TableOperation
from tests.probes.tokens import TABLE_LETTERS, table_token
from tests.server import ACCOUNT, KEY

GRANTED = [each for each in OPERATIONS if TABLE_KIND.grants(each, TABLE_LETTERS)]
OTHER_RANGES = (
    {"spk": "q", "epk": "q"},
    {"spk": "p", "srk": "x", "epk": "p", "erk": "z"},
    {"spk": "a", "epk": "o"},
)


@pytest.mark.parametrize("operation", GRANTED, ids=str)
def test_other_key_ranges(tables: TableFixture, operation: TableOperation) -> None:
    with tables.target_for(operation) as target, tables.unchanged():
        request = operation.request(target)
        for bounds in OTHER_RANGES:
            token = table_token(ACCOUNT, KEY, target.table, **bounds)
            answer = tables.ask(token.put_on(request))
            # To those who may only read, entities out of range look like missing ones.
            assert answer.status in {403, 404} or (
                operation.row == "query_entities"
                and answer.status == 200
                and b"Age" not in answer.body
            ), (bounds, answer)


@pytest.mark.parametrize("operation", GRANTED, ids=str)
def test_bounds_are_signed(tables: TableFixture, operation: TableOperation) -> None:
    with tables.target_for(operation) as target, tables.unchanged():
        bounded = table_token(ACCOUNT, KEY, target.table, spk="a", epk="b")
        for token in (
            bounded.lacking("epk"),
            bounded.lacking("spk").lacking("epk"),
            bounded.setting("epk", "z"),
        ):
            answer = tables.ask(token.put_on(operation.request(target)))
            assert not refusal_fault(answer, AUTHENTICATION_FAILED), token
