"""Servers on machines whose wall clock is changed, was paused, or was wrong for a while."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import refused
from tests.server import ACCOUNT, KEY, PORTS, Server, check, environment, eventually

_DAY_SECONDS = 86_400
_FAR_SECONDS = 3_650 * _DAY_SECONDS

_PROGRAM = """
import pathlib, sys
from etagere.clock import SystemClock
right = SystemClock.wall
offset = pathlib.Path(sys.argv.pop(1))
SystemClock.wall = lambda self: right(self) + int(offset.read_text().split()[0]) * 10_000_000
SystemClock.boot_id = lambda self: offset.read_text().split()[1]
from etagere.cli.main import main
sys.exit(main())
"""
"""Runs a command with a clock that is ahead by the seconds in a file, which also has the boot
ID."""


class Machine:
    """A machine whose clock is ahead of the real one."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self._offset = directory / "offset"
        self._new = directory / "new offset"
        self._boots = 0
        self.set(0)

    def set(self, seconds: int) -> None:
        self._new.write_text(f"{seconds} boot-{self._boots}", "ascii")
        self._new.replace(self._offset)

    def reboot(self, seconds: int) -> None:
        self._boots += 1
        self.set(seconds)

    @property
    def program(self) -> tuple[str, ...]:
        return ("-c", _PROGRAM, str(self._offset))

    @contextlib.contextmanager
    def served(self, *flags: str) -> Iterator[Server]:
        server = Server(self.data, "--workers", "1", *flags)
        server.program = self.program
        server.start()
        try:
            yield server
            assert server.stop() == 0, server.log()
        finally:
            server.kill()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *self.program, *arguments, "--data", str(self.data)]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )


@contextlib.contextmanager
def queue_of(server: Server, name: str = "queue") -> Iterator[QueueClient]:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    url = f"{server.endpoints['queue']}/{ACCOUNT}"
    with QueueClient(url, name, credential, retry_total=0) as queue:
        yield queue


def seconds_ahead(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - datetime.now(UTC)).total_seconds()


# A paused machine


@pytest.mark.long
def test_a_paused_machine_catches_up_and_keeps_lease_durations(tmp_path: Path) -> None:
    """Even without writes; a lease of a minute lasts a minute, whenever it was acquired."""
    machine = Machine(tmp_path)
    with machine.served() as server, queue_of(server) as queue, blob_service(server) as service:
        queue.create_queue()
        container = service.create_container("container")
        blobs = [container.get_blob_client(f"blob {number}") for number in range(3)]
        for blob in blobs:
            blob.upload_blob(b"content")
        machine.set(8 * 3600)
        began, ends = time.monotonic(), []
        for blob, after in zip(blobs, (0, 25, 50), strict=True):
            time.sleep(max(0.0, began + after - time.monotonic()))
            blob.acquire_lease(60)
            ends.append(time.monotonic() + 60)
        time.sleep(max(0.0, began + 57 - time.monotonic()))
        put = queue.send_message("message", time_to_live=3600)
        assert abs(seconds_ahead(put.inserted_on) - 8 * 3600) < 5
        for blob, end in zip(blobs, ends, strict=True):
            time.sleep(max(0.0, end - 1 - time.monotonic()))
            with refused(412, "LeaseIdMissing"):
                blob.set_blob_metadata({"a": "b"})
            eventually(lambda blob=blob: _described(blob), "the end of the lease")  # type: ignore[misc]
            assert time.monotonic() < end + 2


def _described(blob: object) -> bool:
    try:
        blob.set_blob_metadata({"a": "b"})  # type: ignore[attr-defined]
    except HttpResponseError:
        return False
    return True


# A clock that was years ahead


def test_a_clock_that_was_ten_years_ahead(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.served() as server, blob_service(server) as service, queue_of(server) as queue:
        before = service.create_container("container").upload_blob("before", b"before")
        queue.create_queue()
        queue.send_message("before")
        etag_before = before.get_blob_properties().etag
    machine.reboot(_FAR_SECONDS)
    with machine.served() as server, blob_service(server) as service, queue_of(server) as queue:
        container = service.get_container_client("container")
        blob = container.upload_blob("meanwhile", b"one")
        snapshot = blob.create_snapshot()
        blob.upload_blob(b"two", overwrite=True)
        wrong_etag = blob.get_blob_properties().etag
        queue.send_message("meanwhile", visibility_timeout=2)
        # Messages with a week to live have expired by this clock.
        eventually(lambda: _messages(queue) == 1, "the end of the other message")
    machine.reboot(0)

    # It does not start, and reports the reason.
    refusal = machine.run("serve", *_free_ports())
    assert refusal.returncode == 2
    assert len(refusal.stderr.splitlines()) == 1
    assert "3650.0 days ahead" in refusal.stderr
    assert "etagere clock --reset" in refusal.stderr
    assert machine.run("clock").returncode == 1
    with machine.served("--accept-clock") as server:
        assert "3650.0 days ahead" in server.log()

    mended = machine.run("clock", "--reset")
    assert mended.returncode == 0, mended.stderr
    assert machine.run("clock").returncode == 0
    assert check(machine.data).returncode == 0
    with machine.served() as server, blob_service(server) as service, queue_of(server) as queue:
        container = service.get_container_client("container")
        assert container.get_blob_client("before").get_blob_properties().etag == etag_before
        blob = container.get_blob_client("meanwhile")
        found = blob.get_blob_properties()
        assert found.etag != wrong_etag
        assert abs(seconds_ahead(found.last_modified)) < 60
        with refused(412, "ConditionNotMet"):
            blob.set_blob_metadata({"a": "b"}, if_match=wrong_etag)
        (kept,) = (each for each in container.list_blobs(include=["snapshots"]) if each.snapshot)
        assert kept.snapshot != snapshot["snapshot"]
        assert kept.etag != found.etag
        assert blob.download_blob().readall() == b"two"
        old = service.get_blob_client("container", "meanwhile", kept.snapshot)
        assert old.download_blob().readall() == b"one"
        changed = blob.set_blob_metadata({"a": "b"}, if_match=found.etag)
        assert int(str(changed["etag"]).strip('"'), 16) > int(found.etag.strip('"'), 16)
        eventually(lambda: bool(queue.peek_messages(1)), "a message that was hidden")
        taken = queue.receive_message()
        assert taken is not None
        assert taken.content == "meanwhile"
        assert abs(seconds_ahead(taken.inserted_on)) < 60
        assert abs(seconds_ahead(taken.expires_on) - 7 * _DAY_SECONDS) < 60
    assert check(machine.data).returncode == 0


def _messages(queue: QueueClient) -> int:
    return queue.get_queue_properties().approximate_message_count or 0


def _free_ports() -> list[str]:
    return [word for name in PORTS for word in (f"--{name}-port", "0")]


def test_a_clock_that_is_a_little_behind_is_accepted(tmp_path: Path) -> None:
    """Such as one that was set to local time."""
    machine = Machine(tmp_path)
    machine.reboot(14 * 3600)
    with machine.served() as server, blob_service(server) as service:
        service.create_container("container")
    machine.reboot(0)
    with machine.served():
        pass


def test_a_reset_needs_a_correct_clock_and_no_server(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.served():
        running = machine.run("clock", "--reset")
    assert running.returncode == 2
    assert "stop the server" in running.stderr
    machine.set(-int(time.time()))
    early = machine.run("clock", "--reset")
    assert early.returncode == 2
    assert "1970" in early.stderr
    machine.set(0)
    assert machine.run("clock", "--reset").returncode == 0
