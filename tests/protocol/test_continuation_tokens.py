"""Continuation tokens in the form of the service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.protocol.rest.continuation_tokens import format_token, parse_token


def test_the_form() -> None:
    assert format_token("a") == "1!4!YQ--"
    assert format_token("abc") == "1!4!YWJj"
    assert format_token("") == "1!0!"


@given(st.text())
def test_tokens_round_trip(text: str) -> None:
    token = format_token(text)
    assert parse_token(token) == text
    # In a query, a plus that the client did not encode is a space.
    assert parse_token(token.replace("+", " ")) == text


@pytest.mark.parametrize(
    "written",
    ["", "a", "1!4", "1!4!YQ-", "1!5!YQ--", "2!4!YQ--", "1!4!/w--", "1!4!!!!!", "1!٤!YQ--"],
)
def test_what_is_not_a_token(written: str) -> None:
    assert parse_token(written) is None
