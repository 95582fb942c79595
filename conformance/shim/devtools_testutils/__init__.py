"""The parts of Microsoft's recording tools that their tests use, without any recording."""

from __future__ import annotations

from .credentials import FakeTokenCredential
from .loader import EnvironmentVariableLoader, EnvironmentVariableOptions
from .recording import (
    ResponseCallback,
    RetryCounter,
    add_body_regex_sanitizer,
    add_general_regex_sanitizer,
    add_header_regex_sanitizer,
    add_oauth_response_sanitizer,
    add_remove_header_sanitizer,
    add_uri_regex_sanitizer,
    add_uri_string_sanitizer,
    is_live,
    recorded_by_proxy,
    set_custom_default_matcher,
    test_proxy,
)

__all__ = [
    "EnvironmentVariableLoader",
    "EnvironmentVariableOptions",
    "FakeTokenCredential",
    "ResponseCallback",
    "RetryCounter",
    "add_body_regex_sanitizer",
    "add_general_regex_sanitizer",
    "add_header_regex_sanitizer",
    "add_oauth_response_sanitizer",
    "add_remove_header_sanitizer",
    "add_uri_regex_sanitizer",
    "add_uri_string_sanitizer",
    "is_live",
    "recorded_by_proxy",
    "set_custom_default_matcher",
    "test_proxy",
]
