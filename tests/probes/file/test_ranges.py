"""Requests about ranges of files that are refused, and change nothing."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from etagere.protocol.codecs.structured_messages import encoded
from tests.probes.answers import answer_faults
from tests.probes.client import Answer, Pairs, Request, md5
from tests.probes.file.fixture import CONTENT, FileFixture
from tests.probes.file.operations import OTHER_LEASE, VERSION, FileTarget
from tests.server import ACCOUNT, Server

RANGE: Final = (("comp", "range"),)
RANGE_LIST: Final = (("comp", "rangelist"),)
UPDATE: Final = (("x-ms-write", "update"), ("x-ms-range", "bytes=0-2"))
CLEAR: Final = (("x-ms-write", "clear"), ("x-ms-range", "bytes=0-2"))
INVALID_HEADER: Final = (400, "InvalidHeaderValue")
MISSING_HEADER: Final = (400, "MissingRequiredHeader")
OUTSIDE: Final = (416, "InvalidRange")
DIGITS: Final = "1" * 5_000
NOT_A_RANGE: Final = (
    "bytes=0-", "bytes=-3", "bytes=2-0", "0-2", "bytes=0-2,4-6", "bytes=0x0-0x2", DIGITS,
    f"bytes=0-{DIGITS}", "bytes=\u0660-\u0662",
)  # fmt: skip
MESSAGE: Final = encoded(b"abc")
STRUCTURED: Final = (
    ("x-ms-structured-body", "XSM/1.0; properties=crc64"),
    ("x-ms-structured-content-length", "3"),
)


@pytest.fixture(scope="module")
def target(files: FileFixture) -> Iterator[FileTarget]:
    created = files.create()
    yield created
    files.remove(created)


def _ask(
    files: FileFixture,
    target: FileTarget,
    method: str,
    query: Pairs,
    headers: Pairs = (),
    body: bytes = b"",
    path: str = "",
) -> Answer:
    address = f"/{ACCOUNT}/{target.share}/{path or target.file}"
    request = Request(method, address, query, (("x-ms-version", VERSION), *headers), body)
    answer = files.client.ask(files.sign_as_owner(request))
    faults = list(answer_faults(answer, "file", head=method == "HEAD"))
    assert not faults, (request, answer, faults)
    return answer


def _setting(headers: Pairs, *changes: tuple[str, str]) -> Pairs:
    return tuple((dict(headers) | dict(changes)).items())


def _lacking(headers: Pairs, name: str) -> Pairs:
    return tuple(pair for pair in headers if pair[0] != name)


WRITES: Final[dict[str, tuple[Pairs, bytes, tuple[int, str]]]] = {
    "no operation": (_lacking(UPDATE, "x-ms-write"), b"abc", MISSING_HEADER),
    "unknown operation": (_setting(UPDATE, ("x-ms-write", "append")), b"abc", INVALID_HEADER),
    "no range": (_lacking(UPDATE, "x-ms-range"), b"abc", MISSING_HEADER),
    **{
        f"range {written[:20]}": (_setting(UPDATE, ("x-ms-range", written)), b"abc", INVALID_HEADER)
        for written in NOT_A_RANGE
    },
    "an empty range": (_setting(UPDATE, ("x-ms-range", "bytes=3-2")), b"", INVALID_HEADER),
    "no body": (UPDATE, b"", INVALID_HEADER),
    "a short body": (UPDATE, b"ab", INVALID_HEADER),
    "a long body": (UPDATE, b"abcd", INVALID_HEADER),
    "beyond the end": (_setting(UPDATE, ("x-ms-range", "bytes=18-20")), b"abc", OUTSIDE),
    "far beyond the end": (
        _setting(UPDATE, ("x-ms-range", f"bytes={2**63 - 3}-{2**63 - 1}")),
        b"abc",
        OUTSIDE,
    ),
    "as far as possible": (
        _setting(UPDATE, ("x-ms-range", f"bytes={10**19 - 3}-{10**19 - 1}")),
        b"abc",
        OUTSIDE,
    ),
    "too long": (
        _setting(UPDATE, ("x-ms-range", f"bytes=0-{4 << 20}")),
        bytes((4 << 20) + 1),
        (413, "RequestBodyTooLarge"),
    ),
    "an invalid MD5": ((*UPDATE, ("Content-MD5", "abc")), b"abc", (400, "InvalidMd5")),
    "a wrong MD5": ((*UPDATE, ("Content-MD5", md5(b"x"))), b"abc", (400, "Md5Mismatch")),
    "an invalid CRC64": ((*UPDATE, ("x-ms-content-crc64", "abc")), b"abc", INVALID_HEADER),
    "a wrong CRC64": (
        (*UPDATE, ("x-ms-content-crc64", base64.b64encode(bytes(8)).decode())),
        b"abc",
        (400, "Crc64Mismatch"),
    ),
    "an unknown write time": (
        (*UPDATE, ("x-ms-file-last-write-time", "never")),
        b"abc",
        INVALID_HEADER,
    ),
    "a write time": (
        (*UPDATE, ("x-ms-file-last-write-time", "2020-01-01T00:00:00Z")),
        b"abc",
        INVALID_HEADER,
    ),
    "an invalid lease": ((*UPDATE, ("x-ms-lease-id", "lease")), b"abc", INVALID_HEADER),
    "a lease that is not there": (
        (*UPDATE, ("x-ms-lease-id", OTHER_LEASE)),
        b"abc",
        (412, "LeaseNotPresentWithFileOperation"),
    ),
    "an unknown kind of message": (
        (*UPDATE, *_setting(STRUCTURED, ("x-ms-structured-body", "XSM/2.0"))),
        MESSAGE,
        INVALID_HEADER,
    ),
    "a message without the length of its content": (
        (*UPDATE, STRUCTURED[0]),
        MESSAGE,
        MISSING_HEADER,
    ),
    "a message that is none": ((*UPDATE, STRUCTURED[1]), MESSAGE, MISSING_HEADER),
    "a message of another length": (
        (*UPDATE, *_setting(STRUCTURED, ("x-ms-structured-content-length", "4"))),
        MESSAGE,
        INVALID_HEADER,
    ),
    "a damaged message": (
        (*UPDATE, *STRUCTURED),
        MESSAGE.replace(b"abc", b"abd"),
        (400, "Crc64Mismatch"),
    ),
    "clear, with a body": (CLEAR, b"abc", INVALID_HEADER),
    "clear, with an MD5": ((*CLEAR, ("Content-MD5", md5(b""))), b"", (400, "UnsupportedHeader")),
    "clear, without an end": (_setting(CLEAR, ("x-ms-range", "bytes=0-")), b"", INVALID_HEADER),
    "clear, beyond the end": (_setting(CLEAR, ("x-ms-range", "bytes=0-20")), b"", OUTSIDE),
    "clear, as far as possible": (
        _setting(CLEAR, ("x-ms-range", f"bytes=0-{10**19 - 1}")),
        b"",
        OUTSIDE,
    ),
}


@pytest.mark.parametrize("case", WRITES)
def test_writes(files: FileFixture, target: FileTarget, case: str) -> None:
    headers, body, expected = WRITES[case]
    with files.unchanged():
        answer = _ask(files, target, "PUT", RANGE, headers, body)
        assert (answer.status, answer.code) == expected


PATHS: Final[dict[str, tuple[int, str]]] = {
    "none": (404, "ResourceNotFound"),
    "none/none": (404, "ParentNotFound"),
    "shelf/book/none": (404, "ParentNotFound"),
    "crate": (409, "ResourceTypeMismatch"),
}


@pytest.mark.parametrize("path", PATHS)
def test_writes_to_other_paths(files: FileFixture, target: FileTarget, path: str) -> None:
    with files.unchanged():
        for headers, body in ((UPDATE, b"abc"), (CLEAR, b"")):
            answer = _ask(files, target, "PUT", RANGE, headers, body, path)
            assert (answer.status, answer.code) == PATHS[path]


def test_x_ms_range_takes_precedence(files: FileFixture, target: FileTarget) -> None:
    other = target._replace(file="shelf/other")
    files.write(other, other.file, CONTENT)
    headers = (*UPDATE, ("Range", "bytes=10-12"))
    assert _ask(files, other, "PUT", RANGE, headers, b"abc").status == 201
    answer = _ask(files, other, "GET", (), (("x-ms-range", "bytes=1-3"), ("Range", "bytes=5-6")))
    assert (answer.status, answer.body) == (206, b"bc" + CONTENT[3:4])
    only_range = (("Range", "bytes=10-12"), ("x-ms-write", "UPDATE"))
    assert _ask(files, other, "PUT", RANGE, only_range, b"xyz").status == 201
    answer = _ask(files, other, "GET", (), (("Range", "bytes=9-13"),))
    assert answer.body == CONTENT[9:10] + b"xyz" + CONTENT[13:14]


def test_chunked_bodies_need_a_length(files: FileFixture, target: FileTarget) -> None:
    address = f"/{ACCOUNT}/{target.share}/{target.file}"
    headers = (("x-ms-version", VERSION), *UPDATE, ("Transfer-Encoding", "chunked"))
    request = Request("PUT", address, RANGE, headers, b"3\r\nabc\r\n0\r\n\r\n")
    with files.unchanged():
        answer = files.client.ask(files.sign_as_owner(request))
        assert (answer.status, answer.code) == (411, "MissingContentLengthHeader")


LISTS: Final[dict[str, tuple[Pairs, Pairs, tuple[int, str]]]] = {
    "marker": ((("marker", "abc"),), (), (400, "InvalidContinuationToken")),
    "long marker": ((("marker", DIGITS),), (), (400, "InvalidContinuationToken")),
    "no results": ((("maxresults", "0"),), (), (400, "OutOfRangeQueryParameterValue")),
    "negative results": ((("maxresults", "-1"),), (), (400, "OutOfRangeQueryParameterValue")),
    "long results": ((("maxresults", DIGITS),), (), (400, "OutOfRangeQueryParameterValue")),
    "beyond the end": ((), (("x-ms-range", "bytes=20-"),), OUTSIDE),
    "snapshot": ((("sharesnapshot", "now"),), (), (400, "InvalidQueryParameterValue")),
    "previous snapshot": ((("prevsharesnapshot", "now"),), (), (400, "InvalidQueryParameterValue")),
    "missing snapshot": (
        (("prevsharesnapshot", "2001-01-01T00%3A00%3A00.0000000Z"),),
        (),
        (404, "PreviousSnapshotNotFound"),
    ),
    "renames without a snapshot": ((), (("x-ms-file-support-rename", "true"),), INVALID_HEADER),
    "renames": (
        (("prevsharesnapshot", "2001-01-01T00%3A00%3A00.0000000Z"),),
        (("x-ms-file-support-rename", "maybe"),),
        INVALID_HEADER,
    ),
    "lease": ((), (("x-ms-lease-id", "lease"),), INVALID_HEADER),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_of_ranges(files: FileFixture, target: FileTarget, case: str) -> None:
    query, headers, expected = LISTS[case]
    answer = _ask(files, target, "GET", (*RANGE_LIST, *query), headers)
    assert (answer.status, answer.code) == expected


def test_a_page_of_ranges(files: FileFixture, target: FileTarget) -> None:
    listed = b"<Range><Start>0</Start><End>19</End></Range>"
    for query, expected in (
        ((), listed),
        ((("maxresults", "99999999"),), listed + b"<NextMarker />"),
        ((("marker", "20"),), b"<NextMarker />"),
        ((("marker", str(10**18 - 1)),), b"<NextMarker />"),
        ((("marker", ""), ("maxresults", "")), listed),
    ):
        answer = _ask(files, target, "GET", (*RANGE_LIST, *query))
        assert answer.body.endswith(b"<Ranges>%b</Ranges>" % expected), query
        assert answer.headers["x-ms-content-length"] == "20"


def test_uploads_that_end_early_change_nothing(
    files: FileFixture, target: FileTarget, probed_server: Server
) -> None:
    """A client that goes away within the body has written nothing."""
    large = target._replace(file="shelf/large")
    files.write(large, large.file, bytes(1 << 20))
    address = f"/{ACCOUNT}/{target.share}/{large.file}"
    host, _, port = probed_server.endpoints["file"].rpartition("/")[2].partition(":")
    with files.unchanged():
        for length in (1_000, 1 << 20):
            written = _setting(UPDATE, ("x-ms-range", f"bytes=0-{length - 1}"))
            headers = (("x-ms-version", VERSION), *written)
            request = Request("PUT", address, RANGE, headers, b"x" * length)
            raw = files.sign_as_owner(request).raw()
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(raw[:-100])
                connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    assert b" 201 " not in connection.recv(1_000)
