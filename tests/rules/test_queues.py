"""The rules of queues: names, sizes, time to live and visibility timeouts."""

from __future__ import annotations

import pytest

from etagere.errors import Refusal
from etagere.rules.queues import (
    check_initial_timeout,
    check_parameter,
    check_queue_name,
    check_text,
    check_ttl,
)

WEEK_SECONDS = 7 * 24 * 3600
OLD, NEW = "2017-04-17", "2017-07-29"
"""The last version with a maximum time to live, and the first without one."""


def code(refusal: Refusal | None) -> str:
    return refusal.code if refusal is not None else ""


@pytest.mark.parametrize(
    "name", ["abc", "123", "a-b", "a-b-c", "0-0", "a" * 63, "a-" * 31 + "a", "messages"]
)
def test_names(name: str) -> None:
    assert check_queue_name(name) is None


@pytest.mark.parametrize("name", ["", "a", "ab", "a" * 64, "a" * 9_000, "é", "A"])
def test_names_of_a_wrong_length(name: str) -> None:
    refusal = check_queue_name(name)
    assert refusal is not None
    assert refusal.code == "OutOfRangeInput"
    assert refusal.facts == {"Input": "QueueName", "Minimum": 3, "Maximum": 63}
    assert "resource name length" in refusal.message


@pytest.mark.parametrize(
    "name",
    [
        *("Abc", "abC", "-abc", "abc-", "a--b", "---", "a.b", "a_b", "a b", "a/b", "$logs"),
        *("été", "abc\n", "\nabc", "ab\x00", "٣٤٥", "abc\udcff", "\u0430bc", "a\u2010b"),
    ],
)
def test_names_of_wrong_characters(name: str) -> None:
    assert code(check_queue_name(name)) == "InvalidResourceName"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("a" * 65_536, True),
        ("a" * 65_537, False),
        # The length in UTF-8 counts.
        ("é" * 32_768, True),
        ("é" * 32_768 + "a", False),
        ("🦄" * 16_384, True),
        ("🦄" * 16_385, False),
        ("\x00" * 65_536, True),
    ],
)
def test_texts(text: str, fits: bool) -> None:
    expected = None if fits else Refusal("RequestBodyTooLarge", {"MaxLimit": 65_536})
    assert check_text(text) == expected


@pytest.mark.parametrize(
    ("seconds", "old", "new"),
    [
        (1, True, True),
        (WEEK_SECONDS, True, True),
        (WEEK_SECONDS + 1, False, True),
        (2**31 - 1, False, True),
        (-1, False, True),
        (0, False, False),
        (-2, False, False),
        # Capped, not refused.
        (2**31, False, True),
        (10**17, False, True),
    ],
)
def test_time_to_live_by_version(seconds: int, old: bool, new: bool) -> None:
    for version, allowed in ((OLD, old), ("2011-08-18", old), (NEW, new), ("2026-10-06", new)):
        expected = "" if allowed else "OutOfRangeQueryParameterValue"
        assert code(check_ttl(seconds, version)) == expected, version


@pytest.mark.parametrize(
    ("hidden", "lives", "allowed"),
    [
        (0, 1, True),
        (1, 1, False),
        (1, 2, True),
        (59, 60, True),
        (60, 60, False),
        (61, 60, False),
        (-1, 60, False),
        (WEEK_SECONDS - 1, WEEK_SECONDS, True),
        (WEEK_SECONDS, WEEK_SECONDS, False),
        (WEEK_SECONDS, WEEK_SECONDS + 1, True),
        (WEEK_SECONDS + 1, 2**31 - 1, False),
        (0, None, True),
        (WEEK_SECONDS, None, True),
        (WEEK_SECONDS + 1, None, False),
        (-1, None, False),
    ],
)
def test_a_message_must_become_visible_before_it_expires(
    hidden: int, lives: int | None, allowed: bool
) -> None:
    expected = "" if allowed else "OutOfRangeQueryParameterValue"
    assert code(check_initial_timeout(hidden, lives)) == expected


def test_messages_of_refusals_state_the_limits() -> None:
    assert check_parameter("numofmessages", 1, 1, 32) is None
    assert check_parameter("numofmessages", 32, 1, 32) is None
    for number in (0, 33):
        assert check_parameter("numofmessages", number, 1, 32) == Refusal(
            "OutOfRangeQueryParameterValue",
            {
                "QueryParameterName": "numofmessages",
                "QueryParameterValue": number,
                "MinimumAllowed": 1,
                "MaximumAllowed": 32,
            },
        )
    hidden = check_initial_timeout(60, 60)
    assert hidden is not None
    assert hidden.facts["MaximumAllowed"] == 59
