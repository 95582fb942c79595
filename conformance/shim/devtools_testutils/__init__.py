"""The parts of Microsoft's recording tools that their tests use, without any recording."""

from __future__ import annotations

from .credentials import FakeTokenCredential, get_credential
from .loader import EnvironmentVariableLoader, EnvironmentVariableOptions, PowerShellPreparer
from .recording import (
    ResponseCallback,
    RetryCounter,
    add_body_key_sanitizer,
    add_body_regex_sanitizer,
    add_general_regex_sanitizer,
    add_header_regex_sanitizer,
    add_oauth_response_sanitizer,
    add_remove_header_sanitizer,
    add_uri_regex_sanitizer,
    add_uri_string_sanitizer,
    is_live,
    recorded_by_proxy,
    remove_batch_sanitizers,
    set_custom_default_matcher,
    test_proxy,
)
from .testcase import AzureRecordedTestCase

__all__ = [
    "AzureRecordedTestCase",
    "EnvironmentVariableLoader",
    "EnvironmentVariableOptions",
    "FakeTokenCredential",
    "PowerShellPreparer",
    "ResponseCallback",
    "RetryCounter",
    "add_body_key_sanitizer",
    "add_body_regex_sanitizer",
    "add_general_regex_sanitizer",
    "add_header_regex_sanitizer",
    "add_oauth_response_sanitizer",
    "add_remove_header_sanitizer",
    "add_uri_regex_sanitizer",
    "add_uri_string_sanitizer",
    "get_credential",
    "is_live",
    "recorded_by_proxy",
    "remove_batch_sanitizers",
    "set_custom_default_matcher",
    "test_proxy",
]
