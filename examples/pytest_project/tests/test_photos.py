"""Photos: blobs with ETags, leases, snapshots and tags."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError

from album.application import Application
from album.photos import PhotoChanged, PhotoExists, PhotoLocked, PhotoMissing, Photos

SIZES = (0, 300_000)


@pytest.fixture
def photos(application: Application) -> Photos:
    return application.photos


@pytest.mark.parametrize("size", SIZES)
def test_a_photo_is_returned_as_it_was_added(photos: Photos, size: int) -> None:
    data = bytes(size)
    etag = photos.add("sea/waves.jpg", data, title="Waves")
    found = photos.get("sea/waves.jpg")
    assert (found.data, found.etag, found.title) == (data, etag, "Waves")


@pytest.mark.parametrize("name", ["sea/Größe.jpg", "sea/a b+c%20d.jpg"])
def test_names(photos: Photos, name: str) -> None:
    photos.add(name, b"photo")
    assert photos.in_album("sea") == [name]
    assert photos.get(name).data == b"photo"


def test_adding_never_replaces(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    with pytest.raises(PhotoExists):
        photos.add("sea/waves.jpg", b"second")
    assert photos.get("sea/waves.jpg").data == b"first"


def test_missing_photos(photos: Photos) -> None:
    with pytest.raises(PhotoMissing):
        photos.get("sea/none.jpg")
    with pytest.raises(PhotoMissing):
        photos.preview("sea/none.jpg", 10)
    with pytest.raises(PhotoMissing):
        photos.delete("sea/none.jpg")
    with pytest.raises(PhotoMissing), photos.editing("sea/none.jpg"):
        pass


def test_preview(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"head and body")
    assert photos.preview("sea/waves.jpg", 4) == b"head"


def test_a_photo_that_was_read_can_be_replaced(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first", title="Waves")
    read = photos.get("sea/waves.jpg")
    etag = photos.replace(read, b"second")
    found = photos.get("sea/waves.jpg")
    assert (found.data, found.etag, found.title) == (b"second", etag, "Waves")
    assert etag != read.etag


def test_no_change_is_lost(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    mine, yours = photos.get("sea/waves.jpg"), photos.get("sea/waves.jpg")
    photos.replace(mine, b"mine")
    with pytest.raises(PhotoChanged):
        photos.replace(yours, b"yours")
    assert photos.get("sea/waves.jpg").data == b"mine"


def test_a_deleted_photo_cannot_be_replaced(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    read = photos.get("sea/waves.jpg")
    photos.delete("sea/waves.jpg")
    with pytest.raises(PhotoChanged):
        photos.replace(read, b"second")


def test_editing_excludes_others(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    read = photos.get("sea/waves.jpg")
    with photos.editing("sea/waves.jpg"):
        with pytest.raises(PhotoLocked), photos.editing("sea/waves.jpg"):
            pass
        with pytest.raises(PhotoLocked):
            photos.replace(read, b"second")
        with pytest.raises(PhotoLocked):
            photos.delete("sea/waves.jpg")
        assert photos.get("sea/waves.jpg").data == b"first"
    photos.replace(photos.get("sea/waves.jpg"), b"second")


def test_only_the_editor_can_write(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    with photos.editing("sea/waves.jpg") as lease_id:
        with pytest.raises(HttpResponseError) as refused:
            photos.edit("sea/waves.jpg", b"wrong", "00000000-0000-0000-0000-000000000000")
        assert refused.value.status_code == 412
        photos.edit("sea/waves.jpg", b"second", lease_id)
    assert photos.get("sea/waves.jpg").data == b"second"


def test_albums(photos: Photos) -> None:
    for name in ("sea/1.jpg", "sea/2.jpg", "hills/1.jpg"):
        photos.add(name, b"photo")
    assert photos.albums() == ["hills", "sea"]
    assert photos.in_album("sea") == ["sea/1.jpg", "sea/2.jpg"]
    assert photos.in_album("moon") == []


def test_versions(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    number = photos.keep_version("sea/waves.jpg")
    photos.replace(photos.get("sea/waves.jpg"), b"second")
    assert photos.get_version("sea/waves.jpg", number) == b"first"
    assert photos.get("sea/waves.jpg").data == b"second"


def test_deleting_a_photo_deletes_its_versions(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"first")
    photos.keep_version("sea/waves.jpg")
    photos.delete("sea/waves.jpg")
    assert photos.in_album("sea") == []


def test_tags(photos: Photos) -> None:
    for number in range(3):
        photos.add(f"sea/{number}.jpg", b"photo")
    photos.tag("sea/0.jpg", season="summer")
    photos.tag("sea/1.jpg", season="winter")
    photos.tag("sea/2.jpg", season="summer", place="Nice")
    assert photos.tagged("season", "summer") == ["sea/0.jpg", "sea/2.jpg"]
    assert photos.tagged("place", "Nice") == ["sea/2.jpg"]
    assert photos.tagged("place", "Oslo") == []


def test_the_container_may_exist(photos: Photos) -> None:
    photos.add("sea/waves.jpg", b"photo")
    photos.create()
    assert photos.in_album("sea") == ["sea/waves.jpg"]
