"""Caches of SMB clients: what is granted, and what breaks it, exhaustively."""

from __future__ import annotations

from itertools import product

import pytest

from etagere.nt_status import NtStatus
from etagere.rules.caching import (
    NO_OTHERS,
    CacheBreak,
    Caching,
    OtherOpens,
    cache_break,
    check_acknowledgement,
    granted,
    handle_cache_break,
    needs_acknowledgement,
    next_break,
    open_break,
    oplock_after,
    upgraded,
    write_break,
)
from etagere.rules.opens import RestAccess

CR, CRW, CRH = Caching.READ, Caching.READ | Caching.WRITE, Caching.READ | Caching.HANDLE
CRWH = CRW | Caching.HANDLE
# What the client may still cache, and whether the operation waits for it.
FLUSH = {CRWH: (CRH, True), CRW: (CR, True)}
DISCARD = {
    CRWH: (Caching.NONE, True),
    CRW: (Caching.NONE, True),
    CRH: (Caching.NONE, False),
    CR: (Caching.NONE, False),
}
CLOSE = {CRWH: (CRW, True), CRH: (CR, True)}
BREAKS: dict[RestAccess, dict[Caching, tuple[Caching, bool]]] = {
    RestAccess.LIST: {},
    RestAccess.CREATE: {},
    RestAccess.QUERY: FLUSH,
    RestAccess.READ: FLUSH,
    RestAccess.LEASE: FLUSH,
    RestAccess.WRITE: DISCARD,
    RestAccess.SET: DISCARD,
    RestAccess.REPLACE: DISCARD,
    RestAccess.RENAME: CLOSE,
    RestAccess.DELETE: CLOSE,
}


@pytest.mark.parametrize("held", [Caching.NONE, CR, CRW, CRH, CRWH])
def test_caches_that_rest_operations_break(held: Caching) -> None:
    assert set(BREAKS) == set(RestAccess)
    for access, rows in BREAKS.items():
        expected = CacheBreak(*rows[held]) if held in rows else None
        assert cache_break(access, held) == expected, access
    in_the_way = CacheBreak(*CLOSE[held]) if held in CLOSE else None
    assert handle_cache_break(held) == in_the_way


STATES = [Caching.NONE, CR, CRW, CRH, CRWH]
ALL_CACHING = [Caching(value) for value in range(8)]
ALL_OTHERS = [OtherOpens(*flags) for flags in product((False, True), repeat=6)]


def of(letters: str) -> Caching:
    """The state that smbtorture writes like this."""
    flags = {"R": Caching.READ, "W": Caching.WRITE, "H": Caching.HANDLE}
    return Caching(sum(flags[letter] for letter in letters))


# Breaks by SMB clients


@pytest.mark.parametrize("held", STATES)
def test_caches_that_smb_clients_break(held: Caching) -> None:
    flushed = CacheBreak(*FLUSH[held]) if held in FLUSH else None
    discarded = CacheBreak(*DISCARD[held]) if held in DISCARD else None
    assert open_break(held, overwrites=False) == flushed
    assert open_break(held, overwrites=True) == discarded
    assert write_break(held) == discarded


@pytest.mark.parametrize("left", ALL_CACHING)
def test_oplocks_are_broken_to_level_ii_or_nothing(left: Caching) -> None:
    assert oplock_after(left) == (CR if left & CR else Caching.NONE)


@pytest.mark.parametrize("held", STATES)
def test_only_breaks_of_reads_are_not_acknowledged(held: Caching) -> None:
    assert needs_acknowledgement(held) is (held not in (Caching.NONE, CR))


@pytest.mark.parametrize("required", STATES)
def test_a_further_break_leaves_the_reads_first(required: Caching) -> None:
    for acknowledged in STATES:
        following = next_break(acknowledged, required)
        if acknowledged & required == acknowledged:
            assert following is None
        elif acknowledged == CR:
            assert following == required
        else:
            assert following == required | CR


@pytest.mark.parametrize("left", [None, *STATES])
def test_acknowledgements(left: Caching | None) -> None:
    for state in ALL_CACHING:
        fits = left is not None and state & left == state
        too_much = NtStatus.UNSUCCESSFUL if left is None else NtStatus.REQUEST_NOT_ACCEPTED
        lease_error = None if fits else too_much
        assert check_acknowledgement(state, left, is_lease=True) == lease_error
        oplock_error = None if fits else NtStatus.INVALID_OPLOCK_PROTOCOL
        assert check_acknowledgement(state, left, is_lease=False) == oplock_error


# Grants


@pytest.mark.parametrize("wanted", ALL_CACHING)
def test_a_client_alone_gets_what_makes_sense(wanted: Caching) -> None:
    lease = wanted if wanted & CR else Caching.NONE
    assert granted(wanted, NO_OTHERS, is_lease=True) == lease
    if wanted != CRH:  # no oplock is like this
        assert granted(wanted, NO_OTHERS, is_lease=False) == lease


@pytest.mark.parametrize("others", ALL_OTHERS)
def test_what_others_have_limits_grants(others: OtherOpens) -> None:
    for wanted, is_lease in product(ALL_CACHING, (True, False)):
        state = granted(wanted, others, is_lease=is_lease)
        assert state & wanted == state
        assert not state or state & CR
        if others.with_data or others.oplocks or others.leases:
            assert not state & Caching.WRITE
        if others.writes:
            assert not state
        if others.locks:
            assert not state or state & Caching.WRITE
        if others.oplocks and is_lease:
            assert not state & Caching.HANDLE
        if others.handle_leases and not is_lease:
            assert not state
        if not is_lease:
            assert state in (Caching.NONE, CR, CRW, CRWH)


# What the first lease has, what the second asks for, what the first has then, what the second gets.
LEASES = """
R R R R, R RH R RH, R RW R R, R RWH R RH,
RH R RH R, RH RH RH RH, RH RW RH R, RH RWH RH RH,
RW R R R, RW RH R RH, RW RW R R, RW RWH R RH,
RWH R RH R, RWH RH RH RH, RWH RW RH R, RWH RWH RH RH"""


@pytest.mark.parametrize("row", LEASES.split(","))
def test_the_second_lease(row: str) -> None:
    first, asked, left, got = map(of, row.split())
    demanded = open_break(first, overwrites=False)
    assert (first if demanded is None else demanded.left) == left
    others = OtherOpens(with_data=True, handle_leases=bool(left & Caching.HANDLE))
    assert granted(asked, others, is_lease=True) == got


OPLOCKS = {"s": CR, "x": CRW, "b": CRWH}


@pytest.mark.parametrize("held", STATES[1:])
def test_an_oplock_after_a_lease(held: Caching) -> None:
    demanded = open_break(held, overwrites=False)
    left = held if demanded is None else demanded.left
    has_handles = bool(left & Caching.HANDLE)
    others = OtherOpens(with_data=True, handle_leases=has_handles)
    for wanted in OPLOCKS.values():
        expected = Caching.NONE if has_handles else CR
        assert granted(wanted, others, is_lease=False) == expected


@pytest.mark.parametrize("held", OPLOCKS.values())
def test_a_lease_after_an_oplock(held: Caching) -> None:
    demanded = open_break(held, overwrites=False)
    assert oplock_after(held if demanded is None else demanded.left) == CR
    for wanted in STATES[1:]:
        assert granted(wanted, OtherOpens(with_data=True, oplocks=True), is_lease=True) == CR


# What the lease has, what the next open with its key asks for, and what it has then.
UPGRADES_ALONE = """
- R R, - RH RH, - RW RW, - RWH RWH,
R - R, R RH RH, R RW RW, R RWH RWH,
RH - RH, RH R RH, RH RW RH, RH RWH RWH,
RW - RW, RW R RW, RW RH RW, RW RWH RWH,
RWH - RWH, RWH R RWH, RWH RH RWH, RWH RW RWH"""
UPGRADES_BESIDE_OTHERS = """
R - R, R R R, R RW R, R RH RH, R RWH R,
RH - RH, RH R RH, RH RW RH, RH RH RH, RH RWH RH"""


@pytest.mark.parametrize(
    ("rows", "others"),
    [(UPGRADES_ALONE, NO_OTHERS), (UPGRADES_BESIDE_OTHERS, OtherOpens(with_data=True))],
)
def test_upgrades(rows: str, others: OtherOpens) -> None:
    for row in rows.split(","):
        held, wanted, then = (of(word.strip("-")) for word in row.split())
        assert upgraded(held, wanted, others, is_breaking=False) == then, row
        assert upgraded(held, wanted, others, is_breaking=True) == held
