"""The examples of the queue service run as they are, and say what they are there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from azure.storage.queue import QueueServiceClient

from tests.server import ACCOUNT, KEY, ROOT, development_port, served

QUEUE_PORT = 10_001

CONSUMERS = ("Anna", "Ben", "Cleo")

# What it prints, in whatever order its consumers come to it.
SHOWN = Counter(
    [
        "{} dies before the message is deleted",
        "coffee had been sent already: nothing is done twice",
        "attempt 1 failed: there is no such thing as a unicorn",
        "attempt 2 failed: there is no such thing as a unicorn",
        "attempt 3 failed: there is no such thing as a unicorn",
        'set aside after 3 attempts: {"order": "a unicorn", "impossible": true}',
        "sent: a wardrobe, bread, coffee, tea",
        "left to look at: 1",
    ]
)
# On a machine that is busy a consumer may lose a message to another, as the example explains.
LATE = re.compile(r"{} was too slow|.* had been sent already: nothing is done twice")


def require_shown(**variables: str) -> None:
    clean = {key: text for key, text in os.environ.items() if not key.startswith("AZURE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "queue_consumers.py")],
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = Counter(re.sub("|".join(CONSUMERS), "{}", done.stdout).splitlines())
    assert lines >= SHOWN, done.stdout
    assert all(LATE.fullmatch(line) for line in lines - SHOWN), done.stdout


def test_consumers_bear_with_whatever_happens(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        endpoint = f"{server.endpoints['queue']}/{ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        connection = f"{account};QueueEndpoint={endpoint}"
        require_shown(AZURE_STORAGE_CONNECTION_STRING=connection)
        with QueueServiceClient.from_connection_string(connection) as service:
            assert list(service.list_queues()) == []
        assert server.stop() == 0


def test_by_default_they_talk_to_the_development_account(tmp_path: Path) -> None:
    with development_port(), served(tmp_path / "data", "--queue-port", str(QUEUE_PORT)):
        require_shown()
