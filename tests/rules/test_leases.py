"""Leases: every action in every state, every use under every lease, and expiry to the tick."""

from __future__ import annotations

import uuid
from itertools import product

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import ERRORS, Refusal
from etagere.model.base import Record
from etagere.model.leases import (
    NO_LEASE,
    Acquire,
    Break,
    BrokenLease,
    Change,
    FileLeaseAction,
    FixedLease,
    InfiniteLease,
    Lease,
    LeaseAction,
    LeaseKind,
    LeaseState,
    LeaseVerb,
    NoLease,
    Release,
    Renew,
    new_lease_id,
)
from etagere.rules.leases import (
    FILE_LEASE_STEPS,
    LEASE_STEPS,
    OBJECTION_CODES,
    READ_CHECKS,
    WRITE_CHECKS,
    Objection,
    SentLeaseId,
    after_write,
    check_break_period,
    check_container_delete,
    check_container_use,
    check_copy_destination,
    check_duration,
    check_read,
    check_write,
    effective_state,
    format_lease_id,
    parse_lease_id,
    report,
    seconds_until_free,
    step,
    step_file,
)

NOW = 17_000_000_000_000_000
SECOND = TICKS_PER_SECOND
A, B, C, X = (bytes([number]) * 16 for number in (0xAA, 0xBB, 0xCC, 0xDD))
LETTERS = {A: "A", B: "B", C: "C", X: "X"}
BLOB, CONTAINER = LeaseKind.BLOB, LeaseKind.CONTAINER
SHARE, FILE = LeaseKind.SHARE, LeaseKind.FILE

LEASES: dict[str, list[Lease]] = {
    "Available": [NO_LEASE],
    "Leased": [
        FixedLease(A, 30 * SECOND, NOW + 10 * SECOND),
        FixedLease(A, 30 * SECOND, NOW + 1),
        InfiniteLease(A),
    ],
    "Breaking": [BrokenLease(A, NOW + 10 * SECOND), BrokenLease(A, NOW + 1)],
    "Broken": [BrokenLease(A, NOW), BrokenLease(A, NOW - 10 * SECOND)],
    "Expired": [
        FixedLease(A, 30 * SECOND, NOW),
        FixedLease(A, 30 * SECOND, NOW - 10 * SECOND),
    ],
}

ACTIONS: dict[str, LeaseAction] = {
    "acquire, no id": Acquire(X, 15),
    "acquire A": Acquire(A, 15),
    "acquire B": Acquire(B, 15),
    "break, period 0": Break(0),
    "break, period > 0": Break(5),
    "change A to B": Change(A, B),
    "change B to A": Change(B, A),
    "change B to C": Change(B, C),
    "renew A": Renew(A),
    "renew B": Renew(B),
    "release A": Release(A),
    "release B": Release(B),
}

ALREADY_PRESENT = "LeaseAlreadyPresent"
MISMATCH = "LeaseIdMismatchWithLeaseOperation"
NOT_PRESENT = "LeaseNotPresentWithLeaseOperation"
CANNOT_ACQUIRE = "LeaseIsBreakingAndCannotBeAcquired"
CANNOT_CHANGE = "LeaseIsBreakingAndCannotBeChanged"
CANNOT_RENEW = "LeaseIsBrokenAndCannotBeRenewed"

# One row per cell of the service's table, with the error code.
CELLS = [
    ("acquire, no id", "Available", "Leased(X)"),
    ("acquire, no id", "Leased", ALREADY_PRESENT),
    ("acquire, no id", "Breaking", ALREADY_PRESENT),
    ("acquire, no id", "Broken", "Leased(X)"),
    ("acquire, no id", "Expired", "Leased(X)"),
    ("acquire A", "Available", "Leased(A)"),
    ("acquire A", "Leased", "Leased(A)"),
    ("acquire A", "Breaking", CANNOT_ACQUIRE),
    ("acquire A", "Broken", "Leased(A)"),
    ("acquire A", "Expired", "Leased(A)"),
    ("acquire B", "Available", "Leased(B)"),
    ("acquire B", "Leased", ALREADY_PRESENT),
    ("acquire B", "Breaking", ALREADY_PRESENT),
    ("acquire B", "Broken", "Leased(B)"),
    ("acquire B", "Expired", "Leased(B)"),
    ("break, period 0", "Available", NOT_PRESENT),
    ("break, period 0", "Leased", "Broken(A)"),
    ("break, period 0", "Breaking", "Broken(A)"),
    ("break, period 0", "Broken", "Broken(A)"),
    ("break, period 0", "Expired", "Broken(A)"),
    ("break, period > 0", "Available", NOT_PRESENT),
    ("break, period > 0", "Leased", "Breaking(A)"),
    ("break, period > 0", "Breaking", "Breaking(A)"),
    ("break, period > 0", "Broken", "Broken(A)"),
    ("break, period > 0", "Expired", "Broken(A)"),
    ("change A to B", "Available", NOT_PRESENT),
    ("change A to B", "Leased", "Leased(B)"),
    ("change A to B", "Breaking", CANNOT_CHANGE),
    ("change A to B", "Broken", NOT_PRESENT),
    ("change A to B", "Expired", NOT_PRESENT),
    ("change B to A", "Available", NOT_PRESENT),
    ("change B to A", "Leased", "Leased(A)"),
    ("change B to A", "Breaking", MISMATCH),
    ("change B to A", "Broken", NOT_PRESENT),
    ("change B to A", "Expired", NOT_PRESENT),
    ("change B to C", "Available", NOT_PRESENT),
    ("change B to C", "Leased", MISMATCH),
    ("change B to C", "Breaking", MISMATCH),
    ("change B to C", "Broken", NOT_PRESENT),
    ("change B to C", "Expired", NOT_PRESENT),
    ("renew A", "Available", MISMATCH),
    ("renew A", "Leased", "Leased(A)"),
    ("renew A", "Breaking", CANNOT_RENEW),
    ("renew A", "Broken", CANNOT_RENEW),
    ("renew A", "Expired", "Leased(A)"),
    ("renew B", "Available", MISMATCH),
    ("renew B", "Leased", MISMATCH),
    ("renew B", "Breaking", MISMATCH),
    ("renew B", "Broken", MISMATCH),
    ("renew B", "Expired", MISMATCH),
    ("release A", "Available", MISMATCH),
    ("release A", "Leased", "Available"),
    ("release A", "Breaking", "Available"),
    ("release A", "Broken", "Available"),
    ("release A", "Expired", "Available"),
    ("release B", "Available", MISMATCH),
    ("release B", "Leased", MISMATCH),
    ("release B", "Breaking", MISMATCH),
    ("release B", "Broken", MISMATCH),
    ("release B", "Expired", MISMATCH),
]

FILE_LEASES: dict[str, Lease] = {
    "Available": NO_LEASE,
    "Leased": InfiniteLease(A),
    "Broken": BrokenLease(A, NOW),
}
FILE_ACTIONS: dict[str, FileLeaseAction] = {
    "acquire, no id": Acquire(X, None),
    "acquire A": Acquire(A, None),
    "acquire B": Acquire(B, None),
    "break": Break(),
    "change A to B": Change(A, B),
    "change B to A": Change(B, A),
    "change B to C": Change(B, C),
    "release A": Release(A),
    "release B": Release(B),
}
FILE_CELLS = [
    ("acquire, no id", "Available", "Leased(X)"),
    ("acquire, no id", "Leased", ALREADY_PRESENT),
    ("acquire, no id", "Broken", "Leased(X)"),
    ("acquire A", "Available", "Leased(A)"),
    ("acquire A", "Leased", "Leased(A)"),
    ("acquire A", "Broken", "Leased(A)"),
    ("acquire B", "Available", "Leased(B)"),
    ("acquire B", "Leased", ALREADY_PRESENT),
    ("acquire B", "Broken", "Leased(B)"),
    ("break", "Available", NOT_PRESENT),
    ("break", "Leased", "Broken(A)"),
    ("break", "Broken", "Broken(A)"),
    ("change A to B", "Available", NOT_PRESENT),
    ("change A to B", "Leased", "Leased(B)"),
    ("change A to B", "Broken", NOT_PRESENT),
    ("change B to A", "Available", NOT_PRESENT),
    ("change B to A", "Leased", "Leased(A)"),
    ("change B to A", "Broken", NOT_PRESENT),
    ("change B to C", "Available", NOT_PRESENT),
    ("change B to C", "Leased", MISMATCH),
    ("change B to C", "Broken", NOT_PRESENT),
    ("release A", "Available", MISMATCH),
    ("release A", "Leased", "Available"),
    ("release A", "Broken", "Available"),
    ("release B", "Available", MISMATCH),
    ("release B", "Leased", MISMATCH),
    ("release B", "Broken", MISMATCH),
]

# One row per use of a leased resource: lease ID in the request, state, error code.
USE_CELLS = [
    ("write with A", "Available", "not present"),
    ("write with A", "Leased", "ok"),
    ("write with A", "Breaking", "ok"),
    ("write with A", "Broken", "lost"),
    ("write with A", "Expired", "lost"),
    ("write with B", "Available", "not present"),
    ("write with B", "Leased", "mismatch"),
    ("write with B", "Breaking", "mismatch"),
    ("write with B", "Broken", "lost"),
    ("write with B", "Expired", "lost"),
    ("write, no id", "Available", "ok"),
    ("write, no id", "Leased", "missing"),
    ("write, no id", "Breaking", "missing"),
    ("write, no id", "Broken", "ok"),
    ("write, no id", "Expired", "ok"),
    ("read with A", "Available", "not present"),
    ("read with A", "Leased", "ok"),
    ("read with A", "Breaking", "ok"),
    ("read with A", "Broken", "lost"),
    ("read with A", "Expired", "lost"),
    ("read with B", "Available", "not present"),
    ("read with B", "Leased", "mismatch"),
    ("read with B", "Breaking", "mismatch"),
    ("read with B", "Broken", "lost"),
    ("read with B", "Expired", "lost"),
    ("read, no id", "Available", "ok"),
    ("read, no id", "Leased", "ok"),
    ("read, no id", "Breaking", "ok"),
    ("read, no id", "Broken", "ok"),
    ("read, no id", "Expired", "ok"),
]
USE_IDS = {"with A": A, "with B": B, ", no id": None}
USE_CODES = {
    ("missing", BLOB): "LeaseIdMissing",
    ("missing", CONTAINER): "LeaseIdMissing",
    ("missing", SHARE): "LeaseIdMissing",
    ("missing", FILE): "LeaseIdMissing",
    ("mismatch", BLOB): "LeaseIdMismatchWithBlobOperation",
    ("mismatch", CONTAINER): "LeaseIdMismatchWithContainerOperation",
    ("mismatch", SHARE): "LeaseIdMismatchWithContainerOperation",
    ("mismatch", FILE): "LeaseIdMismatchWithFileOperation",
    ("not present", BLOB): "LeaseNotPresentWithBlobOperation",
    ("not present", CONTAINER): "LeaseNotPresentWithContainerOperation",
    ("not present", SHARE): "LeaseNotPresentWithContainerOperation",
    ("not present", FILE): "LeaseNotPresentWithFileOperation",
    ("lost", BLOB): "LeaseLost",
    ("lost", CONTAINER): "LeaseLost",
    ("lost", SHARE): "LeaseLost",
    ("lost", FILE): "LeaseLost",
}


def describe(outcome: Lease | Refusal, now: int = NOW) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code
    state = effective_state(outcome, now).value.capitalize()
    return state if isinstance(outcome, NoLease) else f"{state}({LETTERS[outcome.id]})"


def granted(outcome: Lease | Refusal) -> Lease:
    assert not isinstance(outcome, Refusal)
    return outcome


# Actions


@pytest.mark.parametrize(("action", "state", "expected"), CELLS)
def test_each_action_in_each_state(action: str, state: str, expected: str) -> None:
    for lease in LEASES[state]:
        outcome = step(lease, ACTIONS[action], NOW)
        assert describe(outcome) == expected
        if isinstance(outcome, Refusal):
            assert outcome.error.status == 409


def test_the_expected_rows_are_complete() -> None:
    assert [row[:2] for row in CELLS] == list(product(ACTIONS, LEASES))
    assert [row[:2] for row in FILE_CELLS] == list(product(FILE_ACTIONS, FILE_LEASES))
    uses = [
        f"{verb}{spaced}"
        for verb in ("write", "read")
        for spaced in (" with A", " with B", ", no id")
    ]
    assert [row[:2] for row in USE_CELLS] == list(product(uses, LEASES))


def test_the_lease_tables_are_complete() -> None:
    assert set(LEASE_STEPS) == set(product(LeaseState, LeaseVerb))
    file_states = {LeaseState.AVAILABLE, LeaseState.LEASED, LeaseState.BROKEN}
    assert set(FILE_LEASE_STEPS) == set(product(file_states, set(LeaseVerb) - {LeaseVerb.RENEW}))
    assert set(WRITE_CHECKS) == set(READ_CHECKS) == set(product(LeaseState, SentLeaseId))
    assert set(OBJECTION_CODES) == set(LeaseKind)
    for codes in OBJECTION_CODES.values():
        assert set(codes) == set(Objection)
        assert all(ERRORS[code].status == 412 for code in codes.values())


@pytest.mark.parametrize(("action", "state", "expected"), FILE_CELLS)
def test_each_action_on_a_file(action: str, state: str, expected: str) -> None:
    assert describe(step_file(FILE_LEASES[state], FILE_ACTIONS[action], NOW)) == expected


@pytest.mark.parametrize(
    ("state", "later"),
    [
        ("Available", "Available"),
        ("Leased", "Expired"),
        ("Breaking", "Broken"),
        ("Broken", "Broken"),
        ("Expired", "Expired"),
    ],
)
def test_leases_expire(state: str, later: str) -> None:
    for lease in LEASES[state]:
        if not isinstance(lease, InfiniteLease):
            assert effective_state(lease, NOW + 60 * SECOND).value == later.lower()


def test_an_infinite_lease_does_not_expire() -> None:
    assert effective_state(InfiniteLease(A), 2**62) is LeaseState.LEASED


# Durations


def test_acquiring_again_sets_the_new_duration() -> None:
    assert step(FixedLease(A, 60 * SECOND, NOW + 1), Acquire(A, 15), NOW) == FixedLease(
        A, 15 * SECOND, NOW + 15 * SECOND
    )
    assert step(InfiniteLease(A), Acquire(A, 15), NOW) == FixedLease(
        A, 15 * SECOND, NOW + 15 * SECOND
    )
    assert step(FixedLease(A, 15 * SECOND, NOW + 1), Acquire(A, None), NOW) == InfiniteLease(A)


def test_renewing_restarts_the_same_duration() -> None:
    for expires_at in (NOW + 1, NOW, NOW - 3600 * SECOND):
        lease = FixedLease(A, 30 * SECOND, expires_at)
        assert step(lease, Renew(A), NOW) == FixedLease(A, 30 * SECOND, NOW + 30 * SECOND)
    assert step(InfiniteLease(A), Renew(A), NOW) == InfiniteLease(A)


def test_changing_keeps_duration_and_end() -> None:
    lease = FixedLease(A, 30 * SECOND, NOW + 7)
    assert step(lease, Change(A, B), NOW) == FixedLease(B, 30 * SECOND, NOW + 7)
    assert step(InfiniteLease(A), Change(A, B), NOW) == InfiniteLease(B)


@pytest.mark.parametrize(
    ("lease", "period", "left_ticks", "lease_time"),
    [
        # Without a period: at the end of a fixed lease, at once for an infinite one.
        (FixedLease(A, 30 * SECOND, NOW + 10 * SECOND), None, 10 * SECOND, 10),
        (InfiniteLease(A), None, 0, 0),
        # A period applies if it is shorter than the remaining time.
        (FixedLease(A, 30 * SECOND, NOW + 10 * SECOND), 3, 3 * SECOND, 3),
        (FixedLease(A, 30 * SECOND, NOW + 10 * SECOND), 10, 10 * SECOND, 10),
        (FixedLease(A, 30 * SECOND, NOW + 10 * SECOND), 60, 10 * SECOND, 10),
        (FixedLease(A, 30 * SECOND, NOW + 10 * SECOND), 0, 0, 0),
        (InfiniteLease(A), 60, 60 * SECOND, 60),
        (InfiniteLease(A), 0, 0, 0),
        # Already breaking: the shorter one wins, and no period changes nothing.
        (BrokenLease(A, NOW + 10 * SECOND), 3, 3 * SECOND, 3),
        (BrokenLease(A, NOW + 10 * SECOND), 60, 10 * SECOND, 10),
        (BrokenLease(A, NOW + 10 * SECOND), None, 10 * SECOND, 10),
        # Seconds are rounded up.
        (FixedLease(A, 30 * SECOND, NOW + 1), None, 1, 1),
        (FixedLease(A, 30 * SECOND, NOW + SECOND - 1), None, SECOND - 1, 1),
        (FixedLease(A, 30 * SECOND, NOW + SECOND + 1), None, SECOND + 1, 2),
        # An ended lease keeps its end.
        (FixedLease(A, 30 * SECOND, NOW - 5), None, -5, 0),
        (FixedLease(A, 30 * SECOND, NOW), 60, 0, 0),
        (BrokenLease(A, NOW - 2 * SECOND), 60, -2 * SECOND, 0),
    ],
)
def test_breaking(lease: Lease, period: int | None, left_ticks: int, lease_time: int) -> None:
    broken = step(lease, Break(period), NOW)
    assert broken == BrokenLease(A, NOW + left_ticks)
    assert isinstance(broken, BrokenLease)
    assert seconds_until_free(broken, NOW) == lease_time


def test_a_file_lease_breaks_at_once() -> None:
    broken = granted(step_file(InfiniteLease(A), Break(), NOW))
    assert broken == BrokenLease(A, NOW)
    assert step_file(broken, Break(), NOW + SECOND) == broken


# The boundary, to the tick


def test_a_lease_ends_at_its_tick() -> None:
    lease = granted(step(NO_LEASE, Acquire(A, 15), NOW))
    end = NOW + 15 * SECOND
    assert describe(lease, end - 1) == "Leased(A)"
    assert describe(lease, end) == "Expired(A)"
    assert check_write(lease, A, end - 1, BLOB) is None
    assert check_write(lease, None, end - 1, BLOB) is not None
    assert check_write(lease, A, end, BLOB) is not None
    assert check_write(lease, None, end, BLOB) is None
    assert describe(step(lease, Acquire(B, 15), end - 1)) == ALREADY_PRESENT
    assert describe(step(lease, Acquire(B, 15), end), end) == "Leased(B)"


def test_a_break_ends_at_its_tick() -> None:
    lease = granted(step(InfiniteLease(A), Break(5), NOW))
    end = NOW + 5 * SECOND
    assert describe(lease, end - 1) == "Breaking(A)"
    assert describe(lease, end) == "Broken(A)"
    assert describe(step(lease, Acquire(B, 15), end - 1)) == ALREADY_PRESENT
    assert describe(step(lease, Acquire(B, 15), end), end) == "Leased(B)"


# Use


@pytest.mark.parametrize("kind", LeaseKind)
@pytest.mark.parametrize(("request_", "state", "expected"), USE_CELLS)
def test_each_use_in_each_state(request_: str, state: str, expected: str, kind: LeaseKind) -> None:
    check = check_write if request_.startswith("write") else check_read
    lease_id = USE_IDS[request_.removeprefix("write").removeprefix("read").strip()]
    for lease in LEASES[state]:
        refusal = check(lease, lease_id, NOW, kind)
        if expected == "ok":
            assert refusal is None
        else:
            assert refusal is not None
            assert refusal.code == USE_CODES[expected, kind]
            assert refusal.error.status == 412


def test_a_container_lease_protects_only_against_deletion() -> None:
    lease = InfiniteLease(A)
    assert check_container_use(lease, None, NOW) is None
    assert check_container_use(lease, A, NOW) is None
    assert check_container_delete(lease, A, NOW) is None
    missing = check_container_delete(lease, None, NOW)
    assert missing is not None and missing.code == "LeaseIdMissing"
    for check in (check_container_use, check_container_delete):
        wrong = check(lease, B, NOW)
        assert wrong is not None and wrong.code == "LeaseIdMismatchWithContainerOperation"


@pytest.mark.parametrize(
    ("lease", "lease_id", "expected"),
    [
        (NO_LEASE, None, None),
        (InfiniteLease(A), A, None),
        (InfiniteLease(A), None, "LeaseIdMissing"),
        (FixedLease(A, 30 * SECOND, NOW + 1), A, "InfiniteLeaseDurationRequired"),
        (FixedLease(A, 30 * SECOND, NOW + 1), B, "LeaseIdMismatchWithBlobOperation"),
        (FixedLease(A, 30 * SECOND, NOW), None, None),
        (BrokenLease(A, NOW + 1), A, "InfiniteLeaseDurationRequired"),
        (BrokenLease(A, NOW), None, None),
    ],
)
def test_a_copy_needs_an_infinite_lease(
    lease: Lease, lease_id: bytes | None, expected: str | None
) -> None:
    refusal = check_copy_destination(lease, lease_id, NOW)
    assert (refusal.code if refusal else None) == expected


@pytest.mark.parametrize(
    ("state", "kind", "expected"),
    [
        ("Available", BLOB, "Available"),
        ("Leased", BLOB, "Leased(A)"),
        ("Breaking", BLOB, "Breaking(A)"),
        ("Broken", BLOB, "Available"),
        ("Expired", BLOB, "Available"),
        ("Available", FILE, "Available"),
        ("Leased", FILE, "Leased(A)"),
        ("Broken", FILE, "Available"),
        ("Available", CONTAINER, "Available"),
        ("Leased", CONTAINER, "Leased(A)"),
        ("Breaking", CONTAINER, "Breaking(A)"),
        ("Broken", CONTAINER, "Broken(A)"),
        ("Expired", CONTAINER, "Expired(A)"),
        ("Broken", SHARE, "Broken(A)"),
        ("Expired", SHARE, "Expired(A)"),
    ],
)
def test_a_write_clears_ended_leases_of_blobs_and_files(
    state: str, kind: LeaseKind, expected: str
) -> None:
    for lease in LEASES[state]:
        assert describe(after_write(lease, NOW, kind)) == expected


def test_renewing_an_expired_lease_after_a_modification() -> None:
    """The only difference between blobs on the one hand, containers and shares on the other."""
    expired = FixedLease(A, 30 * SECOND, NOW)
    assert describe(step(after_write(expired, NOW, BLOB), Renew(A), NOW)) == MISMATCH
    for kind in (CONTAINER, SHARE):
        assert describe(step(after_write(expired, NOW, kind), Renew(A), NOW)) == "Leased(A)"
    # A write before the expiry does not count.
    held = FixedLease(A, 30 * SECOND, NOW + 1)
    assert describe(step(after_write(held, NOW, BLOB), Renew(A), NOW + 1)) == "Leased(A)"
    # Nor can it be renewed after another client had the lease.
    other = granted(step(expired, Acquire(B, 15), NOW))
    assert describe(step(other, Renew(A), NOW + 15 * SECOND)) == MISMATCH


# Reports and errors


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        (NO_LEASE, ("available", "unlocked", None)),
        (FixedLease(A, 30 * SECOND, NOW + 1), ("leased", "locked", "fixed")),
        (InfiniteLease(A), ("leased", "locked", "infinite")),
        (FixedLease(A, 30 * SECOND, NOW), ("expired", "unlocked", None)),
        (BrokenLease(A, NOW + 1), ("breaking", "locked", None)),
        (BrokenLease(A, NOW), ("broken", "unlocked", None)),
    ],
)
def test_reports(lease: Lease, expected: tuple[str, str, str | None]) -> None:
    assert report(lease, NOW) == expected


def test_refusals_contain_state_and_end() -> None:
    end = 1_800_000_000 * SECOND + 1234567
    refusal = check_write(FixedLease(A, 30 * SECOND, end), None, NOW, BLOB)
    assert refusal == Refusal(
        "LeaseIdMissing", {"LeaseState": "leased", "LeaseEnd": "2027-01-15T08:00:00.1234567Z"}
    )
    refusal = check_write(InfiniteLease(A), None, NOW, BLOB)
    assert refusal == Refusal("LeaseIdMissing", {"LeaseState": "leased", "LeaseEnd": "never"})
    refusal = check_write(NO_LEASE, A, NOW, BLOB)
    assert refusal == Refusal("LeaseNotPresentWithBlobOperation", {"LeaseState": "available"})


@pytest.mark.parametrize(
    ("kind", "named"), [(BLOB, "blob"), (CONTAINER, "container"), (SHARE, "file share")]
)
def test_messages_name_the_resource(kind: LeaseKind, named: str) -> None:
    lost = check_write(BrokenLease(A, NOW), A, NOW, kind)
    assert lost is not None
    assert lost.message == (f"A lease ID was specified, but the lease for the {named} has expired.")
    for action in (Break(0), Change(A, B)):
        absent = step(NO_LEASE, action, NOW, kind)
        assert isinstance(absent, Refusal)
        assert absent.message == f"There is currently no lease on the {named}."
    other = step(InfiniteLease(A), Renew(B), NOW, kind)
    assert isinstance(other, Refusal)
    assert other.message == f"The lease ID specified did not match the lease ID for the {named}."


# Properties

ids = st.sampled_from([A, B, C])
moments = st.integers(NOW - 70 * SECOND, NOW + 70 * SECOND)
seconds = st.sampled_from([15, 60, None])
leases: st.SearchStrategy[Lease] = st.one_of(
    st.just(NO_LEASE),
    st.builds(FixedLease, ids, st.sampled_from([15 * SECOND, 60 * SECOND]), moments),
    st.builds(InfiniteLease, ids),
    st.builds(BrokenLease, ids, moments),
)
actions: st.SearchStrategy[LeaseAction] = st.one_of(
    st.builds(Acquire, ids, seconds),
    st.builds(Renew, ids),
    st.builds(Change, ids, ids),
    st.builds(Release, ids),
    st.builds(Break, st.sampled_from([None, 0, 1, 60])),
)
LOCKED_STATES = {LeaseState.LEASED, LeaseState.BREAKING}


@given(leases, ids, moments)
def test_a_released_lease_is_available(lease: Lease, lease_id: bytes, now: int) -> None:
    released = step(lease, Release(lease_id), now)
    if isinstance(released, Refusal):
        assert isinstance(lease, NoLease) or lease.id != lease_id
    else:
        assert effective_state(released, now) is LeaseState.AVAILABLE
        assert isinstance(step(released, Acquire(X, 15), now), FixedLease)


@given(leases, actions, moments)
def test_only_the_holder_or_a_break_changes_an_active_lease(
    lease: Lease, action: LeaseAction, now: int
) -> None:
    assume(effective_state(lease, now) in LOCKED_STATES and not isinstance(lease, NoLease))
    assert not isinstance(lease, NoLease)
    outcome = step(lease, action, now)
    if isinstance(outcome, Refusal) or outcome == lease or isinstance(action, Break):
        return
    known = (
        {action.lease_id, action.proposed_id} if isinstance(action, Change) else {action.lease_id}
    )
    assert lease.id in known


@given(leases, ids, moments)
def test_only_the_holder_renews(lease: Lease, lease_id: bytes, now: int) -> None:
    if not isinstance(step(lease, Renew(lease_id), now), Refusal):
        assert not isinstance(lease, NoLease)
        assert lease.id == lease_id


@given(leases, moments, st.integers(0, 200 * SECOND))
def test_time_never_restores_a_lease(lease: Lease, now: int, passed: int) -> None:
    before, after = effective_state(lease, now), effective_state(lease, now + passed)
    if before not in LOCKED_STATES:
        assert after is before
    else:
        assert after is before or (before, after) in {
            (LeaseState.LEASED, LeaseState.EXPIRED),
            (LeaseState.BREAKING, LeaseState.BROKEN),
        }


@given(leases, st.sampled_from([None, 0, 1, 30, 60]), moments)
def test_a_break_never_extends_a_lease(lease: Lease, period: int | None, now: int) -> None:
    broken = step(lease, Break(period), now)
    if isinstance(broken, Refusal):
        assert lease == NO_LEASE
        return
    assert isinstance(broken, BrokenLease)
    if isinstance(lease, FixedLease):
        assert broken.breaks_at <= lease.expires_at
    if isinstance(lease, BrokenLease):
        assert broken.breaks_at <= lease.breaks_at
    wait = seconds_until_free(broken, now)
    assert 0 <= wait <= 70 * 2
    assert isinstance(step(broken, Acquire(X, 15), now + wait * SECOND), FixedLease)
    if wait:
        assert isinstance(step(broken, Acquire(X, 15), now + (wait - 1) * SECOND), Refusal)


@given(leases, actions, moments)
def test_refusals_never_contain_a_lease_id(lease: Lease, action: LeaseAction, now: int) -> None:
    for refusal in (
        step(lease, action, now),
        check_write(lease, B, now, BLOB),
        check_read(lease, B, now, CONTAINER),
    ):
        if isinstance(refusal, Refusal):
            output = repr(refusal).lower().replace("-", "")
            assert not any(lease_id.hex() in output for lease_id in (A, B, C))


class LeaseRecord(Record, frozen=True):
    """A record with a lease, and one action."""

    lease: Lease
    action: LeaseAction


@given(leases, actions)
def test_leases_and_actions_round_trip(lease: Lease, action: LeaseAction) -> None:
    stored = msgspec.msgpack.encode(LeaseRecord(lease, action))
    assert msgspec.msgpack.decode(stored, type=LeaseRecord) == LeaseRecord(lease, action)


# Parsing


@pytest.mark.parametrize(
    ("duration", "kinds"),
    [
        (-1, {BLOB, CONTAINER, SHARE, FILE}),
        (15, {BLOB, CONTAINER, SHARE}),
        (60, {BLOB, CONTAINER, SHARE}),
        (-2, set()),
        (0, set()),
        (14, set()),
        (61, set()),
    ],
)
def test_durations(duration: int, kinds: set[LeaseKind]) -> None:
    for kind in LeaseKind:
        refusal = check_duration(duration, kind)
        assert (refusal is None) == (kind in kinds)
        assert refusal is None or refusal.code == "InvalidHeaderValue"


@pytest.mark.parametrize(("period", "good"), [(-1, False), (0, True), (60, True), (61, False)])
def test_break_periods(period: int, good: bool) -> None:
    refusal = check_break_period(period)
    assert (refusal is None) is good
    assert refusal is None or refusal.code == "InvalidHeaderValue"


GUID = bytes.fromhex("00010203A0B1C2D3E4F50607080910AF")
FORMS = [
    "00010203a0b1c2d3e4f50607080910af",
    "00010203-a0b1-c2d3-e4f5-0607080910af",
    "00010203-A0B1-C2D3-E4F5-0607080910AF",
    "{00010203-a0b1-c2d3-e4f5-0607080910af}",
    "(00010203-a0b1-c2d3-e4f5-0607080910af)",
    " 00010203-a0b1-c2d3-e4f5-0607080910af ",
    "{0x00010203,0xa0b1,0xc2d3,{0xe4,0xf5,0x06,0x07,0x08,0x09,0x10,0xaf}}",
    "{0X00010203, 0XA0B1, 0XC2D3, {0XE4, 0XF5, 0X06, 0X07, 0X08, 0X09, 0X10, 0XAF}}",
    "{0x10203,0xa0b1,0xc2d3,{0xe4,0xf5,0x6,0x7,0x8,0x9,0x10,0xaf}}",
]
NOT_GUIDS = [
    "",
    "lease",
    "00010203a0b1c2d3e4f50607080910a",
    "00010203a0b1c2d3e4f50607080910aff",
    "00010203a0b1c2d3e4f50607080910ag",
    "00010203-a0b1-c2d3-e4f50-607080910af",
    "00010203-a0b1c2d3e4f50607080910af",
    "{00010203-a0b1-c2d3-e4f5-0607080910af",
    "{00010203-a0b1-c2d3-e4f5-0607080910af)",
    "{00010203a0b1c2d3e4f50607080910af}",
    "0001 0203-a0b1-c2d3-e4f5-0607080910af",
    "{0x100010203,0xa0b1,0xc2d3,{0xe4,0xf5,0x06,0x07,0x08,0x09,0x10,0xaf}}",
    "{0x00010203,0xa0b1,0xc2d3,{0xe4,0xf5,0x06,0x07,0x08,0x09,0x10}}",
    "\N{ARABIC-INDIC DIGIT ZERO}0010203-a0b1-c2d3-e4f5-0607080910af",
]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_guid(form: str) -> None:
    assert parse_lease_id(form) == GUID


@pytest.mark.parametrize("text", NOT_GUIDS)
def test_invalid_guids(text: str) -> None:
    assert parse_lease_id(text) is None


@given(st.uuids())
@example(uuid.UUID(int=0))
def test_lease_ids_round_trip(lease_id: uuid.UUID) -> None:
    result = format_lease_id(lease_id.bytes)
    assert result == str(lease_id)
    assert parse_lease_id(result) == parse_lease_id(result.upper()) == lease_id.bytes
    assert parse_lease_id(f"{{{result}}}") == parse_lease_id(lease_id.hex) == lease_id.bytes


@given(st.text(max_size=50))
def test_arbitrary_text_is_no_error(text: str) -> None:
    parsed = parse_lease_id(text)
    assert parsed is None or len(parsed) == 16


def test_new_ids_differ() -> None:
    assert len({new_lease_id() for _ in range(100)}) == 100
