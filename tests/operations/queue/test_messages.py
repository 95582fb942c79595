"""Messages with every engine: put, get, peek, update, delete and expiry, to the tick."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from etagere.model.queues import MessageResult
from tests.operations.fixture import code_of
from tests.operations.queue.consistency import remove_expiry_from_places
from tests.operations.queue.fixture import LONG, WEEK_SECONDS, QueueFixture, queue_test


def ids(messages: Iterable[MessageResult]) -> list[bytes]:
    return [shown.id for shown in messages]


# Put


@queue_test
async def test_a_new_message(queue: QueueFixture) -> None:
    put = await queue.put("hello")
    assert put.text == "hello"
    assert put.message.inserted == put.message.visible == queue.now
    assert put.message.expires == queue.after(WEEK_SECONDS)
    assert put.message.taken == 0
    assert await queue.peek() == (put,)
    assert await queue.count() == 1


@queue_test
async def test_time_to_live(queue: QueueFixture) -> None:
    for lives in (1, WEEK_SECONDS, 2**31 - 1):
        assert (await queue.put(lives=lives)).message.expires == queue.after(lives)
    assert (await queue.put("for ever", lives=None)).message.expires is None
    queue.wait(100 * 365 * 24 * 3600)
    await queue.purge()
    assert await queue.texts() == ["for ever"]


@queue_test
async def test_hidden_from_the_start(queue: QueueFixture) -> None:
    put = await queue.put(hidden=60)
    assert put.message.visible == queue.after(60)
    assert await queue.count() == 1
    queue.wait(60, ticks=-1)
    assert (await queue.peek(), await queue.get(32)) == ((), ())
    queue.wait(ticks=1)
    assert await queue.peek() == (put,)
    assert (await queue.get_one()).id == put.id


@queue_test
async def test_the_first_receipt_deletes_and_updates_at_once(queue: QueueFixture) -> None:
    await queue.delete(await queue.put())
    await queue.delete(await queue.put(hidden=60))
    updated = await queue.update(await queue.put("old", hidden=60), "new")
    assert updated.message.taken == 0
    assert await queue.texts() == ["new"]
    await queue.delete(updated)
    await queue.require_empty()


# Get


@queue_test
async def test_taking_hides_and_counts(queue: QueueFixture) -> None:
    put = await queue.put("text", lives=None)
    for times in range(1, 4):
        taken = await queue.get_one(hidden=10)
        assert (taken.id, taken.text) == (put.id, "text")
        assert (taken.message.taken, taken.message.visible) == (times, queue.after(10))
        assert taken.message.inserted == put.message.inserted
        queue.wait(10, ticks=-1)
        assert (await queue.get(32), await queue.peek()) == ((), ())
        assert await queue.count() == 1
        queue.wait(ticks=1)
        assert await queue.texts() == ["text"]


@queue_test
async def test_number_of_messages(queue: QueueFixture) -> None:
    put = [(await queue.put(str(number))).id for number in range(40)]
    one, several, rest = await queue.get(1), await queue.get(32), await queue.get(32)
    assert [len(taken) for taken in (one, several, rest)] == [1, 32, 7]
    assert sorted(ids((*one, *several, *rest))) == sorted(put)
    assert len({taken.message.receipt for taken in (one[0], several[0], rest[0])}) == 3
    assert await queue.get(32) == ()


@queue_test
async def test_messages_are_received_in_order_of_visibility(queue: QueueFixture) -> None:
    """Whether new, initially hidden, updated, or not deleted in time."""
    await queue.put("taken")
    await queue.get_one(hidden=40)
    await queue.put("hidden", hidden=30)
    given_back = await queue.put("given back")
    queue.wait(10)
    await queue.put("new")
    queue.wait(10)
    await queue.update(given_back)
    order = ["new", "given back", "hidden", "taken"]
    queue.wait(30)
    assert await queue.texts() == order
    assert [(await queue.get_one()).text for _ in order] == order


@queue_test
async def test_peeking_changes_nothing(queue: QueueFixture) -> None:
    for text in ("one", LONG, "three"):
        await queue.put(text)
        queue.wait(ticks=1)
    held = await queue.get_one()
    seen = await queue.peek()
    assert [shown.text for shown in seen] == [LONG, "three"]
    queue.wait(1)
    assert await queue.peek() == seen
    assert await queue.peek(1) == seen[:1]
    assert [shown.message.taken for shown in seen] == [0, 0]
    taken = await queue.get(32)
    assert ids(taken) == ids(seen)
    await queue.delete(held)


# Receipts


@queue_test
async def test_a_receipt_is_valid_after_the_visibility_timeout(queue: QueueFixture) -> None:
    """As long as nobody else has received the message."""
    await queue.put("text", lives=None)
    late = await queue.get_one(hidden=1)
    queue.wait(WEEK_SECONDS)
    assert await queue.texts() == ["text"]
    later = await queue.update(late, "changed", hidden=1)
    queue.wait(WEEK_SECONDS)
    await queue.delete(later)
    await queue.require_empty()


@queue_test
async def test_a_newer_receipt_invalidates_the_older(queue: QueueFixture) -> None:
    put = await queue.put()
    taken = await queue.get_one(hidden=1)
    assert await queue.is_void(put)
    queue.wait(1)
    again = await queue.get_one(hidden=1)
    assert await queue.is_void(taken)
    updated = await queue.update(again, hidden=5)
    assert updated.message.receipt != again.message.receipt
    assert await code_of(queue.update(again, "stale")) == "MessageNotFound"
    assert await queue.is_void(again)
    await queue.delete(updated)
    assert await queue.is_void(updated)
    await queue.require_empty()


@queue_test
async def test_a_receipt_of_a_deleted_message(queue: QueueFixture) -> None:
    put = await queue.put(lives=5)
    queue.wait(5, ticks=-1)
    put = await queue.update(put)
    queue.wait(ticks=1)
    assert await code_of(queue.update(put)) == "MessageNotFound"
    assert await queue.is_void(put)


@queue_test
async def test_a_receipt_of_another_message(queue: QueueFixture) -> None:
    one, other = await queue.put("one"), await queue.put("other")
    crossed = MessageResult(one.id, other.message)
    assert await queue.is_void(crossed)
    assert await queue.count() == 2


# Update


@queue_test
async def test_updates_grow_and_shrink_texts(queue: QueueFixture) -> None:
    """Long texts are stored in a separate record while they are long."""
    held = await queue.put("short")
    for text in (LONG, "x" * 1_024, "x" * 1_025, LONG[::-1], "", "é" * 1_024, "🦄" * 1_025, "s"):
        held = await queue.update(held, text)
        assert held.text == text
        assert await queue.texts() == [text]
        await queue.require_consistent()
        assert (await queue.message_records()).get("message_texts", 0) == (len(text) > 1_024)
    await queue.delete(held)
    await queue.require_empty()


@queue_test
async def test_an_update_may_change_only_the_visibility(queue: QueueFixture) -> None:
    for text in ("short", LONG):
        await queue.put(text)
        held = await queue.get_one()
        updated = await queue.update(held, hidden=100)
        assert (updated.text, updated.message.visible) == (text, queue.after(100))
        assert updated.message.taken == held.message.taken == 1
        assert updated.message.expires == held.message.expires
        queue.wait(100, ticks=-1)
        assert await queue.peek() == ()
        queue.wait(ticks=1)
        assert await queue.texts() == [text]
        shown = await queue.update(updated)
        assert shown.message.visible == queue.now
        await queue.delete(shown)
    await queue.require_empty()


@queue_test
async def test_a_message_cannot_be_hidden_beyond_its_expiry(queue: QueueFixture) -> None:
    put = await queue.put(lives=60)
    assert await code_of(queue.update(put, hidden=61)) == "OutOfRangeQueryParameterValue"
    put = await queue.update(put, hidden=60)
    put = await queue.update(put)
    queue.wait(ticks=1)
    assert await code_of(queue.update(put, "new", hidden=60)) == "OutOfRangeQueryParameterValue"
    assert await queue.texts() == ["text"]
    held = await queue.update(put, hidden=59)
    assert held.message.visible < (held.message.expires or 0)
    # A receiver may hide it for longer.
    queue.wait(59)
    assert (await queue.get_one(hidden=WEEK_SECONDS)).id == put.id


# Expiry


@queue_test
async def test_a_message_expires_at_its_tick_and_is_removed_later(queue: QueueFixture) -> None:
    for text in ("short", LONG):
        await queue.put(text, lives=1)
    queue.wait(1, ticks=-1)
    assert len(await queue.peek()) == 2
    assert await queue.expire_step(100) == 0
    queue.wait(ticks=1)
    assert (await queue.peek(), await queue.get(32)) == ((), ())
    # The approximate count is never too low.
    assert await queue.count() == 2
    assert await queue.expire_step(100) == 2
    assert await queue.count() == 0
    await queue.require_empty()


@queue_test
async def test_expired_messages_do_not_hide_others(queue: QueueFixture) -> None:
    for number in range(40):
        await queue.put(f"over {number}", lives=1)
    queue.wait(ticks=1)
    await queue.put("here")
    queue.wait(1)
    assert await queue.texts() == ["here"]
    assert (await queue.get_one()).text == "here"


@queue_test
async def test_many_expired_messages_do_not_hide_others(queue: QueueFixture) -> None:
    """Expired messages are before, between and after the visible ones."""
    for visible in ("first", "second", "third"):
        # More than one transaction reads.
        await asyncio.gather(*(queue.put("expired", lives=1) for _ in range(400)))
        await queue.put(visible)
        queue.wait(ticks=1)
    await asyncio.gather(*(queue.put("expired", lives=1) for _ in range(400)))
    queue.wait(1)
    assert await queue.texts() == ["first", "second", "third"]
    assert [shown.text for shown in await queue.peek(2)] == ["first", "second"]
    taken = await queue.get(2)
    assert [shown.text for shown in taken] == ["first", "second"]
    assert len({shown.message.receipt for shown in taken}) == 1
    assert await queue.texts() == ["third"]
    assert [shown.text for shown in await queue.get(32)] == ["third"]
    assert (await queue.get(32), await queue.texts()) == ((), [])
    await queue.require_consistent()


@queue_test
async def test_expiry_of_messages_of_older_versions(queue: QueueFixture) -> None:
    """Their places do not contain the expiry time."""
    await asyncio.gather(*(queue.put("expired", lives=1) for _ in range(400)))
    queue.wait(ticks=1)
    await queue.put("here")
    await queue.write(remove_expiry_from_places, None)
    queue.wait(1)
    assert await queue.texts() == ["here"]
    assert (await queue.get_one()).text == "here"


@queue_test
async def test_expired_messages_are_removed_in_bounded_steps(queue: QueueFixture) -> None:
    for number in range(10):
        await queue.put(LONG if number % 2 else "short", lives=1 + number // 5)
    taken = await queue.get(3)
    queue.wait(2)
    assert [await queue.expire_step(4) for _ in range(4)] == [4, 4, 2, 0]
    await queue.require_consistent()
    assert all([await queue.is_void(held) for held in taken])
    await queue.require_empty()


@queue_test
async def test_concurrent_receivers(queue: QueueFixture) -> None:
    """Each message goes to exactly one receiver, and every dequeue count is right."""
    await asyncio.gather(*(queue.put(str(number)) for number in range(24)))
    assert await queue.count() == 24
    shares = await asyncio.gather(*(queue.get(4) for _ in range(8)))
    taken = [held for share in shares for held in share]
    assert len({held.id for held in taken}) == len(taken)
    taken += await queue.get(32)
    assert len({held.id for held in taken}) == len(taken) == 24
    await asyncio.gather(*map(queue.delete, taken))
    await queue.require_empty()
