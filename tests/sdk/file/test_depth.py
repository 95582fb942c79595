"""Limits of the depth and length of paths, and directories that are moved below others."""

from __future__ import annotations

from azure.storage.fileshare import ShareClient

from tests.sdk.harness import refused

DEPTH_MAX = 250


def _make_tower(share: ShareClient, name: str, height: int) -> str:
    """Creates directories in each other; returns the path of the lowest one."""
    path = name
    share.create_directory(path)
    for _ in range(height - 1):
        path += "/d"
        share.create_directory(path)
    return path


def test_the_limit_applies_to_the_path_of_a_request(share: ShareClient) -> None:
    lowest = _make_tower(share, "a", DEPTH_MAX)
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.create_directory(f"{lowest}/d")
    share.create_directory("b")
    file = share.get_directory_client(lowest.removesuffix("/d")).upload_file("f", b"bytes")
    moved = share.get_directory_client("a").rename_directory("b/a")
    below = f"b/{lowest}"
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.get_directory_client(below).get_directory_properties()
    assert share.get_directory_client(below.removesuffix("/d")).exists()
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.get_directory_client("b").rename_directory(f"{lowest}/b")
    moved.rename_directory("a")
    assert share.get_directory_client(lowest).exists()
    assert file.download_file().readall() == b"bytes"


def test_paths_have_a_length(share: ShareClient) -> None:
    names = [f"{number}".rjust(250, "x") for number in range(8)]
    path = ""
    for name in names:
        path = f"{path}/{name}".removeprefix("/")
        share.create_directory(path)
    assert len(path) == 8 * 250 + 7
    share.get_directory_client(path).upload_file("f" * 40, b"")
    with refused(400, "InvalidFileOrDirectoryPathName"):
        share.get_directory_client(path).upload_file("f" * 41, b"")


def make_longest_path(share: ShareClient) -> str:
    """Creates a file with a path that takes nine characters of a URL for each of its own."""
    path = ""
    for _ in range(8):
        path += 250 * "\N{CJK UNIFIED IDEOGRAPH-66F8}"
        share.create_directory(path)
        path += "/"
    path += 40 * "\N{CJK UNIFIED IDEOGRAPH-66F8}"
    share.get_file_client(path).upload_file(b"bytes")
    return path


def test_the_longest_path_is_a_source(share: ShareClient) -> None:
    path = make_longest_path(share)
    file, copy = share.get_file_client(path), share.get_file_client("copy")
    copy.start_copy_from_url(file.url)
    assert copy.download_file().readall() == b"bytes"
    assert file.rename_file("renamed").download_file().readall() == b"bytes"
