"""Inserts, point queries and scans of entities over HTTP, compared with Azurite.

Our server has synced an entity when it responds; Azurite writes its memory to disk periodically.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_from_bytes

from benchmarks import tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, Run, development_sas, run, run_all, run_each
from benchmarks.services import AZURITE, OURS, TABLE, Service, ask, started

GROUP_SIZE: Final = 100
"""Changes in an entity group transaction: the maximum."""
JSON: Final = "application/json;odata=minimalmetadata"
# Azurite accepts no other prefixes.
_BATCH, _CHANGE_SET = "batch_0", "changeset_0"
_GROUPS = 1_000
_GROUPS_PER_RUN = 100
_SHELVES = 1_000
"""The reciprocal of the share of entities that match the filter."""
_SHELF = 500
_SCANS = 5
_READ_SECONDS, _WRITE_SECONDS = 2, 6
_SAVE_SECONDS = 5
"""The delay after which Azurite writes its data to disk. The write is part of the cost of changes,
but must not affect other measurements."""
_IDLE_CPU_SECONDS = 0.5
"""The most CPU time that an idle server uses in that time."""
_RESTING_CPU_SECONDS = 0.05
"""The same for our server, in a second."""
_NEW = 10**13
"""Large enough that no random number occurs twice."""

# Requests


def entity(partition: str, row: str, shelf: int = 0) -> str:
    """Returns an entity with ten properties of all types, in 1 KiB of JSON."""
    members = {
        "PartitionKey": partition,
        "RowKey": row,
        "Shelf": shelf,
        "Title": "t" * 80,
        "Author": "a" * 40,
        "Summary": "s" * 360,
        "Copies@odata.type": "Edm.Int64",
        "Copies": "9007199254740993",
        "Price": 12.5,
        "Lent": False,
        "Printed@odata.type": "Edm.DateTime",
        "Printed": "2001-02-03T04:05:06.789Z",
        "Edition@odata.type": "Edm.Guid",
        "Edition": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "Cover@odata.type": "Edm.Binary",
        "Cover": "Y292" * 40,
    }
    return json.dumps(members)


def insert_load(table: str, sas: str, document: str) -> Load:
    headers = (f"Content-Type: {JSON}", f"Accept: {JSON}", "Prefer: return-no-content")
    return Load("POST", f"/{ACCOUNT}/{table}?{sas}", _NEW, headers, document=document)


def get_load(table: str, sas: str, keys: str, names: int = 1) -> Load:
    target = f"/{ACCOUNT}/{table}({keys})?{sas}"
    return Load("GET", target, names, (f"Accept: {JSON}",))


def query_load(table: str, sas: str, condition: str) -> Load:
    target = f"/{ACCOUNT}/{table}()?$filter={quote(condition, safe='')}&{sas}"
    return Load("GET", target, headers=(f"Accept: {JSON}",), connections=1)


def group_load(table: str, sas: str, documents: list[str]) -> Load:
    """Returns an entity group transaction that inserts these entities."""
    part = (
        f"--{_CHANGE_SET}\r\n"
        "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        f"POST http://127.0.0.1/{ACCOUNT}/{table} HTTP/1.1\r\nContent-Type: {JSON}\r\n"
        f"Accept: {JSON}\r\nPrefer: return-no-content\r\nDataServiceVersion: 3.0\r\n\r\n"
    )
    body = (
        f"--{_BATCH}\r\nContent-Type: multipart/mixed; boundary={_CHANGE_SET}\r\n\r\n"
        + "".join(f"{part}{document}\r\n" for document in documents)
        + f"--{_CHANGE_SET}--\r\n--{_BATCH}--\r\n"
    )
    headers = (f"Content-Type: multipart/mixed; boundary={_BATCH}", f"Accept: {JSON}")
    return Load("POST", f"/{ACCOUNT}/$batch?{sas}", _NEW, headers, document=body)


def create(service: Service, table: str, sas: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    with contextlib.closing(connection):
        document = json.dumps({"TableName": table}).encode()
        headers = {"Content-Type": JSON, "Accept": JSON}
        ask(connection, "POST", f"/{ACCOUNT}/Tables?{sas}", document, headers)


# Scans

_CONTINUES = re.compile(rb"\r\nx-ms-continuation-next(partition|row)key: *([^\r]+)", re.IGNORECASE)
_FOUND = b'"RowKey":'


class Scan:
    """Reads all pages of a query, following continuation tokens."""

    def __init__(self, service: Service, load: Load) -> None:
        self.found = 0
        self._service = service
        self._load = load

    def run(self, times: int = 1) -> Run:
        return run_each(self._service, self._load, [""] * times, self._follow)

    def _follow(self, answer: bytes) -> bytes | None:
        head, _, body = answer.partition(b"\r\n\r\n")
        self.found += body.count(_FOUND)
        names = {b"partition": "NextPartitionKey", b"row": "NextRowKey"}
        following = "".join(
            f"&{names[key.lower()]}={quote_from_bytes(token, safe='')}"
            for key, token in _CONTINUES.findall(head)
        )
        if not following:
            return None
        first = f"GET {self._load.target}{following} HTTP/1.1"
        lines = (first, f"Host: {self._service.address}", *self._load.headers)
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


# Rounds


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    with (
        tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory) as scripts,
        started(settings, {}, kind=TABLE) as services,
    ):
        client = _Client(wrk, Path(scripts), settings)
        for service in services.values():
            client.prepare(service)
        for number in range(settings.rounds):
            order = list(services.values())
            if number % 2:
                order.reverse()
            told: Round = {}
            for what, done_by in client.kinds().items():
                told |= _told(what, {one.name: done_by(one) for one in order})
            yield told
        yield {
            f"tables.memory{_suffix(name)}": service.peak_mebibytes()
            for name, service in services.items()
        }


def _settle(service: Service) -> None:
    """Waits until the server is idle."""
    used_before = -math.inf
    while service.name == AZURITE and service.cpu_seconds() - used_before > _IDLE_CPU_SECONDS:
        used_before = service.cpu_seconds()
        time.sleep(_SAVE_SECONDS + 1)


def _await_index(service: Service) -> None:
    """Waits until our server has built the index that the scans trigger."""
    used_before = -math.inf
    while service.name == OURS and service.cpu_seconds() - used_before > _RESTING_CPU_SECONDS:
        used_before = service.cpu_seconds()
        time.sleep(1)


class _Client:
    """Inserts go to other tables, so that the queried table does not change."""

    def __init__(self, wrk: str | None, scripts: Path, settings: Settings) -> None:
        self._wrk = wrk
        self._scripts = scripts
        self._quick = settings.quick
        self._groups = settings.scaled(_GROUPS, 10)
        self._sas = development_sas()
        self._seeds = itertools.count(1)
        self._tables = itertools.count(1)

    def prepare(self, service: Service) -> None:
        for table in ("Standing", "Inserted"):
            create(service, table, self._sas)
        for first in range(0, self._groups, _GROUPS_PER_RUN):
            groups = range(first, min(self._groups, first + _GROUPS_PER_RUN))
            run_all(service, [self._standing(group) for group in groups])
        _settle(service)
        self._scan(service)
        _await_index(service)

    def _standing(self, group: int) -> Load:
        numbers = range(GROUP_SIZE * group, GROUP_SIZE * (group + 1))
        documents = [
            entity(str(group), str(number % GROUP_SIZE), number % _SHELVES) for number in numbers
        ]
        return group_load("Standing", self._sas, documents)

    def kinds(self) -> dict[str, Callable[[Service], Run | None]]:
        keys = "PartitionKey='{}',RowKey='42'"
        get = get_load("Standing", self._sas, keys, self._groups)
        insert = insert_load("Inserted", self._sas, entity("{}", "row"))
        return {
            "insert": lambda service: self._write(service, insert),
            "get": lambda service: self._run(service, get, _READ_SECONDS),
            "group": self._write_groups,
            "scan": self._scan,
        }

    def _write_groups(self, service: Service) -> Run | None:
        """Inserts each group into a new partition of an initially empty table."""
        table = f"Grouped{next(self._tables)}"
        create(service, table, self._sas)
        documents = [entity("{}", str(row)) for row in range(GROUP_SIZE)]
        return self._write(service, group_load(table, self._sas, documents))

    def _write(self, service: Service, load: Load) -> Run | None:
        done = self._run(service, load, _WRITE_SECONDS)
        _settle(service)
        return done

    def _run(self, service: Service, load: Load, seconds: float) -> Run | None:
        if self._wrk is None:
            return None
        seconds = 1 if self._quick else seconds
        return run(self._wrk, service, load, seconds, self._scripts, next(self._seeds))

    def _scan(self, service: Service) -> Run:
        scan = Scan(service, query_load("Standing", self._sas, f"Shelf eq {_SHELF}"))
        done = scan.run(_SCANS)
        if scan.found != _SCANS * self._groups * GROUP_SIZE // _SHELVES:
            raise RuntimeError(f"{service.name} found {scan.found} entities")
        return done


def _told(what: str, measured: dict[str, Run | None]) -> Round:
    runs = {name: done for name, done in measured.items() if done is not None}
    told: Round = {}
    for name, done in runs.items():
        suffix = _suffix(name)
        told[f"tables.{what}{suffix}"] = done.per_second
        told[f"tables.{what}_cpu{suffix}"] = done.cpu_microseconds
        told[f"tables.{what}_p50{suffix}"] = 1000 * done.p50
        told[f"tables.{what}_p99{suffix}"] = 1000 * done.p99
    if len(runs) > 1:
        ours, theirs = runs[OURS], runs[AZURITE]
        told[f"tables.{what}_ratio"] = ours.per_second / theirs.per_second
        told[f"tables.{what}_cpu_ratio"] = theirs.cpu_microseconds / ours.cpu_microseconds
    return told


def _suffix(name: str) -> str:
    return "" if name == OURS else f"_{name}"


def _figures(what: str, text: str, at_least: float) -> tuple[Figure, ...]:
    return (
        Figure(f"tables.{what}_ratio", f"{text}, relative to Azurite", " x", at_least=at_least),
        Figure(f"tables.{what}", text, "/s"),
        Figure(f"tables.{what}_azurite", "  Azurite", "/s"),
        Figure(f"tables.{what}_cpu", "  CPU time per request", " µs"),
        Figure(f"tables.{what}_cpu_azurite", "  CPU time per request of Azurite", " µs"),
        Figure(f"tables.{what}_cpu_ratio", "  CPU time of Azurite relative to ours", " x"),
        Figure(f"tables.{what}_p50", "  median latency", " ms"),
        Figure(f"tables.{what}_p50_azurite", "  Azurite", " ms"),
        Figure(f"tables.{what}_p99", "  p99 latency", " ms"),
        Figure(f"tables.{what}_p99_azurite", "  Azurite", " ms"),
    )


GROUP = Group(
    "tables",
    measure,
    (
        *_figures("insert", "Insert Entity of 1 KiB, 16 connections", 3),
        *_figures("get", "Query Entity by its keys, 16 connections", 4),
        *_figures("group", "Entity group transaction of 100 inserts, 16 connections", 4),
        *_figures("scan", "Query Entities by a property, 100 of 100,000 match", 5),
        Figure("tables.memory", "peak memory of all processes, entities", " MiB"),
        Figure("tables.memory_azurite", "  Azurite", " MiB"),
    ),
)
