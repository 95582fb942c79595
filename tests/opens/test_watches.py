"""Watches of directories."""

from __future__ import annotations

import asyncio

import pytest

from etagere.opens.watches import (
    EVENTS_MAX,
    Change,
    ChangeAction,
    ChangeSubject,
    Watch,
    WatchedChange,
    Watches,
)

_ADDED = Change(ChangeAction.ADDED, ChangeSubject.FILE_NAME, (0, 7), ("a", "b"))


@pytest.mark.parametrize(
    ("directory_id", "is_recursive", "subjects", "seen"),
    [
        (7, False, ChangeSubject.FILE_NAME, ("b",)),
        (7, True, ChangeSubject.FILE_NAME, ("b",)),
        (7, False, ChangeSubject.DIRECTORY_NAME, None),
        (0, False, ChangeSubject.FILE_NAME, None),
        (0, True, ChangeSubject.FILE_NAME, ("a", "b")),
        (8, True, ChangeSubject.FILE_NAME, None),
    ],
)
def test_what_a_watch_sees(
    directory_id: int, is_recursive: bool, subjects: int, seen: tuple[str, ...] | None
) -> None:
    watches = Watches()
    watch = Watch(watches, directory_id, subjects, is_recursive=is_recursive)
    watches.report([_ADDED])
    expected = [] if seen is None else [WatchedChange(ChangeAction.ADDED, seen)]
    assert watch.take() == expected
    assert watch.take() == []


def test_ended_watch_sees_nothing() -> None:
    watches = Watches()
    watch = Watch(watches, 7, ChangeSubject.FILE_NAME, is_recursive=False)
    watch.end()
    watch.end()
    watches.report([_ADDED])
    assert not watch.has_events


def test_too_many_changes_are_not_kept() -> None:
    watches = Watches()
    watch = Watch(watches, 7, ChangeSubject.FILE_NAME, is_recursive=False)
    watches.report(_ADDED._replace(names=("a", str(one))) for one in range(EVENTS_MAX + 1))
    assert watch.has_events
    assert watch.take() is None
    watches.report([_ADDED])
    assert watch.take() == [WatchedChange(ChangeAction.ADDED, ("b",))]


def test_waiters_take_turns_and_end() -> None:
    async def wait() -> None:
        watches = Watches()
        watch = Watch(watches, 7, ChangeSubject.FILE_NAME, is_recursive=False)
        first, second, third = (asyncio.create_task(watch.wait()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        watches.report([_ADDED])
        await asyncio.wait_for(second, 1)
        assert not third.done()
        watch.end()
        await asyncio.wait_for(third, 1)

    asyncio.run(wait())


def test_many_watches_are_woken_in_turns() -> None:
    async def run() -> None:
        watches = Watches()
        made = [Watch(watches, 7, ChangeSubject.FILE_NAME, is_recursive=False) for _ in range(100)]
        waiting = [asyncio.create_task(watch.wait()) for watch in made]
        await asyncio.sleep(0)
        watches.report([_ADDED])
        woken = []
        while not all(one.done() for one in waiting):
            await asyncio.sleep(0)
            woken.append(sum(one.done() for one in waiting))
        assert len([count for count in woken if 0 < count < 100]) >= 3
        # They share what they have seen.
        assert len({id(one) for watch in made for one in watch.take() or ()}) == 1

    asyncio.run(run())


def test_a_change_is_for_the_next_one_if_who_is_to_be_woken_is_cancelled() -> None:
    async def run() -> None:
        watches = Watches()
        watch = Watch(watches, 7, ChangeSubject.FILE_NAME, is_recursive=False)
        first, second = (asyncio.create_task(watch.wait()) for _ in range(2))
        await asyncio.sleep(0)
        watches.report([_ADDED])
        first.cancel()
        async with asyncio.timeout(1):
            await second
        assert first.cancelled() or first.done()

    asyncio.run(run())
