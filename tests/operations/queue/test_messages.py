"""Messages over every engine: put, taken, looked at and deleted, at their moment and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from etagere.model.queues import MessageResult
from tests.operations.blob.shelf import code_of
from tests.operations.queue.desk import LONG, WEEK_SECONDS, Desk, on_a_desk
from tests.operations.queue.ledger import forget_expiry_of_places


def ids(messages: Iterable[MessageResult]) -> list[bytes]:
    return [shown.id for shown in messages]


# Put


@on_a_desk
async def test_a_new_message(desk: Desk) -> None:
    put = await desk.put("hello")
    assert put.text == "hello"
    assert put.message.inserted == put.message.visible == desk.now
    assert put.message.expires == desk.after(WEEK_SECONDS)
    assert put.message.taken == 0
    assert await desk.peek() == (put,)
    assert await desk.count() == 1


@on_a_desk
async def test_lives(desk: Desk) -> None:
    for lives in (1, WEEK_SECONDS, 2**31 - 1):
        assert (await desk.put(lives=lives)).message.expires == desk.after(lives)
    assert (await desk.put("for ever", lives=None)).message.expires is None
    desk.wait(100 * 365 * 24 * 3600)
    await desk.purge()
    assert await desk.texts() == ["for ever"]


@on_a_desk
async def test_hidden_from_the_start(desk: Desk) -> None:
    put = await desk.put(hidden=60)
    assert put.message.visible == desk.after(60)
    assert await desk.count() == 1
    desk.wait(60, ticks=-1)
    assert (await desk.peek(), await desk.get(32)) == ((), ())
    desk.wait(ticks=1)
    assert await desk.peek() == (put,)
    assert (await desk.get_one()).id == put.id


@on_a_desk
async def test_the_first_receipt_deletes_and_updates_at_once(desk: Desk) -> None:
    await desk.delete(await desk.put())
    await desk.delete(await desk.put(hidden=60))
    updated = await desk.update(await desk.put("old", hidden=60), "new")
    assert updated.message.taken == 0
    assert await desk.texts() == ["new"]
    await desk.delete(updated)
    await desk.require_bare()


# Get


@on_a_desk
async def test_taking_hides_and_counts(desk: Desk) -> None:
    put = await desk.put("text", lives=None)
    for times in range(1, 4):
        taken = await desk.get_one(hidden=10)
        assert (taken.id, taken.text) == (put.id, "text")
        assert (taken.message.taken, taken.message.visible) == (times, desk.after(10))
        assert taken.message.inserted == put.message.inserted
        desk.wait(10, ticks=-1)
        assert (await desk.get(32), await desk.peek()) == ((), ())
        assert await desk.count() == 1
        desk.wait(ticks=1)
        assert await desk.texts() == ["text"]


@on_a_desk
async def test_as_many_as_are_asked_for(desk: Desk) -> None:
    put = [(await desk.put(str(number))).id for number in range(40)]
    one, several, rest = await desk.get(1), await desk.get(32), await desk.get(32)
    assert [len(taken) for taken in (one, several, rest)] == [1, 32, 7]
    assert sorted(ids((*one, *several, *rest))) == sorted(put)
    assert len({taken.message.receipt for taken in (one[0], several[0], rest[0])}) == 3
    assert await desk.get(32) == ()


@on_a_desk
async def test_what_was_seen_first_is_taken_first(desk: Desk) -> None:
    """Whether it is new, was hidden from its start, was given back or was not deleted in time."""
    await desk.put("taken")
    await desk.get_one(hidden=40)
    await desk.put("hidden", hidden=30)
    given_back = await desk.put("given back")
    desk.wait(10)
    await desk.put("new")
    desk.wait(10)
    await desk.update(given_back)
    order = ["new", "given back", "hidden", "taken"]
    desk.wait(30)
    assert await desk.texts() == order
    assert [(await desk.get_one()).text for _ in order] == order


@on_a_desk
async def test_peeking_changes_nothing(desk: Desk) -> None:
    for text in ("one", LONG, "three"):
        await desk.put(text)
        desk.wait(ticks=1)
    held = await desk.get_one()
    seen = await desk.peek()
    assert [shown.text for shown in seen] == [LONG, "three"]
    desk.wait(1)
    assert await desk.peek() == seen
    assert await desk.peek(1) == seen[:1]
    assert [shown.message.taken for shown in seen] == [0, 0]
    taken = await desk.get(32)
    assert ids(taken) == ids(seen)
    await desk.delete(held)


# Receipts


@on_a_desk
async def test_a_receipt_outlives_the_invisibility(desk: Desk) -> None:
    """As long as nobody else took the message."""
    await desk.put("text", lives=None)
    late = await desk.get_one(hidden=1)
    desk.wait(WEEK_SECONDS)
    assert await desk.texts() == ["text"]
    later = await desk.update(late, "changed", hidden=1)
    desk.wait(WEEK_SECONDS)
    await desk.delete(later)
    await desk.require_bare()


@on_a_desk
async def test_a_receipt_is_void_when_another_was_given(desk: Desk) -> None:
    put = await desk.put()
    taken = await desk.get_one(hidden=1)
    assert await desk.is_lost(put)
    desk.wait(1)
    again = await desk.get_one(hidden=1)
    assert await desk.is_lost(taken)
    updated = await desk.update(again, hidden=5)
    assert updated.message.receipt != again.message.receipt
    assert await code_of(desk.update(again, "stale")) == "MessageNotFound"
    assert await desk.is_lost(again)
    await desk.delete(updated)
    assert await desk.is_lost(updated)
    await desk.require_bare()


@on_a_desk
async def test_a_receipt_ends_with_the_message(desk: Desk) -> None:
    put = await desk.put(lives=5)
    desk.wait(5, ticks=-1)
    put = await desk.update(put)
    desk.wait(ticks=1)
    assert await code_of(desk.update(put)) == "MessageNotFound"
    assert await desk.is_lost(put)


@on_a_desk
async def test_a_receipt_of_another_message(desk: Desk) -> None:
    one, other = await desk.put("one"), await desk.put("other")
    crossed = MessageResult(one.id, other.message)
    assert await desk.is_lost(crossed)
    assert await desk.count() == 2


# Update


@on_a_desk
async def test_texts_grow_and_shrink(desk: Desk) -> None:
    """Long ones are kept apart, for as long as they are long."""
    held = await desk.put("short")
    for text in (LONG, "x" * 1_024, "x" * 1_025, LONG[::-1], "", "é" * 1_024, "🦄" * 1_025, "s"):
        held = await desk.update(held, text)
        assert held.text == text
        assert await desk.texts() == [text]
        await desk.require_consistent()
        assert (await desk.left_behind()).get("message_texts", 0) == (len(text) > 1_024)
    await desk.delete(held)
    await desk.require_bare()


@on_a_desk
async def test_a_new_moment_and_the_same_text(desk: Desk) -> None:
    for text in ("short", LONG):
        await desk.put(text)
        held = await desk.get_one()
        updated = await desk.update(held, hidden=100)
        assert (updated.text, updated.message.visible) == (text, desk.after(100))
        assert updated.message.taken == held.message.taken == 1
        assert updated.message.expires == held.message.expires
        desk.wait(100, ticks=-1)
        assert await desk.peek() == ()
        desk.wait(ticks=1)
        assert await desk.texts() == [text]
        shown = await desk.update(updated)
        assert shown.message.visible == desk.now
        await desk.delete(shown)
    await desk.require_bare()


@on_a_desk
async def test_not_hidden_past_its_end(desk: Desk) -> None:
    put = await desk.put(lives=60)
    assert await code_of(desk.update(put, hidden=61)) == "OutOfRangeQueryParameterValue"
    put = await desk.update(put, hidden=60)
    put = await desk.update(put)
    desk.wait(ticks=1)
    assert await code_of(desk.update(put, "new", hidden=60)) == "OutOfRangeQueryParameterValue"
    assert await desk.texts() == ["text"]
    held = await desk.update(put, hidden=59)
    assert held.message.visible < (held.message.expires or 0)
    # Whoever takes it may well keep it for longer.
    desk.wait(59)
    assert (await desk.get_one(hidden=WEEK_SECONDS)).id == put.id


# The end


@on_a_desk
async def test_gone_at_its_tick_and_removed_later(desk: Desk) -> None:
    for text in ("short", LONG):
        await desk.put(text, lives=1)
    desk.wait(1, ticks=-1)
    assert len(await desk.peek()) == 2
    assert await desk.expire_step(100) == 0
    desk.wait(ticks=1)
    assert (await desk.peek(), await desk.get(32)) == ((), ())
    # What is counted is never fewer than there are.
    assert await desk.count() == 2
    assert await desk.expire_step(100) == 2
    assert await desk.count() == 0
    await desk.require_bare()


@on_a_desk
async def test_what_is_over_does_not_hide_what_is_not(desk: Desk) -> None:
    for number in range(40):
        await desk.put(f"over {number}", lives=1)
    desk.wait(ticks=1)
    await desk.put("here")
    desk.wait(1)
    assert await desk.texts() == ["here"]
    assert (await desk.get_one()).text == "here"


@on_a_desk
async def test_any_number_of_expired_messages_hides_none(desk: Desk) -> None:
    """Before the visible messages, between them and behind them."""
    for visible in ("first", "second", "third"):
        # More than one transaction looks at.
        await asyncio.gather(*(desk.put("expired", lives=1) for _ in range(400)))
        await desk.put(visible)
        desk.wait(ticks=1)
    await asyncio.gather(*(desk.put("expired", lives=1) for _ in range(400)))
    desk.wait(1)
    assert await desk.texts() == ["first", "second", "third"]
    assert [shown.text for shown in await desk.peek(2)] == ["first", "second"]
    taken = await desk.get(2)
    assert [shown.text for shown in taken] == ["first", "second"]
    assert len({shown.message.receipt for shown in taken}) == 1
    assert await desk.texts() == ["third"]
    assert [shown.text for shown in await desk.get(32)] == ["third"]
    assert (await desk.get(32), await desk.texts()) == ((), [])
    await desk.require_consistent()


@on_a_desk
async def test_expiry_is_known_of_messages_of_older_versions(desk: Desk) -> None:
    """Their places do not say when they expire."""
    await asyncio.gather(*(desk.put("expired", lives=1) for _ in range(400)))
    desk.wait(ticks=1)
    await desk.put("here")
    await desk.shelf.write(forget_expiry_of_places, None)
    desk.wait(1)
    assert await desk.texts() == ["here"]
    assert (await desk.get_one()).text == "here"


@on_a_desk
async def test_ends_are_met_in_bounded_steps(desk: Desk) -> None:
    for number in range(10):
        await desk.put(LONG if number % 2 else "short", lives=1 + number // 5)
    taken = await desk.get(3)
    desk.wait(2)
    assert [await desk.expire_step(4) for _ in range(4)] == [4, 4, 2, 0]
    await desk.require_consistent()
    assert all([await desk.is_lost(held) for held in taken])
    await desk.require_bare()


@on_a_desk
async def test_many_at_once(desk: Desk) -> None:
    """Each message is given to one of those who ask, none to two, and every count is right."""
    await asyncio.gather(*(desk.put(str(number)) for number in range(24)))
    assert await desk.count() == 24
    shares = await asyncio.gather(*(desk.get(4) for _ in range(8)))
    taken = [held for share in shares for held in share]
    assert len({held.id for held in taken}) == len(taken)
    taken += await desk.get(32)
    assert len({held.id for held in taken}) == len(taken) == 24
    await asyncio.gather(*map(desk.delete, taken))
    await desk.require_bare()
