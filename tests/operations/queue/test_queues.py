"""Queues over every engine."""

from __future__ import annotations

import asyncio
import itertools

from etagere.model.accounts import AddAccount, RemoveAccount
from etagere.model.ids import new_id
from etagere.model.queues import (
    CreateQueue,
    ListQueues,
    QueueName,
    SetQueueAccess,
    SetQueueMetadata,
)
from etagere.model.service import AccessPolicy, SignedIdentifier
from etagere.operations.accounts import add_account, remove_account
from etagere.operations.queue.queues import (
    create_queue,
    get_queue,
    policies_of,
    set_queue_access,
    set_queue_metadata,
)
from tests.operations.blob.shelf import ACCOUNT, code_of
from tests.operations.pages import list_queues
from tests.operations.queue.desk import LONG, TRAY, Desk, on_a_desk

RED, BLUE = (("Colour", "red"),), (("Colour", "blue"),)
READERS = (SignedIdentifier("readers", AccessPolicy(permission="r")),)


@on_a_desk
async def test_made_once(desk: Desk) -> None:
    assert not await desk.create()
    assert await code_of(desk.create(RED)) == "QueueAlreadyExists"
    await desk.shelf.write(set_queue_metadata, SetQueueMetadata(TRAY, RED))
    assert not await desk.create(RED)
    assert await code_of(desk.create(BLUE)) == "QueueAlreadyExists"
    assert await code_of(desk.create()) == "QueueAlreadyExists"


@on_a_desk
async def test_metadata_in_another_order_is_the_same(desk: Desk) -> None:
    both = (("Colour", "red"), ("Size", "a4"))
    await desk.shelf.write(set_queue_metadata, SetQueueMetadata(TRAY, both))
    assert not await desk.create(both[::-1])


@on_a_desk
async def test_of_many_who_make_one_one_is_told_so(desk: Desk) -> None:
    name = QueueName(ACCOUNT, "race")
    racers = [desk.shelf.write(create_queue, CreateQueue(name, new_id())) for _ in range(10)]
    assert sorted(await asyncio.gather(*racers)) == [False] * 9 + [True]


@on_a_desk
async def test_made_again_with_the_same_words_it_keeps_its_messages(desk: Desk) -> None:
    await desk.put("kept")
    assert not await desk.create()
    assert await desk.texts() == ["kept"]


@on_a_desk
async def test_what_is_not_there(desk: Desk) -> None:
    await desk.put()
    held = await desk.get_one()
    await desk.delete_queue()
    metadata = SetQueueMetadata(TRAY, ())
    for call in (
        desk.delete_queue(),
        desk.clear(),
        desk.count(),
        desk.put(),
        desk.get(),
        desk.peek(),
        desk.update(held),
        desk.delete(held),
        desk.shelf.write(set_queue_metadata, metadata),
        desk.shelf.write(set_queue_access, SetQueueAccess(TRAY, READERS)),
    ):
        assert await code_of(call) == "QueueNotFound"


@on_a_desk
async def test_a_namesake_is_empty(desk: Desk) -> None:
    """The name is free at once, whatever is still to be removed."""
    for number in range(7):
        await desk.put(LONG if number % 2 else "short", lives=number or None)
    held = await desk.get_one()
    await desk.delete_queue()
    assert await desk.create(RED)
    assert (await desk.count(), await desk.peek()) == (0, ())
    assert await desk.is_lost(held)
    fresh = await desk.put("fresh")
    await desk.require_consistent()
    await desk.purge(rows_max=3)
    await desk.require_consistent()
    assert await desk.texts() == ["fresh"]
    await desk.delete(fresh)
    await desk.require_bare()


@on_a_desk
async def test_clearing_takes_all_there_is_and_nothing_else(desk: Desk) -> None:
    await desk.shelf.write(set_queue_metadata, SetQueueMetadata(TRAY, RED))
    await desk.shelf.write(set_queue_access, SetQueueAccess(TRAY, READERS))
    await desk.put("hidden", hidden=60)
    await desk.put("seen")
    await desk.put(LONG)
    held = await desk.get_one()
    await desk.clear()
    assert await desk.is_lost(held)
    assert (await desk.count(), await desk.peek()) == (0, ())
    desk.wait(61)
    assert await desk.get(32) == ()
    queue = await desk.shelf.read(get_queue, TRAY)
    assert (queue.metadata, queue.policies) == (RED, READERS)
    await desk.put("next")
    await desk.purge()
    await desk.require_consistent()
    assert await desk.texts() == ["next"]


@on_a_desk
async def test_removal_goes_in_bounded_steps(desk: Desk) -> None:
    for round_number in range(2):
        for _ in range(5):
            await desk.put(LONG)
        await (desk.delete_queue() if round_number else desk.clear())
    remaining = [(await desk.left_behind())["messages"]]
    while remaining[-1]:
        await desk.purge_step(rows_max=2)
        await desk.require_consistent()
        remaining.append((await desk.left_behind()).get("messages", 0))
    assert max(was - now for was, now in itertools.pairwise(remaining)) == 2
    await desk.require_bare()


# Metadata and policies


@on_a_desk
async def test_metadata_is_replaced_as_a_whole(desk: Desk) -> None:
    for metadata in (RED, (("Size", "a4"), ("Other", "")), ()):
        await desk.shelf.write(set_queue_metadata, SetQueueMetadata(TRAY, metadata))
        assert (await desk.shelf.read(get_queue, TRAY)).metadata == metadata


@on_a_desk
async def test_policies_go_with_their_queue(desk: Desk) -> None:
    await desk.shelf.write(set_queue_access, SetQueueAccess(TRAY, READERS))
    assert (await desk.shelf.read(get_queue, TRAY)).policies == READERS
    assert await desk.shelf.read(policies_of, TRAY.key) == READERS
    await desk.delete_queue()
    assert await desk.shelf.read(policies_of, TRAY.key) == ()
    await desk.create()
    assert await desk.shelf.read(policies_of, TRAY.key) == ()


@on_a_desk
async def test_what_can_be_no_queue_has_no_policies(desk: Desk) -> None:
    for name in ("", "Tray", "no", "\udcff", "a" * 9_000):
        assert await desk.shelf.read(policies_of, (ACCOUNT, name)) == ()


# Lists


@on_a_desk
async def test_pages_of_queues(desk: Desk) -> None:
    names = [f"box-{number:02}" for number in range(9)] + ["chest"]
    for name in names:
        await desk.shelf.write(create_queue, CreateQueue(QueueName(ACCOUNT, name), new_id(), RED))
    other = QueueName("another", "box-00")
    await desk.shelf.write(create_queue, CreateQueue(other, new_id()))
    listed, marker = [], ""
    while True:
        page = await desk.shelf.read(list_queues, ListQueues(ACCOUNT, 4, marker=marker))
        assert len(page.rows) <= 4
        listed += [(name, queue.metadata) for name, queue in page.rows]
        marker = page.next_marker
        if not marker:
            break
    assert listed == [(name, RED) for name in names] + [(TRAY.name, ())]


@on_a_desk
async def test_queues_by_the_beginning_of_their_names(desk: Desk) -> None:
    for name in ("box", "box-1", "box-2", "boxes", "fox"):
        await desk.shelf.write(create_queue, CreateQueue(QueueName(ACCOUNT, name), new_id()))
    for prefix, found in {
        "box": ["box", "box-1", "box-2", "boxes"],
        "box-": ["box-1", "box-2"],
        "tray": ["tray"],
        "tray-": [],
    }.items():
        page = await desk.shelf.read(list_queues, ListQueues(ACCOUNT, 100, prefix))
        assert [name for name, _ in page.rows] == found
    page = await desk.shelf.read(list_queues, ListQueues(ACCOUNT, 2, "box", "box-1"))
    assert [name for name, _ in page.rows] == ["box-1", "box-2"]
    assert page.next_marker == "boxes"


@on_a_desk
async def test_an_account_that_holds_a_queue_stays(desk: Desk) -> None:
    """A new account of that name must not find what was in the old."""
    await desk.shelf.write(add_account, AddAccount(ACCOUNT, b"key one", b"key two"))
    remove = RemoveAccount(ACCOUNT)
    held = await code_of(desk.shelf.write(remove_account, remove))
    assert held == "AccountProtectedFromDeletion"
    await desk.delete_queue()
    await desk.shelf.write(remove_account, remove)
