"""`etagere check` over the objects of an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from etagere.bodies.audit.walk import check
from etagere.bodies.objects.audited_objects import AuditedObjects
from tests.bodies.object_stores.drivers import DirectoryObjectStore
from tests.model.consistency import OBJECTS_NAME
from tests.model.front_ends import SMALL, StoreCluster, noise

PIECE = SMALL.piece_bytes_max


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, others=0, in_objects=True) as opened:
        opened.local.call("put", "a", noise(1, 5 * PIECE))
        opened.local.call("put", "b", noise(2, 2_000))
        opened.local.call("put", "gone", noise(3, 2_000))
        opened.local.call("delete", "gone")
        opened.reopen_local()
        yield opened


def remove_one(paths: list[Path]) -> None:
    paths[2].unlink()


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def shorten(paths: list[Path]) -> None:
    paths[1].write_bytes(paths[1].read_bytes()[:-1])


def corrupt(paths: list[Path]) -> None:
    data = paths[1].read_bytes()
    paths[1].write_bytes(b"?" + data[1:])


def add_strange(paths: list[Path]) -> None:
    paths[0].with_name("segments+strange").write_bytes(b"x")


def add_late(paths: list[Path]) -> None:
    """Adds an object whose put was acknowledged to nobody, and one of a segment that is newer than
    the snapshot."""
    paths[0].with_name(paths[0].name[:-8] + "00000fff").write_bytes(b"x")
    paths[0].with_name("segments+00000fff+00000000").write_bytes(b"x")


@pytest.mark.parametrize(
    ("damage", "fast", "full"),
    [
        (remove_one, ["segment-short"], ["segment-short"]),
        (remove_all, ["segment-missing"], ["segment-missing"]),
        (shorten, ["segment-short"], ["segment-short"]),
        (corrupt, [], ["extent-damaged"]),
        (add_strange, ["file-strange"], ["file-strange"]),
        (add_late, [], []),
    ],
)
def test_damaged_objects(
    cluster: StoreCluster, damage: Callable[[list[Path]], None], fast: list[str], full: list[str]
) -> None:
    cluster.require_clean()
    directory = cluster.directory / OBJECTS_NAME
    damage(sorted(directory.iterdir()))
    open_segments = partial(AuditedObjects, partial(DirectoryObjectStore, directory))
    for is_fast, expected in ((True, fast), (False, full)):
        report = check(cluster.directory, SMALL, fast=is_fast, open_segments=open_segments)
        assert [found.kind.name for found in report.findings] == expected
        assert all("segments/" in found.where for found in report.findings)
