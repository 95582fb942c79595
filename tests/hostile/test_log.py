"""The write-ahead log with clients that read for long: it stays short, and others do not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from azure.data.tables import TableClient

from etagere.config import MIB
from etagere.engine import ledger
from tests.probes.client import Client, Request, shared_key
from tests.sdk.table.clients import table_service
from tests.server import ACCOUNT, KEY, check, eventually, served

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
_ENTITIES: Final = 10_000
_SCANNERS: Final = 3
_PUTTERS: Final = 4
_SECONDS: Final = 8.0
_LOG_BYTES_MAX: Final = 128 * MIB
_LOG_BYTES_AFTER_MAX: Final = 64 * MIB
_PUT_SECONDS_MAX: Final = 1.5


def test_table_scans_beside_puts(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with served(directory) as server, table_service(server) as service:
        table = service.create_table("scanned")
        _fill(table)
        with Client(server.endpoints["blob"]) as owner:
            path = f"/{ACCOUNT}/container"
            created = owner.ask(_sign(Request("PUT", path, (("restype", "container"),))))
            assert created.status == 201
        waits: list[float] = []
        longest = [0]
        ends = time.monotonic() + _SECONDS

        def scan() -> None:
            asked = "Value eq 'what no entity has'"
            while time.monotonic() < ends:
                assert list(table.query_entities(asked)) == []

        def put(number: int) -> None:
            with Client(server.endpoints["blob"]) as client:
                for count in range(1_000_000):
                    if time.monotonic() > ends:
                        return
                    data = bytes([count % 256]) * 30_000
                    headers = (("x-ms-blob-type", "BlockBlob"),)
                    request = Request("PUT", f"{path}/{number}-{count}", (), headers, data)
                    began = time.perf_counter()
                    assert client.ask(_sign(request)).status == 201
                    waits.append(time.perf_counter() - began)

        def watch() -> None:
            while time.monotonic() < ends:
                longest[0] = max(longest[0], ledger.log_bytes(directory))
                time.sleep(0.02)

        def look() -> None:
            assert check(directory).returncode == 0

        work: list[Callable[[], None]] = [scan] * _SCANNERS
        work += [partial(put, number) for number in range(_PUTTERS)]
        errors: list[BaseException] = []

        def noting(call: Callable[[], None]) -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=noting, args=(call,)) for call in (*work, watch, look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert longest[0] <= _LOG_BYTES_MAX
        assert max(waits) <= _PUT_SECONDS_MAX
        eventually(
            lambda: ledger.log_bytes(directory) <= _LOG_BYTES_AFTER_MAX, "the end of the log"
        )


def _fill(table: TableClient) -> None:
    for first in range(0, _ENTITIES, 100):
        table.submit_transaction(
            [
                (
                    "create",
                    {
                        "PartitionKey": "p",
                        "RowKey": f"{first + n}",
                        "Value": f"{n}",
                        "x": "y" * 500,
                    },
                )
                for n in range(100)
            ]
        )
