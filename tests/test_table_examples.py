"""The examples of the table service run as they are, and say what they are there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from tests.server import ACCOUNT, KEY, ROOT, development_port, served

TABLE_PORT = 10_002

# What each prints, line by line.
SHOWN = {
    "table_optimistic_update.py": [
        r"4 writers sold 20 of 100\.",
        r"80 are left, and 20 sales are known\.",
        r"Races lost and run again: \d+\.",
    ],
    "table_unconditional.py": [
        r"first report: degrees=11, battery=full",
        r"merged: degrees=12, battery=full",
        r"replaced: degrees=13",
        r"13, and 1, and 2 more: degrees=15",
        r"updated: degrees=9",
        r"an update does not bring back what was deleted",
    ],
    "table_with_lease.py": [
        r"Alice has the lease",
        r"Alice tells the bank",
        r"Bob waits",
        r"Alice is done",
        r"Bob has the lease",
        r"Bob tells the bank",
        r"Bob is done",
        r"giver: 80",
        r"taker: 20",
    ],
}


def require_shown(name: str, **variables: str) -> None:
    clean = {key: text for key, text in os.environ.items() if not key.startswith("AZURE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(SHOWN[name]), done.stdout
    for line, pattern in zip(lines, SHOWN[name], strict=True):
        assert re.fullmatch(pattern, line), done.stdout


@pytest.mark.parametrize("name", SHOWN)
def test_example(tmp_path: Path, name: str) -> None:
    with served(tmp_path / "data") as server:
        parts = [f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"]
        for service in ("blob", "table"):
            parts.append(f"{service.title()}Endpoint={server.endpoints[service]}/{ACCOUNT}")
        connection = ";".join(parts)
        require_shown(name, AZURE_STORAGE_CONNECTION_STRING=connection)
        with TableServiceClient.from_connection_string(connection) as tables:
            assert list(tables.list_tables()) == []
        with server.service() as blobs:
            assert list(blobs.list_containers()) == []
        assert server.stop() == 0


def test_by_default_they_talk_to_the_development_account(tmp_path: Path) -> None:
    ports = ["--table-port", str(TABLE_PORT)]
    with development_port() as port, served(tmp_path / "data", "--blob-port", str(port), *ports):
        require_shown("table_with_lease.py")


def test_all_of_them_are_run() -> None:
    assert sorted(SHOWN) == sorted(path.name for path in (ROOT / "examples").glob("table_*.py"))
