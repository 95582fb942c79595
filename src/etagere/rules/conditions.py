"""Conditional requests: ETags and dates against what is there.

    If-Match                one of these ETags is current; *: there is something
    If-None-Match           none of these is current; *: there is nothing
    If-Modified-Since       modified after this second
    If-Unmodified-Since     not modified after this second

Reads combine them freely:

    If-Match and If-Unmodified-Since and (If-None-Match or If-Modified-Since)

where the first two, unmet, fail (412), and the part in brackets answers "not modified" (304).
Writes, and reads before version 2013-08-15, know two pairs, in each of which the date is not
looked at; unmet is always a failure.

An ETag is the stamp of the last change. Dates have whole seconds, so the stamp is cut to its
second before it is compared: what a client was told as Last-Modified is what counts.
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
"""Added to a stamp, so that an ETag has 15 digits as those of the service have."""

_ETAG = re.compile(r'\s*(?:W/)?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s",]+))\s*(?:,|$)')


_SERVICE_ETAG = re.compile(r'"0x([0-9A-F]{15})"')


def format_etag(stamp: int) -> str:
    return f'"0x{stamp + ETAG_OFFSET:X}"'


def parse_etags(text: str) -> ETags:
    """The value of If-Match or If-None-Match.

    Quotes may be missing. A mark of weakness is not looked at: we never set one, so somebody
    in between did who changed the coding of a body, and it is still certain which change
    is meant. A list with a star in it is a star. What we never gave out is kept as it is and
    equals nothing, and so is a text that is no list of ETags.
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
    """Whether it reads as an ETag of the service, but of a time before the first one."""
    found = _SERVICE_ETAG.fullmatch(etag)
    return found is not None and int(found[1], 16) < ETAG_OFFSET


def last_modified(stamp: int) -> int:
    """The second in which a change was made."""
    return stamp // TICKS_PER_SECOND


# What is asked


SOURCE_PREFIX: Final = "x-ms-source-"
"""A copy has the four headers once more, for its source."""


class Header(enum.Enum):
    """The headers that ask something."""

    IF_MATCH = "If-Match"
    IF_NONE_MATCH = "If-None-Match"
    IF_MODIFIED_SINCE = "If-Modified-Since"
    IF_UNMODIFIED_SINCE = "If-Unmodified-Since"


IF_MATCH, IF_NONE_MATCH = Header.IF_MATCH, Header.IF_NONE_MATCH
IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE = Header.IF_MODIFIED_SINCE, Header.IF_UNMODIFIED_SINCE


def parse_date(header: str, text: str) -> int | Refusal | None:
    """The value of a date header. What is no date is ignored, as the service does (clients
    send `null`), but several dates are an error."""
    if is_several_dates(text):
        return Refusal("InvalidHeaderValue", {"HeaderName": header, "HeaderValue": text})
    return parse_http_date(text)


# Which may be asked together

ANY_COMBINATION_SINCE = "2013-08-15"
"""The version from which on reads combine all four."""
READ_IF_NOTHING_REFUSED_SINCE = "2016-05-31"

LEGAL_PAIRS: Final = frozenset(
    {
        frozenset({IF_MATCH, IF_UNMODIFIED_SINCE}),
        frozenset({IF_NONE_MATCH, IF_MODIFIED_SINCE}),
    }
)
"""All that writes and old reads may have together."""


def check_read_headers(conditions: Conditions, version: str) -> Refusal | None:
    """Whether a read of this version may ask this."""
    if version < ANY_COMBINATION_SINCE:
        return check_write_headers(conditions)
    if version >= READ_IF_NOTHING_REFUSED_SINCE and conditions.if_none_match == ANY:
        return Refusal("UnsatisfiableCondition", {"Condition": IF_NONE_MATCH.value, "Sent": "*"})
    return None


def check_write_headers(conditions: Conditions) -> Refusal | None:
    """Whether a write of any version may ask this."""
    asked = {
        IF_MATCH: conditions.if_match,
        IF_NONE_MATCH: conditions.if_none_match,
        IF_MODIFIED_SINCE: conditions.if_modified_since,
        IF_UNMODIFIED_SINCE: conditions.if_unmodified_since,
    }
    present = [header for header, value in asked.items() if value is not None]
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
    """The conditions that writes and old reads look at: beside an ETag the date does not count."""
    if conditions.if_match is not None and conditions.if_unmodified_since is not None:
        conditions = msgspec.structs.replace(conditions, if_unmodified_since=None)
    if conditions.if_none_match is not None and conditions.if_modified_since is not None:
        conditions = msgspec.structs.replace(conditions, if_modified_since=None)
    return conditions


# Whether it is so


class NotModified(Refusal, frozen=True):
    """A read has nothing newer to show: 304. Its code is that of any unmet condition."""


class _Unmet(NamedTuple):
    """Which header failed, what it said, what is current."""

    header: Header
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

    What is not there is not found (404), whatever was asked of it. For versions before
    2013-08-15 hand in what `without_ignored` leaves.
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
    # Where both are asked, one that is met is enough.
    if conditions.if_none_match is not None and conditions.if_modified_since is not None:
        unmet = same if old is not None else None
    else:
        unmet = same or old
    return None if unmet is None else NotModified("ConditionNotMet", unmet.facts())


def check_write(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a write to something that is there. What a write needs and is not there is not
    found (404) before anybody looks at conditions."""
    unmet = _first_unmet(conditions, stamp)
    return None if unmet is None else _condition_not_met(unmet)


def check_create(
    conditions: Conditions, stamp: int | None, *, by_holder: bool = False
) -> Refusal | None:
    """Refuses a write that would create a blob or replace it whole; None: it is not there.

    Who holds the blob's lease knows that it is there: clients that upload with a lease ask for a
    new blob all the same, and mean to replace it.

    That it is there already, when it was to be new, has a code of its own, and clients tell
    it from a lost race by that. What is not there has no ETag that could match, and no date
    that could be wrong.
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
    """Refuses a write that reads its bytes from a source, as a read of the source is refused: with
    412, or with 304 by way of `NotModified`."""
    unmet = _first_unmet(conditions, stamp)
    if unmet is None:
        return None
    if unmet.header in (IF_NONE_MATCH, IF_MODIFIED_SINCE):
        return NotModified("ConditionNotMet", unmet.facts())
    return _condition_not_met(unmet)


def check_source(conditions: Conditions, stamp: int) -> Refusal | None:
    """Refuses a copy because of its source, which is read on behalf of a write: unmet is
    always a failure, as in writes."""
    unmet = _first_unmet(conditions, stamp)
    if unmet is None:
        return None
    return Refusal("SourceConditionNotMet", unmet.facts(SOURCE_PREFIX))


def is_same_version(if_range: str, stamp: int) -> bool:
    """Whether If-Range names what is there: by its ETag, of which a weak one does not count, or by
    exactly its date (RFC 9110, section 13.1.5). Nothing named is whatever is there."""
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
    """What a write fails for. Beside an ETag the date does not count."""
    if conditions.if_match is not None:
        unmet = _if_match(conditions.if_match, stamp)
    else:
        unmet = _if_unmodified_since(conditions.if_unmodified_since, stamp)
    if unmet is not None:
        return unmet
    if conditions.if_none_match is not None:
        return _if_none_match(conditions.if_none_match, stamp)
    return _if_modified_since(conditions.if_modified_since, stamp)


# The four, each None if it is met or was not asked


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
