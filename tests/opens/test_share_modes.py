"""Share modes, leases and locks between SMB opens and REST operations: every row of the tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product

from etagere.model.leases import Break
from etagere.rules.opens import EVERYTHING, Access, RestAccess
from tests.opens.fixture import NONE, D, OpensFixture, R, W, opened, opens_test
from tests.operations.file.copying import begin, to
from tests.operations.file.fixture import path_of
from tests.operations.fixture import code_of

ALL_ACCESS = [Access(value) for value in range(8)]
FILE = "notes.txt"

Rest = Callable[[OpensFixture], Awaitable[object]]

OPERATIONS: dict[str, Rest] = {
    "get properties": lambda f: f.rest_get(FILE),
    "get": lambda f: f.rest_read(FILE),
    "put range": lambda f: f.rest_write(FILE),
    "set": lambda f: f.rest_set(FILE),
    "create": lambda f: f.rest_put(FILE),
    "delete": lambda f: f.rest_delete(FILE),
    "lease": lambda f: f.rest_lease(FILE),
}
# The operations that fail while a handle with this share mode is open.
FAILING = {
    NONE: ["get", "put range", "set", "create", "delete", "lease"],
    R: ["put range", "set", "create", "delete", "lease"],
    W: ["get", "create", "delete", "lease"],
    D: ["get", "put range", "set", "create", "delete", "lease"],
    R | W: ["create", "delete", "lease"],
    R | D: ["put range", "set", "create", "delete", "lease"],
    W | D: ["get", "delete", "lease"],
    R | W | D: ["delete"],
}


@opens_test
async def test_share_modes_of_handles_against_rest_operations(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    for share, operation in product(FAILING, OPERATIONS):
        await f.rest_put(FILE)
        handle = await opened(client, FILE, R, share)
        failing = operation in FAILING[share]
        code = await code_of(OPERATIONS[operation](f))
        assert code == ("SharingViolation" if failing else ""), (share, operation)
        await client.close(handle)
        if operation == "lease" and not failing:
            await f.rest_lease(FILE, Break())


@opens_test
async def test_handles_for_attributes_only_prevent_nothing_but_deletion(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    for name, operation in OPERATIONS.items():
        await f.rest_put(FILE)
        handle = await opened(client, FILE, NONE, NONE)
        expected = "SharingViolation" if name == "delete" else ""
        assert await code_of(operation(f)) == expected
        await client.close(handle)
        if name == "lease":
            await f.rest_lease(FILE, Break())


@opens_test
async def test_opens_against_opens(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    for held_access, held_share in product(ALL_ACCESS, ALL_ACCESS):
        held = await opened(client, FILE, held_access, held_share)
        for access, share in product(ALL_ACCESS, ALL_ACCESS):
            excluded = bool(held_access and access) and bool(
                access & ~held_share or held_access & ~share
            )
            try:
                handle = await opened(client, FILE, access, share)
            except Exception as error:
                assert excluded
                assert str(error) == "SharingViolation"
            else:
                assert not excluded
                await client.close(handle)
        await client.close(held)


@opens_test
async def test_a_lease_needs_that_no_handle_writes_or_deletes(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    for access in ALL_ACCESS:
        handle = await opened(client, FILE, access)
        expected = "SharingViolation" if access & (W | D) else ""
        assert await code_of(f.rest_lease(FILE)) == expected
        await client.close(handle)
        await code_of(f.rest_lease(FILE, Break()))


@opens_test
async def test_opens_of_a_leased_file(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE)
    client = await f.connect()
    for state in ("available", "leased", "broken"):
        if state == "leased":
            await f.rest_lease(FILE)
        if state == "broken":
            await f.rest_lease(FILE, Break())
        for access in ALL_ACCESS:
            refused = state == "leased" and access & (W | D)
            code = await code_of(opened(client, FILE, access))
            assert code == ("SharingViolation" if refused else "")
            for handle in list(client.handles.values()):
                await client.close(handle)


@opens_test
async def test_opens_of_a_file_that_is_being_copied_to(f: OpensFixture) -> None:
    await f.create()
    client = await f.connect()
    await begin(f, to(FILE))
    for access, share, code in (
        (NONE, NONE, ""),
        (R, EVERYTHING, ""),
        (R, R, "SharingViolation"),
        (W, EVERYTHING, "SharingViolation"),
    ):
        assert await code_of(opened(client, FILE, access, share)) == code


@opens_test
async def test_locks_against_rest_operations(f: OpensFixture) -> None:
    await f.create()
    await f.put(FILE, b"x" * 100)
    client = await f.connect()
    handle = await opened(client, FILE, R | W)
    for exclusive in (False, True):
        await client.lock(handle, 10, 20, exclusive=exclusive)
        assert await code_of(f.rest_write(FILE)) == "FileLockConflict"
        assert await code_of(f.rest_put(FILE)) == "FileLockConflict"
        assert await code_of(f.rest_set(FILE)) == ""
        conflict = "FileLockConflict" if exclusive else ""
        assert await code_of(f.rest_read(FILE, (0, 100))) == conflict
        assert await code_of(f.rest_read(FILE, (0, 10))) == ""
        assert await code_of(f.rest_read(FILE, (20, 100))) == ""
        assert await code_of(f.rest_read(FILE)) == ""  # List Ranges reads no bytes
        assert not client.unlock(handle, [(10, 19)])
        assert client.unlock(handle, [(10, 20)])
        assert not client.unlock(handle, [(10, 20)])
    assert await code_of(f.rest_write(FILE)) == ""
    await client.lock(handle, 0, 1, exclusive=True)
    await client.close(handle)
    assert await code_of(f.rest_write(FILE)) == ""


@opens_test
async def test_rest_operations_never_conflict_with_each_other(f: OpensFixture) -> None:
    """Neither with the same entry, nor with the tracked state of the share."""
    share = await f.open_share()
    await f.rest_put(FILE)
    path = path_of(FILE)
    for one, other in product(RestAccess, RestAccess):

        async def inner(_: object, other: RestAccess = other) -> None:
            async def nothing(_: object) -> None:
                pass

            await f.table.rest(path, other, nothing, seconds_max=0)

        await f.table.rest(path, one, inner, seconds_max=0)
    assert not share.rest._in_progress


@opens_test
async def test_directories_have_share_modes_too(f: OpensFixture) -> None:
    await f.create()
    await f.mkdir("a")
    client = await f.connect()
    handle = await opened(client, "a", R, R)
    assert await code_of(f.rest_set("a", is_directory=True)) == "SharingViolation"
    assert await code_of(f.rest_delete("a", is_directory=True)) == "SharingViolation"
    assert await code_of(f.rest_mkdir("a/b")) == ""
    assert await code_of(f.rest_put("a/file")) == ""
    await client.close(handle)
    handle = await opened(client, "a", R, EVERYTHING)
    assert await code_of(f.rest_set("a", is_directory=True)) == ""
    assert await code_of(f.rest_delete("a", is_directory=True)) == "SharingViolation"
    await client.close(handle)
    assert await code_of(f.rest_delete("a", is_directory=True)) == "DirectoryNotEmpty"
