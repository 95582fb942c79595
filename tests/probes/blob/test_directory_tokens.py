"""A token for a directory (`sr=d`) is valid for what is below it, and for nothing else."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import pytest

from tests.probes.blob.batches import BOUNDARY, answered, batch
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import Answer, Request
from tests.probes.tokens import Token, service_token
from tests.server import ACCOUNT, KEY, unique

INSIDE: Final = ("shelf", "shelf/book", "shelf/sub/page", "shelf/sub/subway")
OUTSIDE: Final = ("book", "other/secret", "shelf2/book", "shelves", "zoo/book")
BLOCK_BLOB: Final = ("x-ms-blob-type", "BlockBlob")
REFUSED: Final = {400, 403}


class DirectoryFixture:
    """A container with blobs in and beside a directory."""

    def __init__(self, blobs: BlobFixture) -> None:
        self.blobs = blobs
        self.container = unique("directories")
        blobs.send_as_owner(
            Request("PUT", f"/{ACCOUNT}/{self.container}", (("restype", "container"),))
        )
        for name in (*INSIDE, *OUTSIDE):
            self.put(name)

    def put(self, name: str) -> None:
        path = f"/{ACCOUNT}/{self.container}/{quote(name)}"
        self.blobs.send_as_owner(Request("PUT", path, (), (BLOCK_BLOB,), name.encode()))

    def token(self, directory: str = "shelf", depth: int | None = None) -> Token:
        count = directory.count("/") + 1 if depth is None else depth
        return service_token(
            ACCOUNT, KEY, self.container, directory, sr="d", sdd=str(count), permissions="racwdlt"
        )

    def url(self, name: str) -> str:
        return f"{self.blobs.server.url('blob')}/{self.container}/{quote(name)}"

    def ask(self, token: Token, request: Request) -> Answer:
        return self.blobs.client.ask(token.put_on(request))

    def listing(self, path: str, *query: tuple[str, str]) -> Request:
        usual = (("restype", "container"), ("comp", "list"))
        return Request("GET", f"/{ACCOUNT}/{path}", (*usual, *query))


@pytest.fixture(scope="module")
def directories(blobs: BlobFixture) -> DirectoryFixture:
    return DirectoryFixture(blobs)


@pytest.fixture
def own_directories(blobs: BlobFixture) -> DirectoryFixture:
    """Blobs that the test may change."""
    return DirectoryFixture(blobs)


def names_in(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return re.findall(r"<Name>([^<]*)</Name>", answer.body.decode())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("shelf", "shelf"),
        ("shelf/book", "shelf/book"),
        ("shelf%2Fbook", "shelf/book"),
        ("shelf%5Cbook", "shelf/book"),
        ("shelf%5Csub%2Fpage", "shelf/sub/page"),
        ("%73helf/book", "shelf/book"),
        ("shelf2/book", ""),
        ("shelves", ""),
        ("SHELF/book", ""),
        ("other/secret", ""),
        ("/shelf/book", ""),
        ("./shelf/book", ""),
        ("shelf//book", ""),
        ("shelf/./book", ""),
        ("shelf/../other/secret", ""),
        ("shelf/%2E%2E/other/secret", ""),
        ("shelf%2F..%2Fother%2Fsecret", ""),
        ("shelf%5C..%5Cother/secret", ""),
        ("shelf/..%5Cother/secret", ""),
        ("other/../shelf/book", ""),
        ("shelf%00/book", ""),
        ("shelf%0A/book", ""),
        ("shelf%20/book", ""),
        ("shelf%2500/../../other/secret", ""),
        ("%2Fother/secret", ""),
        ("", ""),
    ],
)
def test_paths(directories: DirectoryFixture, path: str, name: str) -> None:
    request = Request("GET", f"/{ACCOUNT}/{directories.container}/{path}")
    answer = directories.ask(directories.token(), request)
    if name:
        assert (answer.status, answer.body) == (200, name.encode())
        return
    assert answer.status in {*REFUSED, 404}, answer
    with directories.blobs.unchanged():
        for method, query in (("PUT", ()), ("DELETE", ()), ("PUT", (("comp", "metadata"),))):
            headers = (BLOCK_BLOB,) if method == "PUT" and not query else ()
            sent = Request(method, request.path, query, headers)
            answer = directories.ask(directories.token(), sent)
            assert answer.status in REFUSED, (method, query, answer)


def test_a_directory_below_a_directory(directories: DirectoryFixture) -> None:
    token = directories.token("shelf/sub")
    for name, status in (
        ("shelf/sub/page", 200),
        ("shelf/sub/subway", 200),
        ("shelf/book", 403),
        ("shelf", 403),
        ("shelf/subway", 403),
        ("other/secret", 403),
    ):
        path = f"/{ACCOUNT}/{directories.container}/{name}"
        assert directories.ask(token, Request("GET", path)).status == status, name
    # The depth is not signed, and another one is another directory.
    for depth in ("0", "1", "3", "22", "-2", "", "2.0"):
        path = f"/{ACCOUNT}/{directories.container}/shelf/sub/page"
        assert directories.ask(token.setting("sdd", depth), Request("GET", path)).status == 403


def test_the_root_directory(directories: DirectoryFixture) -> None:
    token = service_token(
        ACCOUNT, KEY, directories.container, sr="d", sdd="0", permissions="racwdl"
    )
    names = names_in(directories.ask(token, directories.listing(directories.container)))
    assert names == sorted((*INSIDE, *OUTSIDE))
    for name in (*INSIDE, *OUTSIDE):
        path = f"/{ACCOUNT}/{directories.container}/{name}"
        assert directories.ask(token, Request("GET", path)).body == name.encode()


# Listings


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ((("prefix", "shelf/"),), ["shelf/book", "shelf/sub/page", "shelf/sub/subway"]),
        ((("prefix", "shelf%2Fs"),), ["shelf/sub/page", "shelf/sub/subway"]),
        ((("prefix", "shelf/"), ("delimiter", "/")), ["shelf/book", "shelf/sub/"]),
        ((("prefix", "shelf/sub/"), ("delimiter", "/")), ["shelf/sub/page", "shelf/sub/subway"]),
        ((("prefix", "shelf/"), ("delimiter", "s")), ["shelf/book", "shelf/s"]),
        ((("prefix", "shelf/"), ("startfrom", "a")), ["shelf/book", "shelf/sub/page"]),
        ((("prefix", "shelf/"), ("startfrom", "zoo")), []),
        ((("prefix", "shelf/.."),), []),
        ((("prefix", "shelf/..%5Cother"),), []),
        ((("prefix", "shelf/"), ("prefix", "other/")), None),
        ((("prefix", "other/"), ("PREFIX", "shelf/")), None),
        ((("prefix", "shelf/"), ("directory", "shelf"), ("resource", "filesystem")), None),
        ((("directory", "shelf"),), None),
        ((("directory", "shelf"), ("prefix", "other/")), None),
        ((), None),
        ((("prefix", ""),), None),
        ((("prefix", "s"),), None),
        ((("prefix", "shelf"),), None),
        ((("prefix", "shelf2/"),), None),
        ((("prefix", "other/"),), None),
        ((("prefix", "/shelf/"),), None),
        ((("prefix", "./shelf/"),), None),
        ((("prefix", "shelf//"),), None),
        ((("prefix", "shelf/../"),), None),
        ((("prefix", "shelf/../other/"),), None),
        ((("prefix", "shelf%5C"),), None),
        ((("prefix", "shelf%00/"),), None),
        ((("prefix", "shelf"), ("delimiter", "/")), None),
    ],
)
def test_listings(
    directories: DirectoryFixture, query: tuple[tuple[str, str], ...], names: list[str] | None
) -> None:
    request = directories.listing(directories.container, *query)
    answer = directories.ask(directories.token(), request)
    if names is None:
        # Of a parameter that is given twice, the values are one text that matches nothing.
        assert answer.status in REFUSED or names_in(answer) == [], answer
    else:
        found = names_in(answer)
        assert found[: len(names)] == names
        assert all(name.startswith("shelf/") for name in found)


def test_markers_do_not_lead_out_of_a_directory(directories: DirectoryFixture) -> None:
    marker = ""
    for _ in range(len(INSIDE) + len(OUTSIDE)):
        page = directories.blobs.send_as_owner(
            directories.listing(
                directories.container, ("maxresults", "1"), ("marker", quote(marker, safe=""))
            )
        )
        marker = "".join(re.findall(r"<NextMarker>([^<]*)</NextMarker>", page.body.decode()))
        if not marker:
            break
        request = directories.listing(
            directories.container, ("prefix", "shelf/"), ("marker", quote(marker, safe=""))
        )
        answer = directories.ask(directories.token(), request)
        assert answer.status in REFUSED or set(names_in(answer)) <= set(INSIDE)


def test_addresses_of_listings(directories: DirectoryFixture) -> None:
    """The directory is checked in the prefix, so the path must not name anything else."""
    container = directories.container
    for path in (f"{container}/shelf", f"{container}/shelf/", f"{container}/shelf/sub", "$root"):
        for prefix in ("other/", "shelf/", ""):
            request = directories.listing(path, ("prefix", prefix))
            assert directories.ask(directories.token(), request).status in {*REFUSED, 404}
    other = directories.listing(f"{container}2", ("prefix", "shelf/"))
    assert directories.ask(directories.token(), other).status in REFUSED


def test_operations_on_the_container_and_the_service(directories: DirectoryFixture) -> None:
    path = f"/{ACCOUNT}/{directories.container}"
    container, inside = ("restype", "container"), ("prefix", "shelf/")
    with directories.blobs.unchanged():
        for request in (
            Request("GET", path, (container, inside)),
            Request("GET", path, (container, inside, ("comp", "acl"))),
            Request("PUT", path, (container, inside, ("comp", "metadata"))),
            Request("DELETE", path, (container, inside)),
            Request("GET", path, (container, inside, ("comp", "blobs"), ("where", "a%3D'b'"))),
            Request("POST", path, (container, inside, ("comp", "batch"))),
            Request("GET", f"/{ACCOUNT}", (("comp", "list"), inside)),
            Request("GET", f"/{ACCOUNT}/", (("comp", "list"), inside)),
        ):
            answer = directories.ask(directories.token(), request)
            assert answer.status in REFUSED, (request, answer)


# Copies, batches and snapshots


def test_copies(own_directories: DirectoryFixture) -> None:
    token = own_directories.token()

    def copy(name: str, source: str, *more: tuple[str, str]) -> int:
        path = f"/{ACCOUNT}/{own_directories.container}/{name}"
        headers = (("x-ms-copy-source", source), *more)
        return own_directories.ask(token, Request("PUT", path, (), headers)).status

    sync = ("x-ms-requires-sync", "true")
    for more in ((), (sync,), (BLOCK_BLOB,)):
        inside, outside = own_directories.url("shelf/book"), own_directories.url("other/secret")
        assert copy("shelf/copy", f"{inside}?{token}", *more) in {201, 202}
        with own_directories.blobs.unchanged():
            assert copy("shelf/copy", f"{outside}?{token}", *more) in REFUSED
            assert copy("shelf/copy", outside, *more) in {401, *REFUSED, 404}
            assert copy("other/copy", f"{inside}?{token}", *more) == 403
            leads_out = f"{own_directories.url('shelf')}/../other/secret?{token}"
            assert copy("shelf/copy", leads_out, *more) in REFUSED


def test_batches(own_directories: DirectoryFixture) -> None:
    for name in ("shelf/one", "other/one"):
        own_directories.put(name)
    token = own_directories.token()
    parts = [
        token.put_on(Request("DELETE", f"/{ACCOUNT}/{own_directories.container}/{name}"))
        for name in ("shelf/one", "other/one", "shelf/../other/one", "shelf%5C..%5Cother/one")
    ]
    body = batch(parts)
    answer = own_directories.blobs.send_as_owner(
        Request(
            "POST",
            f"/{ACCOUNT}/{own_directories.container}",
            (("restype", "container"), ("comp", "batch")),
            (("Content-Type", f"multipart/mixed; boundary={BOUNDARY}"),),
            body,
        )
    )
    assert [part.status for part in answered(answer)] == [202, 403, 403, 403]


def test_snapshots(own_directories: DirectoryFixture) -> None:
    for name, status in (("shelf/book", 200), ("other/secret", 403)):
        path = f"/{ACCOUNT}/{own_directories.container}/{name}"
        taken = own_directories.blobs.send_as_owner(Request("PUT", path, (("comp", "snapshot"),)))
        moment = ("snapshot", quote(taken.headers["x-ms-snapshot"]))
        answer = own_directories.ask(own_directories.token(), Request("GET", path, (moment,)))
        assert answer.status == status
