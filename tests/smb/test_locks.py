"""Byte-range locks of SMB clients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import LockFlags, Open, SMB2LockElement

from etagere.nt_status import NtStatus
from tests.server import SECONDS_MAX
from tests.smb.client import CREATE, SmbClient, lock, read, refused, unlock

READ_ATTRIBUTES = 0x80
SHARED, EXCLUSIVE = LockFlags.SMB2_LOCKFLAG_SHARED_LOCK, LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK


@pytest.fixture
def pair(client: SmbClient, other: SmbClient) -> tuple[Open, Open]:
    """Two opens of a file, by two clients."""
    one = client.open("a", disposition=CREATE)
    one.write(b"0123456789")
    return one, other.open("a")


def test_conflicts(pair: tuple[Open, Open]) -> None:
    one, two = pair
    lock(one, 2, 4, EXCLUSIVE)
    for start, length in ((0, 3), (5, 5), (3, 1), (4, 0)):
        for flags in (SHARED, EXCLUSIVE):
            with refused(NtStatus.LOCK_NOT_GRANTED):
                lock(two, start, length, flags)
    lock(two, 0, 2, EXCLUSIVE)
    lock(two, 6, 4, EXCLUSIVE)
    with refused(NtStatus.FILE_LOCK_CONFLICT):
        read(two, 0, 3)
    with refused(NtStatus.FILE_LOCK_CONFLICT):
        two.write(b"x", 5)
    assert read(one, 2, 4) == b"2345"
    one.write(b"X", 2)
    unlock(one, 2, 4)
    assert read(two) == b"01X3456789"
    with refused(NtStatus.RANGE_NOT_LOCKED):
        unlock(one, 2, 4)


def test_shared_locks(pair: tuple[Open, Open]) -> None:
    one, two = pair
    lock(one, 0, 5, SHARED)
    lock(two, 0, 5, SHARED)
    lock(two, 0, 5, SHARED)
    assert read(two, 0, 5) == b"01234"
    for opened in pair:
        with refused(NtStatus.FILE_LOCK_CONFLICT):
            opened.write(b"x")
    unlock(one, 0, 5)
    unlock(two, 0, 5)
    with refused(NtStatus.LOCK_NOT_GRANTED):
        lock(one, 0, 5, EXCLUSIVE)
    two.close()
    lock(one, 0, 5, EXCLUSIVE)


def test_open_without_access_to_bytes(client: SmbClient, other: SmbClient) -> None:
    client.write_file("a", b"data")
    owner = client.open("a", share=0)
    attributes = other.open("a", READ_ATTRIBUTES)
    for flags in (EXCLUSIVE, SHARED):
        with refused(NtStatus.ACCESS_DENIED):
            lock(attributes, 0, 4, flags)
    owner.write(b"more")


def test_ranges(pair: tuple[Open, Open]) -> None:
    one, _ = pair
    with refused(NtStatus.INVALID_LOCK_RANGE):
        lock(one, (1 << 64) - 1, 2, EXCLUSIVE)
    lock(one, (1 << 64) - 1, 1, EXCLUSIVE)
    with refused(NtStatus.INVALID_PARAMETER):
        lock(one, 0, 1, SHARED | EXCLUSIVE)


def start_waiting(opened: Open) -> tuple[Any, Any]:
    """Asks for a lock that has to wait; returns the request, and what receives its response."""
    element = SMB2LockElement()
    element["offset"], element["length"], element["flags"] = 0, 5, EXCLUSIVE
    message, receive = opened.lock([element], send=False)
    tree = opened.tree_connect
    request = opened.connection.send(message, tree.session.session_id, tree.tree_connect_id)
    assert request.response_event.wait(SECONDS_MAX)
    assert request.response["status"].get_value() == NtStatus.PENDING
    return request, receive


def test_lock_that_waits(pair: tuple[Open, Open]) -> None:
    one, two = pair
    lock(one, 0, 5, EXCLUSIVE)
    request, receive = start_waiting(two)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, request, True)
        unlock(one, 0, 5)
        waiting.result(SECONDS_MAX)
    with refused(NtStatus.LOCK_NOT_GRANTED):
        lock(one, 0, 5, EXCLUSIVE)


def test_lock_that_is_cancelled(pair: tuple[Open, Open]) -> None:
    one, two = pair
    lock(one, 0, 5, EXCLUSIVE)
    request, receive = start_waiting(two)
    request.cancel()
    with pytest.raises(SMBResponseException) as raised:
        receive(request, True)
    assert raised.value.status == NtStatus.CANCELLED
    unlock(one, 0, 5)
    lock(one, 0, 5, EXCLUSIVE)


def test_tree_that_is_disconnected_while_a_lock_waits(pair: tuple[Open, Open]) -> None:
    """Windows answers the lock as if it had been granted. It ends with the handle."""
    one, two = pair
    lock(one, 0, 5, EXCLUSIVE)
    request, receive = start_waiting(two)
    two.tree_connect.disconnect()
    receive(request, True)
    two.connection.session_table[two.tree_connect.session.session_id].open_table.clear()
    unlock(one, 0, 5)
    lock(one, 0, 5, EXCLUSIVE)
