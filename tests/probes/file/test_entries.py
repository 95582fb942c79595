"""Requests about directories and files with headers, parameters and names that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.probes.answers import answer_faults
from tests.probes.client import Answer, Pairs, Request
from tests.probes.file.fixture import FileFixture
from tests.probes.file.operations import SDDL, VERSION, FileTarget
from tests.server import ACCOUNT

INVALID_HEADER: Final = (400, "InvalidHeaderValue")
INVALID_NAME: Final = (400, "InvalidResourceName")
INVALID_PARAMETER: Final = (400, "InvalidQueryParameterValue")
OUT_OF_RANGE: Final = (400, "OutOfRangeInput")
DIRECTORY: Final = (("restype", "directory"),)
TYPE: Final = ("x-ms-type", "file")
LENGTH: Final = ("x-ms-content-length", "5")
DIGITS: Final = "1" * 5_000


@pytest.fixture(scope="module")
def target(files: FileFixture) -> Iterator[FileTarget]:
    created = files.create()
    yield created
    files.remove(created)


def _ask(
    files: FileFixture,
    target: FileTarget,
    method: str,
    path: str,
    query: Pairs = (),
    headers: Pairs = (),
    body: bytes = b"",
) -> Answer:
    address = f"/{ACCOUNT}/{target.share}/{path}"
    request = Request(method, address, query, (("x-ms-version", VERSION), *headers), body)
    answer = files.client.ask(files.sign_as_owner(request))
    faults = list(answer_faults(answer, "file", head=method == "HEAD"))
    assert not faults, (request, answer, faults)
    return answer


# Names, as they are in the path of the request

NAMES: Final[dict[str, tuple[int, str]]] = {
    **dict.fromkeys(("%22", "a%5Cb", "%3A", "%7C", "%3C", "%3E", "%2A", "%3F"), INVALID_NAME),
    **dict.fromkeys(("%00", "%01", "a%0Ab", "%1F", "%7F"), INVALID_NAME),
    **dict.fromkeys(("%FF", "a%C0%AF", "%ED%A0%80", "%F4%90%80%80"), INVALID_NAME),
    **dict.fromkeys((".", "..", "...", "crate/..", "CON", "nul", "LPT1", "clock$"), INVALID_NAME),
    **dict.fromkeys(("a" * 256, "%C3%A9" * 256, "%F0%9F%98%80" * 128), OUT_OF_RANGE),
    **dict.fromkeys(("crate//a", "/a", "%2F"), OUT_OF_RANGE),
    "/".join(["a"] * 251): (400, "InvalidFileOrDirectoryPathName"),
    "/".join(["a" * 250] * 9): (400, "InvalidFileOrDirectoryPathName"),
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_names(files: FileFixture, target: FileTarget, name: str) -> None:
    with files.unchanged():
        for method, query, headers in (
            ("PUT", DIRECTORY, ()),
            ("PUT", (), (TYPE, LENGTH)),
            ("GET", DIRECTORY, ()),
            ("DELETE", (), ()),
            ("HEAD", (), ()),
            ("GET", (*DIRECTORY, ("comp", "list")), ()),
        ):
            answer = _ask(files, target, method, name, query, headers)
            assert (answer.status, answer.code) == NAMES[name], (method, query)


def test_an_escaped_slash_separates_components(files: FileFixture, target: FileTarget) -> None:
    answer = _ask(files, target, "HEAD", target.file.replace("/", "%2F"))
    assert (answer.status, answer.headers["x-ms-type"]) == (200, "File")
    answer = _ask(files, target, "GET", f"{target.directory}/", DIRECTORY)
    assert answer.status == 200


# Headers

TIMES: Final = ("x-ms-file-creation-time", "x-ms-file-last-write-time", "x-ms-file-change-time")
NOT_A_TIME: Final = (
    "never", "2020", "2020-01-01", "2020-02-30T00:00:00Z", "2020-01-01T24:00:00Z",
    "2020-01-01T00:00:00.12345678Z", "1600-12-31T23:59:59Z", "2020-01-01T00:00:00", DIGITS,
)  # fmt: skip
OF_ENTRIES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(TIMES, NOT_A_TIME),
    "x-ms-file-attributes": ("Red", "ReadOnly|", "ReadOnly,Hidden", "0x1", "|", DIGITS),
    "x-ms-mode": ("rwx", "8", "17777", "0o644", "-1", DIGITS),
    "x-ms-owner": ("root", "-1", "4294967296", DIGITS),
    "x-ms-group": ("root", "1.0", DIGITS),
    "x-ms-allow-trailing-dot": ("yes", "1"),
    "x-ms-file-permission-format": ("xml", "1"),
}
OF_FILES: Final[dict[str, tuple[str, ...]]] = {
    "x-ms-type": ("directory", "File2"),
    "x-ms-content-length": ("-1", "five", "1.0", "0x5", "4398046511105", DIGITS),
    "x-ms-lease-id": ("lease", "1" * 31),
    "x-ms-file-property-semantics": ("Old", "1"),
}


def _sent(*headers: tuple[str, str]) -> Pairs:
    return tuple(dict((TYPE, LENGTH, *headers)).items())


PROPERTIES: Final = (("comp", "properties"),)
NEW_ONLY: Final = {"x-ms-type", "x-ms-file-property-semantics"}


@pytest.mark.parametrize("name", [*OF_ENTRIES, *OF_FILES])
def test_headers(files: FileFixture, target: FileTarget, name: str) -> None:
    requests: list[tuple[str, Pairs]] = [(target.free_file, ())]
    if name not in NEW_ONLY:
        requests.append((target.file, PROPERTIES))
    if name in OF_ENTRIES:
        requests.append((target.free_directory, DIRECTORY))
        requests.append((target.directory, (*DIRECTORY, *PROPERTIES)))
    with files.unchanged():
        for value in (OF_ENTRIES | OF_FILES)[name]:
            for path, query in requests:
                answer = _ask(files, target, "PUT", path, query, _sent((name, value)))
                assert (answer.status, answer.code) == INVALID_HEADER, (value[:40], query)
                details = answer.error()
                assert details["HeaderName"] == name
                assert details["HeaderValue"][:40] == value[:40]


@pytest.mark.parametrize("name", ["x-ms-type", "x-ms-content-length"])
def test_headers_that_a_new_file_needs(files: FileFixture, target: FileTarget, name: str) -> None:
    sent = tuple(pair for pair in (TYPE, LENGTH) if pair[0] != name)
    with files.unchanged():
        answer = _ask(files, target, "PUT", target.free_file, (), sent)
        assert (answer.status, answer.code) == (400, "MissingRequiredHeader")
        assert answer.error()["HeaderName"] == name


def test_times_of_new_entries_have_nothing_to_preserve(
    files: FileFixture, target: FileTarget
) -> None:
    with files.unchanged():
        for name in (*TIMES, "x-ms-file-attributes"):
            answer = _ask(files, target, "PUT", target.free_file, (), _sent((name, "preserve")))
            assert (answer.status, answer.code) == INVALID_HEADER, name


@pytest.mark.parametrize(
    ("attributes", "path", "query"),
    [
        ("Directory", "new", ()),
        ("Directory", "shelf/book", (("comp", "properties"),)),
        ("Archive", "crate", (*DIRECTORY, ("comp", "properties"))),
        ("Temporary", "new", DIRECTORY),
    ],
)
def test_attributes_of_the_other_kind(
    files: FileFixture, target: FileTarget, attributes: str, path: str, query: Pairs
) -> None:
    with files.unchanged():
        headers = _sent(("x-ms-file-attributes", attributes))
        answer = _ask(files, target, "PUT", path, query, headers)
        assert (answer.status, answer.code) == INVALID_HEADER


def test_owners_in_smb_shares(files: FileFixture, target: FileTarget) -> None:
    with files.unchanged():
        for name, value in (("x-ms-mode", "0644"), ("x-ms-owner", "1"), ("x-ms-group", "1")):
            answer = _ask(files, target, "PUT", target.free_file, (), _sent((name, value)))
            assert (answer.status, answer.code) == (400, "UnsupportedHeader")
            assert answer.error()["HeaderName"] == name


def test_attributes_and_permissions_in_nfs_shares(files: FileFixture) -> None:
    """A file must not become read-only by an attribute that no response shows."""
    target = files.create(is_nfs=True)
    requests: tuple[tuple[str, Pairs], ...] = (
        (target.free_file, ()),
        (target.file, PROPERTIES),
        (target.free_directory, DIRECTORY),
        (target.directory, (*DIRECTORY, *PROPERTIES)),
    )
    with files.unchanged():
        for path, query in requests:
            for name, value in (
                ("x-ms-file-attributes", "ReadOnly"),
                ("x-ms-file-attributes", "Hidden"),
                ("x-ms-file-permission", SDDL),
            ):
                answer = _ask(files, target, "PUT", path, query, _sent((name, value)))
                assert (answer.status, answer.code) == (400, "UnsupportedHeader"), (path, name)
                assert answer.error()["HeaderName"] == name
    # Some clients always send what means nothing in particular.
    for path, query in requests:
        default = "preserve" if "comp" in dict(query) else "inherit"
        sent = _sent(("x-ms-file-attributes", "None"), ("x-ms-file-permission", default))
        assert _ask(files, target, "PUT", path, query, sent).status in {200, 201}, path
    files.remove(target)


def test_empty_headers_are_like_absent_ones(files: FileFixture, target: FileTarget) -> None:
    """Some tools send an empty header instead of none."""
    names = (
        *TIMES, "x-ms-file-attributes", "x-ms-file-permission", "x-ms-file-permission-key",
        "x-ms-content-md5", "x-ms-content-type", "x-ms-mode", "x-ms-owner", "x-ms-group",
        "x-ms-file-property-semantics", "x-ms-allow-trailing-dot", "x-ms-file-request-intent",
    )  # fmt: skip
    empty = tuple((name, "") for name in names)
    for path, query in (
        ("shelf/empty", ()),
        ("shelf/empty", PROPERTIES),
        ("empties", DIRECTORY),
        ("empties", (*DIRECTORY, *PROPERTIES)),
    ):
        answer = _ask(files, target, "PUT", path, query, _sent(*empty))
        assert answer.status in {200, 201}, (path, query, answer)


# Bytes of Create File


def test_bodies_of_new_files(files: FileFixture, target: FileTarget) -> None:
    with files.unchanged():
        for headers, body, expected in (
            ((), b"123456", INVALID_HEADER),
            ((("Content-MD5", "AAAA"),), b"12345", (400, "InvalidMd5")),
            ((("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="),), b"12345", (400, "Md5Mismatch")),
            ((("x-ms-content-crc64", "AAAAAAAAAAA="),), b"12345", (400, "Crc64Mismatch")),
            ((("x-ms-structured-body", "XSM/9.9"),), b"12345", INVALID_HEADER),
            ((("Content-MD5", "AAAA"),), b"", (400, "InvalidMd5")),
            ((("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="),), b"", (400, "Md5Mismatch")),
            ((("x-ms-content-crc64", "AQAAAAAAAAA="),), b"", (400, "Crc64Mismatch")),
            ((("x-ms-structured-body", "XSM/9.9"),), b"", INVALID_HEADER),
            ((("x-ms-structured-content-length", "5"),), b"", (400, "MissingRequiredHeader")),
            ((("x-ms-content-length", "9999999"),), bytes((4 << 20) + 1), (413, "")),
        ):
            answer = _ask(files, target, "PUT", target.free_file, (), _sent(*headers), body)
            code = expected[1] or "RequestBodyTooLarge"
            assert (answer.status, answer.code) == (expected[0], code), headers


# Leases

LEASE: Final = (("comp", "lease"),)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), (400, "MissingRequiredHeader")),
        ((("x-ms-lease-action", "acquire"),), (400, "MissingRequiredHeader")),
        ((("x-ms-lease-action", "keep"),), INVALID_HEADER),
        ((("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "60")), INVALID_HEADER),
        ((("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-2")), INVALID_HEADER),
        ((("x-ms-lease-action", "renew"), ("x-ms-lease-id", "1" * 32)), INVALID_HEADER),
        ((("x-ms-lease-action", "release"),), (400, "MissingRequiredHeader")),
        ((("x-ms-lease-action", "change"), ("x-ms-lease-id", "1" * 32)),
         (400, "MissingRequiredHeader")),
        ((("x-ms-lease-action", "break"),), (409, "LeaseNotPresentWithLeaseOperation")),
    ],
)  # fmt: skip
def test_lease_actions(
    files: FileFixture, target: FileTarget, headers: Pairs, expected: tuple[int, str]
) -> None:
    with files.unchanged():
        answer = _ask(files, target, "PUT", target.file, LEASE, headers)
        assert (answer.status, answer.code) == expected


# Listings

PARAMETERS: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "prefix": {
        **dict.fromkeys(("%FF", "%ED%A0%80", "a" * 9_000), INVALID_PARAMETER),
        **dict.fromkeys(("", "%00", "%0A", "a%2Fb", "%3A"), (200, "")),
    },
    "marker": {
        **dict.fromkeys(("a", "%FF", "1!9!YQ--", "2!4!YQ--", "1!0!", DIGITS), INVALID_PARAMETER),
        **dict.fromkeys(("1!4!_w--", "1!4!/w--", "1!1336!" + "YWFh" * 334), INVALID_PARAMETER),
        **dict.fromkeys(("", "1!4!YQ--", "1!4!YQ==", "1%214%21YQ--"), (200, "")),
    },
    "maxresults": {
        **dict.fromkeys(("0", "-1", "two", "1.0", DIGITS), (400, "OutOfRangeQueryParameterValue")),
        **dict.fromkeys(("1", "5000", "5001", "999999"), (200, "")),
    },
    "include": {
        **dict.fromkeys(("metadata", "etag,size", "%FF"), INVALID_PARAMETER),
        **dict.fromkeys(("", "ETag", "timestamps,%20etag", "PERMISSIONKEY,,attributes"), (200, "")),
    },
    "sharesnapshot": {
        **dict.fromkeys(("now", "2020-01-01", "2020-01-01T00:00:00.5Z"), INVALID_PARAMETER),
        "2020-01-01T00:00:00.0000000Z": (404, "ShareSnapshotNotFound"),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_listings(files: FileFixture, target: FileTarget, name: str) -> None:
    for value, expected in PARAMETERS[name].items():
        query = (*DIRECTORY, ("comp", "list"), (name, value))
        answer = _ask(files, target, "GET", "shelf", query)
        assert (answer.status, answer.code) == expected, value[:40]


# Conditions


def test_conditions_are_refused_in_changes_and_ignored_in_reads(
    files: FileFixture, target: FileTarget
) -> None:
    date = "Thu, 01 Jan 2026 00:00:00 GMT"
    with files.unchanged():
        for condition in (
            ("If-Match", '"0x1"'),
            ("If-None-Match", "*"),
            ("If-Modified-Since", date),
            ("If-Unmodified-Since", date),
        ):
            for method, path, query in (
                ("PUT", target.file, ()),
                ("PUT", target.file, (("comp", "metadata"),)),
                ("DELETE", target.file, ()),
                ("DELETE", target.directory, DIRECTORY),
            ):
                headers = _sent(condition)
                answer = _ask(files, target, method, path, query, headers)
                expected = (400, "ConditionHeadersNotSupported")
                assert (answer.status, answer.code) == expected, (condition, method)
            for method in ("GET", "HEAD"):
                assert _ask(files, target, method, target.file, (), (condition,)).status == 200


# Snapshots cannot be changed


def test_changes_of_snapshots(files: FileFixture, target: FileTarget) -> None:
    snapshot = ("sharesnapshot", "2020-01-01T00:00:00.0000000Z")
    with files.unchanged():
        for method, path, query, headers in (
            ("PUT", "new", DIRECTORY, ()),
            ("PUT", "new", (), (TYPE, LENGTH)),
            ("DELETE", target.file, (), ()),
            ("DELETE", target.directory, DIRECTORY, ()),
            ("PUT", target.file, (("comp", "metadata"),), ()),
            ("PUT", target.file, (("comp", "properties"),), ()),
            ("PUT", target.file, LEASE, (("x-ms-lease-action", "break"),)),
        ):
            answer = _ask(files, target, method, path, (*query, snapshot), headers)
            assert (answer.status, answer.code) == INVALID_PARAMETER, (method, query)


def test_refusals_of_head(files: FileFixture, target: FileTarget) -> None:
    for path, code in (
        ("missing", "ResourceNotFound"),
        ("missing/book", "ParentNotFound"),
        ("crate", "ResourceNotFound"),
    ):
        answer = _ask(files, target, "HEAD", path)
        assert (answer.status, answer.code, answer.body) == (404, code, b"")
        assert "content-type" not in answer.headers
