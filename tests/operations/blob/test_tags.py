"""Blob tags with every engine: set, shown, indexed and searched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.errors import Refusal
from etagere.model.blobs import (
    BlobName,
    DeleteBlob,
    DeleteSnapshots,
    GetBlob,
    PutBlob,
    SnapshotBlob,
    Tags,
)
from etagere.model.conditions import Conditions
from etagere.model.containers import ContainerName, CreateContainer, DeleteContainer
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.model.tags import SetBlobTags, TaggedBlob, TagValue
from etagere.operations.blob import tags as operations
from etagere.operations.blob.blobs import delete_blob, get_blob, put_blob
from etagere.operations.blob.collections import (
    BLOBS,
    CONTAINERS,
    TAG_VALUES,
    TAGGED_BLOBS,
    TAGGED_CONTAINERS,
)
from etagere.operations.blob.containers import create_container, delete_container
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.operations.blob.tags import FindBlobs, set_blob_tags
from etagere.rules.conditions import format_etag
from etagere.rules.tags import parse_where
from tests.clocks import SharedClock
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.interleaving import Call, Interleavings, execute, look
from tests.operations.pages import find_blobs

NAME = BlobName(BOX, "blob")
OTHER = ContainerName(ACCOUNT, "other")
RED: Tags = (("color", "red"),)
_PAGES_MAX = 200


async def put(
    blobs: BlobFixture, name: str, tags: Tags = (), container: ContainerName = BOX
) -> None:
    await blobs.write(put_blob, PutBlob(BlobName(container, name), NOTHING_SENT, tags=tags))


async def tag(blobs: BlobFixture, name: str, tags: Tags, container: ContainerName = BOX) -> None:
    await blobs.write(set_blob_tags, SetBlobTags(BlobName(container, name), tags))


async def shown(blobs: BlobFixture, snapshot: int | None = None) -> Tags:
    command = GetBlob(NAME, snapshot=snapshot)
    return (await blobs.read(operations.get_blob_tags, command)).blob.tags


def asked(where: str, limit: int = 5_000, **more: Any) -> FindBlobs:
    search = parse_where(where)
    assert not isinstance(search, Refusal)
    return FindBlobs(ACCOUNT, search, limit, **more)


async def found(blobs: BlobFixture, where: str, limit: int = 5_000, **more: Any) -> list[str]:
    """Returns the names from all pages."""
    command = asked(where, limit, **more)
    names: list[str] = []
    for _ in range(_PAGES_MAX):
        page = await blobs.read(find_blobs, command)
        assert len(page.blobs) <= limit
        names += [f"{place.container}/{place.blob}" for place, _ in page.blobs]
        if page.following is None:
            return names
        command = command._replace(start=page.following)
    raise AssertionError("the pages do not end")


def require_indexed(txn: ReadTxn, _: None) -> None:
    """Checks that the index agrees with the tags of all blobs in existing containers."""
    containers = {container.id: key for key, container in rows(txn, CONTAINERS).items()}
    by_value, by_place = {}, {}
    for (container_id, blob), record in rows(txn, BLOBS).items():
        account, container = containers[container_id]
        for name, value in record.tags:
            place = container, container_id, blob
            by_value[(account, name, value, *place)] = TaggedBlob()
            by_place[(account, name, *place)] = TagValue(value)
    assert rows(txn, TAGGED_BLOBS) == by_value
    assert rows(txn, TAG_VALUES) == by_place


# Set and get


@blob_test
async def test_tags_change_neither_the_etag_nor_the_date(blobs: BlobFixture) -> None:
    await blobs.create()
    before = await blobs.put("blob", b"data")
    assert await shown(blobs) == ()
    await tag(blobs, "blob", RED)
    assert await shown(blobs) == RED
    after = (await blobs.read(get_blob, GetBlob(NAME))).blob
    assert (after.stamp, after.content) == (before.stamp, before.content)
    await tag(blobs, "blob", ())
    assert await shown(blobs) == ()
    await blobs.read(require_indexed, None)


@blob_test
async def test_a_missing_blob_has_no_tags(blobs: BlobFixture) -> None:
    assert await code_of(tag(blobs, "blob", RED)) == "ContainerNotFound"
    assert await code_of(shown(blobs)) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(tag(blobs, "blob", RED)) == "BlobNotFound"
    assert await code_of(shown(blobs)) == "BlobNotFound"
    await blobs.put("blob", b"")
    assert await code_of(shown(blobs, snapshot=5)) == "BlobNotFound"
    command = SetBlobTags(NAME, RED, snapshot=5)
    assert await code_of(blobs.write(set_blob_tags, command)) == "BlobNotFound"


@blob_test
async def test_a_snapshot_has_tags_of_its_own_and_is_not_found_by_them(blobs: BlobFixture) -> None:
    await blobs.create()
    await put(blobs, "blob", RED)
    moment = await blobs.snapshot("blob")
    assert await shown(blobs, moment) == RED
    await blobs.write(set_blob_tags, SetBlobTags(NAME, (("a", "1"),), snapshot=moment))
    assert await shown(blobs, moment) == (("a", "1"),)
    assert await shown(blobs) == RED
    assert await found(blobs, "a = '1'") == []
    assert await found(blobs, "color = 'red'") == ["box/blob"]
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.read(require_indexed, None)


@blob_test
async def test_tagging_a_leased_blob_needs_the_lease_id(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"")
    lease_id = new_lease_id()
    await blobs.lease("blob", Acquire(lease_id, None))

    async def attempt(held: bytes | None) -> str:
        return await code_of(blobs.write(set_blob_tags, SetBlobTags(NAME, RED, lease_id=held)))

    assert await attempt(None) == "LeaseIdMissing"
    assert await attempt(new_lease_id()) == "LeaseIdMismatchWithBlobOperation"
    assert await shown(blobs) == ()
    assert await attempt(lease_id) == ""
    assert await shown(blobs) == RED
    stranger = GetBlob(NAME, lease_id=new_lease_id())
    code = await code_of(blobs.read(operations.get_blob_tags, stranger))
    assert code == "LeaseIdMismatchWithBlobOperation"


@blob_test
async def test_preconditions_of_tag_operations(blobs: BlobFixture) -> None:
    await blobs.create()
    blob = await blobs.put("blob", b"")
    etag = format_etag(blob.stamp)

    async def attempt(conditions: Conditions) -> tuple[str, str]:
        result = await code_of(blobs.write(set_blob_tags, SetBlobTags(NAME, RED, conditions)))
        read = GetBlob(NAME, conditions)
        return result, await code_of(blobs.read(operations.get_blob_tags, read))

    unmet = "ConditionNotMet"
    assert await attempt(Conditions(if_tags="color = 'red'")) == (unmet, unmet)
    assert await attempt(Conditions(if_none_match=(etag,))) == (unmet, unmet)
    assert await attempt(Conditions(if_modified_since=2**40)) == (unmet, unmet)
    assert await shown(blobs) == ()
    assert await attempt(Conditions(if_match=(etag,), if_tags="color <> 'red'")) == ("", unmet)
    assert await attempt(Conditions(if_tags="color = 'red'")) == ("", "")


@blob_test
async def test_one_of_many_conditional_changes_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    await put(blobs, "blob", (("state", "free"),))

    async def take(number: int) -> str:
        conditions = Conditions(if_tags="state = 'free'")
        command = SetBlobTags(NAME, (("state", f"taken by {number}"),), conditions)
        return await code_of(blobs.write(set_blob_tags, command))

    outcomes = await asyncio.gather(*(take(number) for number in range(12)))
    assert sorted(outcomes) == ["", *["ConditionNotMet"] * 11]
    assert await shown(blobs) == (("state", f"taken by {outcomes.index('')}"),)
    await blobs.read(require_indexed, None)


# The index


@blob_test
async def test_every_change_is_in_the_index_at_once(blobs: BlobFixture) -> None:
    await blobs.create()
    await put(blobs, "blob", (("a", "1"), ("b", "2")))
    assert await found(blobs, "a = '1'") == ["box/blob"]
    await put(blobs, "blob", (("a", "2"), ("c", "3")))
    assert await found(blobs, "a = '1'") == await found(blobs, "b >= ''") == []
    assert await found(blobs, "a = '2' AND c > '2'") == ["box/blob"]
    await blobs.read(require_indexed, None)
    await blobs.commit("blob", [])  # of no blocks and without tags
    assert await found(blobs, "a >= ''") == []
    await tag(blobs, "blob", RED)
    await blobs.read(require_indexed, None)
    await blobs.write(delete_blob, DeleteBlob(NAME))
    assert await found(blobs, "color = 'red'") == []
    await blobs.read(require_indexed, None)
    await blobs.require_empty()


@blob_test
async def test_a_deleted_container_is_hidden_and_purged_in_steps(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.create(OTHER)
    for number in range(12):
        await put(blobs, f"{number:02}", (*RED, ("n", str(number))))
    await put(blobs, "stays", RED, OTHER)
    await blobs.write(delete_container, DeleteContainer(BOX))
    assert await found(blobs, "color = 'red'") == ["other/stays"]
    assert await found(blobs, "n > '1'") == []
    # The name is reused, and the index has rows of both containers.
    await blobs.create()
    await put(blobs, "05", RED)
    for container in (None, BOX):
        names = await found(blobs, "color = 'red' AND color > 'a'", 1, container=container)
        assert names == ["box/05", "other/stays"][: 1 if container else 2]
    steps = 0
    while removed := await blobs.write(purge_containers, PurgeContainers(rows_max=10)):
        assert removed <= 10 + 5  # one blob with its rows, and the container
        steps += 1
    assert steps >= 5
    await blobs.read(require_indexed, None)
    living = {container.id for container in (await blobs.read(rows, CONTAINERS)).values()}
    assert {key for (key,) in await blobs.read(rows, TAGGED_CONTAINERS)} == living


# Pairs of concurrent changes

_IF_RED = Conditions(if_tags="color = 'red'")
CALLS: dict[str, Call] = {
    "set": Call(set_blob_tags, SetBlobTags(NAME, (("a", "1"), ("color", "blue")))),
    "set if red": Call(set_blob_tags, SetBlobTags(NAME, (("b", "1"),), _IF_RED)),
    "clear": Call(set_blob_tags, SetBlobTags(NAME, ())),
    "put": Call(put_blob, PutBlob(NAME, NOTHING_SENT, tags=(("color", "red"), ("put", "")))),
    "put if red": Call(put_blob, PutBlob(NAME, NOTHING_SENT, conditions=_IF_RED)),
    "put another": Call(put_blob, PutBlob(BlobName(BOX, "other"), NOTHING_SENT, tags=RED)),
    "snapshot": Call(snapshot_blob, SnapshotBlob(NAME)),
    "delete": Call(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE)),
    "delete container": Call(delete_container, DeleteContainer(BOX)),
    "purge": Call(purge_containers, PurgeContainers()),
}


def _show_outcome(engine: MemoryEngine, results: dict[str, object]) -> object:
    """Checks that the index agrees."""
    execute(engine, CALLS["purge"])
    look(engine, require_indexed)
    tags = {
        key[1]: blob.tags for key, blob in look(engine, lambda txn, _: rows(txn, BLOBS)).items()
    }
    containers = look(engine, lambda txn, _: rows(txn, CONTAINERS))
    return results, (sorted(name for _, name in containers), tags)


@pytest.mark.parametrize("outer", CALLS)
@pytest.mark.parametrize("tags", [(), RED])
def test_pairs_of_changes_are_serializable(outer: str, tags: Tags) -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    execute(engine, Call(create_container, CreateContainer(BOX, new_id())))
    execute(engine, Call(put_blob, PutBlob(NAME, NOTHING_SENT, tags=tags)))
    pairs = Interleavings(engine, CALLS, lambda _: "", _show_outcome)
    for inner in CALLS:
        if inner != outer:
            pairs.require_serializable(outer, inner, steps_min=1)
