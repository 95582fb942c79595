"""URLs of tables and entities."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.model.tables import Keys
from etagere.protocol.codecs.entity_forms import entity_path
from etagere.protocol.table.addresses import Address, AddressKind, parse_address
from tests.protocol.table.fixture import TableServiceFixture


def entity(partition: str, row: str, table: str = "People") -> Address:
    return Address(AddressKind.ENTITY, table, Keys(partition, row))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", Address(AddressKind.SERVICE)),
        ("Tables", Address(AddressKind.TABLES)),
        ("Tables()", Address(AddressKind.TABLES)),
        ("Tables('People')", Address(AddressKind.TABLE, "People")),
        ("Tables('it''s')", Address(AddressKind.TABLE, "it's")),
        ("Tables('')", Address(AddressKind.TABLE, "")),
        ("$batch", Address(AddressKind.GROUP)),
        ("People", Address(AddressKind.ENTITIES, "People")),
        ("People()", Address(AddressKind.ENTITIES, "People")),
        ("People( )", Address(AddressKind.ENTITIES, "People")),
        # Table names are checked later.
        ("tables", Address(AddressKind.ENTITIES, "tables")),
        ("$Batch", Address(AddressKind.ENTITIES, "$Batch")),
        ("People(PartitionKey='p',RowKey='r')", entity("p", "r")),
        ("People(RowKey='r',PartitionKey='p')", entity("p", "r")),
        ("People( PartitionKey = 'p' , RowKey = 'r' )", entity("p", "r")),
        ("People(\tRowKey='r'\t,PartitionKey='p')", entity("p", "r")),
        ("People(PartitionKey='',RowKey='')", entity("", "")),
        ("People(PartitionKey=' p ',RowKey='r ')", entity(" p ", "r ")),
        ("People(PartitionKey='O''Neil',RowKey='''')", entity("O'Neil", "'")),
        ("People(PartitionKey='''',RowKey='''''')", entity("'", "''")),
        # A quoted key may look like the rest of a URL, with doubled quotes.
        ("People(PartitionKey='p'',RowKey=''r',RowKey='x')", entity("p',RowKey='r", "x")),
        ("People(PartitionKey='(),=',RowKey='a)b')", entity("(),=", "a)b")),
        ("People(PartitionKey='é\u2028\U0001f984',RowKey='\n')", entity("é\u2028\U0001f984", "\n")),
    ],
)
def test_valid_paths(path: str, expected: Address) -> None:
    assert parse_address(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "People(",
        "People)",
        "()",
        "People()()",
        "People('p')",
        "People('p','r')",
        "People(PartitionKey='p')",
        "People(RowKey='r')",
        "People(PartitionKey='p',RowKey='r',RowKey='s')",
        "People(PartitionKey='p',PartitionKey='p')",
        "People(PartitionKey='p',RowKey='r'",
        "People(PartitionKey='p',RowKey='r'))",
        "People(PartitionKey='p',RowKey='r')x",
        "People(PartitionKey='p';RowKey='r')",
        "People(PartitionKey='p',RowKey=r)",
        'People(PartitionKey="p",RowKey="r")',
        "People(PartitionKey='p'x',RowKey='r')",
        "People(partitionkey='p',rowkey='r')",
        "People(PartitionKey=''',RowKey='r')",
        "(PartitionKey='p',RowKey='r')",
        "Tables('People",
        "Tables('Peo'ple')",
        "Tables(People)",
        "'",
    ],
)
def test_invalid_paths(path: str) -> None:
    assert parse_address(path) is None


@given(st.text(), st.text())
def test_every_key_can_be_encoded(partition: str, row: str) -> None:
    quoted_partition, quoted_row = partition.replace("'", "''"), row.replace("'", "''")
    for path in (
        f"People(PartitionKey='{quoted_partition}',RowKey='{quoted_row}')",
        f"People(RowKey='{quoted_row}',PartitionKey='{quoted_partition}')",
    ):
        assert parse_address(path) == entity(partition, row)


@given(st.text(alphabet="PR'=,() aé", max_size=30))
def test_arbitrary_paths(path: str) -> None:
    found = parse_address(path)
    assert found is None or isinstance(found, Address)


def test_parsing_time_is_bounded() -> None:
    started = time.process_time()
    for unit in ("'", "''", "'a", "'','", "(", " ", "('',", "PartitionKey='"):
        for opening in ("", "Tables(", "People(PartitionKey=", "People(PartitionKey='"):
            parse_address(opening + unit * (30_000 // len(unit)))
    assert time.process_time() - started < 2.0


# With a service

KEYS = (
    ("p", "r"),
    ("", ""),
    (" ", "a b"),
    ("O'Neil", "''"),
    ("100%", "%27"),
    ("a+b", "a&b=c"),
    ("é", "\U0001f984"),
    ("(x)", "a',RowKey='b"),
    ("e\u0301", "\ufffd"),
)


@pytest.mark.parametrize("keys", KEYS, ids=repr)
def test_keys_round_trip(tables: TableServiceFixture, keys: tuple[str, str]) -> None:
    partition, row = keys
    answer = tables.ask("POST", "People", {"PartitionKey": partition, "RowKey": row, "Age": 36})
    assert answer.status == 201
    _, _, path = answer.headers["location"].rpartition("/")
    assert path == entity_path("People", Keys(partition, row))
    shown = tables.ask("GET", path)
    assert (shown.json()["PartitionKey"], shown.json()["RowKey"]) == keys
    assert tables.ask("MERGE", path, {"Age": 37}, If_Match="*").status == 204
    assert tables.ask("GET", path).json()["Age"] == 37
    assert tables.ask("DELETE", path, If_Match="*").status == 204
    assert tables.ask("GET", path).refusal == (404, "ResourceNotFound")


@pytest.mark.parametrize(
    "path",
    [
        "People(PartitionKey='p',RowKey='r')",
        "People%28PartitionKey%3D%27p%27%2CRowKey%3D%27r%27%29",
        "People(PartitionKey=%27p%27,RowKey=%27r%27)",
        "People(RowKey='r',%20PartitionKey='p')",
        "people(PartitionKey='%70',RowKey='%72')",
    ],
)
def test_urls_of_one_entity(tables: TableServiceFixture, path: str) -> None:
    tables.insert("p", "r")
    assert tables.ask("GET", path).json()["RowKey"] == "r"


@pytest.mark.parametrize(
    "path", ["People('p')", "People(PartitionKey='p')", "Tables/x", "$batch/x", "People("]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "MERGE"])
def test_unknown_urls(tables: TableServiceFixture, method: str, path: str) -> None:
    assert tables.ask(method, path).refusal == (400, "InvalidUri")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "MERGE"])
def test_paths_below_a_table(tables: TableServiceFixture, method: str) -> None:
    """Clients use these errors to notice a table URL in place of a service URL."""
    assert tables.ask(method, "People/x").refusal == (400, "InvalidInput")
    assert tables.ask(method, "Nobody/x").refusal == (404, "TableNotFound")
    assert tables.ask("POST", "People/x", b"{}").refusal == (400, "PropertiesNeedValue")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", "OutOfRangeInput"),
        ("a" * 64, "OutOfRangeInput"),
        ("1abc", "InvalidResourceName"),
        ("a-b", "InvalidResourceName"),
        ("tables", "InvalidResourceName"),
        ("caf%C3%A9", "InvalidResourceName"),
        ("%FFabc", "InvalidResourceName"),
    ],
)
def test_invalid_table_names(tables: TableServiceFixture, name: str, code: str) -> None:
    for method, path, body in (
        ("GET", f"{name}()", b""),
        ("GET", f"{name}(PartitionKey='p',RowKey='r')", b""),
        ("GET", f"{name}?comp=acl", b""),
        ("POST", name, b'{"PartitionKey":"p","RowKey":"r"}'),
        ("PUT", f"{name}(PartitionKey='p',RowKey='r')", b"{}"),
        ("DELETE", f"Tables('{name}')", b""),
    ):
        assert tables.ask(method, path, body).refusal == (400, code), (method, path)
