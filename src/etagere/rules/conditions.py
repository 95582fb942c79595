"""Conditional requests: conditions on ETags and dates.

    If-Match                one of these ETags is current; *: the resource exists
    If-None-Match           none of these is current; *: it does not exist
    If-Modified-Since       modified after this second
    If-Unmodified-Since     not modified after this second

Reads combine them freely:

    If-Match and If-Unmodified-Since and (If-None-Match or If-Modified-Since)

The first two fail with 412 if they are not met, the part in parentheses with 304 (not modified).
Writes, and reads before version 2013-08-15, accept only two pairs, in which the date is ignored; a
condition that is not met always fails with 412.

An ETag is the stamp of the last change. Dates have whole seconds, so a stamp is truncated to
seconds before it is compared, as in Last-Modified.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.conditions import ANY, NO_CONDITIONS, Conditions, ETags
from etagere.rules.dates import format_http_date, is_several_dates, parse_http_date

# ETags

ETAG_OFFSET = 621_355_968_000_000_000
"""Added to a stamp, so that ETags have 15 digits like those of the service."""

_ETAG = re.compile(r'\s*(?:W/)?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s",]+))\s*(?:,|$)')


_SERVICE_ETAG = re.compile(r'"0x([0-9A-F]{15})"')


def format_etag(stamp: int) -> str:
    return f'"0x{stamp + ETAG_OFFSET:X}"'


def parse_etags(text: str) -> ETags:
    """Parses If-Match or If-None-Match.

    Quotes may be missing. A weakness prefix is ignored: the server never sends one, so a proxy
    added it when it changed the content coding, and the version is still unambiguous. A list that
    contains `*` means `*`. ETags that the server never sent, and text that is not a list of ETags,
    are kept unchanged and match nothing.
    """
    etags: list[str] = []
    at = 0
    while at < len(text) or not etags:
        found = _ETAG.match(text, at)
        if found is None:
            return (text,)
        if found["bare"] == "*":
            return ANY
        etags.append(f'"{found["bare"] if found["quoted"] is None else found["quoted"]}"')
        at = found.end()
    return (text,) if text.rstrip().endswith(",") else tuple(etags)


def precedes_all_etags(etag: str) -> bool:
    """Returns whether this has the form of an ETag of the service, but from before the first
    possible stamp."""
    found = _SERVICE_ETAG.fullmatch(etag)
    return found is not None and int(found[1], 16) < ETAG_OFFSET


def last_modified(stamp: int) -> int:
    """Returns the time of a change in seconds since 1970."""
    return stamp // TICKS_PER_SECOND


# Headers


SOURCE_PREFIX: Final = "x-ms-source-"
"""The prefix of the four headers for the source of a copy."""


class ConditionHeader(enum.Enum):
    """The conditional headers."""

    IF_MATCH = "If-Match"
    IF_NONE_MATCH = "If-None-Match"
    IF_MODIFIED_SINCE = "If-Modified-Since"
    IF_UNMODIFIED_SINCE = "If-Unmodified-Since"


IF_MATCH, IF_NONE_MATCH = ConditionHeader.IF_MATCH, ConditionHeader.IF_NONE_MATCH
IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE = (
    ConditionHeader.IF_MODIFIED_SINCE,
    ConditionHeader.IF_UNMODIFIED_SINCE,
)


def parse_date(header: str, text: str) -> int | Refusal | None:
    """Parses a date header. Invalid dates are ignored, as by the service (clients send `null`), but
    several dates are an error."""
    if is_several_dates(text):
        return Refusal("InvalidHeaderValue", {"HeaderName": header, "HeaderValue": text})
    return parse_http_date(text)


# Combinations

ANY_COMBINATION_SINCE = "2013-08-15"
"""The first version in which reads combine all four."""
READ_IF_NOTHING_REFUSED_SINCE = "2016-05-31"

LEGAL_PAIRS: Final = frozenset(
    {
        frozenset({IF_MATCH, IF_UNMODIFIED_SINCE}),
        frozenset({IF_NONE_MATCH, IF_MODIFIED_SINCE}),
    }
)
"""The combinations that writes and old reads accept."""


def check_read_headers(conditions: Conditions, version: str) -> Refusal | None:
    """Refuses combinations that a read of this version does not accept."""
    if version < ANY_COMBINATION_SINCE:
        return check_write_headers(conditions)
    if version >= READ_IF_NOTHING_REFUSED_SINCE and conditions.if_none_match == ANY:
        return Refusal("UnsatisfiableCondition", {"Condition": IF_NONE_MATCH.value, "Sent": "*"})
    return None


def check_write_headers(conditions: Conditions) -> Refusal | None:
    """Refuses combinations that writes do not accept."""
    asked = (
        (IF_MATCH, conditions.if_match),
        (IF_NONE_MATCH, conditions.if_none_match),
        (IF_MODIFIED_SINCE, conditions.if_modified_since),
        (IF_UNMODIFIED_SINCE, conditions.if_unmodified_since),
    )
    present = [header for header, value in asked if value is not None]
    if len(present) > 1 and frozenset(present) not in LEGAL_PAIRS:
        names = ", ".join(header.value for header in present)
        return Refusal("MultipleConditionHeadersNotSupported", {"Sent": names})
    for header, etags in (
        (IF_MATCH, conditions.if_match),
        (IF_NONE_MATCH, conditions.if_none_match),
    ):
        if etags is not None and len(etags) > 1:
            return Refusal(
                "MultipleConditionHeadersNotSupported",
                {"Condition": header.value, "Sent": ", ".join(etags)},
            )
    return None


def without_ignored(conditions: Conditions) -> Conditions:
    """Returns the conditions that writes and old reads evaluate: they ignore a date next to an
    ETag."""
    if conditions.if_match is not None and conditions.if_unmodified_since is not None:
        conditions = msgspec.structs.replace(conditions, if_unmodified_since=None)
    if conditions.if_none_match is not None and conditions.if_modified_since is not None:
        conditions = msgspec.structs.replace(conditions, if_modified_since=None)
    return conditions


# Evaluation


class NotModified(Refusal, frozen=True):
    """The refusal of a read with 304. Its error code is that of any condition that is not met."""


class _Unmet(NamedTuple):
    """A condition that is not met: the header, its value and the current value."""

    header: ConditionHeader
    sent: str
    current: str

    def facts(self, prefix: str = "") -> dict[str, str | int]:
        return {
            "Condition": prefix + self.header.value,
            "Sent": self.sent,
            "Current": self.current,
        }


def check_read(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a read with 412, or with 304 by way of `NotModified`.

    A missing resource is refused (404) before its conditions are checked. For versions before
    2013-08-15, pass the result of `without_ignored`.
    """
    if conditions == NO_CONDITIONS:
        return None
    failure = _if_match(conditions.if_match, stamp) or _if_unmodified_since(
        conditions.if_unmodified_since, stamp
    )
    if failure is not None:
        return _condition_not_met(failure)
    same = _if_none_match(conditions.if_none_match, stamp)
    old = _if_modified_since(conditions.if_modified_since, stamp)
    # If both are present, one that is met is enough.
    if conditions.if_none_match is not None and conditions.if_modified_since is not None:
        unmet = same if old is not None else None
    else:
        unmet = same or old
    return None if unmet is None else NotModified("ConditionNotMet", unmet.facts())


def check_write(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a write to an existing resource. A missing one is refused (404) before its conditions
    are checked."""
    unmet = _first_unmet(conditions, stamp)
    return None if unmet is None else _condition_not_met(unmet)


def check_create(
    conditions: Conditions, stamp: int | None, *, by_holder: bool = False
) -> Refusal | None:
    """Refuses a write that would create or replace a blob; `stamp` is None if there is none.

    The holder of the blob's lease may send `If-None-Match: *` all the same: clients that upload
    with a lease do, and mean to replace the blob.

    The refusal because a blob exists has its own code, which clients use to detect a lost race. A
    missing blob matches no ETag, and violates no date.
    """
    if stamp is None:
        if conditions.if_match is None:
            return None
        return _condition_not_met(_Unmet(IF_MATCH, ", ".join(conditions.if_match), "absent"))
    if by_holder and conditions.if_none_match == ANY:
        conditions = msgspec.structs.replace(conditions, if_none_match=None)
    unmet = _first_unmet(conditions, stamp)
    if unmet is not None and conditions.if_none_match == ANY:
        return Refusal("BlobAlreadyExists", unmet.facts())
    return None if unmet is None else _condition_not_met(unmet)


def check_source_read(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a write from a URL like a read of the source: with 412, or with 304 by
    `NotModified`."""
    unmet = _first_unmet(conditions, stamp)
    if unmet is None:
        return None
    if unmet.header in (IF_NONE_MATCH, IF_MODIFIED_SINCE):
        return NotModified("ConditionNotMet", unmet.facts())
    return _condition_not_met(unmet)


def check_source(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a copy because of its source: always with 412, as for writes."""
    unmet = _first_unmet(conditions, stamp)
    if unmet is None:
        return None
    return Refusal("SourceConditionNotMet", unmet.facts(SOURCE_PREFIX))


def is_same_version(if_range: str, stamp: int) -> bool:
    """Returns whether If-Range names the current version: by its ETag, if it is strong, or by its
    exact date (RFC 9110, section 13.1.5). An empty value always does."""
    named = if_range.strip()
    if not named:
        return True
    second = parse_http_date(named)
    if second is not None:
        return second == last_modified(stamp)
    return not named.startswith("W/") and parse_etags(named) == (format_etag(stamp),)


def _condition_not_met(unmet: _Unmet) -> Refusal:
    return Refusal("ConditionNotMet", unmet.facts())


def _first_unmet(conditions: Conditions, stamp: int) -> _Unmet | None:
    """Returns the condition that a write fails for. A date next to an ETag is ignored."""
    if conditions.if_match is not None:
        unmet = _if_match(conditions.if_match, stamp)
    else:
        unmet = _if_unmodified_since(conditions.if_unmodified_since, stamp)
    if unmet is not None:
        return unmet
    if conditions.if_none_match is not None:
        return _if_none_match(conditions.if_none_match, stamp)
    return _if_modified_since(conditions.if_modified_since, stamp)


# The four conditions; each returns None if it is met or absent


def _if_match(etags: ETags | None, stamp: int) -> _Unmet | None:
    if etags is None or _names(etags, stamp):
        return None
    return _Unmet(IF_MATCH, ", ".join(etags), format_etag(stamp))


def _if_none_match(etags: ETags | None, stamp: int) -> _Unmet | None:
    if etags is None or not _names(etags, stamp):
        return None
    return _Unmet(IF_NONE_MATCH, ", ".join(etags), format_etag(stamp))


def _if_modified_since(second: int | None, stamp: int) -> _Unmet | None:
    if second is None or last_modified(stamp) > second:
        return None
    return _Unmet(IF_MODIFIED_SINCE, format_http_date(second), _date_of(stamp))


def _if_unmodified_since(second: int | None, stamp: int) -> _Unmet | None:
    if second is None or last_modified(stamp) <= second:
        return None
    return _Unmet(IF_UNMODIFIED_SINCE, format_http_date(second), _date_of(stamp))


def _names(etags: ETags, stamp: int) -> bool:
    return etags == ANY or format_etag(stamp) in etags


def _date_of(stamp: int) -> str:
    return format_http_date(last_modified(stamp))
