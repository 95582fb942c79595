"""Share modes: which opens and REST operations exclude each other."""

from __future__ import annotations

import itertools

import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, ShareLeaseClient
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import LockFlags

from etagere.nt_status import NtStatus
from tests.sdk.harness import refused as rest_refused
from tests.smb.client import (
    CREATE,
    OVERWRITE,
    READ,
    READ_ONLY,
    SHARE_READ,
    SmbClient,
    lock,
    read,
    refused,
    unlock,
)
from tests.smb.rest_operations import (
    CONTENT,
    LENGTH,
    QUERIES,
    READS,
    REPLACEMENTS,
    SETTINGS,
    WRITES,
    operations,
)

SHARED, EXCLUSIVE = LockFlags.SMB2_LOCKFLAG_SHARED_LOCK, LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK
NONE, R, W, D = 0, 1, 2, 4
MODES = range(8)
"""All sets of R, W and D."""
ACCESSES = {
    mode: 0x80 | (0x1 if mode & R else 0) | (0x2 if mode & W else 0) | (0x10000 if mode & D else 0)
    for mode in MODES
}
"""Access masks: read attributes, and read data, write data and delete if they are included."""


@pytest.fixture
def file(share: ShareClient) -> str:
    """The name of a file; there is another one called `other`."""
    for name in ("f", "other"):
        share.get_file_client(name).upload_file(CONTENT)
    return "f"


def test_opens_exclude_each_other(client: SmbClient, other: SmbClient, file: str) -> None:
    """All pairs of access and share mode, in both orders."""
    wrong = []
    for access, share in itertools.product(MODES, MODES):
        held = client.open(file, ACCESSES[access], share=share)
        for wanted, shared in itertools.product(MODES, MODES):
            try:
                other.open(file, ACCESSES[wanted], share=shared).close()
                is_allowed = True
            except SMBResponseException as error:
                assert error.status == NtStatus.SHARING_VIOLATION
                is_allowed = False
            has_no_data = NONE in (access, wanted)
            if is_allowed != (has_no_data or not (wanted & ~share or access & ~shared)):
                wrong.append((access, share, wanted, shared))
        held.close()
    assert not wrong


_NEVER = ("rename over", "delete")
"""Refused while any handle is open."""
_WRITING = (*WRITES, "set length", *SETTINGS)
_REFUSED = {
    NONE: (*READS, "copy from", *_WRITING, *REPLACEMENTS, "rename", "acquire"),
    R: (*_WRITING, *REPLACEMENTS, "rename", "acquire"),
    W: (*READS, "copy from", *REPLACEMENTS, "rename", "acquire"),
    D: (*READS, "copy from", *_WRITING, *REPLACEMENTS, "acquire"),
    R | W: (*REPLACEMENTS, "rename", "acquire"),
    R | D: (*_WRITING, *REPLACEMENTS, "acquire"),
    W | D: (*READS, "copy from", "acquire"),
    R | W | D: (),
}
"""The operations that fail while a handle with this share mode is open."""
_ALLOWED = (*READS, *QUERIES, "list", "copy from", *_WRITING, *REPLACEMENTS, "rename", "acquire")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("access", [R, NONE])
def test_rest_operations(
    client: SmbClient, share: ShareClient, file: str, mode: int, access: int
) -> None:
    """An open without access to data refuses only what needs the file closed."""
    held = client.open(file, ACCESSES[access], share=mode)
    every = operations(share, file)
    failing = {*_NEVER, *(_REFUSED[mode] if access else ())}
    for name in (*_ALLOWED, *_NEVER):
        if name in failing:
            # The response to a copy describes the error at the source by its own code.
            code = "CannotVerifyCopySource" if name == "copy from" else "SharingViolation"
            with rest_refused(409, code):
                every[name]()
        else:
            every[name]()
        if name == "rename" and name not in failing:
            share.get_file_client("renamed").rename_file(file)
    if "acquire" not in failing:
        every["release"]()
    held.close()
    every["delete"]()


# Leases of files


@pytest.mark.parametrize("access", MODES)
def test_lease_of_an_open_file(
    client: SmbClient, share: ShareClient, file: str, access: int
) -> None:
    held = client.open(file, ACCESSES[access])
    lease = ShareLeaseClient(share.get_file_client(file))
    if access & (W | D):
        with rest_refused(409, "SharingViolation"):
            lease.acquire()
        held.close()
    lease.acquire()


def _opens(client: SmbClient, name: str) -> set[int]:
    """Returns the accesses that are allowed."""
    allowed = set()
    for access, mask in ACCESSES.items():
        try:
            client.open(name, mask).close()
        except SMBResponseException as error:
            assert error.status == NtStatus.SHARING_VIOLATION
        else:
            allowed.add(access)
    return allowed


def test_open_of_a_leased_file(client: SmbClient, share: ShareClient, file: str) -> None:
    leased = share.get_file_client(file)
    assert _opens(client, file) == set(MODES)
    lease = ShareLeaseClient(leased)
    lease.acquire()
    assert _opens(client, file) == {NONE, R}
    with refused(NtStatus.SHARING_VIOLATION):
        client.open(file, READ, disposition=OVERWRITE)
    reader = client.open(file, READ)
    leased.upload_range(b"leased", 0, 6, lease=lease)
    assert read(reader, 0, 6) == b"leased"
    reader.close()
    lease.change("33333333-3333-3333-3333-333333333333")
    assert _opens(client, file) == {NONE, R}
    lease.break_lease()
    assert _opens(client, file) == set(MODES)
    lease.acquire()
    lease.release()
    assert _opens(client, file) == set(MODES)
    # A write by SMB makes a broken lease available, like one by REST.
    lease.acquire()
    lease.break_lease()
    writer = client.open(file)
    writer.write(b"x")
    writer.close()
    assert leased.get_file_properties().lease.state == "available"


def test_lease_holder_and_a_reader(client: SmbClient, share: ShareClient, file: str) -> None:
    """The ID of the lease does not help against a share mode."""
    leased = share.get_file_client(file)
    lease = ShareLeaseClient(leased)
    lease.acquire()
    reader = client.open(file, READ, share=SHARE_READ)
    with rest_refused(409, "SharingViolation"):
        leased.upload_range(b"x", 0, 1, lease=lease)
    reader.close()
    leased.upload_range(b"x", 0, 1, lease=lease)


# Read-only files


def test_read_only_files(client: SmbClient, share: ShareClient) -> None:
    share.get_file_client("other").upload_file(CONTENT)
    held = client.open("f", disposition=CREATE, attributes=READ_ONLY)
    held.write(CONTENT)
    every = operations(share, "f")
    for name in (*WRITES, "set length", *SETTINGS, *REPLACEMENTS):
        with rest_refused(409, "ReadOnlyAttribute"):
            every[name]()
    for name in (*READS, *QUERIES, "list", "copy from"):
        every[name]()
    held.close()
    with rest_refused(409, "ReadOnlyAttribute"):
        every["put range"]()
    with refused(NtStatus.ACCESS_DENIED):
        client.open("f")
    client.open("f", READ).close()
    share.get_file_client("f").set_http_headers(ContentSettings(), file_attributes="Archive")
    every["put range"]()
    client.open("f").close()


# Byte-range locks


def test_locked_ranges(client: SmbClient, share: ShareClient, file: str) -> None:
    held = client.open(file)
    target = share.get_file_client(file)
    every = operations(share, file)
    for kind in (EXCLUSIVE, SHARED):
        lock(held, 100, 50, kind)
        for name in (*WRITES, *REPLACEMENTS):
            with rest_refused(409, "FileLockConflict"):
                every[name]()
        # The whole file counts, not only the locked range.
        with rest_refused(409, "FileLockConflict"):
            target.upload_range(b"x", LENGTH - 1, 1)
        with rest_refused(409, "FileLockConflict"):
            target.resize_file(2 * LENGTH)
        for name in ("list ranges", *QUERIES, *SETTINGS, "list"):
            every[name]()
        for start, length in ((0, 100), (150, 1)):
            assert target.download_file(start, length).readall() == CONTENT[start : start + length]
        for start, length in ((0, 101), (149, 1), (100, 50), (0, LENGTH)):
            if kind == EXCLUSIVE:
                with rest_refused(409, "FileLockConflict"):
                    target.download_file(start, length).readall()
            else:
                target.download_file(start, length).readall()
        unlock(held, 100, 50)
        assert target.download_file().readall() == CONTENT
    # Locks beyond the end count as well, and end with their handle.
    lock(held, 1 << 62, 1, EXCLUSIVE)
    with rest_refused(409, "FileLockConflict"):
        every["put range"]()
    held.close()
    every["put range"]()
