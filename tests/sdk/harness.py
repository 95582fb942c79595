"""Helpers for SDK tests of every service: expected errors, recorded responses, added headers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from azure.core.exceptions import HttpResponseError

from tests.probes.client import Request
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

ORIGIN: Final = "https://example.org"
"""The origin of a web page, in tests of CORS."""

HOUR: Final = timedelta(hours=1)

WRONG_CREDENTIALS: Final = (
    (ACCOUNT, WRONG_KEY),
    (SECOND_ACCOUNT, WRONG_KEY),
    (SECOND_ACCOUNT, KEY),
    (ACCOUNT, SECOND_KEYS[0]),
    ("nobody", KEY),
)
"""Accounts with keys that are not theirs."""


def now() -> datetime:
    return datetime.now(UTC)


class ServiceError:
    """The error that a client received."""

    status: int = 0
    code: str = ""
    message: str = ""
    request_id: str = ""
    details: dict[str, str]
    """Additional elements by name; the SDK converts the names to lower case."""


@contextlib.contextmanager
def refused(status: int, code: str) -> Iterator[ServiceError]:
    """Expects the SDK to raise an error with exactly this status and code."""
    received = ServiceError()
    with pytest.raises(HttpResponseError) as caught:
        yield received
    error = caught.value
    received.status = error.status_code or 0
    received.code = error_code(error)
    received.message = error.message
    response: Any = error.response
    received.request_id = response.headers.get("x-ms-request-id", "")
    received.details = getattr(error, "additional_info", None) or {}
    assert (received.status, received.code) == (status, code), error


def error_code(error: HttpResponseError) -> str:
    """Returns the error code, from the response where the SDK does not parse it."""
    response: Any = error.response
    found = getattr(error, "error_code", None) or response.headers.get("x-ms-error-code")
    if not found:
        with contextlib.suppress(ValueError):
            found = json.loads(response.text())["odata.error"]["code"]
    return str(getattr(found, "value", found or ""))


class ResponseRecorder:
    """A response hook that keeps the status and headers of the last response."""

    status: int = 0
    headers: dict[str, str]

    def __call__(self, response: Any) -> None:
        self.status = response.http_response.status_code
        self.headers = {
            name.lower(): value for name, value in response.http_response.headers.items()
        }


def with_headers(**headers: str) -> Callable[[Any], None]:
    """Returns a request hook that adds or replaces headers before the request is signed."""

    def change(request: Any) -> None:
        for name, value in headers.items():
            request.http_request.headers[name.replace("_", "-")] = value

    return change


def preflight(
    path: str, *, origin: str = ORIGIN, method: str = "GET", headers: str = ""
) -> Request:
    """Returns a CORS preflight request."""
    request = Request(
        "OPTIONS", path, (), (("Origin", origin), ("Access-Control-Request-Method", method))
    )
    if headers:
        request = request.having(("Access-Control-Request-Headers", headers))
    return request


def run_in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Calls a function in several threads at once and returns its results; raises if one fails."""
    results: list[Any] = [None] * count
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        ready.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
