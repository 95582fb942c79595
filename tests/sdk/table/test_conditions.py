"""ETags of entities: only the latest version can be changed conditionally."""

from __future__ import annotations

from typing import Any, Final

import pytest
from azure.core import MatchConditions
from azure.data.tables import TableClient, UpdateMode

from tests.sdk.harness import ResponseRecorder, refused

ADA: Final[dict[str, Any]] = {"PartitionKey": "p", "RowKey": "r"}
IF_SEEN: Final = MatchConditions.IfNotModified
each_mode = pytest.mark.parametrize("mode", [UpdateMode.MERGE, UpdateMode.REPLACE])


def test_every_response_has_the_etag(table: TableClient) -> None:
    etags = [table.create_entity(ADA)["etag"]]
    for mode in UpdateMode:
        etags.append(table.update_entity(ADA, mode=mode)["etag"])
        etags.append(table.upsert_entity(ADA, mode=mode)["etag"])
    assert len(set(etags)) == len(etags)
    shown = table.get_entity("p", "r")
    assert shown.metadata["etag"] == etags[-1]
    assert [entity.metadata["etag"] for entity in table.list_entities()] == [etags[-1]]


@each_mode
def test_only_the_latest_version_is_changed(table: TableClient, mode: UpdateMode) -> None:
    first = table.create_entity(ADA)["etag"]
    second = table.update_entity(ADA, mode=mode, etag=first, match_condition=IF_SEEN)["etag"]
    with refused(412, "UpdateConditionNotSatisfied"):
        table.update_entity({**ADA, "Lost": True}, mode=mode, etag=first, match_condition=IF_SEEN)
    with refused(412, "UpdateConditionNotSatisfied"):
        table.delete_entity(ADA, etag=first, match_condition=IF_SEEN)
    assert "Lost" not in table.get_entity("p", "r")
    table.delete_entity(ADA, etag=second, match_condition=IF_SEEN)
    with refused(404, "ResourceNotFound"):
        table.get_entity("p", "r")


@each_mode
def test_a_missing_entity(table: TableClient, mode: UpdateMode) -> None:
    with refused(404, "ResourceNotFound"):
        table.update_entity(ADA, mode=mode)
    answer = ResponseRecorder()
    table.delete_entity("p", "r", raw_response_hook=answer)
    assert answer.status == 404
    table.upsert_entity(ADA, mode=mode)
    with refused(409, "EntityAlreadyExists"):
        table.create_entity(ADA)


def test_a_recreated_entity_has_another_etag(table: TableClient) -> None:
    seen = table.create_entity(ADA)["etag"]
    table.delete_entity(ADA)
    table.create_entity(ADA)
    with refused(412, "UpdateConditionNotSatisfied"):
        table.delete_entity(ADA, etag=seen, match_condition=IF_SEEN)


@pytest.mark.parametrize(
    ("etag", "status", "code"),
    [
        ('W/"wrong"', 412, "UpdateConditionNotSatisfied"),
        ("W/\"datetime'nonsense'\"", 412, "UpdateConditionNotSatisfied"),
        ("nonsense", 400, "InvalidInput"),
        ('"strong"', 400, "InvalidInput"),
    ],
)
def test_unknown_etags(table: TableClient, etag: str, status: int, code: str) -> None:
    table.create_entity(ADA)
    with refused(status, code):
        table.update_entity(ADA, etag=etag, match_condition=IF_SEEN)
    with refused(status, code):
        table.delete_entity(ADA, etag=etag, match_condition=IF_SEEN)
    assert len(list(table.list_entities())) == 1
