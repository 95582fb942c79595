"""Dates: formatting, parsing and invalid ones."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.rules.dates import (
    format_http_date,
    format_instant,
    is_several_dates,
    parse_http_date,
    parse_instant,
)

moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_of(moment: datetime) -> int:
    since = moment - EPOCH
    return since.days * 86_400 + since.seconds


@given(moments)
def test_dates_round_trip(moment: datetime) -> None:
    seconds = seconds_of(moment)
    assert parse_http_date(format_http_date(seconds)) == seconds


@given(moments)
def test_dates_match_the_standard_library(moment: datetime) -> None:
    assert format_http_date(seconds_of(moment)) == format_datetime(moment, usegmt=True)


@given(moments)
def test_the_asctime_form_is_read(moment: datetime) -> None:
    assert parse_http_date(moment.ctime()) == seconds_of(moment)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2069, 12, 31, 23, 59, 59)))
def test_the_rfc_850_form_is_read(moment: datetime) -> None:
    text = f"{moment:%A, %d-%b-%y %H:%M:%S} GMT"
    assert parse_http_date(text) == seconds_of(moment.replace(microsecond=0, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "  Sun, 06 Nov 1994 08:49:37 GMT ",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        # A wrong day of the week is ignored.
        "Mon, 06 Nov 1994 08:49:37 GMT",
    ],
)
def test_the_three_forms(text: str) -> None:
    assert parse_http_date(text) == 784111777


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "0",
        "784111777",
        "1994-11-06T08:49:37Z",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 1995 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Xyz, 06 Nov 1994 08:49:37 GMT",
        "Sun, \N{ARABIC-INDIC DIGIT ZERO}6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
    ],
)
def test_invalid_dates(text: str) -> None:
    assert parse_http_date(text) is None


def test_a_leap_second_is_the_next_one() -> None:
    assert parse_http_date("Sat, 31 Dec 2016 23:59:60 GMT") == parse_http_date(
        "Sun, 01 Jan 2017 00:00:00 GMT"
    )


@given(st.text(max_size=40))
def test_arbitrary_text_is_no_error(text: str) -> None:
    assert parse_http_date(text) is None or isinstance(parse_http_date(text), int)
    assert is_several_dates(text) in {True, False}


def test_several_dates() -> None:
    one = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert not is_several_dates(one)
    assert not is_several_dates("null, null")
    assert not is_several_dates(f"{one}, null")
    assert is_several_dates(f"{one}, {one}")
    assert is_several_dates(f"{one},{one},Sun Nov  6 08:49:37 1994")


@given(moments, st.integers(0, TICKS_PER_SECOND - 1))
def test_instants_are_written_to_the_tick(moment: datetime, fraction: int) -> None:
    result = format_instant(seconds_of(moment) * TICKS_PER_SECOND + fraction)
    assert result == f"{moment.replace(tzinfo=None).isoformat()}.{fraction:07}Z"


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
    st.integers(0, TICKS_PER_SECOND - 1),
)
def test_instants_round_trip(moment: datetime, fraction: int) -> None:
    ticks = seconds_of(moment.replace(microsecond=0, tzinfo=UTC)) * TICKS_PER_SECOND + fraction
    assert parse_instant(format_instant(ticks)) == ticks


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.0000001Z", 1),
        ("1970-01-01T00:00:01.5Z", 15_000_000),
        ("1970-01-01T00:00:01.05Z", 10_500_000),
        ("2024-02-29T23:59:59.9999999Z", 17_092_511_999_999_999),
    ],
)
def test_a_fraction_may_be_shorter(text: str, ticks: int) -> None:
    assert parse_instant(text) == ticks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-02-29",
        "2024-02-29T10:00Z",
        "2024-02-29T10:00:00",
        "2024-02-29T10:00:00.Z",
        "2024-02-29T10:00:00.12345678Z",
        "2024-02-29T10:00:00,5Z",
        "2024-02-29T10:00:00+00:00",
        "2024-02-29T10:00:00z",
        "2024-02-29t10:00:00Z",
        "2024-02-29 10:00:00Z",
        " 2024-02-29T10:00:00Z",
        "2024-02-29T10:00:00Z\n",
        "2023-02-29T10:00:00Z",
        "2024-00-01T10:00:00Z",
        "2024-13-01T10:00:00Z",
        "2024-02-00T10:00:00Z",
        "2024-02-29T24:00:00Z",
        "2024-02-29T10:60:00Z",
        "2024-02-29T10:00:60Z",
        "1969-12-31T23:59:59.9999999Z",
        "0000-01-01T00:00:00Z",
        "20240229T100000Z",
        "\N{ARABIC-INDIC DIGIT TWO}024-02-29T10:00:00Z",
        "Thu, 29 Feb 2024 10:00:00 GMT",
    ],
)
def test_invalid_instants(text: str) -> None:
    assert parse_instant(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "1601-01-01T00:00:00.0000000Z",
        "1601-01-01T00:00:00.0000001Z",
        "1969-12-31T23:59:59.9999999Z",
        "1970-01-01T00:00:00.0000000Z",
        "9999-12-31T23:59:59.9999999Z",
    ],
)
def test_times_of_files_begin_in_1601(text: str) -> None:
    ticks = parse_instant(text, year_min=1601)
    assert ticks is not None
    assert format_instant(ticks) == text
    assert parse_instant("1600-12-31T23:59:59.9999999Z", year_min=1601) is None
