"""Permissions of shares and entries with every engine."""

from __future__ import annotations

import hashlib

from etagere.engine.interface import WriteTxn, operation
from etagere.model.base import Command
from etagere.model.files import (
    CreatePermission,
    Entry,
    FilePermissionUsage,
    FindInherited,
    GetPermission,
    NewEntry,
    NewPermission,
    NewTimes,
)
from etagere.model.shares import ShareName
from etagere.operations.file.collections import INHERITED_PERMISSIONS, PERMISSION_USAGE
from etagere.operations.file.permissions import (
    create_permission,
    find_inherited,
    get_permission,
    keep_inherited,
)
from etagere.rules.file_permissions import (
    DEFAULT_DIRECTORY_PERMISSION,
    DEFAULT_DIRECTORY_SDDL,
    DEFAULT_FILE_PERMISSION,
    PERMISSIONS_BYTES_MAX,
    stored_length,
)
from etagere.rules.sddl import format_sddl, parse_sddl
from etagere.rules.security_descriptors import decode_descriptor, encode_descriptor
from tests.operations.file.fixture import SHARE, FileFixture, file_test
from tests.operations.fixture import code_of

FOR_ALL = "O:BAG:BAD:(A;OICI;FA;;;WD)"


def new_permission(sddl: str) -> NewPermission:
    descriptor = encode_descriptor(parse_sddl(sddl))
    return NewPermission(descriptor, hashlib.sha256(descriptor).digest())


def having(permission: int | NewPermission) -> NewEntry:
    return NewEntry(NewTimes(), 0, permission)


async def sddl_of(files: FileFixture, entry: Entry) -> str:
    found = await files.read(get_permission, GetPermission(SHARE, entry.permission))
    return format_sddl(decode_descriptor(found))


@file_test
async def test_permissions_are_stored_once(files: FileFixture) -> None:
    await files.create()
    one, two = new_permission(FOR_ALL), new_permission("O:SYG:SYD:")
    first = await files.write(create_permission, CreatePermission(SHARE, one))
    second = await files.write(create_permission, CreatePermission(SHARE, two))
    again = await files.write(create_permission, CreatePermission(SHARE, one))
    assert first == again != second
    assert await files.read(get_permission, GetPermission(SHARE, second)) == two.descriptor
    unknown = files.read(get_permission, GetPermission(SHARE, 2))
    assert await code_of(unknown) == "FileInvalidPermissionKey"
    assert (await files.put("a", new=having(one))).permission == first


class LeaveRoom(Command, frozen=True):
    """Counts as many permissions as leave room for these bytes."""

    share_id: bytes
    length: int


@operation
def leave_room(txn: WriteTxn, command: LeaveRoom) -> None:
    used = FilePermissionUsage(PERMISSIONS_BYTES_MAX - command.length)
    txn.put(PERMISSION_USAGE, (command.share_id,), used)


@file_test
async def test_permissions_of_a_share_are_limited(files: FileFixture) -> None:
    share = await files.create()
    one, two, three = map(new_permission, (FOR_ALL, "O:SYG:SYD:", "O:BAG:BAD:"))
    length = sum(stored_length(new.descriptor) for new in (one, two))
    await files.write(leave_room, LeaveRoom(share.id, length))
    for new in (one, two, one):
        await files.write(create_permission, CreatePermission(SHARE, new))
    another = files.write(create_permission, CreatePermission(SHARE, three))
    assert await code_of(another) == "ShareSizeLimitReached"
    # What the share has can still be used, and nothing is created with what it cannot store.
    await files.mkdir("a", having(two))
    assert await code_of(files.mkdir("b", having(three))) == "ShareSizeLimitReached"
    assert await files.names() == ["a"]
    other = ShareName(SHARE.account, "other")
    await files.create(other)
    await files.write(create_permission, CreatePermission(other, three))
    for name in (SHARE, other):
        await files.delete_share(name)
    await files.require_empty()


@file_test
async def test_entries_get_the_default_permissions(files: FileFixture) -> None:
    await files.create()
    root = await files.entry("")
    directory, file = await files.mkdir("d"), await files.put("d/f")
    assert root.permission == directory.permission == DEFAULT_DIRECTORY_PERMISSION
    assert file.permission == DEFAULT_FILE_PERMISSION
    assert await sddl_of(files, directory) == DEFAULT_DIRECTORY_SDDL
    assert (await sddl_of(files, file)).endswith("(A;;0x1301bf;;;AU)(A;;FA;;;SY)")


@file_test
async def test_entries_inherit_from_their_directory(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("d", having(new_permission(FOR_ALL)))
    directory, file = await files.mkdir("d/d"), await files.put("d/f")
    assert await sddl_of(files, directory) == "O:SYG:SYD:(A;OICI;FA;;;WD)"
    assert await sddl_of(files, file) == "O:SYG:SYD:(A;;FA;;;WD)"
    assert (await files.put("d/g")).permission == file.permission
    assert (await files.mkdir("d/d/d")).permission == directory.permission


@file_test
async def test_entries_of_the_root_inherit_from_it(files: FileFixture) -> None:
    await files.create()
    await files.set("", is_directory=True, permission=new_permission(FOR_ALL))
    assert await sddl_of(files, await files.put("f")) == "O:SYG:SYD:(A;;FA;;;WD)"
    assert await sddl_of(files, await files.mkdir("d")) == "O:SYG:SYD:(A;OICI;FA;;;WD)"


@file_test
async def test_a_moved_entry_keeps_its_permission(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("d", having(new_permission(FOR_ALL)))
    file = await files.put("d/f")
    assert (await files.rename("d/f", "f")).permission == file.permission
    moved = await files.rename("f", "g", permission=DEFAULT_FILE_PERMISSION)
    assert moved.permission == DEFAULT_FILE_PERMISSION


@file_test
async def test_unknown_permissions_change_nothing(files: FileFixture) -> None:
    await files.create()
    assert await code_of(files.put("f", new=having(77))) == "FileInvalidPermissionKey"
    file = await files.put("f")
    assert await code_of(files.set("f", permission=77)) == "FileInvalidPermissionKey"
    assert await code_of(files.rename("f", "g", permission=77)) == "FileInvalidPermissionKey"
    assert await files.entry("f") == file


@file_test
async def test_what_is_inherited_may_be_too_long(files: FileFixture) -> None:
    await files.create()
    longest = new_permission("O:SYG:SYD:" + "(A;OICI;GA;;;CO)" * 3_200)
    number = (await files.mkdir("d", having(longest))).permission
    # To determine it would take the writer long, so that the caller has to do it.
    for creation in (files.mkdir("d/d"), files.put("d/f")):
        assert await code_of(creation) == "ServerBusy"
    refused = files.read(find_inherited, FindInherited(SHARE, number, is_directory=True))
    assert await code_of(refused) == "FileInvalidPermission"
    found = await files.read(find_inherited, FindInherited(SHARE, number, is_directory=False))
    for _ in range(2):
        await files.write(keep_inherited, found)
    file = await files.put("d/f")
    assert (await sddl_of(files, file)).startswith("O:SYG:SYD:(A;;FA;;;SY)(A;;FA;;;SY)")
    await files.delete("d/f")
    await files.rmdir("d")
    await files.delete_share()
    await files.purge()
    everything = INHERITED_PERMISSIONS.all()
    assert not await files.read(lambda txn, _: txn.scan(INHERITED_PERMISSIONS, everything, 1), None)
