"""Breaks of oplocks and leases that SMB clients hold."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from azure.storage.fileshare import ShareClient
from smbprotocol.open import Open

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import Command
from tests.server import SECONDS_MAX
from tests.smb.client import (
    BATCH,
    CREATE,
    EXCLUSIVE,
    LEVEL_II,
    NO_OPLOCK,
    OVERWRITE,
    READ,
    Breaks,
    SmbClient,
    refused,
)
from tests.smb.messages import Message


def acknowledge(opened: Open, level: int) -> bytes:
    tree = opened.tree_connect
    body = struct.pack("<HBB4x", 24, level, 0) + opened.file_id
    request = opened.connection.send(
        Message(Command.OPLOCK_BREAK, body), tree.session.session_id, tree.tree_connect_id
    )
    answer: bytes = opened.connection.receive(request)["data"].get_value()
    return answer


def test_batch_oplock(client: SmbClient, other: SmbClient) -> None:
    breaks = Breaks(client)
    opened = client.open("a", disposition=CREATE, oplock=BATCH)
    assert opened.oplock_level == BATCH
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.open, "a", READ, oplock=BATCH)
        assert breaks.wait() == struct.pack("<HBB4x", 24, LEVEL_II, 0) + opened.file_id
        assert not waiting.done()
        answer = acknowledge(opened, LEVEL_II)
        assert answer == struct.pack("<HBB4x", 24, LEVEL_II, 0) + opened.file_id
        assert waiting.result(SECONDS_MAX).oplock_level == LEVEL_II
    with refused(NtStatus.INVALID_OPLOCK_PROTOCOL):
        acknowledge(opened, NO_OPLOCK)
    with refused(NtStatus.INVALID_PARAMETER):
        acknowledge(opened, EXCLUSIVE)


def test_write_ends_shared_caches(client: SmbClient, other: SmbClient) -> None:
    breaks = Breaks(client)
    opened = client.open("a", disposition=CREATE, oplock=LEVEL_II)
    assert opened.oplock_level == LEVEL_II
    writer = other.open("a")
    writer.write(b"x")
    assert breaks.wait() == struct.pack("<HBB4x", 24, NO_OPLOCK, 0) + opened.file_id


def test_overwrite_and_close(client: SmbClient, other: SmbClient) -> None:
    breaks = Breaks(client)
    opened = client.open("a", disposition=CREATE, oplock=EXCLUSIVE)
    with ThreadPoolExecutor(1) as pool:
        waiting: Any = pool.submit(other.open, "a", disposition=OVERWRITE)
        assert breaks.wait()[2] == NO_OPLOCK
        # Closing the handle is as good as an acknowledgement.
        opened.close()
        waiting.result(SECONDS_MAX)


def test_rest_waits_for_the_cache(client: SmbClient, share: ShareClient) -> None:
    breaks = Breaks(client)
    opened = client.open("a", disposition=CREATE, oplock=BATCH)
    with ThreadPoolExecutor(1) as pool:
        download = pool.submit(lambda: share.get_file_client("a").download_file().readall())
        assert breaks.wait()[2] == LEVEL_II
        opened.write(b"cached")
        acknowledge(opened, LEVEL_II)
        assert download.result(SECONDS_MAX) == b"cached"
