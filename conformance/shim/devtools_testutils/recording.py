"""Replacements for the functions that record and replay; they do neither."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def recorded_by_proxy(test: T) -> T:
    return test


def is_live() -> bool:
    return True


def _nothing(*_: object, **__: object) -> None:
    """Does nothing, because there are no recordings."""


add_body_key_sanitizer = _nothing
add_body_regex_sanitizer = _nothing
add_general_regex_sanitizer = _nothing
add_header_regex_sanitizer = _nothing
add_oauth_response_sanitizer = _nothing
add_remove_header_sanitizer = _nothing
add_uri_regex_sanitizer = _nothing
add_uri_string_sanitizer = _nothing
remove_batch_sanitizers = _nothing
set_custom_default_matcher = _nothing
test_proxy = _nothing  # the fixture of this name is in plugin.py


class RetryCounter:
    """Counts the retries of the SDK."""

    def __init__(self) -> None:
        self.count = 0

    def simple_count(self, *_: object, **__: object) -> None:
        self.count += 1


class ResponseCallback:
    """A response hook of the SDK that replaces one status by another."""

    def __init__(self, status: int | None = None, new_status: int | None = None) -> None:
        self.status = status
        self.new_status = new_status
        self.count = 0
        self._overridden = False

    def override_status(self, response: Any) -> None:
        self.count += 1
        if response.http_response.status_code == self.status:
            response.http_response.status_code = self.new_status
            self._overridden = True

    def override_first_status(self, response: Any) -> None:
        if self._overridden:
            self.count += 1
        else:
            self.override_status(response)
