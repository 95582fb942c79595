"""The examples of Blob run as they are, and say what they are there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import ACCOUNT, KEY, ROOT, development_port, served

DIRECTORY = ROOT / "examples"
NAMES = sorted(path.name for path in DIRECTORY.glob("blob_*.py"))

# What each prints, line by line.
SHOWN = {
    "blob_append_log.py": [
        r"20 lines were added, 20 of them are where they should be\.",
        r"20 lines are numbered from 1 to 20, without a gap\.",
        r"Races lost and run again: \d+\.",
        r"Nothing is added to a sealed log: .*sealed.*",
    ],
    "blob_copy_and_tags.py": [
        r"kept/2023\.txt: The report of 2023",
        r"kept/2024\.txt: The report of 2024",
        r"kept/2025\.txt: The report of 2025",
        r"Old and final: kept/2023\.txt, kept/2024\.txt",
        r"kept/2023\.txt: Cool",
        r"kept/2024\.txt: Cool",
        r"kept/2025\.txt: Hot",
        r"No draft, so not changed: The condition specified using HTTP .* is not met\.",
    ],
    "blob_exclusive_read.py": [
        r"With If-Match:",
        r"  a writer replaces the blob",
        r"  changed after 1 part\(s\): what was read is thrown away",
        r"  read: new-new-new-",
        r"With a lease:",
        r"  a writer is refused: There is currently a lease on the blob and no .*",
        r"  read: old-old-old-",
        r"  a writer replaces the blob",
    ],
    "blob_lease.py": [
        r"Alice has the lease and reads: A draft",
        r"Bob reads: A draft",
        r"Bob cannot write: There is currently a lease on the blob and no .*",
        r"Bob cannot delete: There is currently a lease on the blob and no .*",
        r"Bob cannot take the lease: There is already a lease present\.",
        r"Alice has released the lease\. The report is: A draft, finished by Alice",
        r"Bob has written: A draft, finished by Alice, checked by Bob",
    ],
    "blob_lost_lease.py": [
        r"first has written: begun first",
        r"An operator breaks the lease of second\.",
        r"second writes nothing: A lease ID was specified, but .* has expired\.",
        r"An operator breaks the lease of third\.",
        r"fourth has written: begun first fourth",
        r"third writes nothing: There is currently no lease on the blob\.",
        r"third has written: begun first fourth third",
    ],
    "blob_optimistic_update.py": [
        r"4 writers signed 20 times\.",
        r"20 entries are in the book, 20 of them different\.",
        r"Races lost and run again: \d+\.",
    ],
}


def require_shown(name: str, **variables: str) -> None:
    clean = {key: text for key, text in os.environ.items() if not key.startswith("AZURE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DIRECTORY / name)],
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


@pytest.mark.parametrize("name", NAMES)
def test_example(tmp_path: Path, name: str) -> None:
    with served(tmp_path / "data") as server:
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        connection = f"{account};BlobEndpoint={server.url()}"
        require_shown(name, AZURE_STORAGE_CONNECTION_STRING=connection)
        with server.service() as service:
            assert list(service.list_containers()) == []
        assert server.stop() == 0


def test_by_default_they_talk_to_the_development_account(tmp_path: Path) -> None:
    with development_port() as port, served(tmp_path / "data", "--blob-port", str(port)):
        require_shown("blob_lease.py")


def test_the_list_names_them_all() -> None:
    page = (DIRECTORY / "README.md").read_text("utf-8")
    linked = re.findall(r"^\| \[(\S+)\]\(\1\)", page, re.MULTILINE)
    assert sorted(linked) == sorted(path.name for path in DIRECTORY.glob("*.py"))


def test_what_each_shows_is_known() -> None:
    assert sorted(SHOWN) == NAMES
