"""Dates and times as the protocols write them.

HTTP dates have whole seconds and three forms: the usual one, and two obsolete ones that a server
must still accept (RFC 9110, section 5.6.7).

    Sun, 06 Nov 1994 08:49:37 GMT       RFC 1123
    Sunday, 06-Nov-94 08:49:37 GMT      RFC 850
    Sun Nov  6 08:49:37 1994            asctime()

The day of the week is parsed but not checked: if it contradicts the date, ignoring the condition
would protect nobody.
"""

from __future__ import annotations

import re
import time
from datetime import date
from functools import lru_cache
from typing import Final

from etagere.clock import TICKS_PER_SECOND

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LONG_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH_NUMBERS = {name.lower(): number for number, name in enumerate(_MONTHS, 1)}

_DAY = f"(?:{'|'.join(_DAYS)})"
_LONG_DAY = f"(?:{'|'.join(_LONG_DAYS)})"
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_FORMS = (
    rf"{_DAY}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT",
    rf"{_LONG_DAY}, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
    rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
)
_PATTERNS = [re.compile(form, re.ASCII | re.IGNORECASE) for form in _FORMS]
_ANY_FORM = "(?:" + "|".join(re.sub(r"\?P<\w+>", "?:", form) for form in _FORMS) + ")"
_SEVERAL = re.compile(rf"{_ANY_FORM}(?:\s*,\s*{_ANY_FORM})+", re.ASCII | re.IGNORECASE)

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SECONDS_PER_DAY = 86_400
_PIVOT_YEAR = 70
"""Two-digit years from here on are in the 20th century: no resource is older than 1970."""


def parse_http_date(text: str) -> int | None:
    """Returns seconds since 1970; None if this is not a date."""
    stripped = text.strip()
    for pattern in _PATTERNS:
        found = pattern.fullmatch(stripped)
        if found is not None:
            return _seconds(found)
    return None


def is_several_dates(text: str) -> bool:
    """Returns whether a header contains several dates, as when it was sent twice."""
    return _SEVERAL.fullmatch(text.strip()) is not None


def _seconds(found: re.Match[str]) -> int | None:
    year = int(found["year"])
    if len(found["year"]) == 2:
        year += 1900 if year >= _PIVOT_YEAR else 2000
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    if hour > 23 or minute > 59 or second > 60:  # 60: a leap second
        return None
    try:
        day = date(year, _MONTH_NUMBERS[found["month"].lower()], int(found["day"])).toordinal()
    except ValueError:
        return None
    return (day - _EPOCH_DAY) * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second


@lru_cache(maxsize=8192)
def format_http_date(seconds: int) -> str:
    """Formats a date as in RFC 1123. Cached, because the objects of a listing share few dates."""
    moment = time.gmtime(seconds)
    return (
        f"{_DAYS[moment.tm_wday]}, {moment.tm_mday:02} {_MONTHS[moment.tm_mon - 1]} "
        f"{moment.tm_year:04} {moment.tm_hour:02}:{moment.tm_min:02}:{moment.tm_sec:02} GMT"
    )


_INSTANT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?Z", re.ASCII)


def parse_instant(text: str, *, year_min: int = 1970) -> int | None:
    """Parses the format of `format_instant`; returns ticks since 1970, or None."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    if year < year_min or hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    seconds = days * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    return seconds * TICKS_PER_SECOND + int((found[7] or "0").ljust(7, "0"))


def format_instant(ticks: int) -> str:
    """Formats a time in ISO 8601 to the tick, as in snapshot names and entity timestamps."""
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    # Removing a digit is faster than padding with zeros.
    return f"{format_second(seconds)}.{str(TICKS_PER_SECOND + fraction)[1:]}Z"


@lru_cache(maxsize=8192)
def format_second(seconds: int) -> str:
    """Formats a time in ISO 8601 to the second, without a zone."""
    minutes, second = divmod(seconds, 60)
    days, minute = divmod(minutes, MINUTES_PER_DAY)
    return f"{format_day(_EPOCH_DAY + days)}T{MINUTES[minute]}{SECONDS[second]}"


@lru_cache(maxsize=1024)
def format_day(ordinal: int) -> str:
    """Formats the day with this ordinal; day 1 is the first of year 1."""
    return date.fromordinal(ordinal).isoformat()


# A page of entities has thousands of times, and looking up their parts is faster than formatting
# them.
MINUTES_PER_DAY: Final = 24 * 60
MINUTES: Final = [f"{minute // 60:02}:{minute % 60:02}:" for minute in range(MINUTES_PER_DAY)]
SECONDS: Final = [f"{second:02}" for second in range(60)]
