"""Queues with every engine."""

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
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import list_queues
from tests.operations.queue.fixture import LONG, TRAY, QueueFixture, queue_test

RED, BLUE = (("Colour", "red"),), (("Colour", "blue"),)
READERS = (SignedIdentifier("readers", AccessPolicy(permission="r")),)


@queue_test
async def test_create_is_idempotent(queue: QueueFixture) -> None:
    assert not await queue.create()
    assert await code_of(queue.create(RED)) == "QueueAlreadyExists"
    await queue.write(set_queue_metadata, SetQueueMetadata(TRAY, RED))
    assert not await queue.create(RED)
    assert await code_of(queue.create(BLUE)) == "QueueAlreadyExists"
    assert await code_of(queue.create()) == "QueueAlreadyExists"


@queue_test
async def test_metadata_in_another_order_is_the_same(queue: QueueFixture) -> None:
    both = (("Colour", "red"), ("Size", "a4"))
    await queue.write(set_queue_metadata, SetQueueMetadata(TRAY, both))
    assert not await queue.create(both[::-1])


@queue_test
async def test_one_of_many_creators_is_told_that_it_was_first(queue: QueueFixture) -> None:
    name = QueueName(ACCOUNT, "race")
    racers = [queue.write(create_queue, CreateQueue(name, new_id())) for _ in range(10)]
    assert sorted(await asyncio.gather(*racers)) == [False] * 9 + [True]


@queue_test
async def test_creating_it_again_with_equal_metadata_keeps_the_messages(
    queue: QueueFixture,
) -> None:
    await queue.put("kept")
    assert not await queue.create()
    assert await queue.texts() == ["kept"]


@queue_test
async def test_a_missing_queue(queue: QueueFixture) -> None:
    await queue.put()
    held = await queue.get_one()
    await queue.delete_queue()
    metadata = SetQueueMetadata(TRAY, ())
    for call in (
        queue.delete_queue(),
        queue.clear(),
        queue.count(),
        queue.put(),
        queue.get(),
        queue.peek(),
        queue.update(held),
        queue.delete(held),
        queue.write(set_queue_metadata, metadata),
        queue.write(set_queue_access, SetQueueAccess(TRAY, READERS)),
    ):
        assert await code_of(call) == "QueueNotFound"


@queue_test
async def test_a_recreated_queue_is_empty(queue: QueueFixture) -> None:
    """The name is free at once, even if messages are still to be removed."""
    for number in range(7):
        await queue.put(LONG if number % 2 else "short", lives=number or None)
    held = await queue.get_one()
    await queue.delete_queue()
    assert await queue.create(RED)
    assert (await queue.count(), await queue.peek()) == (0, ())
    assert await queue.is_void(held)
    fresh = await queue.put("fresh")
    await queue.require_consistent()
    await queue.purge(rows_max=3)
    await queue.require_consistent()
    assert await queue.texts() == ["fresh"]
    await queue.delete(fresh)
    await queue.require_empty()


@queue_test
async def test_clear_removes_exactly_the_existing_messages(queue: QueueFixture) -> None:
    await queue.write(set_queue_metadata, SetQueueMetadata(TRAY, RED))
    await queue.write(set_queue_access, SetQueueAccess(TRAY, READERS))
    await queue.put("hidden", hidden=60)
    await queue.put("seen")
    await queue.put(LONG)
    held = await queue.get_one()
    await queue.clear()
    assert await queue.is_void(held)
    assert (await queue.count(), await queue.peek()) == (0, ())
    queue.wait(61)
    assert await queue.get(32) == ()
    shown = await queue.read(get_queue, TRAY)
    assert (shown.metadata, shown.policies) == (RED, READERS)
    await queue.put("next")
    await queue.purge()
    await queue.require_consistent()
    assert await queue.texts() == ["next"]


@queue_test
async def test_removal_goes_in_bounded_steps(queue: QueueFixture) -> None:
    for round_number in range(2):
        for _ in range(5):
            await queue.put(LONG)
        await (queue.delete_queue() if round_number else queue.clear())
    remaining = [(await queue.message_records())["messages"]]
    while remaining[-1]:
        await queue.purge_step(rows_max=2)
        await queue.require_consistent()
        remaining.append((await queue.message_records()).get("messages", 0))
    assert max(was - now for was, now in itertools.pairwise(remaining)) == 2
    await queue.require_empty()


# Metadata and policies


@queue_test
async def test_metadata_is_replaced_as_a_whole(queue: QueueFixture) -> None:
    for metadata in (RED, (("Size", "a4"), ("Other", "")), ()):
        await queue.write(set_queue_metadata, SetQueueMetadata(TRAY, metadata))
        assert (await queue.read(get_queue, TRAY)).metadata == metadata


@queue_test
async def test_deleting_a_queue_deletes_its_policies(queue: QueueFixture) -> None:
    await queue.write(set_queue_access, SetQueueAccess(TRAY, READERS))
    assert (await queue.read(get_queue, TRAY)).policies == READERS
    assert await queue.read(policies_of, TRAY.key) == READERS
    await queue.delete_queue()
    assert await queue.read(policies_of, TRAY.key) == ()
    await queue.create()
    assert await queue.read(policies_of, TRAY.key) == ()


@queue_test
async def test_invalid_names_have_no_policies(queue: QueueFixture) -> None:
    for name in ("", "Tray", "no", "\udcff", "a" * 9_000):
        assert await queue.read(policies_of, (ACCOUNT, name)) == ()


# Lists


@queue_test
async def test_pages_of_queues(queue: QueueFixture) -> None:
    names = [f"box-{number:02}" for number in range(9)] + ["chest"]
    for name in names:
        await queue.write(create_queue, CreateQueue(QueueName(ACCOUNT, name), new_id(), RED))
    other = QueueName("another", "box-00")
    await queue.write(create_queue, CreateQueue(other, new_id()))
    listed, marker = [], ""
    while True:
        page = await queue.read(list_queues, ListQueues(ACCOUNT, 4, marker=marker))
        assert len(page.rows) <= 4
        listed += [(name, queue.metadata) for name, queue in page.rows]
        marker = page.next_marker
        if not marker:
            break
    assert listed == [(name, RED) for name in names] + [(TRAY.name, ())]


@queue_test
async def test_queues_by_prefix(queue: QueueFixture) -> None:
    for name in ("box", "box-1", "box-2", "boxes", "fox"):
        await queue.write(create_queue, CreateQueue(QueueName(ACCOUNT, name), new_id()))
    for prefix, found in {
        "box": ["box", "box-1", "box-2", "boxes"],
        "box-": ["box-1", "box-2"],
        "tray": ["tray"],
        "tray-": [],
    }.items():
        page = await queue.read(list_queues, ListQueues(ACCOUNT, 100, prefix))
        assert [name for name, _ in page.rows] == found
    page = await queue.read(list_queues, ListQueues(ACCOUNT, 2, "box", "box-1"))
    assert [name for name, _ in page.rows] == ["box-1", "box-2"]
    assert page.next_marker == "boxes"


@queue_test
async def test_an_account_with_a_queue_cannot_be_removed(queue: QueueFixture) -> None:
    """A new account of that name must not see the content of the old one."""
    await queue.write(add_account, AddAccount(ACCOUNT, b"key one", b"key two"))
    remove = RemoveAccount(ACCOUNT)
    held = await code_of(queue.write(remove_account, remove))
    assert held == "AccountProtectedFromDeletion"
    await queue.delete_queue()
    await queue.write(remove_account, remove)
