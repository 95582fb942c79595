"""Addresses: what a path names, and what names nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.model.tables import Keys
from etagere.protocol.codecs.entity_forms import entity_path
from etagere.protocol.table.addresses import Address, AddressKind, parse_address
from tests.protocol.table.office import Office


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
        # Table names are judged later, by those who know them.
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
        # What looks like the rest of an address is a key as long as its quotes are doubled.
        ("People(PartitionKey='p'',RowKey=''r',RowKey='x')", entity("p',RowKey='r", "x")),
        ("People(PartitionKey='(),=',RowKey='a)b')", entity("(),=", "a)b")),
        ("People(PartitionKey='é\u2028\U0001f984',RowKey='\n')", entity("é\u2028\U0001f984", "\n")),
    ],
)
def test_what_a_path_names(path: str, expected: Address) -> None:
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
def test_what_names_nothing(path: str) -> None:
    assert parse_address(path) is None


@given(st.text(), st.text())
def test_every_key_can_be_written(partition: str, row: str) -> None:
    quoted_partition, quoted_row = partition.replace("'", "''"), row.replace("'", "''")
    for path in (
        f"People(PartitionKey='{quoted_partition}',RowKey='{quoted_row}')",
        f"People(RowKey='{quoted_row}',PartitionKey='{quoted_partition}')",
    ):
        assert parse_address(path) == entity(partition, row)


@given(st.text(alphabet="PR'=,() aé", max_size=30))
def test_no_path_is_too_odd(path: str) -> None:
    found = parse_address(path)
    assert found is None or isinstance(found, Address)


def test_no_path_takes_long() -> None:
    started = time.monotonic()
    for unit in ("'", "''", "'a", "'','", "(", " ", "('',", "PartitionKey='"):
        for opening in ("", "Tables(", "People(PartitionKey=", "People(PartitionKey='"):
            parse_address(opening + unit * (30_000 // len(unit)))
    assert time.monotonic() - started < 2.0


# Over the wire

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
def test_keys_come_back_as_they_were_sent(office: Office, keys: tuple[str, str]) -> None:
    partition, row = keys
    answer = office.ask("POST", "People", {"PartitionKey": partition, "RowKey": row, "Age": 36})
    assert answer.status == 201
    _, _, path = answer.headers["location"].rpartition("/")
    assert path == entity_path("People", Keys(partition, row))
    shown = office.ask("GET", path)
    assert (shown.json()["PartitionKey"], shown.json()["RowKey"]) == keys
    assert office.ask("MERGE", path, {"Age": 37}, If_Match="*").status == 204
    assert office.ask("GET", path).json()["Age"] == 37
    assert office.ask("DELETE", path, If_Match="*").status == 204
    assert office.ask("GET", path).refusal == (404, "ResourceNotFound")


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
def test_one_entity_has_many_addresses(office: Office, path: str) -> None:
    office.insert("p", "r")
    assert office.ask("GET", path).json()["RowKey"] == "r"


@pytest.mark.parametrize(
    "path", ["People('p')", "People(PartitionKey='p')", "Tables/x", "$batch/x", "People("]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "MERGE"])
def test_addresses_of_nothing(office: Office, method: str, path: str) -> None:
    assert office.ask(method, path).refusal == (400, "InvalidUri")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "MERGE"])
def test_nothing_lies_below_a_table(office: Office, method: str) -> None:
    """Clients tell by these that they were given the address of a table for that of the service."""
    assert office.ask(method, "People/x").refusal == (400, "InvalidInput")
    assert office.ask(method, "Nobody/x").refusal == (404, "TableNotFound")
    assert office.ask("POST", "People/x", b"{}").refusal == (400, "PropertiesNeedValue")


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
def test_names_that_no_table_has(office: Office, name: str, code: str) -> None:
    for method, path, body in (
        ("GET", f"{name}()", b""),
        ("GET", f"{name}(PartitionKey='p',RowKey='r')", b""),
        ("GET", f"{name}?comp=acl", b""),
        ("POST", name, b'{"PartitionKey":"p","RowKey":"r"}'),
        ("PUT", f"{name}(PartitionKey='p',RowKey='r')", b"{}"),
        ("DELETE", f"Tables('{name}')", b""),
    ):
        assert office.ask(method, path, body).refusal == (400, code), (method, path)
