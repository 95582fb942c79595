"""Tags over every engine: set, shown, kept in the index, and found by."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest

from etagere.engine.interface import Conflict, ReadTxn, Refused
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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import (
    ACCOUNT,
    BOX,
    NOTHING_SENT,
    Shelf,
    code_of,
    on_a_shelf,
)
from tests.operations.pages import find_blobs

NAME = BlobName(BOX, "blob")
OTHER = ContainerName(ACCOUNT, "other")
RED: Tags = (("color", "red"),)
_PAGES_MAX = 200


async def put(shelf: Shelf, name: str, tags: Tags = (), container: ContainerName = BOX) -> None:
    await shelf.write(put_blob, PutBlob(BlobName(container, name), NOTHING_SENT, tags=tags))


async def tag(shelf: Shelf, name: str, tags: Tags, container: ContainerName = BOX) -> None:
    await shelf.write(set_blob_tags, SetBlobTags(BlobName(container, name), tags))


async def shown(shelf: Shelf, snapshot: int | None = None) -> Tags:
    command = GetBlob(NAME, snapshot=snapshot)
    return (await shelf.read(operations.get_blob_tags, command)).blob.tags


def asked(where: str, limit: int = 5_000, **more: Any) -> FindBlobs:
    search = parse_where(where)
    assert not isinstance(search, Refusal)
    return FindBlobs(ACCOUNT, search, limit, **more)


async def found(shelf: Shelf, where: str, limit: int = 5_000, **more: Any) -> list[str]:
    """The names, page by page to the end."""
    command = asked(where, limit, **more)
    names: list[str] = []
    for _ in range(_PAGES_MAX):
        page = await shelf.read(find_blobs, command)
        assert len(page.blobs) <= limit
        names += [f"{place.container}/{place.blob}" for place, _ in page.blobs]
        if page.following is None:
            return names
        command = command._replace(start=page.following)
    raise AssertionError("the pages do not end")


def require_indexed(txn: ReadTxn, _: None) -> None:
    """The index says of all blobs of living containers just what they say themselves."""
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


# Set and shown


@on_a_shelf
async def test_tags_change_neither_the_etag_nor_the_date(shelf: Shelf) -> None:
    await shelf.create()
    before = await shelf.put("blob", b"data")
    assert await shown(shelf) == ()
    await tag(shelf, "blob", RED)
    assert await shown(shelf) == RED
    after = (await shelf.read(get_blob, GetBlob(NAME))).blob
    assert (after.stamp, after.content) == (before.stamp, before.content)
    await tag(shelf, "blob", ())
    assert await shown(shelf) == ()
    await shelf.read(require_indexed, None)


@on_a_shelf
async def test_what_is_not_there_has_no_tags(shelf: Shelf) -> None:
    assert await code_of(tag(shelf, "blob", RED)) == "ContainerNotFound"
    assert await code_of(shown(shelf)) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(tag(shelf, "blob", RED)) == "BlobNotFound"
    assert await code_of(shown(shelf)) == "BlobNotFound"
    await shelf.put("blob", b"")
    assert await code_of(shown(shelf, snapshot=5)) == "BlobNotFound"
    command = SetBlobTags(NAME, RED, snapshot=5)
    assert await code_of(shelf.write(set_blob_tags, command)) == "BlobNotFound"


@on_a_shelf
async def test_a_snapshot_has_tags_of_its_own_and_is_not_found_by_them(shelf: Shelf) -> None:
    await shelf.create()
    await put(shelf, "blob", RED)
    moment = await shelf.snapshot("blob")
    assert await shown(shelf, moment) == RED
    await shelf.write(set_blob_tags, SetBlobTags(NAME, (("a", "1"),), snapshot=moment))
    assert await shown(shelf, moment) == (("a", "1"),)
    assert await shown(shelf) == RED
    assert await found(shelf, "a = '1'") == []
    assert await found(shelf, "color = 'red'") == ["box/blob"]
    await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.read(require_indexed, None)


@on_a_shelf
async def test_a_leased_blob_is_tagged_by_the_holder_alone(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"")
    lease_id = new_lease_id()
    await shelf.lease("blob", Acquire(lease_id, None))

    async def attempt(held: bytes | None) -> str:
        return await code_of(shelf.write(set_blob_tags, SetBlobTags(NAME, RED, lease_id=held)))

    assert await attempt(None) == "LeaseIdMissing"
    assert await attempt(new_lease_id()) == "LeaseIdMismatchWithBlobOperation"
    assert await shown(shelf) == ()
    assert await attempt(lease_id) == ""
    assert await shown(shelf) == RED
    stranger = GetBlob(NAME, lease_id=new_lease_id())
    code = await code_of(shelf.read(operations.get_blob_tags, stranger))
    assert code == "LeaseIdMismatchWithBlobOperation"


@on_a_shelf
async def test_conditions_are_about_the_blob_and_its_tags(shelf: Shelf) -> None:
    await shelf.create()
    blob = await shelf.put("blob", b"")
    etag = format_etag(blob.stamp)

    async def attempt(conditions: Conditions) -> tuple[str, str]:
        told = await code_of(shelf.write(set_blob_tags, SetBlobTags(NAME, RED, conditions)))
        read = GetBlob(NAME, conditions)
        return told, await code_of(shelf.read(operations.get_blob_tags, read))

    unmet = "ConditionNotMet"
    assert await attempt(Conditions(if_tags="color = 'red'")) == (unmet, unmet)
    assert await attempt(Conditions(if_none_match=(etag,))) == (unmet, unmet)
    assert await attempt(Conditions(if_modified_since=2**40)) == (unmet, unmet)
    assert await shown(shelf) == ()
    assert await attempt(Conditions(if_match=(etag,), if_tags="color <> 'red'")) == ("", unmet)
    assert await attempt(Conditions(if_tags="color = 'red'")) == ("", "")


@on_a_shelf
async def test_of_racers_for_one_state_one_wins(shelf: Shelf) -> None:
    await shelf.create()
    await put(shelf, "blob", (("state", "free"),))

    async def take(number: int) -> str:
        conditions = Conditions(if_tags="state = 'free'")
        command = SetBlobTags(NAME, (("state", f"taken by {number}"),), conditions)
        return await code_of(shelf.write(set_blob_tags, command))

    told = await asyncio.gather(*(take(number) for number in range(12)))
    assert sorted(told) == ["", *["ConditionNotMet"] * 11]
    assert await shown(shelf) == (("state", f"taken by {told.index('')}"),)
    await shelf.read(require_indexed, None)


# The index


@on_a_shelf
async def test_every_change_is_in_the_index_at_once(shelf: Shelf) -> None:
    await shelf.create()
    await put(shelf, "blob", (("a", "1"), ("b", "2")))
    assert await found(shelf, "a = '1'") == ["box/blob"]
    await put(shelf, "blob", (("a", "2"), ("c", "3")))
    assert await found(shelf, "a = '1'") == await found(shelf, "b >= ''") == []
    assert await found(shelf, "a = '2' AND c > '2'") == ["box/blob"]
    await shelf.read(require_indexed, None)
    await shelf.commit("blob", [])  # of no blocks, and without tags
    assert await found(shelf, "a >= ''") == []
    await tag(shelf, "blob", RED)
    await shelf.read(require_indexed, None)
    await shelf.write(delete_blob, DeleteBlob(NAME))
    assert await found(shelf, "color = 'red'") == []
    await shelf.read(require_indexed, None)
    await shelf.require_bare()


@on_a_shelf
async def test_a_deleted_container_is_not_shown_and_purged_in_steps(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.create(OTHER)
    for number in range(12):
        await put(shelf, f"{number:02}", (*RED, ("n", str(number))))
    await put(shelf, "stays", RED, OTHER)
    await shelf.write(delete_container, DeleteContainer(BOX))
    assert await found(shelf, "color = 'red'") == ["other/stays"]
    assert await found(shelf, "n > '1'") == []
    # Its name is in use again, and the index has rows of both.
    await shelf.create()
    await put(shelf, "05", RED)
    for container in (None, BOX):
        names = await found(shelf, "color = 'red' AND color > 'a'", 1, container=container)
        assert names == ["box/05", "other/stays"][: 1 if container else 2]
    steps = 0
    while removed := await shelf.write(purge_containers, PurgeContainers(rows_max=10)):
        assert removed <= 10 + 5  # one blob and its rows more, and the container
        steps += 1
    assert steps >= 5
    await shelf.read(require_indexed, None)
    living = {container.id for container in (await shelf.read(rows, CONTAINERS)).values()}
    assert {key for (key,) in await shelf.read(rows, TAGGED_CONTAINERS)} == living


# Any two at once

_IF_RED = Conditions(if_tags="color = 'red'")
RACERS: dict[str, tuple[Any, Any]] = {
    "set": (set_blob_tags, SetBlobTags(NAME, (("a", "1"), ("color", "blue")))),
    "set if red": (set_blob_tags, SetBlobTags(NAME, (("b", "1"),), _IF_RED)),
    "clear": (set_blob_tags, SetBlobTags(NAME, ())),
    "put": (put_blob, PutBlob(NAME, NOTHING_SENT, tags=(("color", "red"), ("put", "")))),
    "put if red": (put_blob, PutBlob(NAME, NOTHING_SENT, conditions=_IF_RED)),
    "put another": (put_blob, PutBlob(BlobName(BOX, "other"), NOTHING_SENT, tags=RED)),
    "snapshot": (snapshot_blob, SnapshotBlob(NAME)),
    "delete": (delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE)),
    "delete container": (delete_container, DeleteContainer(BOX)),
    "purge": (purge_containers, PurgeContainers()),
}


class Arena:
    """A container with a blob, and calls that are run to their end or up to some step."""

    def __init__(self, tags: Tags) -> None:
        clock = SharedClock()
        clock.freeze()
        self.engine = MemoryEngine(clock)
        self.run((create_container, CreateContainer(BOX, new_id())))
        self.run((put_blob, PutBlob(NAME, NOTHING_SENT, tags=tags)))

    def run(self, call: tuple[Any, Any], interrupt: Any = None) -> str:
        txn = self.engine.begin(interrupt) if interrupt else self.engine.begin()
        try:
            call[0](txn, call[1])
            txn.commit()
        except Refused as refused:
            return refused.refusal.code
        finally:
            txn.rollback()
        return ""

    def outcome(self, codes: dict[str, str]) -> tuple[dict[str, str], object]:
        """What the two were told, and what is there afterwards; the index must agree."""
        self.run(RACERS["purge"])
        txn = self.engine.begin_read()
        try:
            require_indexed(txn, None)
            kept = {key[1]: blob.tags for key, blob in rows(txn, BLOBS).items()}
            return codes, (sorted(name for _, name in rows(txn, CONTAINERS)), kept)
        finally:
            txn.close()


def _interleaved(tags: Tags, outer: str, inner: str, step: int) -> tuple[object, bool]:
    arena, codes, steps = Arena(tags), dict[str, str](), 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            with suppress(Conflict):
                codes[inner] = arena.run(RACERS[inner])

    try:
        codes[outer] = arena.run(RACERS[outer], interrupt)
    except Conflict:
        codes[outer] = arena.run(RACERS[outer])
    if inner not in codes:
        codes[inner] = arena.run(RACERS[inner])
    return arena.outcome(codes), steps >= step


@pytest.mark.parametrize("outer", RACERS)
@pytest.mark.parametrize("tags", [(), RED])
def test_any_two_at_once_come_to_one_after_the_other(outer: str, tags: Tags) -> None:
    for inner in RACERS:
        if inner == outer:
            continue
        expected = []
        for order in permutations((outer, inner)):
            arena = Arena(tags)
            codes = {name: arena.run(RACERS[name]) for name in order}
            expected.append(arena.outcome(codes))
        step = 1
        while True:
            outcome, was_reached = _interleaved(tags, outer, inner, step)
            if not was_reached:
                break
            assert outcome in expected, (outer, inner, step)
            step += 1
        assert step > 1
