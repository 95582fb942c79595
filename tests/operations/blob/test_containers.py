"""Containers with every engine."""

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
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import list_blobs, list_containers


@blob_test
async def test_one_of_many_creators_wins(blobs: BlobFixture) -> None:
    assert await code_of(blobs.read(get_container, GetContainer(BOX))) == "ContainerNotFound"
    made = await blobs.create()
    assert (await blobs.read(get_container, GetContainer(BOX))).container == made
    assert await code_of(blobs.create()) == "ContainerAlreadyExists"
    others = [blobs.create(ContainerName(ACCOUNT, "race")) for _ in range(10)]
    codes = await asyncio.gather(*map(code_of, others))
    assert sorted(codes) == [""] + ["ContainerAlreadyExists"] * 9


@blob_test
async def test_changes_get_new_stamps_and_check_conditions(blobs: BlobFixture) -> None:
    made = await blobs.create()
    current = Conditions(if_match=(format_etag(made.stamp),))
    ask = SetContainerMetadata(BOX, (("Colour", "red"),), current)
    changed = await blobs.write(set_container_metadata, ask)
    assert changed.stamp > made.stamp
    assert changed.metadata == (("Colour", "red"),)
    assert await code_of(blobs.write(set_container_metadata, ask)) == "ConditionNotMet"
    access = SetContainerAccess(BOX, PublicAccess.BLOBS, (), current)
    assert await code_of(blobs.write(set_container_access, access)) == "ConditionNotMet"
    opened = await blobs.write(
        set_container_access, SetContainerAccess(BOX, PublicAccess.BLOBS, ())
    )
    assert opened.stamp > changed.stamp
    shown = await blobs.read(get_container, GetContainer(BOX))
    assert shown.container.public_access is PublicAccess.BLOBS
    assert shown.container.metadata == (("Colour", "red"),)
    stale = DeleteContainer(BOX, current)
    assert await code_of(blobs.write(delete_container, stale)) == "ConditionNotMet"


@blob_test
async def test_a_lease_guards_only_the_delete(blobs: BlobFixture) -> None:
    made = await blobs.create()
    mine, other = new_lease_id(), new_lease_id()
    blobs.clock.freeze()
    leased = await blobs.write(lease_container, LeaseContainer(BOX, Acquire(mine, 15)))
    assert leased.container.stamp == made.stamp
    again = LeaseContainer(BOX, Acquire(other, 15))
    assert await code_of(blobs.write(lease_container, again)) == "LeaseAlreadyPresent"
    delete = blobs.write(delete_container, DeleteContainer(BOX))
    assert await code_of(delete) == "LeaseIdMissing"
    await blobs.write(set_container_metadata, SetContainerMetadata(BOX, ()))
    wrong = SetContainerMetadata(BOX, (), lease_id=other)
    mismatch = "LeaseIdMismatchWithContainerOperation"
    assert await code_of(blobs.write(set_container_metadata, wrong)) == mismatch
    assert await code_of(blobs.read(get_container, GetContainer(BOX, other))) == mismatch
    blobs.clock.advance(16 * TICKS_PER_SECOND)  # the engine may slew by a few ms
    lost = blobs.write(delete_container, DeleteContainer(BOX, lease_id=mine))
    assert await code_of(lost) == "LeaseLost"
    await blobs.write(delete_container, DeleteContainer(BOX))


@blob_test
async def test_breaking_and_releasing_a_lease(blobs: BlobFixture) -> None:
    await blobs.create()
    mine = new_lease_id()
    await blobs.write(lease_container, LeaseContainer(BOX, Acquire(mine, None)))
    await blobs.write(lease_container, LeaseContainer(BOX, Break(0)))
    await blobs.write(lease_container, LeaseContainer(BOX, Acquire(mine, None)))
    await blobs.write(lease_container, LeaseContainer(BOX, Release(mine)))
    await blobs.write(delete_container, DeleteContainer(BOX))


@blob_test
async def test_a_recreated_container_is_empty(blobs: BlobFixture) -> None:
    """The name of a deleted container is free at once; its content is removed later."""
    await blobs.create()
    for number in range(7):
        await blobs.put(f"blob {number}", b"x" * (number * 20_000))
    await blobs.write(delete_container, DeleteContainer(BOX))
    assert await code_of(blobs.get("blob 1")) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(blobs.get("blob 1")) == "BlobNotFound"
    await blobs.put("blob 1", b"new")
    while await blobs.write(purge_containers, PurgeContainers(3)):
        pass
    assert await blobs.get("blob 1") == b"new"


@blob_test
async def test_pages_of_containers(blobs: BlobFixture) -> None:
    names = [f"box-{number:02}" for number in range(9)] + ["chest"]
    for name in names:
        await blobs.create(ContainerName(ACCOUNT, name))
    await blobs.write(
        create_container, CreateContainer(ContainerName("another", "box-00"), new_id())
    )
    found: list[str] = []
    marker = ""
    while True:
        page = await blobs.read(list_containers, ListContainers(ACCOUNT, 4, marker=marker))
        assert len(page.rows) <= 4
        found += [name for name, _ in page.rows]
        marker = page.next_marker
        if not marker:
            break
    assert found == names
    page = await blobs.read(list_containers, ListContainers(ACCOUNT, 100, prefix="box-0"))
    assert [name for name, _ in page.rows] == names[:-1]


async def _listed(
    blobs: BlobFixture, limit: int, prefix: str = "", *, system: bool = False
) -> list[str]:
    """Lists all pages."""
    found: list[str] = []
    marker = ""
    while True:
        asked = ListContainers(ACCOUNT, limit, prefix, marker, system)
        page = await blobs.read(list_containers, asked)
        assert len(page.rows) <= limit
        found += [name for name, _ in page.rows]
        marker = page.next_marker
        if not marker:
            return found


@blob_test
async def test_the_logs_are_listed_only_on_request(blobs: BlobFixture) -> None:
    assert await _listed(blobs, 10) == []
    assert await _listed(blobs, 10, system=True) == ["$logs"]
    others = ["$root", "$web", "a00", "box"]
    for name in others:
        await blobs.create(ContainerName(ACCOUNT, name))
    for limit in (1, 2, 3, 4, 5, 6):
        assert await _listed(blobs, limit) == others
        assert await _listed(blobs, limit, system=True) == ["$logs", *others]
        assert await _listed(blobs, limit, "$", system=True) == ["$logs", "$root", "$web"]
        assert await _listed(blobs, limit, "$") == ["$root", "$web"]
        assert await _listed(blobs, limit, "$logs", system=True) == ["$logs"]
        assert await _listed(blobs, limit, "$logs") == []
        assert await _listed(blobs, limit, "$logs2", system=True) == []
        assert await _listed(blobs, limit, "b", system=True) == ["box"]


@blob_test
async def test_logs_that_a_client_created_can_be_read_and_deleted(
    blobs: BlobFixture,
) -> None:
    """Earlier versions accepted a container of this name."""
    logs = ContainerName(ACCOUNT, "$logs")
    built_in = (await blobs.read(get_container, GetContainer(logs))).container
    stored = await blobs.create(logs)
    assert stored.id != built_in.id
    for limit in (1, 2):
        assert await _listed(blobs, limit) == []
        assert await _listed(blobs, limit, system=True) == ["$logs"]
    assert (await blobs.read(get_container, GetContainer(logs))).container == stored
    await blobs.put("blob", b"content", container=logs)
    await blobs.write(delete_blob, DeleteBlob(BlobName(logs, "blob")))
    missing = blobs.write(delete_blob, DeleteBlob(BlobName(logs, "blob")))
    assert await code_of(missing) == "BlobNotFound"


@blob_test
async def test_the_logs_are_empty(blobs: BlobFixture) -> None:
    logs = ContainerName(ACCOUNT, "$logs")
    blob = BlobName(logs, "blob")
    assert await code_of(blobs.read(get_blob, GetBlob(blob))) == "BlobNotFound"
    assert await code_of(blobs.write(delete_blob, DeleteBlob(blob))) == "BlobNotFound"
    page = await blobs.read(list_blobs, ListBlobs(logs, 10))
    assert page.entries == ()


@blob_test
async def test_an_account_with_content_cannot_be_removed(blobs: BlobFixture) -> None:
    await blobs.write(add_account, AddAccount(ACCOUNT, b"key one", b"key two"))
    await blobs.create()
    remove = RemoveAccount(ACCOUNT)
    held = await code_of(blobs.write(remove_account, remove))
    assert held == "AccountProtectedFromDeletion"
    await blobs.write(delete_container, DeleteContainer(BOX))
    await blobs.write(remove_account, remove)
