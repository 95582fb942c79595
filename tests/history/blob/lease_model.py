"""The model of a lease, whose end is known only as an interval.

The server's clock at the moment of a grant is not recorded, but lies between the beginning and the
end of the request. So the end of the lease is known as an interval, and a lease whose interval
an operation overlaps may, at that operation, be held or have ended: whichever explains the
outcome. Once an operation was explained by its end, it has ended for all that come after.

No bound has to be narrowed by what is seen later: operations are put in an order that agrees with
real time, so one that found the lease held began before every later one ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.history.blob.events import Verb
from tests.history.events import NANOSECONDS, NEVER, drift

AVAILABLE: Final = "available"
LEASED: Final = "leased"
EXPIRED: Final = "expired"
BREAKING: Final = "breaking"
BROKEN: Final = "broken"


class Lease(NamedTuple):
    phase: str = AVAILABLE
    """As the service reports it."""
    id: str = ""
    seconds: int | None = None
    """The duration of a grant or renewal; None for an infinite lease."""
    ends_after: int = NEVER
    ends_before: int = NEVER


NO_LEASE: Final = Lease()


class LeaseRequest(NamedTuple):
    """An action, and the bounds of the moment at which it was carried out."""

    verb: Verb
    lease_id: str
    proposed_id: str
    seconds: int | None
    began: int
    latest: int


def may_be(lease: Lease, began: int, until: int) -> Iterator[Lease]:
    """Yields the possible states of the lease between two times."""
    if began < lease.ends_before:
        yield lease
    if until >= lease.ends_after:
        yield _ended(lease)


def _ended(lease: Lease) -> Lease:
    phase = EXPIRED if lease.phase == LEASED else BROKEN
    return Lease(phase, lease.id, lease.seconds)


def _bounds(request: LeaseRequest, seconds: int) -> tuple[int, int]:
    """Returns bounds of the time so many seconds after the request was carried out."""
    passed, slack = seconds * NANOSECONDS, drift(seconds)
    return request.began + passed - slack, min(NEVER, request.latest + passed + slack)


# Actions: the lease afterwards, or the code of the refusal


def act(lease: Lease, request: LeaseRequest) -> Lease | str:
    return _ACTIONS[request.verb](lease, request)


def _acquire(lease: Lease, request: LeaseRequest) -> Lease | str:
    if lease.phase == BREAKING and lease.id == request.proposed_id:
        return "LeaseIsBreakingAndCannotBeAcquired"
    if lease.phase == BREAKING or (lease.phase == LEASED and lease.id != request.proposed_id):
        return "LeaseAlreadyPresent"
    return _granted(request.proposed_id, request.seconds, request)


def _granted(lease_id: str, seconds: int | None, request: LeaseRequest) -> Lease:
    if seconds is None:
        return Lease(LEASED, lease_id)
    return Lease(LEASED, lease_id, seconds, *_bounds(request, seconds))


def _renew(lease: Lease, request: LeaseRequest) -> Lease | str:
    if lease.phase == AVAILABLE or lease.id != request.lease_id:
        return "LeaseIdMismatchWithLeaseOperation"
    if lease.phase in (BREAKING, BROKEN):
        return "LeaseIsBrokenAndCannotBeRenewed"
    return _granted(lease.id, lease.seconds, request)


def _change(lease: Lease, request: LeaseRequest) -> Lease | str:
    if lease.phase in (AVAILABLE, BROKEN, EXPIRED):
        return "LeaseNotPresentWithLeaseOperation"
    if lease.phase == BREAKING and lease.id == request.lease_id:
        return "LeaseIsBreakingAndCannotBeChanged"
    # A change to the id that the lease has is one whose answer was lost.
    if lease.phase == BREAKING or lease.id not in (request.lease_id, request.proposed_id):
        return "LeaseIdMismatchWithLeaseOperation"
    return lease._replace(id=request.proposed_id)


def _release(lease: Lease, request: LeaseRequest) -> Lease | str:
    if lease.phase == AVAILABLE or lease.id != request.lease_id:
        return "LeaseIdMismatchWithLeaseOperation"
    return NO_LEASE


def _break(lease: Lease, request: LeaseRequest) -> Lease | str:
    if lease.phase == AVAILABLE:
        return "LeaseNotPresentWithLeaseOperation"
    at_once = request.seconds == 0 or (request.seconds is None and lease.ends_after == NEVER)
    if lease.phase in (EXPIRED, BROKEN) or at_once:
        return Lease(BROKEN, lease.id)
    if request.seconds is None:
        return Lease(BREAKING, lease.id, None, lease.ends_after, lease.ends_before)
    asked_after, asked_before = _bounds(request, request.seconds)
    return Lease(
        BREAKING,
        lease.id,
        None,
        min(asked_after, lease.ends_after),
        min(asked_before, lease.ends_before),
    )


_ACTIONS: Final = {
    Verb.ACQUIRE: _acquire,
    Verb.RENEW: _renew,
    Verb.CHANGE: _change,
    Verb.RELEASE: _release,
    Verb.BREAK: _break,
}


def goes_on_for(lease: Lease, request: LeaseRequest, seconds: int) -> bool:
    """Whether the answer to a break may have this number, which is rounded up."""
    if lease.phase == BROKEN:
        return seconds == 0
    least = lease.ends_after - request.latest
    most = lease.ends_before - request.began
    return least <= seconds * NANOSECONDS < most + NANOSECONDS


# Requests of others: None if the lease allows them, or the code of the refusal


def refusal_to_write(lease: Lease, lease_id: str | None) -> str | None:
    if lease_id is None and lease.phase in (LEASED, BREAKING):
        return "LeaseIdMissing"
    return refusal_to_read(lease, lease_id)


def refusal_to_read(lease: Lease, lease_id: str | None) -> str | None:
    if lease_id is None:
        return None
    if lease.phase == AVAILABLE:
        return "LeaseNotPresentWithBlobOperation"
    if lease.phase in (BROKEN, EXPIRED):
        return "LeaseLost"
    return None if lease_id == lease.id else "LeaseIdMismatchWithBlobOperation"


def after_write(lease: Lease) -> Lease:
    """A lease that is over is forgotten by the first write after it."""
    return lease if lease.phase in (LEASED, BREAKING) else NO_LEASE
