"""Records and actions of leases.

A lease is stored as facts that need no timer: when it ends, not that it has ended. `rules.leases`
computes its state at a given time.

An id consists of the 16 bytes of a GUID in the order in which they are written, whatever form the
client used.
"""

from __future__ import annotations

import enum
import uuid
from typing import ClassVar, Final

from etagere.model.base import KeyEnum, Part


class LeaseKind(enum.Enum):
    """The kind of resource that a lease is on."""

    BLOB = "blob"
    CONTAINER = "container"
    SHARE = "file share"
    FILE = "file"


class LeaseState(KeyEnum):
    """The state of a lease at a given time, as it is reported."""

    AVAILABLE = "available"
    LEASED = "leased"
    EXPIRED = "expired"
    BREAKING = "breaking"
    BROKEN = "broken"


class LeaseVerb(enum.Enum):
    """The lease actions, as requests name them."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    CHANGE = "change"
    RELEASE = "release"
    BREAK = "break"


# Records


class NoLease(Part, frozen=True, tag=0):
    """No lease: never leased, released, or dropped by a later write."""


class FixedLease(Part, frozen=True, tag=1):
    """A lease that expires. It is kept after that, because its holder may still renew it."""

    id: bytes
    duration: int
    """In ticks, from each renewal to the end."""
    expires_at: int
    """The first tick at which it is no longer held."""


class InfiniteLease(Part, frozen=True, tag=2):
    """A lease that does not expire."""

    id: bytes


class BrokenLease(Part, frozen=True, tag=3):
    """A lease that cannot be renewed: breaking before `breaks_at`, broken from then on."""

    id: bytes
    breaks_at: int


Lease = NoLease | FixedLease | InfiniteLease | BrokenLease
NO_LEASE: Final = NoLease()


# Actions


class Acquire(Part, frozen=True, tag=0):
    """Acquire the lease with an id: the proposed one, or one from `new_lease_id`.

    The rules need not distinguish them, since a new id equals no other.
    """

    verb: ClassVar[LeaseVerb] = LeaseVerb.ACQUIRE
    lease_id: bytes
    duration_seconds: int | None
    """None: infinite."""


class Renew(Part, frozen=True, tag=1):
    """Renew the lease."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.RENEW
    lease_id: bytes


class Change(Part, frozen=True, tag=2):
    """Change the id of the lease."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.CHANGE
    lease_id: bytes
    proposed_id: bytes


class Release(Part, frozen=True, tag=3):
    """Release the lease."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.RELEASE
    lease_id: bytes


class Break(Part, frozen=True, tag=4):
    """Break the lease, without its id."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.BREAK
    period_seconds: int | None = None
    """The maximum remaining duration; None: until it expires, or at once if it is infinite."""


LeaseAction = Acquire | Renew | Change | Release | Break
FileLeaseAction = Acquire | Change | Release | Break
"""Leases of files are infinite, so they are not renewed."""


def new_lease_id() -> bytes:
    """Returns a random lease id. It must not be predictable, because it grants write access."""
    return uuid.uuid4().bytes
