"""Directories that are created, renamed and deleted at the same time as what is in them.

Every entry has an ID for life. At the end, the tree consists of exactly the entries that were
created and not deleted, wherever they were moved to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from tests.probes.client import Answer, Client, Pairs, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, check, served

_sign = shared_key(ACCOUNT, KEY)
_SHARE: Final = f"/{ACCOUNT}/races"
_DIRECTORY: Final = (("restype", "directory"),)
_THREADS: Final = 6
_SECONDS: Final = 2.0
_NAMES: Final = ("a", "b", "c")
_EXPECTED: Final = {
    (404, "ParentNotFound"),
    (404, "ResourceNotFound"),
    (409, "ResourceAlreadyExists"),
    (409, "ResourceTypeMismatch"),
    (409, "DirectoryNotEmpty"),
    (400, "InvalidInput"),
}
"""Refusals that a client must expect if others change the tree; the last one is for a directory
that would move into itself."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "data") as started:
        yield started


class _Actor:
    """A client that changes the tree at random."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._chance = random.Random(number)
        self.created: set[str] = set()
        self.deletes = 0
        """How many entries it has deleted."""
        self.moves = 0

    def run(self) -> None:
        ends_at = time.monotonic() + _SECONDS
        with Client(self._server.endpoints["file"]) as client:
            while time.monotonic() < ends_at:
                self._act(client)

    def _path(self) -> str:
        names = self._chance.choices(_NAMES, k=self._chance.randint(1, 4))
        return "/".join((_SHARE, *names))

    def _act(self, client: Client) -> None:
        chance, path = self._chance, self._path()
        match chance.randrange(8):
            case 0 | 1 | 2:
                self._note_created(_ask(client, "PUT", path, _DIRECTORY))
            case 3:
                headers = (("x-ms-type", "file"), ("x-ms-content-length", "5"))
                # Files have other names, so that none is replaced.
                name = f"{path}/f{chance.getrandbits(40)}"
                self._note_created(_ask(client, "PUT", name, (), headers))
            case 4:
                self.deletes += _ask(client, "DELETE", path, _DIRECTORY).status == 202
            case _:
                source = ("x-ms-file-rename-source", f"http://127.0.0.1{self._path()}")
                query = (*_DIRECTORY, ("comp", "rename"))
                self.moves += _ask(client, "PUT", path, query, (source,)).status == 200

    def _note_created(self, answer: Answer) -> None:
        if answer.status == 201:
            self.created.add(answer.headers["x-ms-file-id"])


def _ask(client: Client, method: str, path: str, query: Pairs = (), headers: Pairs = ()) -> Answer:
    answer = client.ask(_sign(Request(method, path, query, headers)))
    assert answer.status < 300 or (answer.status, answer.code) in _EXPECTED, answer
    return answer


def _walk(client: Client, path: str) -> Iterator[tuple[str, str]]:
    """Yields the ID and the kind of everything below a directory."""
    page = _ask(client, "GET", path, (*_DIRECTORY, ("comp", "list"))).body
    for entry in ElementTree.fromstring(page).findall("Entries/*"):
        yield entry.findtext("FileId") or "", entry.tag
        if entry.tag == "Directory":
            yield from _walk(client, f"{path}/{quote(entry.findtext('Name') or '')}")


def test_moves_lose_nothing(server: Server, tmp_path: Path) -> None:
    with Client(server.endpoints["file"]) as client:
        _ask(client, "PUT", _SHARE, (("restype", "share"),))
    actors = [_Actor(server, number) for number in range(_THREADS)]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(_Actor.run, actors))
    created = set().union(*(actor.created for actor in actors))
    with Client(server.endpoints["file"]) as client:
        found = list(_walk(client, _SHARE))
    ids = [each for each, _ in found]
    assert len(ids) == len(set(ids)), "an entry is in two places"
    assert set(ids) <= created
    assert len(ids) == len(created) - sum(actor.deletes for actor in actors)
    assert sum(actor.moves for actor in actors) > 10
    assert server.stop() == 0
    assert check(tmp_path / "data").returncode == 0
