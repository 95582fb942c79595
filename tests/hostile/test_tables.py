"""Latency of others during expensive requests to the table service: entities, groups, filters."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.hostile.tables import TableProbe, table_probe
from tests.probes.client import Answer
from tests.server import Server, served

pytestmark = pytest.mark.alone

MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one front end, so that all clients share it."""
    directory: Path = tmp_path_factory.mktemp("hostile")
    with served(directory / "data", "--workers", "1") as server, table_probe(server) as probe:
        _fill(probe)
        yield server


WIDE_COUNT: Final = 300
PROPERTIES: Final = 250


def _fill(probe: TableProbe) -> None:
    """Inserts entities with almost the maximum of properties, and some large ones."""
    many = {f"P{number}": number for number in range(PROPERTIES)}
    probe.fill([{"PartitionKey": "wide", "RowKey": f"{row:03}", **many} for row in range(300)])
    large = {f"P{number}": "x" * 32_000 for number in range(15)}
    for row in range(20):
        assert probe.insert({"PartitionKey": "large", "RowKey": f"{row}", **large}).status == 201


def _document(members: bytes) -> bytes:
    return b'{"PartitionKey":"hostile","RowKey":"0",%b}' % members


@functools.cache
def _nulls(count: int) -> bytes:
    return _document(b",".join(b'"P%d":null' % number for number in range(count)))


def _status(answer: Answer) -> int:
    """Returns the status, of the first part if it is a batch response."""
    _, _, rest = answer.body.partition(b"HTTP/1.1 ")
    return int(rest[:3]) if answer.status == 202 else answer.status


# Entities

ENTITIES: Final[dict[str, Callable[[], bytes]]] = {
    "nulls": lambda: _nulls(40_000),
    "more nulls": lambda: _nulls(270_000),
    "properties": lambda: _document(b",".join(b'"P%d":1' % n for n in range(300_000))),
    "escaped names": lambda: _document(b",".join(b'"\\u0050%d":1' % n for n in range(200_000))),
    "types without values": lambda: _document(
        b",".join(b'"P%d@odata.type":"Edm.Int32"' % n for n in range(100_000))
    ),
    "an array": lambda: _document(b'"P":[%b]' % b",".join([b"{}"] * MIB)),
    "nested": lambda: _document(b'"P":' + b'{"a":' * 500_000),
    "long numbers": lambda: _document(
        b",".join(b'"P%d":%b' % (n, b"1" * 4_200) for n in range(900))
    ),
    "a long number": lambda: _document(b'"P":' + b"1" * (3 * MIB)),
    "the same again": lambda: _document(b",".join([b'"P":1'] * 500_000)),
    "space": lambda: _document(b" " * (3 * MIB) + b'"P":[]'),
    "a long text": lambda: _document(b'"P":"%b"' % (b'\\"' * (3 * MIB // 2))),
}


@pytest.mark.parametrize("kind", ENTITIES)
def test_an_entity(server: Server, kind: str) -> None:
    body = ENTITIES[kind]()
    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            for _ in range(3):
                assert probe.insert(body).status == 400

        assert_others_do_not_wait(server, attack)


@pytest.mark.parametrize("count", [1_000, 30_000])
def test_a_group_of_entities_with_nulls(server: Server, count: int) -> None:
    """The first number may be in an entity: then all parts are read up to the second one, which
    repeats the entity."""
    body = _nulls(count)
    with table_probe(server, creates=False) as probe:
        assert_others_do_not_wait(server, lambda: _refused(probe.group([body] * 10)))


def _refused(answer: Answer) -> None:
    assert _status(answer) == 400, answer


def test_a_group_of_the_largest_entities(server: Server) -> None:
    """As many as fit into a group, with the maximum of work per byte."""
    members = {f"P{number}": number for number in range(PROPERTIES)}
    dates = {f"P{n}@odata.type": "Edm.DateTime" for n in range(PROPERTIES)}
    dates |= {f"P{n}": "2001-02-03T04:05:06.789Z" for n in range(PROPERTIES)}
    numbers = iter(range(10**6))

    def entity(properties: Mapping[str, object]) -> bytes:
        keys = {"PartitionKey": "group", "RowKey": f"{next(numbers)}"}
        return json.dumps({**keys, **properties}).encode()

    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            assert _status(probe.group([entity(members) for _ in range(100)])) == 204
            assert _status(probe.group([entity(dates) for _ in range(100)])) == 204
            large = {"P": "x" * 32_000, "Q": "\u00e9" * 8_000}
            assert _status(probe.group([entity(large) for _ in range(45)])) == 204

        assert_others_do_not_wait(server, attack)


def _headers(count: int, header: bytes) -> bytes:
    """Returns a change set of parts with many headers and nothing to do."""
    lines = b"".join(header % number + b"\r\n" for number in range(count))
    part = b"--c\r\nContent-Type: application/http\r\n\r\nPOST /x HTTP/1.1\r\n%b\r\n" % lines
    return (
        b"--batch_0\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
        b"%b--c--\r\n--batch_0--" % (part * 99)
    )


def test_a_batch_of_many_tiny_parts(server: Server) -> None:
    bodies = (
        b"--batch_0\r\n" * 300_000,
        b"--batch_0x\r\n" * 300_000 + b"--batch_0--",
        b"--batch_0" + b" " * (4 * MIB - 1_024) + b"x",
        b"--batch_0\r\n" + b"a: b\r\n" * 500_000 + b"--batch_0--",
        b"--batch_0\r\n" + b"\r" * (4 * MIB - 1_024) + b"\n--batch_0--",
        _headers(40, b"a%d: b"),
        _headers(100, b"a%d: " + b"b" * 400),
        _headers(100, b"a%.0d: " + b"b" * 400),
    )
    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            for body in bodies:
                _refused(probe.batch(body))

        assert_others_do_not_wait(server, attack)


# Queries


def test_a_select_of_thousands_of_names(server: Server) -> None:
    names = ",".join(f"S{number}" for number in range(9_000))
    with table_probe(server, creates=False) as probe:
        answer = probe.query_in_batch(select=names)
        assert (_status(answer), b"InvalidInput" in answer.body) == (400, True)
        assert_others_do_not_wait(server, lambda: probe.query_in_batch(select=names))


def test_a_select_of_the_maximum_of_names(server: Server) -> None:
    """Each page is bounded, and all of them together are complete."""
    names = [f"S{number:03}{'s' * 100}" for number in range(PROPERTIES)]
    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            pages = list(probe.pages(select=",".join(names), filter="PartitionKey eq 'wide'"))
            assert max(len(body) for body, _ in pages) <= 12 * MIB
            entities = [entity for _, page in pages for entity in page]
            assert len(entities) == WIDE_COUNT
            assert all(entity[name] is None for entity in entities for name in names)

        assert_others_do_not_wait(server, attack)


def test_a_page_of_escaped_characters(server: Server) -> None:
    """Escaped characters take six times their stored size."""
    with table_probe(server, creates=False) as probe:
        for row in range(16):
            entity = {f"P{number}": "\x01" * 32_000 for number in range(15)}
            probe.insert({"PartitionKey": "escaped", "RowKey": f"{row:02}", **entity})

        def attack() -> None:
            pages = list(probe.pages(filter="PartitionKey eq 'escaped'"))
            assert max(len(body) for body, _ in pages) <= 12 * MIB
            rows = [entity["RowKey"] for _, page in pages for entity in page]
            assert rows == [f"{row:02}" for row in range(16)]

        assert_others_do_not_wait(server, attack)


_LEVELS: Final = "".join(f"(p{n})and((q{n})or(" for n in range(95))
_CLOSED: Final = "))" * 95

FILTERS: Final = {
    "terms": "or".join(f"(a{n})" for n in range(4_500)),
    "negated terms": "and".join(f"(not(a{n}))" for n in range(4_000)),
    "terms that are there": "and".join(f"(not(P{n % PROPERTIES}))" for n in range(4_500)),
    "nested": f"{_LEVELS}{'and'.join(f'(r{n})' for n in range(4_500))}{_CLOSED}",
    "nested, with keys": (
        f"{_LEVELS}{'and'.join(f'(r{n})' for n in range(4_500))}and(RowKey){_CLOSED}"
    ),
    "nested on the left": "(" * 4_500 + "(p)" + "".join(f"or(q{n}))" for n in range(4_500)),
    "nested on the right": "".join(f"(q{n})or(" for n in range(4_500)) + "p" + ")" * 4_500,
    "many ranges": "and".join(
        f"({'or'.join(f'(A eq {n})' for n in range(16))})" for _ in range(150)
    ),
    "quotes": f"A eq '{chr(39) * 2 * 30_000}'",
    "digits": f"A eq 1.{'3' * 60_000}",
}


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter(server: Server, kind: str) -> None:
    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            for _ in range(2):
                assert _status(probe.query_in_batch(filter=FILTERS[kind])) == 200

        assert_others_do_not_wait(server, attack)


def test_a_filter_of_tables(server: Server) -> None:
    with table_probe(server, creates=False) as probe:
        for number in range(200):
            probe.create(f"Another{number}")
        text = "or".join(f"(a{n})" for n in range(2_000))

        def attack() -> None:
            assert probe.query("Tables", filter=text).status == 200

        assert_others_do_not_wait(server, attack)


def test_a_filter_of_too_many_terms(server: Server) -> None:
    text = "or".join(["(p)"] * 5_001)
    with table_probe(server, creates=False) as probe:
        answer = probe.query_in_batch(filter=text)
        assert (_status(answer), b"InvalidInput" in answer.body) == (400, True)


def test_pages_of_wide_and_large_entities(server: Server) -> None:
    with table_probe(server, creates=False) as probe:

        def attack() -> None:
            entities = [entity for _, page in probe.pages() for entity in page]
            assert len(entities) >= WIDE_COUNT + 20
            entities = [entity for _, page in probe.pages(filter="P0 ne 'y'") for entity in page]
            assert len(entities) >= 20

        assert_others_do_not_wait(server, attack)
