"""Backups of running servers: what they contain, and what clients notice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from etagere import data_directory
from etagere.coordination.local import LocalCoordinator
from tests.backup.commands import COMMAND, back_up, etagere, etagere_here
from tests.backup.workload import Counters, Load, Span, read
from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.server import check, environment, eventually, served
from tests.smb.client import CREATE, smb_client

_CLIENTS = 2


def _spans(first: list[Counters], last: list[Counters]) -> list[Span]:
    return [Span(*pair) for pair in zip(first, last, strict=True)]


def _check_restored(directory: Path, spans: list[Span]) -> None:
    assert check(directory).returncode == 0, check(directory).stdout
    with served(directory) as server:
        for span, found in zip(spans, read(server, len(spans)), strict=True):
            span.check(found)


def test_a_backup_under_load_is_a_state_of_all_services(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    taken: list[tuple[str, list[Span]]] = []
    with served(data) as server:
        load = Load(server, _CLIENTS)
        with load.running():
            for _ in range(2):
                first = load.acknowledged()
                eventually(
                    lambda first=first: load.acknowledged()[0].file > first[0].file + 3,  # type: ignore[misc]
                    "writes",
                )
                first = load.acknowledged()
                point = back_up(backup, data)
                taken.append((point["name"], _spans(first, load.tried())))
        assert "Traceback" not in server.log()
    listed = json.loads(etagere("backup", backup, "--list", "--json"))
    assert [point["name"] for point in listed["points"]] == [name for name, _ in taken]
    etagere_here("backup", backup, "--verify")
    name, spans = taken[0]  # not the last one
    etagere("restore", backup, "--data", tmp_path / "restored", "--point", name)
    _check_restored(tmp_path / "restored", spans)


def test_a_restored_server_goes_on(tmp_path: Path) -> None:
    """Its ETags are new, also if the store was changed after the backup. It has what SMB clients
    had written before, even if it was not flushed."""
    data, backup, target = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with served(data) as server:
        container = blob_service(server).create_container("container")
        before = container.upload_blob("blob", b"before").get_blob_properties().etag
        share = file_service(server).create_share("share")
        with smb_client(server, share.share_name) as client:
            opened = client.open("f", disposition=CREATE)
            opened.write(b"gathered" * 100)
            back_up(backup, data)
            opened.write(b"later", 0)
            opened.close()
        lost = container.upload_blob("blob", b"lost", overwrite=True).get_blob_properties().etag
    etagere_here("restore", backup, "--data", target)
    with served(target) as server:
        file = file_service(server).get_share_client("share").get_file_client("f")
        assert file.download_file().readall() == b"gathered" * 100
        blob = blob_service(server).get_blob_client("container", "blob")
        assert blob.get_blob_properties().etag == before
        assert blob.download_blob().readall() == b"before"
        blob.upload_blob(b"after", overwrite=True)
        assert blob.get_blob_properties().etag not in (before, lost)


def test_commands_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, backup, target = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with served(data) as server:
        blob_service(server).create_container("container")
        for _ in range(3):
            back_up(backup, data, "--keep", "2")
        names = [line.split()[0] for line in etagere("backup", backup, "--list").splitlines()]
        assert len(names) == 2
        monkeypatch.setattr(data_directory, "_IN_USE_SECONDS", 0.1)
        wrong = etagere_here("restore", backup, "--data", data, "--replace", status=2)
        assert "in use by another etagere process; stop the server first" in wrong
        assert "--replace" in etagere_here("restore", backup, "--data", data, status=2)
    coordinator = LocalCoordinator(data)
    with coordinator.pin():
        wrong = etagere_here("restore", backup, "--data", data, "--replace", status=2)
        assert "a backup or check" in wrong
    coordinator.close()
    assert "no point" in etagere_here("restore", backup, "--data", target, "--point", "x", status=2)
    assert "no point" in etagere_here("backup", backup, "--remove", "x", status=2)
    assert not target.exists()
    assert etagere_here("backup", backup, "--remove", names[0]) == f"removed {names[0]}\n"
    (pack,) = (backup / "ledger").iterdir()
    content = bytearray(pack.read_bytes())
    content[1000] ^= 1
    pack.write_bytes(content)
    assert "damaged" in etagere_here("backup", backup, "--verify", status=1)
    assert "damaged at" in etagere_here("restore", backup, "--data", target, status=2)
    assert "not a backup" in etagere_here("backup", tmp_path, "--list", status=2)
    assert "--keep" in etagere_here("backup", backup, "--list", "--keep", "1", status=2)
    assert "at least 1" in etagere_here("backup", backup, "--keep", "0", status=2)
    # As an interrupted restoration leaves it.
    (target / "restore.partial").mkdir()
    assert "interrupted" in etagere("serve", "--data", target, status=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_backups_that_are_killed_under_load(tmp_path: Path, seed: int) -> None:
    """The last complete point can always be restored, and is a state of its time."""
    random_numbers = random.Random(seed)
    data, backup = tmp_path / "data", tmp_path / "backup"
    with served(data) as server:
        load = Load(server, 3)
        with load.running():
            began = time.monotonic()
            back_up(backup, data)
            seconds = time.monotonic() - began
            for number in range(8):
                _kill_a_backup(backup, data, random_numbers.uniform(0.3, 1.1) * seconds)
                assert json.loads(etagere("backup", backup, "--verify", "--json"))["clean"]
                first = load.acknowledged()
                point = back_up(backup, data, "--keep", "3")
                spans = _spans(first, load.tried())
                if number % 4 == 3:
                    target = tmp_path / f"restored-{number}"
                    etagere("restore", backup, "--data", target, "--point", point["name"])
                    _check_restored(target, spans)
        assert "Traceback" not in server.log()


def _kill_a_backup(backup: Path, data: Path, seconds: float) -> None:
    process = subprocess.Popen(
        [*COMMAND, "backup", str(backup), "--data", str(data)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
