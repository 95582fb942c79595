"""Names of directories and files: what is allowed, how they are compared, and trailing dots."""

from __future__ import annotations

import pytest
from azure.storage.fileshare import ShareClient

from tests.sdk.harness import refused

ALLOWED = (
    "a",
    "a b",
    "a.b.c",
    ".hidden",
    "~$a",
    "a%b",
    "a%2Fb%20",
    "a+b&c=d#e",
    "a;b,c@d!e'f(g)",
    "été",
    "e\u0301te\u0301",
    "文件",
    "😀",
    "a\u0085b",
    "name\ufffe\uffff",
    "CONSOLE",
    "com10",
    "x" * 255,
    "😀" * 127,
)
ILLEGAL = tuple(f"a{character}b" for character in '"\\:|<>*\x01\x1f\x7f')
RESERVED = ("CON", "nul", "Aux", "PRN", "Clock$", "com1", "LPT9")


@pytest.mark.parametrize("name", ALLOWED)
def test_names_that_are_allowed(share: ShareClient, name: str) -> None:
    directory = share.get_directory_client(name)
    directory.create_directory()
    directory.get_file_client(name).create_file(3)
    assert share.get_file_client(f"{name}/{name}").get_file_properties().size == 3
    assert [entry.name for entry in share.list_directories_and_files()] == [name]
    assert [entry.name for entry in directory.list_directories_and_files()] == [name]
    assert [entry.name for entry in directory.list_directories_and_files(name)] == [name]


@pytest.mark.parametrize("name", [*ILLEGAL, *RESERVED])
def test_names_that_are_not_allowed(share: ShareClient, name: str) -> None:
    with refused(400, "InvalidResourceName"):
        share.create_directory(name)
    with refused(400, "InvalidResourceName"):
        share.get_file_client(name).create_file(3)
    with refused(400, "InvalidResourceName"):
        share.get_file_client(f"{name}/a").create_file(3)
    assert not list(share.list_directories_and_files())


@pytest.mark.parametrize("name", ["x" * 256, "😀" * 128])
def test_names_that_are_too_long(share: ShareClient, name: str) -> None:
    with refused(400, "OutOfRangeInput"):
        share.create_directory(name)
    with refused(400, "OutOfRangeInput"):
        share.get_file_client(name).create_file(3)


def test_the_deepest_path(share: ShareClient) -> None:
    path = "d"
    share.create_directory(path)
    for _ in range(248):
        path += "/d"
        share.create_directory(path)
    share.get_file_client(f"{path}/f").create_file(3)
    share.create_directory(f"{path}/e")
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.create_directory(f"{path}/e/e")
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.get_file_client(f"{path}/e/f").create_file(3)


def test_the_longest_path(share: ShareClient) -> None:
    path = ""
    for length in (255,) * 7 + (248,):
        path += "x" * length
        share.create_directory(path)
        path += "/"
    assert len(path) == 2_041
    share.get_file_client(path + "y" * 7).create_file(3)
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.get_file_client(path + "y" * 8).create_file(3)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("readme", "README", True),
        ("été", "ÉTÉ", True),
        ("ß", "SS", False),
        ("\u0131", "I", False),
        ("ÿ", "Ÿ", True),
        ("é", "e\u0301", False),
        ("ω", "Ω", True),
        ("𐐨", "𐐀", False),
    ],
)
def test_names_that_are_the_same(share: ShareClient, one: str, other: str, same: bool) -> None:
    share.create_directory(one)
    if same:
        with refused(409, "ResourceAlreadyExists"):
            share.create_directory(other)
    else:
        share.create_directory(other)
    listed = [entry.name for entry in share.list_directories_and_files()]
    assert listed[:1] == [one] if same else sorted(listed) == sorted([one, other])


def test_trailing_dots(share: ShareClient) -> None:
    """Without the header they are removed from every component."""
    share.create_directory("Papers..").get_file_client("Report.").create_file(1)
    assert share.get_file_client("Papers/Report").get_file_properties().size == 1
    dotted = _with_trailing_dots(share)
    dotted.create_directory("Papers.").get_file_client("Report..").create_file(2)
    assert dotted.get_file_client("Papers./Report..").get_file_properties().size == 2
    assert dotted.get_file_client("Papers/Report").get_file_properties().size == 1
    assert share.get_file_client("Papers./Report..").get_file_properties().size == 1
    listed = [entry.name for entry in dotted.list_directories_and_files()]
    assert listed == ["Papers", "Papers."]
    dotted.get_file_client("Papers./Report..").delete_file()
    dotted.get_directory_client("Papers.").delete_directory()
    with refused(400, "InvalidResourceName"):
        dotted.get_file_client("...").create_file(1)


def _with_trailing_dots(share: ShareClient) -> ShareClient:
    url = share.url.rsplit("/", 1)[0]
    return ShareClient(url, share.share_name, credential=share.credential, allow_trailing_dot=True)
