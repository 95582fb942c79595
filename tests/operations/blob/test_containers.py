"""Containers over every engine."""

from __future__ import annotations

import asyncio

from etagere.clock import TICKS_PER_SECOND
from etagere.model.accounts import AddAccount, RemoveAccount
from etagere.model.blobs import BlobName, DeleteBlob, GetBlob, ListBlobs
from etagere.model.conditions import Conditions
from etagere.model.containers import (
    ContainerName,
    CreateContainer,
    DeleteContainer,
    GetContainer,
    LeaseContainer,
    ListContainers,
    PublicAccess,
    SetContainerAccess,
    SetContainerMetadata,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, Break, Release, new_lease_id
from etagere.operations.accounts import add_account, remove_account
from etagere.operations.blob.blobs import delete_blob, get_blob
from etagere.operations.blob.containers import (
    create_container,
    delete_container,
    get_container,
    lease_container,
    set_container_access,
    set_container_metadata,
)
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.rules.conditions import format_etag
from tests.operations.blob.shelf import ACCOUNT, BOX, Shelf, code_of, on_a_shelf
from tests.operations.pages import list_blobs, list_containers


@on_a_shelf
async def test_made_once(shelf: Shelf) -> None:
    assert await code_of(shelf.read(get_container, GetContainer(BOX))) == "ContainerNotFound"
    made = await shelf.create()
    assert (await shelf.read(get_container, GetContainer(BOX))).container == made
    assert await code_of(shelf.create()) == "ContainerAlreadyExists"
    others = [shelf.create(ContainerName(ACCOUNT, "race")) for _ in range(10)]
    codes = await asyncio.gather(*map(code_of, others))
    assert sorted(codes) == [""] + ["ContainerAlreadyExists"] * 9


@on_a_shelf
async def test_changes_give_new_stamps_and_conditions_count(shelf: Shelf) -> None:
    made = await shelf.create()
    current = Conditions(if_match=(format_etag(made.stamp),))
    ask = SetContainerMetadata(BOX, (("Colour", "red"),), current)
    changed = await shelf.write(set_container_metadata, ask)
    assert changed.stamp > made.stamp
    assert changed.metadata == (("Colour", "red"),)
    assert await code_of(shelf.write(set_container_metadata, ask)) == "ConditionNotMet"
    access = SetContainerAccess(BOX, PublicAccess.BLOBS, (), current)
    assert await code_of(shelf.write(set_container_access, access)) == "ConditionNotMet"
    opened = await shelf.write(
        set_container_access, SetContainerAccess(BOX, PublicAccess.BLOBS, ())
    )
    assert opened.stamp > changed.stamp
    shown = await shelf.read(get_container, GetContainer(BOX))
    assert shown.container.public_access is PublicAccess.BLOBS
    assert shown.container.metadata == (("Colour", "red"),)
    stale = DeleteContainer(BOX, current)
    assert await code_of(shelf.write(delete_container, stale)) == "ConditionNotMet"


@on_a_shelf
async def test_a_lease_guards_only_the_delete(shelf: Shelf) -> None:
    made = await shelf.create()
    mine, other = new_lease_id(), new_lease_id()
    shelf.clock.freeze()
    leased = await shelf.write(lease_container, LeaseContainer(BOX, Acquire(mine, 15)))
    assert leased.container.stamp == made.stamp
    again = LeaseContainer(BOX, Acquire(other, 15))
    assert await code_of(shelf.write(lease_container, again)) == "LeaseAlreadyPresent"
    delete = shelf.write(delete_container, DeleteContainer(BOX))
    assert await code_of(delete) == "LeaseIdMissing"
    await shelf.write(set_container_metadata, SetContainerMetadata(BOX, ()))
    wrong = SetContainerMetadata(BOX, (), lease_id=other)
    mismatch = "LeaseIdMismatchWithContainerOperation"
    assert await code_of(shelf.write(set_container_metadata, wrong)) == mismatch
    assert await code_of(shelf.read(get_container, GetContainer(BOX, other))) == mismatch
    shelf.clock.advance(16 * TICKS_PER_SECOND)  # the engine may slew by a few ms
    lost = shelf.write(delete_container, DeleteContainer(BOX, lease_id=mine))
    assert await code_of(lost) == "LeaseLost"
    await shelf.write(delete_container, DeleteContainer(BOX))


@on_a_shelf
async def test_a_lease_that_is_broken_or_given_up(shelf: Shelf) -> None:
    await shelf.create()
    mine = new_lease_id()
    await shelf.write(lease_container, LeaseContainer(BOX, Acquire(mine, None)))
    await shelf.write(lease_container, LeaseContainer(BOX, Break(0)))
    await shelf.write(lease_container, LeaseContainer(BOX, Acquire(mine, None)))
    await shelf.write(lease_container, LeaseContainer(BOX, Release(mine)))
    await shelf.write(delete_container, DeleteContainer(BOX))


@on_a_shelf
async def test_a_namesake_is_empty(shelf: Shelf) -> None:
    """The name of a deleted container is free at once, and what was in it is removed later."""
    await shelf.create()
    for number in range(7):
        await shelf.put(f"blob {number}", b"x" * (number * 20_000))
    await shelf.write(delete_container, DeleteContainer(BOX))
    assert await code_of(shelf.get("blob 1")) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(shelf.get("blob 1")) == "BlobNotFound"
    await shelf.put("blob 1", b"new")
    while await shelf.write(purge_containers, PurgeContainers(3)):
        pass
    assert await shelf.get("blob 1") == b"new"


@on_a_shelf
async def test_pages_of_containers(shelf: Shelf) -> None:
    names = [f"box-{number:02}" for number in range(9)] + ["chest"]
    for name in names:
        await shelf.create(ContainerName(ACCOUNT, name))
    await shelf.write(
        create_container, CreateContainer(ContainerName("another", "box-00"), new_id())
    )
    found: list[str] = []
    marker = ""
    while True:
        page = await shelf.read(list_containers, ListContainers(ACCOUNT, 4, marker=marker))
        assert len(page.rows) <= 4
        found += [name for name, _ in page.rows]
        marker = page.next_marker
        if not marker:
            break
    assert found == names
    page = await shelf.read(list_containers, ListContainers(ACCOUNT, 100, prefix="box-0"))
    assert [name for name, _ in page.rows] == names[:-1]


async def _listed(shelf: Shelf, limit: int, prefix: str = "", *, system: bool = False) -> list[str]:
    """Lists all pages."""
    found: list[str] = []
    marker = ""
    while True:
        asked = ListContainers(ACCOUNT, limit, prefix, marker, system)
        page = await shelf.read(list_containers, asked)
        assert len(page.rows) <= limit
        found += [name for name, _ in page.rows]
        marker = page.next_marker
        if not marker:
            return found


@on_a_shelf
async def test_the_logs_are_listed_only_on_request(shelf: Shelf) -> None:
    assert await _listed(shelf, 10) == []
    assert await _listed(shelf, 10, system=True) == ["$logs"]
    others = ["$root", "$web", "a00", "box"]
    for name in others:
        await shelf.create(ContainerName(ACCOUNT, name))
    for limit in (1, 2, 3, 4, 5, 6):
        assert await _listed(shelf, limit) == others
        assert await _listed(shelf, limit, system=True) == ["$logs", *others]
        assert await _listed(shelf, limit, "$", system=True) == ["$logs", "$root", "$web"]
        assert await _listed(shelf, limit, "$") == ["$root", "$web"]
        assert await _listed(shelf, limit, "$logs", system=True) == ["$logs"]
        assert await _listed(shelf, limit, "$logs") == []
        assert await _listed(shelf, limit, "$logs2", system=True) == []
        assert await _listed(shelf, limit, "b", system=True) == ["box"]


@on_a_shelf
async def test_logs_that_a_client_has_created_before_can_be_read_and_deleted(shelf: Shelf) -> None:
    """Earlier versions accepted a container of this name."""
    logs = ContainerName(ACCOUNT, "$logs")
    built_in = (await shelf.read(get_container, GetContainer(logs))).container
    stored = await shelf.create(logs)
    assert stored.id != built_in.id
    for limit in (1, 2):
        assert await _listed(shelf, limit) == []
        assert await _listed(shelf, limit, system=True) == ["$logs"]
    assert (await shelf.read(get_container, GetContainer(logs))).container == stored
    await shelf.put("blob", b"content", container=logs)
    await shelf.write(delete_blob, DeleteBlob(BlobName(logs, "blob")))
    missing = shelf.write(delete_blob, DeleteBlob(BlobName(logs, "blob")))
    assert await code_of(missing) == "BlobNotFound"


@on_a_shelf
async def test_the_logs_are_empty(shelf: Shelf) -> None:
    logs = ContainerName(ACCOUNT, "$logs")
    blob = BlobName(logs, "blob")
    assert await code_of(shelf.read(get_blob, GetBlob(blob))) == "BlobNotFound"
    assert await code_of(shelf.write(delete_blob, DeleteBlob(blob))) == "BlobNotFound"
    page = await shelf.read(list_blobs, ListBlobs(logs, 10))
    assert page.entries == ()


@on_a_shelf
async def test_an_account_that_holds_something_stays(shelf: Shelf) -> None:
    await shelf.write(add_account, AddAccount(ACCOUNT, b"key one", b"key two"))
    await shelf.create()
    remove = RemoveAccount(ACCOUNT)
    held = await code_of(shelf.write(remove_account, remove))
    assert held == "AccountProtectedFromDeletion"
    await shelf.write(delete_container, DeleteContainer(BOX))
    await shelf.write(remove_account, remove)
