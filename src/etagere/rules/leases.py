"""Rules for leases: what each action does in each state, and which requests a lease permits.

    held (locked)       leased    the holder may write, renew, change and release
                        breaking  the holder may write and release, until it ends
    not held            expired   remembered, so that the holder can renew it
                        broken    remembered, so that the holder can release it
                        available

The state is computed from the stored lease and the time of the transaction, so a lease ends exactly
at its tick.

Blobs, containers and shares have one table of actions. The only difference is that an expired lease
cannot be renewed if the *blob* was modified since. That needs no row and no stored time, because
the modification drops the lease of a blob (`after_write`), but not that of a container. Files,
whose leases are infinite, have a table with three of the five states.

Refusals never contain a lease id.
"""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.base import KeyEnum
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
)
from etagere.rules.dates import format_instant

AVAILABLE, LEASED, EXPIRED = LeaseState.AVAILABLE, LeaseState.LEASED, LeaseState.EXPIRED
BREAKING, BROKEN = LeaseState.BREAKING, LeaseState.BROKEN
ACQUIRE, RENEW, CHANGE = LeaseVerb.ACQUIRE, LeaseVerb.RENEW, LeaseVerb.CHANGE
RELEASE, BREAK = LeaseVerb.RELEASE, LeaseVerb.BREAK

DURATION_SECONDS_MIN = 15
DURATION_SECONDS_MAX = 60
DURATION_SECONDS_INFINITE = -1
BREAK_PERIOD_SECONDS_MAX = 60

Held = FixedLease | InfiniteLease
Known = FixedLease | InfiniteLease | BrokenLease
ById = Acquire | Renew | Change | Release


# States


def effective_state(lease: Lease, now: int) -> LeaseState:
    """Returns the state of a lease at a given time. It is no longer held at the tick at which it
    ends."""
    if isinstance(lease, NoLease):
        return AVAILABLE
    if isinstance(lease, InfiniteLease):
        return LEASED
    if isinstance(lease, FixedLease):
        return LEASED if now < lease.expires_at else EXPIRED
    return BREAKING if now < lease.breaks_at else BROKEN


LOCKED: Final = frozenset({LEASED, BREAKING})


def end_of(lease: Lease) -> int | None:
    """Returns the first tick at which the lease is no longer held; None if it has no end."""
    if isinstance(lease, FixedLease):
        return lease.expires_at
    if isinstance(lease, BrokenLease):
        return lease.breaks_at
    return None


def seconds_until_free(lease: BrokenLease, now: int) -> int:
    """Returns the value of `x-ms-lease-time` after a break. Rounded up, so that a client that waits
    this long finds the lease ended."""
    return max(0, -((now - lease.breaks_at) // TICKS_PER_SECOND))


class LeaseReport(NamedTuple):
    """The properties of a lease in response headers and listings."""

    state: str
    status: str
    duration: str | None
    """Set only in the state leased."""


_NOT_LEASED: Final = LeaseReport(AVAILABLE.value, "unlocked", None)


def report(lease: Lease, now: int) -> LeaseReport:
    if isinstance(lease, NoLease):
        return _NOT_LEASED  # nearly every row of a listing
    state = effective_state(lease, now)
    status = "locked" if state in LOCKED else "unlocked"
    if state is not LEASED:
        return LeaseReport(state.value, status, None)
    return LeaseReport(
        state.value, status, "infinite" if isinstance(lease, InfiniteLease) else "fixed"
    )


def _facts(lease: Lease, now: int) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"LeaseState": effective_state(lease, now).value}
    end = end_of(lease)
    if end is not None:
        facts["LeaseEnd"] = format_instant(end)
    elif isinstance(lease, InfiniteLease):
        facts["LeaseEnd"] = "never"
    return facts


# Actions

Step = Callable[[Any, Any, int], Lease | Refusal]
"""A function of the stored lease, the action and the time. The state and the verb determine the
classes of the first two, so a step declares just those."""


def grant(_lease: Lease, action: Acquire, now: int) -> Lease:
    if action.duration_seconds is None:
        return InfiniteLease(action.lease_id)
    duration = action.duration_seconds * TICKS_PER_SECOND
    return FixedLease(action.lease_id, duration, now + duration)


def restart(lease: Held, _action: Renew, now: int) -> Lease:
    if isinstance(lease, InfiniteLease):
        return lease
    return msgspec.structs.replace(lease, expires_at=now + lease.duration)


def change(lease: Held, action: Change, now: int) -> Lease | Refusal:
    """A change to the current id succeeds: it is the retry of a change whose response was lost."""
    if lease.id not in (action.lease_id, action.proposed_id):
        return Refusal("LeaseIdMismatchWithLeaseOperation", _facts(lease, now))
    return msgspec.structs.replace(lease, id=action.proposed_id)


def forget(_lease: Known, _action: Release, _now: int) -> Lease:
    return NO_LEASE


def break_lease(lease: Known, action: Break, now: int) -> Lease:
    """Breaks a lease. A period can only shorten it. Without a period it ends when it would have
    expired, or at once if it is infinite. A lease that has expired is broken as of its end."""
    end = end_of(lease)
    if action.period_seconds is None:
        return BrokenLease(lease.id, now if end is None else end)
    asked = now + action.period_seconds * TICKS_PER_SECOND
    return BrokenLease(lease.id, asked if end is None else min(asked, end))


def break_at_once(lease: Known, _action: Break, now: int) -> Lease:
    end = end_of(lease)
    return BrokenLease(lease.id, now if end is None else min(now, end))


def refuse(code: str) -> Step:
    def step(lease: Lease, _action: LeaseAction, now: int) -> Refusal:
        return Refusal(code, _facts(lease, now))

    return step


def by_id(*, holder: Step, other: str) -> Step:
    """Returns a step for the holder of the lease's id, and a refusal for everybody else."""
    refuse_other = refuse(other)

    def step(lease: Known, action: ById, now: int) -> Lease | Refusal:
        then = holder if action.lease_id == lease.id else refuse_other
        return then(lease, action, now)

    return step


MISMATCH: Final = "LeaseIdMismatchWithLeaseOperation"
NOT_PRESENT: Final = "LeaseNotPresentWithLeaseOperation"
ALREADY_PRESENT: Final = "LeaseAlreadyPresent"
CANNOT_ACQUIRE: Final = "LeaseIsBreakingAndCannotBeAcquired"
CANNOT_RENEW: Final = "LeaseIsBrokenAndCannotBeRenewed"
CANNOT_CHANGE: Final = "LeaseIsBreakingAndCannotBeChanged"

LEASE_STEPS: Final[dict[tuple[LeaseState, LeaseVerb], Step]] = {
    (AVAILABLE, ACQUIRE): grant,
    (AVAILABLE, RENEW): refuse(MISMATCH),
    (AVAILABLE, CHANGE): refuse(NOT_PRESENT),
    (AVAILABLE, RELEASE): refuse(MISMATCH),
    (AVAILABLE, BREAK): refuse(NOT_PRESENT),
    # The holder may acquire again, with another duration.
    (LEASED, ACQUIRE): by_id(holder=grant, other=ALREADY_PRESENT),
    (LEASED, RENEW): by_id(holder=restart, other=MISMATCH),
    (LEASED, CHANGE): change,
    (LEASED, RELEASE): by_id(holder=forget, other=MISMATCH),
    (LEASED, BREAK): break_lease,
    (BREAKING, ACQUIRE): by_id(holder=refuse(CANNOT_ACQUIRE), other=ALREADY_PRESENT),
    (BREAKING, RENEW): by_id(holder=refuse(CANNOT_RENEW), other=MISMATCH),
    (BREAKING, CHANGE): by_id(holder=refuse(CANNOT_CHANGE), other=MISMATCH),
    (BREAKING, RELEASE): by_id(holder=forget, other=MISMATCH),
    (BREAKING, BREAK): break_lease,
    (BROKEN, ACQUIRE): grant,
    (BROKEN, RENEW): by_id(holder=refuse(CANNOT_RENEW), other=MISMATCH),
    (BROKEN, CHANGE): refuse(NOT_PRESENT),
    (BROKEN, RELEASE): by_id(holder=forget, other=MISMATCH),
    (BROKEN, BREAK): break_lease,
    (EXPIRED, ACQUIRE): grant,
    (EXPIRED, RENEW): by_id(holder=restart, other=MISMATCH),
    (EXPIRED, CHANGE): refuse(NOT_PRESENT),
    (EXPIRED, RELEASE): by_id(holder=forget, other=MISMATCH),
    (EXPIRED, BREAK): break_lease,
}
"""All 25 pairs for blobs, containers and shares."""

FILE_LEASE_STEPS: Final[dict[tuple[LeaseState, LeaseVerb], Step]] = {
    (AVAILABLE, ACQUIRE): grant,
    (AVAILABLE, CHANGE): refuse(NOT_PRESENT),
    (AVAILABLE, RELEASE): refuse(MISMATCH),
    (AVAILABLE, BREAK): refuse(NOT_PRESENT),
    (LEASED, ACQUIRE): by_id(holder=grant, other=ALREADY_PRESENT),
    (LEASED, CHANGE): change,
    (LEASED, RELEASE): by_id(holder=forget, other=MISMATCH),
    (LEASED, BREAK): break_at_once,
    (BROKEN, ACQUIRE): grant,
    (BROKEN, CHANGE): refuse(NOT_PRESENT),
    (BROKEN, RELEASE): by_id(holder=forget, other=MISMATCH),
    (BROKEN, BREAK): break_at_once,
}
"""All 12 pairs for files: never a fixed duration, so nothing expires, renews or is breaking."""


def step(
    lease: Lease, action: LeaseAction, now: int, kind: LeaseKind = LeaseKind.BLOB
) -> Lease | Refusal:
    """The lease of a blob, container or share after an action."""
    stepped = LEASE_STEPS[effective_state(lease, now), action.verb](lease, action, now)
    return _about(stepped, kind) if isinstance(stepped, Refusal) else stepped


def step_file(lease: Lease, action: FileLeaseAction, now: int) -> Lease | Refusal:
    """The lease of a file after an action."""
    stepped = FILE_LEASE_STEPS[effective_state(lease, now), action.verb](lease, action, now)
    return _about(stepped, LeaseKind.FILE) if isinstance(stepped, Refusal) else stepped


def _about(refusal: Refusal, kind: LeaseKind) -> Refusal:
    """Returns the refusal with a message that names the kind of resource; by default it names a
    blob."""
    if kind is LeaseKind.BLOB:
        return refusal
    return msgspec.structs.replace(refusal, subject=kind.value)


# Access to leased resources


class SentLeaseId(KeyEnum):
    """The lease id in a request, compared with that of the lease."""

    NOTHING = enum.auto()
    ITS_ID = enum.auto()
    ANOTHER_ID = enum.auto()


NOTHING, ITS_ID, ANOTHER_ID = SentLeaseId.NOTHING, SentLeaseId.ITS_ID, SentLeaseId.ANOTHER_ID


class Objection(enum.Enum):
    """Why a request for a resource with a lease is refused."""

    MISSING = enum.auto()
    MISMATCH = enum.auto()
    NOT_PRESENT = enum.auto()
    LOST = enum.auto()


# The columns: no id, the id of the lease, another id. An id in a request is a condition.
_OBJECTIONS_TO_WRITES: Final = {
    AVAILABLE: (None, Objection.NOT_PRESENT, Objection.NOT_PRESENT),
    LEASED: (Objection.MISSING, None, Objection.MISMATCH),
    BREAKING: (Objection.MISSING, None, Objection.MISMATCH),
    BROKEN: (None, Objection.LOST, Objection.LOST),
    EXPIRED: (None, Objection.LOST, Objection.LOST),
}
_OBJECTIONS_TO_READS: Final = {
    AVAILABLE: (None, Objection.NOT_PRESENT, Objection.NOT_PRESENT),
    LEASED: (None, None, Objection.MISMATCH),
    BREAKING: (None, None, Objection.MISMATCH),
    BROKEN: (None, Objection.LOST, Objection.LOST),
    EXPIRED: (None, Objection.LOST, Objection.LOST),
}
_COLUMNS: Final = (NOTHING, ITS_ID, ANOTHER_ID)

Checks = dict[tuple[LeaseState, SentLeaseId], Objection | None]


def _cells(rows: Mapping[LeaseState, tuple[Objection | None, ...]]) -> Checks:
    return {
        (state, sent): objection
        for state, row in rows.items()
        for sent, objection in zip(_COLUMNS, row, strict=True)
    }


WRITE_CHECKS: Final = _cells(_OBJECTIONS_TO_WRITES)
READ_CHECKS: Final = _cells(_OBJECTIONS_TO_READS)

# The service documents both 409 and 412 for a wrong id; its table of error codes and all clients
# use 412. Shares use the error codes of containers.
OBJECTION_CODES: Final[dict[LeaseKind, dict[Objection, str]]] = {
    LeaseKind.BLOB: {
        Objection.MISSING: "LeaseIdMissing",
        Objection.MISMATCH: "LeaseIdMismatchWithBlobOperation",
        Objection.NOT_PRESENT: "LeaseNotPresentWithBlobOperation",
        Objection.LOST: "LeaseLost",
    },
    LeaseKind.CONTAINER: {
        Objection.MISSING: "LeaseIdMissing",
        Objection.MISMATCH: "LeaseIdMismatchWithContainerOperation",
        Objection.NOT_PRESENT: "LeaseNotPresentWithContainerOperation",
        Objection.LOST: "LeaseLost",
    },
    LeaseKind.SHARE: {
        Objection.MISSING: "LeaseIdMissing",
        Objection.MISMATCH: "LeaseIdMismatchWithContainerOperation",
        Objection.NOT_PRESENT: "LeaseNotPresentWithContainerOperation",
        Objection.LOST: "LeaseLost",
    },
    LeaseKind.FILE: {
        Objection.MISSING: "LeaseIdMissing",
        Objection.MISMATCH: "LeaseIdMismatchWithFileOperation",
        Objection.NOT_PRESENT: "LeaseNotPresentWithFileOperation",
        Objection.LOST: "LeaseLost",
    },
}


def check_write(lease: Lease, lease_id: bytes | None, now: int, kind: LeaseKind) -> Refusal | None:
    """Checks a request that needs the id while the lease is held.

    Blobs and files: every change of bytes, properties or metadata, deletes, and uploads of blocks.
    Shares: deletes, and changes of metadata, properties or ACL. Containers: deletes only, see
    `check_container_delete`. A missing object has no lease.
    """
    return _check(WRITE_CHECKS, lease, lease_id, now, kind)


def check_read(lease: Lease, lease_id: bytes | None, now: int, kind: LeaseKind) -> Refusal | None:
    """Checks a request that needs no id, but whose id, if it has one, must be that of the lease."""
    return _check(READ_CHECKS, lease, lease_id, now, kind)


def check_container_delete(lease: Lease, lease_id: bytes | None, now: int) -> Refusal | None:
    """Checks the delete of a container, the only operation that its lease prevents."""
    return check_write(lease, lease_id, now, LeaseKind.CONTAINER)


def check_container_use(lease: Lease, lease_id: bytes | None, now: int) -> Refusal | None:
    """Checks all other operations on a container, including changes of metadata and ACL."""
    return check_read(lease, lease_id, now, LeaseKind.CONTAINER)


def check_copy_destination(lease: Lease, lease_id: bytes | None, now: int) -> Refusal | None:
    """Checks the destination of an asynchronous copy, which a lease that expires cannot protect."""
    refusal = check_write(lease, lease_id, now, LeaseKind.BLOB)
    if refusal is None and effective_state(lease, now) in LOCKED and end_of(lease) is not None:
        return Refusal("InfiniteLeaseDurationRequired", _facts(lease, now))
    return refusal


def _check(
    checks: Checks, lease: Lease, lease_id: bytes | None, now: int, kind: LeaseKind
) -> Refusal | None:
    if lease_id is None:
        sent = NOTHING
    elif not isinstance(lease, NoLease) and lease_id == lease.id:
        sent = ITS_ID
    else:
        sent = ANOTHER_ID
    objection = checks[effective_state(lease, now), sent]
    if objection is None:
        return None
    return _about(Refusal(OBJECTION_CODES[kind][objection], _facts(lease, now)), kind)


FORGOTTEN_STATES: Final = {
    LeaseKind.BLOB: frozenset({BROKEN, EXPIRED}),
    LeaseKind.FILE: frozenset({BROKEN, EXPIRED}),
    LeaseKind.CONTAINER: frozenset[LeaseState](),
    LeaseKind.SHARE: frozenset[LeaseState](),
}
"""The states in which a change of the object drops its lease."""


def after_write(lease: Lease, now: int, kind: LeaseKind) -> Lease:
    """Returns the lease of an object after a permitted write.

    A lease that has ended is dropped, so that its holder cannot renew it and miss the change.
    Uploading a block is not a change.
    """
    return NO_LEASE if effective_state(lease, now) in FORGOTTEN_STATES[kind] else lease


# Parameters


def check_duration(seconds: int, kind: LeaseKind) -> Refusal | None:
    """Checks `x-ms-lease-duration`, which every acquire must have."""
    if seconds == DURATION_SECONDS_INFINITE:
        return None
    if kind is not LeaseKind.FILE and DURATION_SECONDS_MIN <= seconds <= DURATION_SECONDS_MAX:
        return None
    return _bad_header("x-ms-lease-duration", seconds)


def check_break_period(seconds: int) -> Refusal | None:
    """Checks `x-ms-lease-break-period`."""
    if 0 <= seconds <= BREAK_PERIOD_SECONDS_MAX:
        return None
    return _bad_header("x-ms-lease-break-period", seconds)


def _bad_header(name: str, value: int) -> Refusal:
    return Refusal("InvalidHeaderValue", {"HeaderName": name, "HeaderValue": value})


# A GUID as .NET reads it: 32 digits, with or without the dashes, with dashes also in braces or
# parentheses, or as the fields of a structure, which need not have leading zeros.
_DASHED = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PLAIN_GUID = re.compile(rf"[0-9a-f]{{32}}|{_DASHED}|\{{{_DASHED}\}}|\({_DASHED}\)")
_FIELD_DIGITS = (8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2)
_FIELDS = [rf"0x([0-9a-f]{{1,{digits}}})" for digits in _FIELD_DIGITS]
_FIELDS_GUID = re.compile(rf"\{{{','.join(_FIELDS[:3])},\{{{','.join(_FIELDS[3:])}\}}\}}")
_NOT_DIGITS = str.maketrans("", "", "{}()-")
_WHITESPACE = re.compile(r"\s+")


def parse_lease_id(text: str) -> bytes | None:
    """Parses a lease id in any form and case; returns None if it is not a GUID."""
    lowered = text.strip().lower()
    if _PLAIN_GUID.fullmatch(lowered):
        return bytes.fromhex(lowered.translate(_NOT_DIGITS))
    fields = _FIELDS_GUID.fullmatch(_WHITESPACE.sub("", lowered))
    if fields is None:
        return None
    digits = zip(fields.groups(), _FIELD_DIGITS, strict=True)
    return bytes.fromhex("".join(field.rjust(count, "0") for field, count in digits))


def format_lease_id(lease_id: bytes) -> str:
    return str(uuid.UUID(bytes=lease_id))
