"""Runs the programs in examples/ and checks what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.sdk.queue.clients import queue_service
from tests.sdk.table.clients import table_service
from tests.server import ROOT, SERVICES, development_port, served

DIRECTORY = ROOT / "examples"
FLAGS = {"blob_user_delegation_sas.py": ("--oauth", "development", "--tls", "self-signed")}
"""Flags of the servers that examples need."""
NAMES = sorted(path.name for path in DIRECTORY.glob("*.py"))

# Patterns of the printed lines, for the examples that print in a fixed order.
EXPECTED_LINES = {
    "blob_append_log.py": [
        r"20 lines were appended, 20 of them at the returned offset\.",
        r"20 lines are numbered from 1 to 20, without a gap\.",
        r"Conflicts that were retried: \d+\.",
        r"A sealed log cannot be extended: .*sealed.*",
    ],
    "blob_copy_and_tags.py": [
        r"kept/2023\.txt: The report of 2023",
        r"kept/2024\.txt: The report of 2024",
        r"kept/2025\.txt: The report of 2025",
        r"Old and final: kept/2023\.txt, kept/2024\.txt",
        r"kept/2023\.txt: Cool",
        r"kept/2024\.txt: Cool",
        r"kept/2025\.txt: Hot",
        r"Not a draft, so not changed: The condition specified using HTTP .* is not met\.",
    ],
    "blob_exclusive_read.py": [
        r"With If-Match:",
        r"  a writer replaces the blob",
        r"  changed after 1 part\(s\): starting again",
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
        r"The book has 20 entries, 20 of them distinct\.",
        r"Conflicts that were retried: \d+\.",
    ],
    "blob_user_delegation_sas.py": [
        r"Bob reads: The figures of May",
        r"Bob cannot write: This request is not authorized to perform this operation using this .*",
    ],
    "file_last_writer.py": [
        r"One seat, two guests: Bob     \.{24}",
        r"A seat for each guest: guest 0 guest 1 guest 2 guest 3 ?",
    ],
    "file_lease.py": [
        r"Alice has the lease and reads 41",
        r"Bob reads 41",
        r"Bob cannot write: There is currently a lease on the file and no .*",
        r"Bob cannot delete: There is currently a lease on the file and no .*",
        r"Bob cannot take the lease: There is already a lease present\.",
        r"Alice has released the lease\. The counter is 42",
    ],
    "file_publish.py": [
        r"Published: Sunny",
        r"Replaced by: Cloudy, with showers in the evening",
        r"In the snapshot: Sunny",
        r"Files: today\.txt",
    ],
    "smb_delete_on_close.py": [
        r"A reader has the file open, and shares everything\.",
        r"  REST: it is there; the directory has 1 file\(s\)",
        r"Another SMB client has removed it\.",
        r"  REST: 409 SMBDeletePending; the directory has 0 file\(s\)",
        r"  SMB: the reader still reads b'old'",
        r"  REST: a client has it open for Read",
        r"The reader has closed it\.",
        r"  REST: 404 ResourceNotFound; the directory has 0 file\(s\)",
    ],
    "smb_locks.py": [
        r"SMB has the file open and shares nothing\.",
        r"  REST reads: no, 409 SharingViolation",
        r"  REST writes: no, 409 SharingViolation",
        r"  REST reads the properties: yes",
        r"SMB has the file open and shares reading and writing\.",
        r"  REST writes: yes",
        r"  REST deletes: no, 409 SharingViolation",
        r"SMB has locked two bytes\.",
        r"  REST reads the locked bytes: no, 409 FileLockConflict",
        r"  REST reads the others: yes",
        r"  REST writes the others: no, 409 FileLockConflict",
        r"REST has a lease\.",
        r"  SMB opens it for reading: yes",
        r"  SMB opens it for writing: no, The process cannot access .*",
        r"REST has released the lease\.",
        r"  SMB opens it for writing: yes",
    ],
    "table_optimistic_update.py": [
        r"4 writers sold 20 of 100\.",
        r"80 are left, and 20 sales are recorded\.",
        r"Conflicts that were retried: \d+\.",
    ],
    "table_unconditional.py": [
        r"first report: degrees=11, battery=full",
        r"merged: degrees=12, battery=full",
        r"replaced: degrees=13",
        r"13, plus 1 and plus 2: degrees=15",
        r"updated: degrees=9",
        r"an update does not recreate a deleted entity",
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


CONSUMERS = ("Anna", "Ben", "Cleo")

# Lines that queue_consumers.py prints, in any order.
CONSUMER_LINES = Counter(
    [
        "{} dies before the message is deleted",
        "coffee had already been sent: not sent again",
        "attempt 1 failed: there is no such thing as a unicorn",
        "attempt 2 failed: there is no such thing as a unicorn",
        "attempt 3 failed: there is no such thing as a unicorn",
        'moved to the poison queue after 3 attempts: {"order": "a unicorn", "impossible": true}',
        "sent: a wardrobe, bread, coffee, tea",
        "messages in the poison queue: 1",
    ]
)
# On a busy machine a consumer may lose a message to another one, as the example explains.
LATE_CONSUMER_LINE = re.compile(r"{} was too slow|.* had already been sent: not sent again")


def run_example(name: str, **variables: str) -> str:
    """Runs an example with only these `AZURE_*` variables; returns what it prints."""
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
    return done.stdout


def require_output(name: str, output: str) -> None:
    if name == "queue_consumers.py":
        lines = Counter(re.sub("|".join(CONSUMERS), "{}", output).splitlines())
        assert lines >= CONSUMER_LINES, output
        extra = lines - CONSUMER_LINES
        assert all(LATE_CONSUMER_LINE.fullmatch(line) for line in extra), output
        return
    printed, expected = output.splitlines(), EXPECTED_LINES[name]
    assert len(printed) == len(expected), output
    for line, pattern in zip(printed, expected, strict=True):
        assert re.fullmatch(pattern, line), output


@pytest.mark.parametrize("name", NAMES)
def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if "--tls" in FLAGS.get(name, ()):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "data" / "tls" / "ca.pem"))
    with served(tmp_path / "data", *FLAGS.get(name, ())) as server:
        connection = server.connection_string(*SERVICES)
        smb_port = server.endpoints["smb"].rpartition(":")[2]
        output = run_example(
            name, AZURE_STORAGE_CONNECTION_STRING=connection, ETAGERE_SMB_PORT=smb_port
        )
        require_output(name, output)
        with blob_service(server) as blobs:
            assert list(blobs.list_containers()) == []
        with queue_service(server) as queues:
            assert list(queues.list_queues()) == []
        with table_service(server) as tables:
            assert list(tables.list_tables()) == []
        with file_service(server) as shares:
            assert list(shares.list_shares()) == []
        assert server.stop() == 0


@pytest.mark.parametrize("name", ["blob_lease.py", "queue_consumers.py", "table_with_lease.py"])
def test_examples_use_the_development_account_by_default(tmp_path: Path, name: str) -> None:
    with development_port() as port:
        ports = [
            flag
            for number, service in enumerate(SERVICES)
            for flag in (f"--{service}-port", str(port + number))
        ]
        with served(tmp_path / "data", *ports):
            require_output(name, run_example(name))


def test_readme_lists_every_example() -> None:
    page = (DIRECTORY / "README.md").read_text("utf-8")
    linked = re.findall(r"^\| \[(\S+)\]\(\1\)", page, re.MULTILINE)
    projects = [path.parent.name for path in DIRECTORY.glob("*/pyproject.toml")]
    assert sorted(linked) == sorted([*NAMES, *projects])


def test_output_of_every_example_is_checked() -> None:
    assert sorted([*EXPECTED_LINES, "queue_consumers.py"]) == NAMES
