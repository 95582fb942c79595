"""The index: entities with ETags, queries and transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core.exceptions import ResourceNotFoundError

from album.application import Application
from album.index import Index


@pytest.fixture
def index(application: Application) -> Index:
    return application.index


def test_a_photo_is_added_once(index: Index) -> None:
    assert index.add("sea", "waves.jpg", size=10)
    assert not index.add("sea", "waves.jpg", size=20)
    assert index.album("sea") == ["waves.jpg"]


def test_albums_are_separate(index: Index) -> None:
    index.add("sea", "waves.jpg", size=10)
    index.add("hills", "waves.jpg", size=10)
    index.like("sea", "waves.jpg")
    assert (index.likes("sea", "waves.jpg"), index.likes("hills", "waves.jpg")) == (1, 0)


def test_photos_are_in_order(index: Index) -> None:
    for name in ("c.jpg", "a.jpg", "b.jpg"):
        index.add("sea", name, size=1)
    assert index.album("sea") == ["a.jpg", "b.jpg", "c.jpg"]


def test_likes(index: Index) -> None:
    index.add("sea", "waves.jpg", size=10)
    assert [index.like("sea", "waves.jpg") for _ in range(3)] == [1, 2, 3]


def test_no_like_is_lost(index: Index) -> None:
    index.add("sea", "waves.jpg", size=10)
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda _: index.like("sea", "waves.jpg"), range(12)))
    assert sorted(counts) == list(range(1, 13))


def test_likes_of_a_missing_photo(index: Index) -> None:
    assert index.likes("sea", "none.jpg") == -1
    with pytest.raises(ResourceNotFoundError):
        index.like("sea", "none.jpg")


def test_titles_leave_likes_unchanged(index: Index) -> None:
    index.add("sea", "waves.jpg", size=10)
    index.like("sea", "waves.jpg")
    index.rename_title("sea", "waves.jpg", "Große Wellen")
    assert index.title("sea", "waves.jpg") == "Große Wellen"
    assert index.likes("sea", "waves.jpg") == 1


def test_removing(index: Index) -> None:
    index.add("sea", "waves.jpg", size=10)
    index.remove("sea", "waves.jpg")
    index.remove("sea", "waves.jpg")
    assert index.album("sea") == []


@pytest.mark.parametrize(("size", "expected"), [(10, ["b.jpg", "c.jpg"]), (30, [])])
def test_larger_than(index: Index, size: int, expected: list[str]) -> None:
    assert index.add_all("sea", {"a.jpg": 10, "b.jpg": 20, "c.jpg": 30})
    index.add("hills", "d.jpg", size=40)
    assert index.larger_than("sea", size) == expected


def test_all_or_none_are_added(index: Index) -> None:
    index.add("sea", "b.jpg", size=1)
    assert not index.add_all("sea", {"a.jpg": 10, "b.jpg": 20})
    assert index.album("sea") == ["b.jpg"]


def test_names_with_quotes(index: Index) -> None:
    index.add("sea", "Brian's.jpg", size=1)
    index.like("sea", "Brian's.jpg")
    assert index.likes("sea", "Brian's.jpg") == 1
