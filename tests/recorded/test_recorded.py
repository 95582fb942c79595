"""Every recorded operation gets the response that the real service gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from tests.probes.client import Answer, Request
from tests.recorded.compare import Difference, Expected, differences
from tests.recorded.digest import SERVICES, Node, OptionalItem, Recorded, digest, holds, matches
from tests.recorded.run import CASES, NOT_COMPARED, Result, recorded_of, run, target, uncovered

_UNKNOWN_VERSION: Final = (
    "a version that is none was answered without x-ms-version and x-ms-error-code; they tell"
    " clients what is wrong"
)
_LEASES_SHOWN: Final = (
    "the service shows the leases of files since the end of 2019, in the version 2019-02-02 too"
)
EXCEPTIONS: Final = {
    "blob Blob_Download 404 ResourceNotFound": (
        "a request that names no version was answered without x-ms-error-code; the header does no"
        " harm"
    ),
    "blob Blob_GetProperties 200 page blob": (
        "page blobs of standard accounts have no tier; ours have the one of their length, as in"
        " premium accounts, where clients expect it"
    ),
    "blob Blob_GetProperties 200 incremental copy": "a page blob, too",
    "blob Blob_CopyFromUrl 404 CannotVerifyCopySource": (
        "recorded once, with the message of a resource that is absent instead of a blob"
    ),
    "blob Blob_GetProperties 400": (
        "a snapshot that is no time was answered without any header of the protocol, not even the"
        " version; with its code clients can tell what is wrong"
    ),
    "blob Service_ListContainersSegment 400 InvalidHeaderValue": _UNKNOWN_VERSION,
    "file File_Download 200 before leases were shown": _LEASES_SHOWN,
    "file File_Download 206 before leases were shown": _LEASES_SHOWN,
    "file File_GetProperties 200 before leases were shown": _LEASES_SHOWN,
    "table Service_SetProperties 400 InvalidHeaderValue": _UNKNOWN_VERSION,
    "table Table_SetAccessPolicy 415 MediaTypeNotSupported": (
        "Accept: */* was refused twice, in one version that is no longer sent; it asks for nothing"
        " that the answer does not give"
    ),
}
"""Cases with intended differences, by title, and why."""

Results = dict[str, list[Result]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The results by service and operation."""
    results: Results = defaultdict(list)
    with target(tmp_path_factory.mktemp("recorded") / "data") as running:
        for result in run(running):
            results[f"{result.case.service} {result.case.operation}"].append(result)
        yield results
        assert running.server.stop() == 0
        assert "Traceback" not in running.server.log()


def _operations() -> Iterator[str]:
    for service in SERVICES:
        yield from dict.fromkeys(f"{service} {case.operation}" for case in CASES[service])


@pytest.mark.parametrize("operation", list(_operations()))
def test_responses_match_the_recordings(results: Results, operation: str) -> None:
    differing = {
        result.title: result.differences
        for result in results[operation]
        if result.differences and _title(result) not in EXCEPTIONS
    }
    assert not differing


def test_every_listed_exception_still_occurs(results: Results) -> None:
    differing = {_title(row) for rows in results.values() for row in rows if row.differences}
    assert EXCEPTIONS.keys() <= differing


def _title(result: Result) -> str:
    return f"{result.case.service} {result.case.title}"


@pytest.mark.parametrize("service", SERVICES)
def test_every_recorded_response_has_a_case_or_a_reason(service: str) -> None:
    left_out = list(uncovered(service))
    assert [recorded for recorded, reason in left_out if not reason] == []
    named = {(recorded.operation, recorded.status, recorded.code) for recorded, _ in left_out}
    named |= {(operation, 0, "") for operation, _, _ in named}
    assert NOT_COMPARED[service].keys() <= named


@pytest.mark.parametrize("service", SERVICES)
def test_cases_name_headers_that_were_recorded(service: str) -> None:
    for case in CASES[service]:
        recorded = recorded_of(case)
        known = recorded.sometimes.keys()
        assert case.having <= known, case.title
        assert case.lacking <= known, case.title


# The comparison itself

_REQUEST: Final = Request("GET", "/account/x", (("include", "a,b"),), (("Prefer", "nothing"),))
_RECORDED: Final = Recorded(
    "X",
    200,
    1,
    reason="OK",
    always={"ETag": '"<etag>"'},
    sometimes={"x-ms-tag-count": OptionalItem("<int>", 1), "Vary": OptionalItem("Origin", 1)},
    body="xml",
    tree=Node("Rows", children=(Node("A", form="<int>"), Node("B", optional=True, form="(empty)"))),
)
_BODY: Final = b'<?xml version="1.0" encoding="utf-8"?><Rows><A>1</A><B /></Rows>'
_HEADERS: Final = {"etag": '"0x8D0000000000000"', "x-ms-version": "2021-08-06", "date": "today"}


def _differences(
    status: int = 200, body: bytes = _BODY, having: str = "", cors: str = "", **headers: str
) -> list[Difference]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = Answer(status, {**_HEADERS, **named}, body, "OK")
    expected = Expected("blob", _RECORDED, frozenset(having.split()), cors=cors)
    return list(differences(expected, _REQUEST, "2021-08-06", answer))


def test_a_recorded_response_has_no_differences() -> None:
    assert _differences() == []
    assert _differences(having="x-ms-tag-count", x_ms_tag_count="2") == []
    assert _differences(cors="https://example.com", vary="Origin") == []
    assert _differences(body=_BODY.replace(b"<B />", b"")) == []


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"status": 404}, "status"),
        ({"etag": "0x8D0000000000000"}, "headers"),
        ({"vary": "Origin"}, "headers"),
        ({"x_ms_tag_count": "2"}, "headers"),
        ({"having": "x-ms-tag-count"}, "headers"),
        ({"x_ms_version": "2021-12-02"}, "headers"),
        ({"body": _BODY.replace(b"<B />", b"<B></B>")}, "body"),
        ({"body": _BODY.replace(b"<A>1</A><B />", b"<B /><A>1</A>")}, "body"),
        ({"body": _BODY.replace(b"<A>1</A>", b"")}, "body"),
        ({"body": _BODY.replace(b"1</A>", b"one</A>")}, "body"),
        ({"body": _BODY.replace(b"<B />", b"<C />")}, "body"),
        ({"body": _BODY.replace(b"?><", b"?>\n<")}, "body"),
    ],
)
def test_differences_are_detected(changes: dict[str, object], kind: str) -> None:
    differences = _differences(**changes)  # type: ignore[arg-type]
    assert {difference.kind for difference in differences} == {kind}


@pytest.mark.parametrize(
    ("when", "verdict"),
    [
        ("when ?include", True),
        ("when ?include=b", True),
        ("when not ?include=c", True),
        ("when Prefer sent", True),
        ("when not Content-MD5 sent", True),
        ("when Prefer: something", False),
        ("from x-ms-version 2021-08-06", True),
        ("before x-ms-version 2021-08-06", False),
        ("when Content-MD5 sent, from 2019-07-07", False),
        ("mostly when versioned account", False),
        ("when after Messages_Clear", None),
    ],
)
def test_conditions_are_read(when: str, verdict: bool | None) -> None:
    assert holds(when, _REQUEST, "2021-08-06", Answer(200, {}, b"")) is verdict


@pytest.mark.parametrize(
    ("value", "form", "verdict"),
    [
        ('"0x8D0000000000000"', '"<etag>" or <etag unquoted>', True),
        ("2021-06-08T02:10:09.0000000Z", "<iso7>", True),
        ("2021-06-08T02:10:09Z", "<iso7>", False),
        ("W/\"datetime'2021-06-08T02%3A10%3A09.12Z'\"",
         "W/\"datetime'<iso7, colons as %3A>'\" or W/\"datetime'<iso, <7 digits, colons as %3A>'\"",
         True),
        ("W/\"datetime'2021-06-08T02%3A10%3A09.1200000Z'\"",
         "W/\"datetime'<iso7, colons as %3A>'\" or W/\"datetime'<iso, <7 digits, colons as %3A>'\"",
         False),
        ("", "<rfc1123> or empty (5)", True),
        ("7", "0 or 9", True),
        ("seven", "0 or 9", False),
        ("bytes */0", "bytes */<int>", True),
    ],
)  # fmt: skip
def test_forms_are_matched(value: str, form: str, verdict: bool) -> None:
    assert matches(value, form) is verdict


def test_the_data_contain_only_recorded_operations() -> None:
    for service in SERVICES:
        for recorded in digest(service).answers:
            assert all(result.n <= recorded.n for result in recorded.sometimes.values()), recorded
