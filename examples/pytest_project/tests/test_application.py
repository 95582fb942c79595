"""The application as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from album.application import Application
from album.photos import PhotoExists

if TYPE_CHECKING:
    from etagere.testing import Account


def test_each_test_has_an_account_of_its_own(application: Application) -> None:
    assert application.photos.albums() == []
    assert application.work() is None
    assert application.exports.albums() == []


def test_adding_a_photo(application: Application) -> None:
    application.add("sea", "waves.jpg", b"photo")
    assert application.photos.in_album("sea") == ["sea/waves.jpg"]
    assert application.index.album("sea") == ["waves.jpg"]
    assert application.tasks.waiting() == 1


def test_adding_again_completes_what_is_missing(application: Application) -> None:
    application.photos.add("sea/waves.jpg", b"photo")  # and then the program crashed
    application.add("sea", "waves.jpg", b"photo")
    application.add("sea", "waves.jpg", b"photo")
    assert application.index.album("sea") == ["waves.jpg"]
    assert application.tasks.waiting() == 1


def test_another_photo_of_the_same_name_is_refused(application: Application) -> None:
    application.add("sea", "waves.jpg", b"photo")
    with pytest.raises(PhotoExists):
        application.add("sea", "waves.jpg", b"another photo")


def test_working(application: Application) -> None:
    application.add("sea", "waves.jpg", b"photo")
    assert application.work() == "sea/waves.jpg"
    assert application.work() is None
    assert application.photos.tagged("thumbnail", "yes") == ["sea/waves.jpg"]


def test_exporting(application: Application) -> None:
    application.add("sea", "1.jpg", b"one ")
    application.add("sea", "2.jpg", b"two")
    assert application.export("sea") == 2
    assert application.exports.read("sea") == b"one two"


def test_the_application_reads_the_environment(etagere_environment: Account) -> None:
    with Application.from_environment() as application:
        application.add("sea", "waves.jpg", b"photo")
    with Application(etagere_environment.connection_string) as application:
        assert application.photos.albums() == ["sea"]
