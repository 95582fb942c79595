"""Responses to the changes of an entity group."""

from __future__ import annotations

import re

from etagere.model.tables import ChangeKind, EntityChange, Keys, Properties
from etagere.protocol.codecs.entity_answers import Level, Origin, parse_level
from etagere.protocol.codecs.multipart import PartResponse, format_part
from etagere.protocol.table.changes import RequestedChange, answer
from etagere.protocol.table.groups import Answers, Part

ORIGIN = Origin("http://127.0.0.1:10002/devstoreaccount1", "devstoreaccount1")


def _part(table: str, row: str, change: ChangeKind, prefer: str) -> Part:
    level = parse_level("application/json;odata=nometadata", "")
    assert isinstance(level, Level)
    asked = EntityChange(change, Keys("it's", row), Properties(("A",), "s", ("a",)))
    return Part(table, RequestedChange(asked, level, prefer))


def test_each_change_gets_the_response_of_a_single_request() -> None:
    """Except for the OData version header."""
    rows = [
        ("People", "1", ChangeKind.INSERT, "return-no-content", 5),
        ("People", "2", ChangeKind.INSERT, "return-no-content", 5),
        ("People", "ä b", ChangeKind.INSERT, "return-no-content", 5),
        ("people", "3", ChangeKind.INSERT, "return-no-content", 5),
        ("People", "4", ChangeKind.INSERT, "return-no-content", 6),
        ("People", "5", ChangeKind.INSERT, "return-content", 6),
        ("People", "6", ChangeKind.DELETE, "", 0),
        ("People", "7", ChangeKind.INSERT_OR_REPLACE, "return-no-content", 6),
        ("People", "8", ChangeKind.INSERT, "return-no-content", 6),
    ]
    answers = Answers(ORIGIN)
    expected = []
    for table, row, change, prefer, stamp in rows:
        part = _part(table, row, change, prefer)
        answers.add(part, stamp)
        alone = answer(part.asked, stamp, table, ORIGIN)
        assert isinstance(alone.body, bytes)
        version = b"3.0;" if change is ChangeKind.INSERT else b"1.0;"
        headers = [*alone.headers, (b"DataServiceVersion", version)]
        expected.append(format_part(PartResponse(alone.status, headers, alone.body)))
    body = answers.response().body
    assert isinstance(body, bytes)
    inner = re.split(rb"--changesetresponse_[0-9a-f-]{36}(?:--)?\r\n", body)[1:-1]
    assert [part.removesuffix(b"\r\n") for part in inner] == expected
