"""Listings of directories for many clients: other clients of the file process do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.probes.client import Client, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, served

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
_FILES: Final = 2_000
_SHARE: Final = f"/{ACCOUNT}/many"
_NAME: Final = "&" * 240
"""Each of these characters takes five bytes in a listing."""
_SNAPSHOT: Final = (("restype", "share"), ("comp", "snapshot"))
_LIST: Final = (
    ("restype", "directory"),
    ("comp", "list"),
    ("include", "timestamps,etag,attributes,permissionkey"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("listings") / "data"
    with served(directory) as started:
        with Client(started.endpoints["file"]) as client:
            for query in ((("restype", "share"),), _SNAPSHOT):
                assert client.ask(_sign(Request("PUT", _SHARE, query))).status == 201
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda first: _create_files(started, first), range(8)))
        yield started


def _create_files(server: Server, first: int) -> None:
    headers = (("x-ms-type", "file"), ("x-ms-content-length", "5"))
    with Client(server.endpoints["file"]) as client:
        for number in range(first, _FILES, 8):
            path = f"{_SHARE}/{_NAME.replace('&', '%26')}{number:05}"
            assert client.ask(_sign(Request("PUT", path, (), headers))).status == 201


def _list_all(server: Server) -> list[str]:
    """Returns the names of all pages."""
    names: list[str] = []
    marker = ""
    with Client(server.endpoints["file"]) as client:
        while True:
            query = (*_LIST, ("marker", marker)) if marker else _LIST
            answer = client.ask(_sign(Request("GET", _SHARE, query)))
            assert answer.status == 200
            root = ElementTree.fromstring(answer.body)
            names += [name.text or "" for name in root.iter("Name")]
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return names


def test_others_do_not_wait_for_long_pages(server: Server) -> None:
    def attack() -> None:
        with ThreadPoolExecutor(8) as threads:
            for names in threads.map(lambda _: _list_all(server), range(16)):
                assert names == [f"{_NAME}{number:05}" for number in range(_FILES)]

    assert_others_do_not_wait(server, attack, service="file")


def test_others_do_not_wait_for_an_empty_snapshot(server: Server) -> None:
    """The listing of the snapshot reads all files, although it shows none of them."""
    with Client(server.endpoints["file"]) as client:
        listed = client.ask(
            _sign(Request("GET", f"/{ACCOUNT}/", (("comp", "list"), ("include", "snapshots"))))
        )
        snapshot = ElementTree.fromstring(listed.body).findtext("Shares/Share/Snapshot") or ""

    def attack() -> None:
        with Client(server.endpoints["file"]) as client:
            for _ in range(30):
                query = (*_LIST, ("sharesnapshot", snapshot))
                answer = client.ask(_sign(Request("GET", _SHARE, query)))
                assert answer.status == 200
                assert b"<Entries />" in answer.body

    assert_others_do_not_wait(server, attack, service="file")
