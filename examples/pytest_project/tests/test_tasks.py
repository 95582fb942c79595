"""Tasks: messages that workers take for some time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from album.application import Application
from album.tasks import TAKES_MAX, Task, TaskLost, Tasks


@pytest.fixture
def tasks(application: Application) -> Tasks:
    return application.tasks


def take(tasks: Tasks) -> Task:
    task = tasks.take()
    assert task is not None
    return task


def test_no_task(tasks: Tasks) -> None:
    assert tasks.take() is None
    assert tasks.waiting() == 0


def test_tasks_are_taken_in_order(tasks: Tasks) -> None:
    for photo in ("a", "b", "c"):
        tasks.add(photo)
    assert [take(tasks).photo for _ in range(3)] == ["a", "b", "c"]


def test_a_task_is_taken_by_one_worker(tasks: Tasks) -> None:
    for number in range(8):
        tasks.add(str(number))
    with ThreadPoolExecutor(4) as workers:
        taken = list(workers.map(lambda _: take(tasks).photo, range(8)))
    assert sorted(taken) == [str(number) for number in range(8)]
    assert tasks.take() is None


def test_a_finished_task_is_gone(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.finish(take(tasks))
    assert tasks.waiting() == 0


def test_a_task_that_is_given_back_is_taken_again(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.give_back(take(tasks))
    again = take(tasks)
    assert (again.photo, again.takes) == ("a", 2)


def test_a_slow_worker_loses_its_task(tasks: Tasks) -> None:
    tasks.add("a")
    slow = take(tasks)
    tasks.give_back(slow)
    fast = take(tasks)
    with pytest.raises(TaskLost):
        tasks.finish(slow)
    tasks.finish(fast)
    with pytest.raises(TaskLost):
        tasks.finish(fast)


def test_extending_replaces_the_receipt(tasks: Tasks) -> None:
    tasks.add("a")
    first = take(tasks)
    second = tasks.extend(first, 60)
    with pytest.raises(TaskLost):
        tasks.finish(first)
    tasks.finish(second)


def test_a_task_that_cannot_be_done_is_put_aside(tasks: Tasks) -> None:
    tasks.add("broken")
    tasks.add("fine")
    for _ in range(TAKES_MAX):
        tasks.give_back(take(tasks))
        tasks.give_back(take(tasks))
    assert tasks.take() is None
    assert sorted(tasks.put_aside()) == ["broken", "fine"]


def test_delayed_tasks_wait(tasks: Tasks) -> None:
    tasks.add("later", delay_seconds=60)
    assert tasks.take() is None
    assert tasks.waiting() == 1
