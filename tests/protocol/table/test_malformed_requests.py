"""Random and malformed requests: documented errors, and never an internal error."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etagere.auth.principal import EntityRange
from tests.protocol.table.batches import BATCH_TYPE, change_set, part, single_query
from tests.protocol.table.fixture import TableServiceFixture, sas_caller
from tests.server import ROOT

CODES: Final[dict[str, int]] = json.loads((ROOT / "tests/data/error_codes.json").read_text("utf-8"))
ENTITY: Final = "People(PartitionKey='p',RowKey='r')"
NOT_TEXT: Final = ("%FF", "a%C0%AFb", "%ED%A0%80", "%F4%90%80%80")
CONTROL: Final = ("%00", "%0A", "a%0D%0Ax-injected%3A%201", "%7F", "%C2%85")
ODD: Final = (*NOT_TEXT, *CONTROL, "%EF%BF%BE", "%F0%9F%A6%84", "'", "''", "(", "%25", "a" * 9_000)

SHARED_OFFICE: Final = settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def require_answer(
    tables: TableServiceFixture, method: str, target: str, body: Any = b"", **headers: str
) -> None:
    """Checks that the response is documented: never an internal error."""
    answer = tables.ask(method, target, body, **headers)
    assert answer.status < 500 or answer.code == "NotImplemented", answer
    assert "x-injected" not in answer.headers
    if answer.status >= 400:
        assert CODES.get(answer.code) == answer.status, answer
        form = b"<m:code>%b</m:code>" if answer.body.startswith(b"<") else b'"code":"%b"'
        assert form % answer.code.encode() in answer.body


PARAMETERS: Final = (
    "$filter", "$select", "$top", "$format", "NextPartitionKey", "NextRowKey", "NextTableName",
    "comp", "timeout", "$orderby", "$skip",
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_parameters(tables: TableServiceFixture, odd: str) -> None:
    tables.insert("p", "r", Age=36)
    for name in (*PARAMETERS, odd):
        for target in ("People()", ENTITY, "Tables", ""):
            require_answer(tables, "GET", f"{target}?{name}={odd}")
            # The same inside a batch.
            query = single_query(part("GET", f"/{target}?{name}={odd}"))
            require_answer(tables, "POST", "$batch", query, Content_Type=BATCH_TYPE)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "text",
    [
        "PartitionKey%20eq%20'{}'",
        "RowKey%20ge%20'{}'",
        "Name%20eq%20'{}'",
        "Age%20eq%20{}",
        "{}%20eq%205",
        "PartitionKey%20eq%20'p'%20and%20RowKey%20lt%20'{}'",
        "TableName%20eq%20'{}'",
        "Born%20eq%20datetime'{}'",
    ],
)
def test_filters(tables: TableServiceFixture, text: str, odd: str) -> None:
    tables.insert("p", "r", Age=36)
    require_answer(tables, "GET", f"People()?$filter={text.format(odd)}")
    require_answer(tables, "GET", f"Tables?$filter={text.format(odd)}")


@pytest.mark.parametrize("odd", ODD)
def test_addresses(tables: TableServiceFixture, odd: str) -> None:
    for target in (
        odd,
        f"{odd}()",
        f"Tables('{odd}')",
        f"People(PartitionKey='{odd}',RowKey='r')",
        f"People(PartitionKey='p',RowKey='{odd}')",
        f"People({odd})",
    ):
        for method in ("GET", "PUT", "POST", "DELETE", "MERGE"):
            require_answer(tables, method, target, b"{}", If_Match="*")
            require_answer(tables, method, f"{target}?comp=acl", b"")
        require_answer(tables, "POST", "$batch", change_set([part("PUT", f"/{target}", {})]),
                       Content_Type=BATCH_TYPE)  # fmt: skip
        require_answer(tables, "POST", "$batch", single_query(part("GET", f"/{target}")),
                       Content_Type=BATCH_TYPE)  # fmt: skip


def test_bounds_longer_than_any_key(tables: TableServiceFixture) -> None:
    """In a filter, a continuation token and a SAS token: all the same, nothing is found."""
    tables.insert("a", "a")
    tables.insert("b", "b")
    for long in ("a" * 9_000, "\U0001f984" * 3_000, "é" * 1_025):
        encoded = base64.b64encode(long.encode()).decode().replace("=", "-")
        token = f"1!{len(encoded)}!{encoded}"
        after = ["b"] if long < "b" else []
        for query, expected in (
            (f"$filter=PartitionKey%20eq%20'{quote(long)}'", []),
            (f"$filter=PartitionKey%20ge%20'{quote(long)}'", after),
            (f"$filter=PartitionKey%20le%20'{quote(long)}'", ["a", "b"][: 2 - len(after)]),
            (
                f"$filter=PartitionKey%20eq%20'b'%20and%20RowKey%20lt%20'{quote(long)}'",
                [] if after else ["b"],
            ),
            (f"NextPartitionKey={token}", after),
            (f"NextPartitionKey={token}&NextRowKey={token}", after),
        ):
            answer = tables.ask("GET", f"People()?{query}")
            assert (answer.status, answer.code) == (200, ""), query[:40]
            assert answer.rows == expected, query[:40]
        assert tables.ask("GET", f"Tables?NextTableName={token}").status == 200
        for key_limits in (
            EntityRange(long),
            EntityRange("a", long),
            EntityRange(None, None, long, long),
        ):
            with tables.as_caller(sas_caller("r", keys=key_limits)):
                assert tables.ask("GET", "People()").status == 200


@pytest.mark.parametrize("unit", ["a", "é", "\u20ac", "\U0001f984"])
def test_bounds_just_longer_than_the_longest_key(tables: TableServiceFixture, unit: str) -> None:
    """Wherever they are truncated, the longest keys are on the right side."""
    longest = unit * (1_024 // len(unit.encode()))
    tables.insert(longest, longest)
    for bound in (longest + unit, longest + unit * 1_000, f"{longest}~"):
        for name in ("PartitionKey", "RowKey"):
            other = "RowKey" if name == "PartitionKey" else "PartitionKey"
            for operator, found in (
                ("lt", 1),
                ("le", 1),
                ("ne", 1),
                ("gt", 0),
                ("ge", 0),
                ("eq", 0),
            ):
                text = f"{name} {operator} '{bound}' and {other} eq '{longest}'"
                assert len(tables.rows(f"$filter={quote(text)}")) == found, (name, operator)
        with tables.as_caller(sas_caller("r", keys=EntityRange(None, None, bound))):
            assert tables.rows() == [longest]
        with tables.as_caller(sas_caller("r", keys=EntityRange(bound))):
            assert tables.rows() == []


HEADERS: Final = (
    "", "\udcff", "é", "\U0001f984", "\t", "*", ",", ";=;", '"', "W/", 'W/"', "W/\"datetime''\"",
    "W/\"datetime'9999-99-99T99%3A99%3A99.9999999Z'\"", "a" * 9_000, "application/json;odata",
)  # fmt: skip


@pytest.mark.parametrize("value", HEADERS)
@pytest.mark.parametrize(
    "name",
    ["Accept", "If_Match", "Prefer", "Content_Type", "X_HTTP_Method", "Host", "DataServiceVersion",
     "MaxDataServiceVersion", "x_ms_version", "x_ms_client_request_id", "Origin"],
)  # fmt: skip
def test_headers(tables: TableServiceFixture, name: str, value: str) -> None:
    tables.insert("p", "r")
    headers = {name: value}
    require_answer(tables, "GET", "People()", **headers)
    require_answer(
        tables, "GET", f"{ENTITY}?$format=application/json;odata=fullmetadata", **headers
    )
    require_answer(tables, "GET", "Tables", **headers)
    require_answer(tables, "POST", "Tables", {"TableName": "Another"}, **headers)
    require_answer(tables, "POST", "People", {"PartitionKey": "p", "RowKey": "s"}, **headers)
    require_answer(tables, "MERGE", ENTITY, {}, **headers)
    require_answer(tables, "DELETE", ENTITY, **headers)
    inner = {name: value} if value.isprintable() and value.isascii() else {}
    body = change_set([part("PUT", f"/{ENTITY}", {}, **inner)])
    require_answer(tables, "POST", "$batch", body, **{"Content_Type": BATCH_TYPE, **headers})


# Bodies

_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["NaN", "Infinity", "2020-01-01T00:00:00Z", "AAAA", "\ud800", "0" * 30, ""]),
)
_MEMBERS: Final = (
    "PartitionKey", "RowKey", "Timestamp", "Age", "Age@odata.type", "odata.etag", "odata.x", "1",
    "PartitionKey@odata.type", "RowKey@odata.type", "Timestamp@odata.type", "@odata.type", "a b",
    "", "é", "\ud800", "A" * 300, "Age@odata.other", "TableName",
)  # fmt: skip
_NAMES: Final = st.one_of(st.sampled_from(_MEMBERS), st.text(max_size=5))
_TYPES: Final = st.sampled_from(
    ["Edm.String", "Edm.Int32", "Edm.Int64", "Edm.Double", "Edm.Boolean", "Edm.DateTime",
     "Edm.Guid", "Edm.Binary", "Edm.Single", "String", "", 5]
)  # fmt: skip
_ENTITIES: Final = st.dictionaries(
    _NAMES, st.one_of(_SCALARS, _TYPES, st.lists(_SCALARS, max_size=2)), max_size=6
)


@SHARED_OFFICE
@given(entity=_ENTITIES)
def test_entities(tables: TableServiceFixture, entity: dict[str, Any]) -> None:
    body = json.dumps(entity).encode()
    named = json.dumps({"PartitionKey": "p", "RowKey": "r", **entity}).encode()
    require_answer(tables, "POST", "People", named)
    require_answer(tables, "PUT", ENTITY, body)
    require_answer(tables, "MERGE", ENTITY, body)
    require_answer(tables, "POST", "Tables", body)
    require_answer(tables, "GET", ENTITY)
    group = change_set([part("MERGE", f"/{ENTITY}", body)])
    require_answer(tables, "POST", "$batch", group, Content_Type=BATCH_TYPE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'"text"',
        b"{",
        b"{}{}",
        b"\xff",
        b'{"a": \xff}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"A": NaN}',
        b'{"A": 1e999}',
        b'{"A": -1e999}',
        b'{"A": ' + b"9" * 5_000 + b"}",
        b'{"A": 1, "A": 1}',
        b'{"A": {}}',
        b'{"A": [[1]]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"A": "' + b"x" * (9 << 20) + b'"}',
    ],
)
def test_bodies_that_are_not_entities(tables: TableServiceFixture, body: bytes) -> None:
    tables.insert("p", "r", Age=36)
    for method, target in (
        ("POST", "People"),
        ("PUT", ENTITY),
        ("MERGE", ENTITY),
        ("POST", "Tables"),
    ):
        answer = tables.ask(method, target, body)
        assert answer.status in {400, 413}, answer
        assert CODES[answer.code] == answer.status
    assert tables.ask("GET", ENTITY).json()["Age"] == 36


def test_mutated_groups(tables: TableServiceFixture) -> None:
    """Bytes changed, inserted, removed, repeated or truncated, anywhere."""
    tables.insert("p", "1", "2")
    whole = change_set(
        [
            part("MERGE", "/People(PartitionKey='p',RowKey='1')", {"Age": 36}, If_Match="*"),
            part(
                "POST", "/People", {"PartitionKey": "p", "RowKey": "3"}, Prefer="return-no-content"
            ),
        ]
    )
    pieces = (b"\r\n", b"\n", b"--", b"--changeset_1", b"--batch_1--", b"\x00", b"\xff", b":", b" ")
    for number in range(600):
        chance = random.Random(number)
        body = bytearray(whole if number % 5 else single_query(part("GET", "/People()?$top=1")))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    body[at:at] = chance.choice(pieces)
                case 2:
                    del body[at : at + chance.randint(1, 30)]
                case _:
                    body[at:at] = body[max(0, at - 40) : at]
        require_answer(tables, "POST", "$batch", bytes(body), Content_Type=BATCH_TYPE)
