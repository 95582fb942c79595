"""Rules for queues and messages: names, sizes and times."""

from __future__ import annotations

import re
from typing import Final

from etagere.errors import Refusal
from etagere.model.common import Metadata
from etagere.rules.names import NAME_LENGTH_MESSAGE

NAME_LENGTH_MIN: Final = 3
NAME_LENGTH_MAX: Final = 63
TEXT_BYTES_MAX: Final = 64 * 1024
GET_COUNT_MAX: Final = 32
INVISIBLE_SECONDS_DEFAULT: Final = 30
TTL_SECONDS_DEFAULT: Final = 7 * 24 * 3600
INVISIBLE_SECONDS_MAX: Final = 7 * 24 * 3600
ANY_TTL_SINCE: Final = "2017-07-29"
"""The first version with a TTL of more than a week, or an infinite one."""
PUT_RETURNS_MESSAGE_SINCE: Final = "2016-05-31"
"""The first version in which Put Message returns the id and the pop receipt."""
TTL_INFINITE: Final = -1
TTL_SECONDS_MAX: Final = 2**31 - 1
"""A longer TTL is reduced to this."""

# Letters and digits, with single hyphens only between them.
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def check_queue_name(name: str) -> Refusal | None:
    if not NAME_LENGTH_MIN <= len(name) <= NAME_LENGTH_MAX:
        facts: dict[str, str | int] = {"Minimum": NAME_LENGTH_MIN, "Maximum": NAME_LENGTH_MAX}
        facts["Input"] = "QueueName"
        return Refusal("OutOfRangeInput", facts, message_override=NAME_LENGTH_MESSAGE)
    return None if _NAME.fullmatch(name) is not None else Refusal("InvalidResourceName")


def is_same_metadata(one: Metadata, other: Metadata) -> bool:
    """Returns whether two sets of metadata are equal, ignoring the case of names."""
    return _by_name(one) == _by_name(other)


def _by_name(metadata: Metadata) -> dict[str, str]:
    return {name.lower(): value for name, value in metadata}


def check_text(text: str) -> Refusal | None:
    return None if len(text.encode()) <= TEXT_BYTES_MAX else too_large()


def too_large() -> Refusal:
    return Refusal("RequestBodyTooLarge", {"MaxLimit": TEXT_BYTES_MAX})


def check_parameter(name: str, value: int, minimum: int, maximum: int) -> Refusal | None:
    if minimum <= value <= maximum:
        return None
    facts: dict[str, str | int] = {
        "QueryParameterName": name,
        "QueryParameterValue": value,
        "MinimumAllowed": minimum,
        "MaximumAllowed": maximum,
    }
    return Refusal("OutOfRangeQueryParameterValue", facts)


def check_ttl(seconds: int, version: str) -> Refusal | None:
    """Checks `messagettl`."""
    if version < ANY_TTL_SINCE:
        return check_parameter("messagettl", seconds, 1, TTL_SECONDS_DEFAULT)
    if seconds == TTL_INFINITE or seconds > TTL_SECONDS_MAX:
        return None
    return check_parameter("messagettl", seconds, 1, TTL_SECONDS_MAX)


def check_initial_timeout(invisible_seconds: int, ttl_seconds: int | None) -> Refusal | None:
    """Requires that a message becomes visible before it expires."""
    longest = INVISIBLE_SECONDS_MAX
    if ttl_seconds is not None:
        longest = min(longest, ttl_seconds - 1)
    return check_parameter("visibilitytimeout", invisible_seconds, 0, longest)
