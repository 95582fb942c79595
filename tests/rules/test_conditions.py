"""Conditional headers: every combination of the four, compared with an independent oracle."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.conditions import ANY, Conditions
from etagere.rules.conditions import (
    NotModified,
    check_create,
    check_read,
    check_read_headers,
    check_source,
    check_write,
    check_write_headers,
    format_etag,
    last_modified,
    parse_date,
    parse_etags,
    precedes_all_etags,
    without_ignored,
)

SECOND = 1_700_000_000
STAMP = SECOND * TICKS_PER_SECOND + 1_234_567
CURRENT = format_etag(STAMP)
STALE = format_etag(STAMP - 1)
NEWEST = "2026-02-06"
OLD = "2012-02-12"


class Choice(NamedTuple):
    """The state of each header: absent (None), met or unmet."""

    match: bool | None
    none_match: bool | None
    modified: bool | None
    unmodified: bool | None

    def conditions(self) -> Conditions:
        return Conditions(
            if_match={None: None, True: (CURRENT,), False: (STALE,)}[self.match],
            if_none_match={None: None, True: (STALE,), False: (CURRENT,)}[self.none_match],
            if_modified_since={None: None, True: SECOND - 1, False: SECOND}[self.modified],
            if_unmodified_since={None: None, True: SECOND, False: SECOND - 1}[self.unmodified],
        )


CHOICES = [Choice(*values) for values in product((None, True, False), repeat=4)]


def status(refusal: Refusal | None) -> int:
    if refusal is None:
        return 200
    if isinstance(refusal, NotModified):
        assert refusal.code == "ConditionNotMet"
        return 304
    return refusal.error.status


def read_oracle(choice: Choice) -> int:
    """The service's documented table, row by row."""
    if choice.match is False or choice.unmodified is False:
        return 412
    pair = (choice.none_match, choice.modified)
    if pair in {(False, False), (False, None), (None, False)}:
        return 304
    assert pair in {
        (None, None),
        (True, None),
        (None, True),
        (True, True),
        (True, False),
        (False, True),
    }
    return 200


def write_oracle(choice: Choice) -> int:
    present = [value is not None for value in choice]
    match present:
        case [False, False, False, False]:
            return 200
        case [True, False, False, _]:
            return 200 if choice.match else 412
        case [False, True, _, False]:
            return 200 if choice.none_match else 412
        case [False, False, True, False]:
            return 200 if choice.modified else 412
        case [False, False, False, True]:
            return 200 if choice.unmodified else 412
    return 400


def test_all_combinations_are_tested() -> None:
    assert len(set(CHOICES)) == 81
    assert sum(write_oracle(choice) == 400 for choice in CHOICES) == 81 - 1 - 4 * 2 - 2 * 4


@pytest.mark.parametrize("choice", CHOICES)
def test_reads(choice: Choice) -> None:
    conditions = choice.conditions()
    assert check_read_headers(conditions, NEWEST) is None
    assert status(check_read(conditions, STAMP)) == read_oracle(choice)


@pytest.mark.parametrize("choice", CHOICES)
def test_writes(choice: Choice) -> None:
    conditions = choice.conditions()
    expected = write_oracle(choice)
    illegal = check_write_headers(conditions)
    if expected == 400:
        assert illegal is not None
        assert illegal.code == "MultipleConditionHeadersNotSupported"
        assert illegal.error.status == 400
        return
    assert illegal is None
    for check, code in (
        (check_write, "ConditionNotMet"),
        (check_create, "ConditionNotMet"),
        (check_source, "SourceConditionNotMet"),
    ):
        refusal = check(conditions, STAMP)
        assert status(refusal) == expected
        assert refusal is None or refusal.code == code


@pytest.mark.parametrize("choice", CHOICES)
def test_old_reads(choice: Choice) -> None:
    """They combine like writes, but can answer 304."""
    conditions = choice.conditions()
    expected = write_oracle(choice)
    if expected == 400:
        assert status(check_read_headers(conditions, OLD)) == 400
        return
    if expected == 412 and choice.match is None and choice.unmodified is None:
        expected = 304
    assert check_read_headers(conditions, OLD) is None
    assert status(check_read(without_ignored(conditions), STAMP)) == expected


@pytest.mark.parametrize("choice", CHOICES)
def test_creates(choice: Choice) -> None:
    """If-Match always fails; nothing else can."""
    conditions = choice.conditions()
    if check_write_headers(conditions) is None:
        expected = 200 if choice.match is None else 412
        assert status(check_create(conditions, None)) == expected


@pytest.mark.parametrize(("version", "expected"), [("2013-08-14", 400), ("2013-08-15", 200)])
def test_first_version_of_combined_reads(version: str, expected: int) -> None:
    conditions = Conditions(if_match=(CURRENT,), if_none_match=(STALE,))
    assert status(check_read_headers(conditions, version)) == expected


# Wildcards


def test_if_match_any() -> None:
    conditions = Conditions(if_match=ANY)
    assert check_read_headers(conditions, NEWEST) is None
    assert check_write_headers(conditions) is None
    for check in (check_read, check_write, check_create, check_source):
        assert check(conditions, STAMP) is None
    assert check_create(conditions, None) == Refusal(
        "ConditionNotMet", {"Condition": "If-Match", "Sent": "*", "Current": "absent"}
    )


def test_if_none_match_any() -> None:
    conditions = Conditions(if_none_match=ANY)
    assert check_write_headers(conditions) is None
    assert check_create(conditions, None) is None
    facts: dict[str, str | int] = {
        "Condition": "If-None-Match",
        "Sent": "*",
        "Current": CURRENT,
    }
    assert check_create(conditions, STAMP) == Refusal("BlobAlreadyExists", facts)
    assert check_write(conditions, STAMP) == Refusal("ConditionNotMet", facts)
    source = check_source(conditions, STAMP)
    assert source is not None and source.code == "SourceConditionNotMet"


def test_dates_are_ignored_with_a_create_only_condition() -> None:
    for since in (SECOND - 1, SECOND):
        conditions = Conditions(if_none_match=ANY, if_modified_since=since)
        refusal = check_create(conditions, STAMP)
        assert refusal is not None and refusal.code == "BlobAlreadyExists"
        assert check_create(conditions, None) is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2012-02-12", None),
        ("2013-08-15", None),
        ("2015-12-11", None),
        ("2016-05-31", "UnsatisfiableCondition"),
        (NEWEST, "UnsatisfiableCondition"),
    ],
)
def test_reads_with_if_none_match_any(version: str, expected: str | None) -> None:
    for conditions in (Conditions(if_none_match=ANY), Conditions(None, ANY, SECOND - 1)):
        refusal = check_read_headers(conditions, version)
        assert (refusal.code if refusal else None) == expected
    assert status(check_read(Conditions(if_none_match=ANY), STAMP)) == 304


# Several ETags


def test_reads_accept_several_etags() -> None:
    other = format_etag(STAMP - 2)
    for etags, matches in (((STALE, CURRENT), True), ((STALE, other), False)):
        assert check_read_headers(Conditions(if_match=etags), NEWEST) is None
        assert status(check_read(Conditions(if_match=etags), STAMP)) == (200 if matches else 412)
        none_match = Conditions(if_none_match=etags)
        assert status(check_read(none_match, STAMP)) == (304 if matches else 200)


def test_writes_and_old_reads_accept_one_etag() -> None:
    for conditions in (
        Conditions(if_match=(CURRENT, STALE)),
        Conditions(if_none_match=(CURRENT, STALE)),
    ):
        for refusal in (check_write_headers(conditions), check_read_headers(conditions, OLD)):
            assert refusal is not None
            assert refusal.code == "MultipleConditionHeadersNotSupported"
            assert refusal.facts["Sent"] == f"{CURRENT}, {STALE}"


# Whole seconds


@pytest.mark.parametrize("fraction", [0, 1, TICKS_PER_SECOND - 1])
def test_dates_have_a_resolution_of_seconds(fraction: int) -> None:
    stamp = SECOND * TICKS_PER_SECOND + fraction
    assert last_modified(stamp) == SECOND
    assert status(check_read(Conditions(if_modified_since=SECOND), stamp)) == 304
    assert status(check_read(Conditions(if_modified_since=SECOND - 1), stamp)) == 200
    assert status(check_read(Conditions(if_unmodified_since=SECOND), stamp)) == 200
    assert status(check_read(Conditions(if_unmodified_since=SECOND - 1), stamp)) == 412
    assert status(check_write(Conditions(if_modified_since=SECOND), stamp)) == 412
    assert status(check_write(Conditions(if_unmodified_since=SECOND), stamp)) == 200


def test_the_epoch_is_a_date() -> None:
    assert status(check_read(Conditions(if_unmodified_since=0), STAMP)) == 412
    assert status(check_read(Conditions(if_modified_since=0), STAMP)) == 200
    assert (
        status(check_read(Conditions(if_none_match=(CURRENT,), if_modified_since=0), STAMP)) == 200
    )
    both = Conditions(if_match=(CURRENT,), if_modified_since=0)
    assert status(check_write_headers(both)) == 400


# Details of errors


def test_refusals_contain_sent_and_current_values() -> None:
    assert check_write(Conditions(if_match=(STALE,)), STAMP) == Refusal(
        "ConditionNotMet", {"Condition": "If-Match", "Sent": STALE, "Current": CURRENT}
    )
    assert check_read(Conditions(if_unmodified_since=SECOND - 1), STAMP) == Refusal(
        "ConditionNotMet",
        {
            "Condition": "If-Unmodified-Since",
            "Sent": "Tue, 14 Nov 2023 22:13:19 GMT",
            "Current": "Tue, 14 Nov 2023 22:13:20 GMT",
        },
    )
    assert check_read(Conditions(None, (CURRENT,), SECOND), STAMP) == NotModified(
        "ConditionNotMet",
        {"Condition": "If-None-Match", "Sent": CURRENT, "Current": CURRENT},
    )
    assert check_source(Conditions(if_match=(STALE,)), STAMP) == Refusal(
        "SourceConditionNotMet",
        {"Condition": "x-ms-source-If-Match", "Sent": STALE, "Current": CURRENT},
    )
    assert check_write_headers(Conditions(if_match=ANY, if_none_match=ANY)) == Refusal(
        "MultipleConditionHeadersNotSupported", {"Sent": "If-Match, If-None-Match"}
    )


# ETags

stamps = st.integers(0, 10**17)


@given(stamps)
def test_etags_round_trip(stamp: int) -> None:
    etag = format_etag(stamp)
    assert parse_etags(etag) == parse_etags(etag.strip('"')) == parse_etags(f"W/{etag}") == (etag,)
    assert check_write(Conditions(if_match=parse_etags(etag)), stamp) is None
    assert check_write(Conditions(if_match=parse_etags(etag)), stamp + 1) is not None


@given(st.lists(stamps, min_size=1))
def test_lists_of_etags_round_trip(several: list[int]) -> None:
    etags = tuple(format_etag(stamp) for stamp in several)
    assert parse_etags(", ".join(etags)) == parse_etags(",".join(etags)) == etags


def test_the_form_of_an_etag() -> None:
    assert format_etag(0) == '"0x89F7FF5F7B58000"'
    assert format_etag(STAMP) == '"0x8DBE55EE8F6D687"'
    assert all(len(format_etag(stamp)) == 2 + 2 + 15 for stamp in (0, STAMP, 10**17))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", ANY),
        (" * ", ANY),
        ('"*"', ('"*"',)),
        ('"0x8D"', ('"0x8D"',)),
        ("0x8D", ('"0x8D"',)),
        ('W/"0x8D"', ('"0x8D"',)),
        ('""', ('""',)),
        ('"a,b"', ('"a,b"',)),
        ('"a", b ,W/"c"', ('"a"', '"b"', '"c"')),
        ('*, "a"', ANY),
        ('"a", *', ANY),
        ("*,x", ANY),
    ],
)
def test_lists_of_etags(text: str, expected: tuple[str, ...]) -> None:
    assert parse_etags(text) == expected


@pytest.mark.parametrize(
    "text", ["", "  ", ",", '"a",', ',"a"', '"a",,"b"', '"a', 'a"', '"a" "b"', f"{CURRENT}x"]
)
def test_malformed_lists_match_nothing(text: str) -> None:
    assert parse_etags(text) == (text,)
    assert status(check_write(Conditions(if_match=parse_etags(text)), STAMP)) == 412
    assert status(check_read(Conditions(if_none_match=parse_etags(text)), STAMP)) == 200


@pytest.mark.parametrize(
    ("etag", "expected"),
    [
        ('"0x111111111111111"', True),
        ('"0x1"', False),
        (format_etag(0), False),
        (format_etag(STAMP), False),
        ('"0xFFFFFFFFFFFFFFF"', False),
        ('"0x1111111111111111"', False),
        ('"garbage"', False),
        ("*", False),
    ],
)
def test_etags_before_the_first(etag: str, expected: bool) -> None:
    assert precedes_all_etags(etag) == expected


@given(st.text(max_size=30))
def test_arbitrary_text_is_no_error(text: str) -> None:
    assert len(parse_etags(text)) >= 1


@given(st.text(alphabet='",W/ a', max_size=12))
def test_only_a_star_is_any(text: str) -> None:
    assert parse_etags(text) != ANY
    assert parse_etags(f"*,{text}") == ANY


def test_an_unknown_etag_equals_nothing() -> None:
    assert status(check_write(Conditions(if_match=parse_etags("never-given")), STAMP)) == 412
    assert status(check_read(Conditions(if_none_match=parse_etags("never-given")), STAMP)) == 200


# Dates


def test_reading_a_date_header() -> None:
    date = "Tue, 14 Nov 2023 22:13:20 GMT"
    assert parse_date("If-Modified-Since", date) == SECOND
    assert parse_date("If-Modified-Since", "null") is None
    assert parse_date("If-Modified-Since", "") is None
    several = parse_date("If-Modified-Since", f"{date}, {date}")
    assert isinstance(several, Refusal)
    assert several.code == "InvalidHeaderValue"


@given(
    st.builds(
        Conditions,
        st.none() | st.just(ANY) | st.just((STALE, CURRENT)),
        st.none() | st.just(ANY) | st.just((STALE,)),
        st.none() | st.integers(0, 2**40),
        st.none() | st.integers(0, 2**40),
    )
)
def test_conditions_round_trip(conditions: Conditions) -> None:
    sent = msgspec.msgpack.encode(conditions)
    received = msgspec.msgpack.decode(sent, type=Conditions)
    assert received == conditions
    assert status(check_read(received, STAMP)) == status(check_read(conditions, STAMP))


def test_if_none_match_any_with_the_lease_id_replaces_the_blob() -> None:
    new = Conditions(if_none_match=("*",))
    assert check_create(new, STAMP, by_holder=True) is None
    assert check_create(new, None, by_holder=True) is None
    refusal = check_create(new, STAMP)
    assert refusal is not None
    assert refusal.code == "BlobAlreadyExists"
