"""Rules for blob tags: names and values, and conditions on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from etagere.errors import Refusal
from etagere.model.blobs import Tags
from etagere.rules.tag_expressions import (
    NAME_LENGTH_MAX,
    PERMITTED,
    VALUE_LENGTH_MAX,
    Malformed,
    Search,
    parse_condition,
    parse_search,
)

TAGS_MAX: Final = 10
CONDITION_HEADER: Final = "x-ms-if-tags"
TAGS_HEADER: Final = "x-ms-tags"
CURRENT: Final = "Current"
"""The detail of a refusal that contains a blob's tags: only for callers who may read them."""

_HEADER_LENGTH_MAX = 3 * TAGS_MAX * (NAME_LENGTH_MAX + VALUE_LENGTH_MAX + 2)


# Tags of a blob


def check_tags(pairs: Iterable[tuple[str, str]], unpermitted: Refusal) -> Tags | Refusal:
    """Returns tags in stored form; `unpermitted` is the refusal of invalid characters."""
    tags: dict[str, str] = {}
    for name, value in pairs:
        if not name:
            return Refusal("EmptyTagName")
        if len(tags) == TAGS_MAX and name not in tags:
            return Refusal("TagsTooLarge", {"MaximumCount": TAGS_MAX})
        if len(name) > NAME_LENGTH_MAX or len(value) > VALUE_LENGTH_MAX:
            limits: dict[str, str | int] = {
                "MaximumNameLength": NAME_LENGTH_MAX,
                "MaximumValueLength": VALUE_LENGTH_MAX,
            }
            return Refusal("TagsTooLarge", limits)
        if PERMITTED.fullmatch(name) is None or PERMITTED.fullmatch(value) is None:
            return unpermitted
        if name in tags:
            return Refusal("DuplicateTagNames", {"TagName": name})
        tags[name] = value
    return tuple(sorted(tags.items()))


def parse_header(written: str) -> Tags | Refusal:
    """Parses `x-ms-tags`: pairs as in a query string, where a plus is a space."""
    invalid = Refusal("InvalidHeaderValue", {"HeaderName": TAGS_HEADER})
    if len(written) > _HEADER_LENGTH_MAX:
        return Refusal("TagsTooLarge", {"MaximumCount": TAGS_MAX})
    pairs: list[tuple[str, str]] = []
    for item in written.split("&"):
        name, equals, value = item.partition("=")
        if item and not equals:
            return invalid
        pairs.append((_decoded(name), _decoded(value)))
    return check_tags(pairs, invalid)


def _decoded(written: str) -> str:
    """Decodes percent-encoding. An invalid escape keeps its percent sign, which no tag may contain;
    every other byte becomes one character, so that none is taken for a permitted one."""
    octets = written.replace("+", " ").encode("utf-8", "surrogatepass")
    return unquote_to_bytes(octets).decode("latin-1")


# Conditions


def check_expression(written: str) -> Refusal | None:
    """Refuses a malformed condition."""
    asked = parse_condition(written)
    return _invalid_condition(asked) if isinstance(asked, Malformed) else None


def check_condition(asked: str | None, tags: Tags) -> Refusal | None:
    """Refuses a request whose condition a blob's tags do not meet."""
    if asked is None:
        return None
    condition = parse_condition(asked)
    if isinstance(condition, Malformed):
        return _invalid_condition(condition)
    if condition.matches(dict(tags)):
        return None
    shown = "&".join(f"{name}={value}" for name, value in tags)
    facts: dict[str, str | int] = {"Condition": CONDITION_HEADER, "Sent": asked, CURRENT: shown}
    return Refusal("ConditionNotMet", facts)


def _invalid_condition(malformed: Malformed) -> Refusal:
    return Refusal(
        "InvalidHeaderValue",
        {
            "HeaderName": CONDITION_HEADER,
            "Reason": malformed.reason,
            "Position": malformed.position,
        },
    )


def parse_where(written: str) -> Search | Refusal:
    """Parses the `where` of a search."""
    asked = parse_search(written)
    if isinstance(asked, Search):
        return asked
    facts: dict[str, str | int] = {"QueryParameterName": "where", "QueryParameterValue": written}
    reason = asked.reason[:1].lower() + asked.reason[1:].removesuffix(".")
    place = f"at or near character position {asked.position + 1}"
    message = f"Error parsing query {place}: {reason}"
    return Refusal("InvalidQueryParameterValue", facts, message_override=message)
