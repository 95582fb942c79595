"""Values that cannot be stored, in names, parameters and receipts: refused with the right code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.probes.answers import AUTHENTICATION_FAILED, answer_faults
from tests.probes.client import Request
from tests.probes.queue.fixture import QueueFixture
from tests.probes.queue.operations import QueueTarget
from tests.server import ACCOUNT

NOT_UTF8: Final = ("%FF", "a%C0%AF", "%ED%A0%80", "%F4%90%80%80")
CONTROL: Final = ("%00", "%01", "a%00b", "%7F")
NEWLINE: Final = "%0A"
LONG: Final = "a" * 9_000
DIGITS: Final = "1" * 5_000
INJECTION: Final = "%0D%0Ax-injected%3A%201"
"""Looks like a line of the string to sign, so that the signature is not accepted."""
OK: Final = (200, "")
INVALID_PARAMETER: Final = (400, "InvalidQueryParameterValue")
INVALID_MARKER: Final = (400, "InvalidMarker")
OUT_OF_RANGE: Final = (400, "OutOfRangeQueryParameterValue")
WRONG_LENGTH: Final = (400, "OutOfRangeInput")
INVALID_NAME: Final = (400, "InvalidResourceName")
UNSUPPORTED_VERB: Final = (405, "UnsupportedHttpVerb")


@pytest.fixture(scope="module")
def target(queues: QueueFixture) -> Iterator[QueueTarget]:
    created = queues.create()
    yield created
    queues.remove(created)


def _outcome(queues: QueueFixture, request: Request) -> tuple[int, str]:
    answer = queues.client.ask(queues.sign_as_owner(request))
    assert not list(answer_faults(answer, "queue", head=False)), answer
    assert "x-injected" not in answer.headers
    return answer.status, answer.code


PARAMETERS: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "prefix": {
        **dict.fromkeys((*NOT_UTF8, LONG), INVALID_PARAMETER),
        **dict.fromkeys((*CONTROL, NEWLINE, "_w=="), OK),
    },
    "marker": dict.fromkeys(
        (*NOT_UTF8, *CONTROL, NEWLINE, LONG, "_w==", "AAAA", "YWFh" * 4_000, DIGITS),
        INVALID_MARKER,
    ),
    "include": {
        **dict.fromkeys((*NOT_UTF8, *CONTROL, LONG, "AAAA", DIGITS), INVALID_PARAMETER),
        NEWLINE: OK,
    },
    "maxresults": dict.fromkeys((*NOT_UTF8, *CONTROL, NEWLINE, LONG, "AAAA", DIGITS), OUT_OF_RANGE),
    "comp": dict.fromkeys((*NOT_UTF8, *CONTROL, NEWLINE, LONG, DIGITS), INVALID_PARAMETER),
    "timeout": dict.fromkeys((*NOT_UTF8, *CONTROL, NEWLINE, LONG, DIGITS), INVALID_PARAMETER),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_listings(queues: QueueFixture, name: str) -> None:
    query = (("comp", "list"),) if name != "comp" else ()
    injected = INVALID_PARAMETER if name == "comp" else AUTHENTICATION_FAILED
    with queues.unchanged():
        for value, expected in {**PARAMETERS[name], INJECTION: injected}.items():
            request = Request("GET", f"/{ACCOUNT}/", (*query, (name, value)))
            assert _outcome(queues, request) == expected, value[:40]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, WRONG_LENGTH) for name in ("%FF", "%00", "%01", NEWLINE, "..", LONG)),
        *((name, INVALID_NAME) for name in ("a%C0%AF", "%ED%A0%80", "a%00b", INJECTION, "$root")),
    ],
    ids=range(11),
)
def test_names_of_queues(queues: QueueFixture, name: str, expected: tuple[int, str]) -> None:
    path = f"/{ACCOUNT}/{name}"
    receipt = (("popreceipt", "AAAAAAAAAAE="),)
    with queues.unchanged():
        for method, below in (
            ("PUT", ""),
            ("DELETE", ""),
            ("GET", "/messages"),
            ("DELETE", "/messages"),
            ("PUT", "/messages/id"),
            ("DELETE", "/messages/id"),
        ):
            request = Request(method, f"{path}{below}", receipt)
            assert _outcome(queues, request) == expected, (method, below)
        for method, below in (("POST", ""), ("PUT", "/messages"), ("GET", "/messages/id")):
            request = Request(method, f"{path}{below}", receipt)
            assert _outcome(queues, request) == UNSUPPORTED_VERB, (method, below)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_receipts(queues: QueueFixture, target: QueueTarget, method: str) -> None:
    path = f"/{ACCOUNT}/{target.queue}/messages/{target.message}"
    receipts = {
        **dict.fromkeys(
            (*NOT_UTF8, *CONTROL, NEWLINE, LONG, "__________8=", "d9a3"), INVALID_PARAMETER
        ),
        "%2F" * 11 + "%3D": (404, "MessageNotFound"),
        INJECTION: AUTHENTICATION_FAILED,
    }
    with queues.unchanged():
        for receipt, expected in receipts.items():
            query = (("popreceipt", receipt), ("visibilitytimeout", "0"))
            assert _outcome(queues, Request(method, path, query)) == expected, receipt[:40]
