"""Exports: files that are replaced by a rename."""

from __future__ import annotations

import pytest

from album.application import Application
from album.exports import ExportMissing, Exports


@pytest.fixture
def exports(application: Application) -> Exports:
    return application.exports


def test_an_export_is_read_as_it_was_published(exports: Exports) -> None:
    exports.publish("sea", bytes(100_000))
    assert exports.read("sea") == bytes(100_000)


def test_publishing_again_replaces_the_export(exports: Exports) -> None:
    exports.publish("sea", b"a long first export")
    exports.publish("sea", b"second")
    assert exports.read("sea") == b"second"
    assert exports.albums() == ["sea"]


def test_a_missing_export(exports: Exports) -> None:
    with pytest.raises(ExportMissing):
        exports.read("sea")


def test_patching(exports: Exports) -> None:
    exports.publish("sea", b"0123456789")
    exports.patch("sea", 3, b"abc")
    assert exports.read("sea") == b"012abc6789"


def test_exports_are_listed_in_order(exports: Exports) -> None:
    for album in ("sea", "hills", "moon"):
        exports.publish(album, b"photos")
    assert exports.albums() == ["hills", "moon", "sea"]
