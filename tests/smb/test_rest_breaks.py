"""Breaks of the caches of SMB clients by REST operations."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient
from smbprotocol.exceptions import SMBException

from etagere.nt_status import NtStatus
from etagere.opens.table import REST_WAIT_SECONDS_MAX
from tests.sdk.harness import error_code
from tests.sdk.harness import refused as rest_refused
from tests.server import SECONDS_MAX, Server
from tests.smb.client import ALL, READ, SHARE_READ, Breaks, SmbClient, refused, smb_client
from tests.smb.leases import H, Lease, LeaseBreak, R, W, parse_break
from tests.smb.rest_operations import (
    CONTENT,
    QUERIES,
    READS,
    REPLACEMENTS,
    SETTINGS,
    WRITES,
    operations,
)

RWH, RW, RH = R | W | H, R | W, R | H
NO_BREAK = None
_Row = dict[int, tuple[int, bool] | None]
_DELAY_SECONDS = 0.1
"""How long a request is watched that must not end."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as running:
        yield running


@pytest.fixture
def file(share: ShareClient) -> str:
    for name in ("f", "other"):
        share.get_file_client(name).upload_file(CONTENT)
    return "f"


def _outcome(request: Future[Any]) -> str:
    error = request.exception(SECONDS_MAX)
    if error is None:
        return "ok"
    assert isinstance(error, HttpResponseError), error
    return error_code(error)


_READING: _Row = {RWH: (RH, True), RW: (R, True), RH: NO_BREAK, R: NO_BREAK}
_WRITING: _Row = {RWH: (0, True), RW: (0, True), RH: (0, False), R: (0, False)}
_DELETING: _Row = {RWH: (RW, True), RW: NO_BREAK, RH: (R, True), R: NO_BREAK}
_LISTING: _Row = {RWH: NO_BREAK, RW: NO_BREAK, RH: NO_BREAK, R: NO_BREAK}
_TABLE: dict[str, _Row] = {
    **dict.fromkeys((*READS, *QUERIES, "copy from"), _READING),
    **dict.fromkeys((*WRITES, "set length", *SETTINGS, *REPLACEMENTS), _WRITING),
    "delete": _DELETING,
    "rename over": _DELETING,
    "rename": _DELETING,
    "acquire": _READING,
    "list": _LISTING,
}
"""By operation and what the client caches: what it may still cache after the break, and whether the
operation waits for its acknowledgement."""
_NEEDS_CLOSED = ("delete", "rename over")
_NEEDS_READER = ("acquire",)


@pytest.mark.parametrize("held", [RWH, RW, RH, R])
def test_breaks(client: SmbClient, share: ShareClient, pool: ThreadPoolExecutor, held: int) -> None:
    share.get_file_client("other").upload_file(CONTENT)
    breaks = Breaks(client)
    for number, (name, row) in enumerate(_TABLE.items()):
        file = f"f{number}"
        share.get_file_client(file).upload_file(CONTENT)
        lease = Lease(client, file)
        lease.open(held, READ if name in _NEEDS_READER else ALL)
        request = pool.submit(operations(share, file)[name])
        left, waits = held, False
        if (wanted := row[held]) is not None:
            left, waits = wanted
            told = parse_break(breaks.wait())
            # A client that caches only reads has nothing to acknowledge.
            assert told == LeaseBreak(lease.key, held, left, held != R), name
            if waits:
                assert not wait_for((request,), _DELAY_SECONDS).done, name
            if held != R:
                lease.acknowledge(left)
        assert _outcome(request) == ("SharingViolation" if name in _NEEDS_CLOSED else "ok"), name
        assert not breaks.is_told(), name
        if name != "rename":
            assert lease.state() == left, name


@pytest.mark.parametrize("held", [RWH, RH])
def test_client_that_closes_its_cached_handle(
    client: SmbClient, share: ShareClient, file: str, pool: ThreadPoolExecutor, held: int
) -> None:
    breaks, lease = Breaks(client), Lease(client, file)
    opened = lease.open(held, ALL)
    request = pool.submit(share.get_file_client(file).delete_file)
    assert parse_break(breaks.wait()).left == held & ~H
    opened.close()
    assert _outcome(request) == "ok"
    assert not share.get_file_client(file).exists()


_STEPS = {True: {RWH: [RH, R], RW: [R], RH: [R]}, False: {RWH: [0], RW: [0], RH: [R]}}
"""By whether the operation reads and what the client caches: what it may still cache after each
break."""


@pytest.mark.parametrize("name", ["get", "put range", "set metadata", "create"])
def test_cached_handle_that_excludes_the_operation(
    client: SmbClient, share: ShareClient, file: str, pool: ThreadPoolExecutor, name: str
) -> None:
    """A conflict of share modes also ends the caching of handles: the program may have closed the
    file."""
    breaks = Breaks(client)
    for closes, (held, steps) in itertools.product((True, False), _STEPS[name == "get"].items()):
        lease = Lease(client, file)
        opened = lease.open(held, ALL, share=0)
        request = pool.submit(operations(share, file)[name])
        for at, left in enumerate(steps):
            assert parse_break(breaks.wait()).left == left, held
            if closes and at == len(steps) - 1:
                opened.close()
            else:
                lease.acknowledge(left)
        assert _outcome(request) == ("ok" if closes else "SharingViolation"), held
        assert not breaks.is_told(), held
        opened.close()


def test_refused_operations_leave_read_caches(
    client: SmbClient, other: SmbClient, share: ShareClient, file: str
) -> None:
    breaks, lease = Breaks(client), Lease(client, file)
    lease.open(R, READ)
    other.open(file, READ, share=SHARE_READ)
    with rest_refused(409, "SharingViolation"):
        share.get_file_client(file).upload_range(b"x", 0, 1)
    assert not breaks.is_told()
    assert lease.state() == R


def test_acknowledged_too_late(
    client: SmbClient, share: ShareClient, pool: ThreadPoolExecutor
) -> None:
    """Each operation that waits gives up after its timeout, and changes nothing."""
    share.get_file_client("other").upload_file(CONTENT)
    waiting = [name for name, row in _TABLE.items() if row[RWH] is not NO_BREAK]
    leases, requests = {}, {}
    for at, name in enumerate(waiting):
        path = f"f{at}"
        share.get_file_client(path).upload_file(CONTENT)
        leases[name] = Lease(client, path)
        leases[name].open(RWH, READ if name in _NEEDS_READER else ALL)
    breaks = Breaks(client)
    started = time.monotonic()
    for at, name in enumerate(waiting):
        requests[name] = pool.submit(operations(share, f"f{at}")[name], timeout=1)
    for name, request in requests.items():
        assert _outcome(request) == (
            "CannotVerifyCopySource" if name == "copy from" else "ClientCacheFlushDelay"
        ), name
    assert time.monotonic() - started < REST_WAIT_SECONDS_MAX
    assert breaks.is_told()
    for at, name in enumerate(waiting):
        # The break can still be acknowledged; then the file is as it was.
        leases[name].acknowledge(0)
        assert share.get_file_client(f"f{at}").download_file().readall() == CONTENT


def test_status_of_a_timeout(client: SmbClient, share: ShareClient, file: str) -> None:
    breaks = Breaks(client)
    Lease(client, file).open(RWH, ALL)
    with rest_refused(408, "ClientCacheFlushDelay"):
        share.get_file_client(file).get_file_properties(timeout=1)
    breaks.wait()


@pytest.mark.parametrize("closes", [True, False])
def test_cached_handle_below_a_directory(
    client: SmbClient, share: ShareClient, pool: ThreadPoolExecutor, closes: bool
) -> None:
    directory = share.create_directory("d")
    directory.upload_file("f", CONTENT)
    breaks, lease = Breaks(client), Lease(client, "d\\f")
    opened = lease.open(RH, READ)
    request = pool.submit(directory.rename_directory, "e")
    assert parse_break(breaks.wait()).left == R
    if closes:
        opened.close()
    else:
        lease.acknowledge(R)
    assert _outcome(request) == ("ok" if closes else "SharingViolation")


def test_requests_that_wait_for_the_same_break(
    client: SmbClient, share: ShareClient, file: str, pool: ThreadPoolExecutor
) -> None:
    breaks, lease = Breaks(client), Lease(client, file)
    opened = lease.open(RWH, ALL)
    every = operations(share, file)
    reads = [pool.submit(every[name]) for name in (*READS, *QUERIES)]
    assert parse_break(breaks.wait()).left == RH
    assert not wait_for(reads, _DELAY_SECONDS).done
    opened.write(b"written back")
    lease.acknowledge(RH)
    assert [_outcome(one) for one in reads] == ["ok"] * len(reads)
    assert reads[0].result() == b"written back" + CONTENT[12:]
    # Writes need more than the readers did.
    assert _outcome(pool.submit(every["put range"])) == "ok"
    assert parse_break(breaks.wait()) == LeaseBreak(lease.key, RH, 0, True)


def test_client_may_keep_less(
    client: SmbClient, share: ShareClient, file: str, pool: ThreadPoolExecutor
) -> None:
    breaks, lease = Breaks(client), Lease(client, file)
    lease.open(RWH, ALL)
    request = pool.submit(share.get_file_client(file).get_file_properties)
    assert parse_break(breaks.wait()).left == RH
    with refused(NtStatus.REQUEST_NOT_ACCEPTED):
        lease.acknowledge(RWH)
    assert not wait_for((request,), _DELAY_SECONDS).done
    lease.acknowledge(0)
    assert _outcome(request) == "ok"
    assert lease.state() == 0


def test_clients_that_share_a_read_cache(
    client: SmbClient, other: SmbClient, share: ShareClient, file: str
) -> None:
    told = []
    for one in (client, other):
        lease = Lease(one, file)
        told.append((Breaks(one), lease))
        lease.open(RH, READ)
    share.get_file_client(file).download_file().readall()
    assert not any(breaks.is_told() for breaks, _ in told)
    share.get_file_client(file).upload_range(b"x", 0, 1)
    for breaks, lease in told:
        assert parse_break(breaks.wait()) == LeaseBreak(lease.key, RH, 0, True)


def test_force_close_ends_caches_without_a_break(
    client: SmbClient, share: ShareClient, file: str
) -> None:
    breaks = Breaks(client)
    opened = Lease(client, file).open(RWH, ALL, share=SHARE_READ)
    target = share.get_file_client(file)
    assert target.close_all_handles()["closed_handles_count"] == 1
    target.upload_range(b"x", 0, 1, timeout=2)
    target.delete_file()
    assert not breaks.is_told()
    with refused(NtStatus.FILE_CLOSED):
        opened.read(0, 1)


def test_force_close_ends_waiting(
    client: SmbClient, share: ShareClient, file: str, pool: ThreadPoolExecutor
) -> None:
    breaks = Breaks(client)
    Lease(client, file).open(RWH, ALL)
    target = share.get_file_client(file)
    requests: list[Future[Any]] = [
        pool.submit(target.get_file_properties),
        pool.submit(target.delete_file),
    ]
    breaks.wait()
    assert not wait_for(requests, _DELAY_SECONDS).done
    assert target.close_all_handles()["closed_handles_count"] == 1
    assert _outcome(requests[1]) == "ok"


def test_lost_connection_ends_waiting(
    server: Server, share: ShareClient, file: str, pool: ThreadPoolExecutor
) -> None:
    with contextlib.suppress(SMBException), smb_client(server, share.share_name) as lost:
        breaks = Breaks(lost)
        Lease(lost, file).open(RWH, ALL)
        request = pool.submit(share.get_file_client(file).delete_file)
        breaks.wait()
        lost.connection.transport.close()
        assert _outcome(request) == "ok"
