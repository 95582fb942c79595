"""Leases: what is stored of one, and what can be asked of it.

A lease is stored as facts that no timer has to touch: when it ends, not that it has ended.
What state that is at a given moment, `rules.leases` computes.

An id is the 16 bytes of a GUID in the order in which it is written, whatever form it came in.
"""

from __future__ import annotations

import enum
import uuid
from typing import ClassVar, Final

from etagere.model.base import Part


class LeaseKind(enum.Enum):
    """What can be leased."""

    BLOB = "blob"
    CONTAINER = "container"
    SHARE = "share"
    FILE = "file"


class LeaseState(enum.Enum):
    """What a lease is at a given moment, as it is reported."""

    AVAILABLE = "available"
    LEASED = "leased"
    EXPIRED = "expired"
    BREAKING = "breaking"
    BROKEN = "broken"


class LeaseVerb(enum.Enum):
    """What can be asked of a lease, as a request names it."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    CHANGE = "change"
    RELEASE = "release"
    BREAK = "break"


# What is stored


class NoLease(Part, frozen=True, tag=0):
    """Never leased, released, or forgotten because of a later write."""


class FixedLease(Part, frozen=True, tag=1):
    """Held until a moment, and remembered after it: its holder may still renew it."""

    id: bytes
    duration: int
    """Ticks from each renewal to the end."""
    expires_at: int
    """The first tick at which it is no longer held."""


class InfiniteLease(Part, frozen=True, tag=2):
    """Held until somebody ends it."""

    id: bytes


class BrokenLease(Part, frozen=True, tag=3):
    """Nobody can prolong it any more: breaking before `breaks_at`, broken from then on."""

    id: bytes
    breaks_at: int


Lease = NoLease | FixedLease | InfiniteLease | BrokenLease
NO_LEASE: Final = NoLease()


# What is asked


class Acquire(Part, frozen=True, tag=0):
    """Take the lease under an id: the one proposed, else one drawn by `new_lease_id`.

    To the rules they are the same, since a fresh id equals none that a lease ever had.
    """

    verb: ClassVar[LeaseVerb] = LeaseVerb.ACQUIRE
    lease_id: bytes
    duration_seconds: int | None
    """None: without end."""


class Renew(Part, frozen=True, tag=1):
    """Let the time of the lease begin anew."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.RENEW
    lease_id: bytes


class Change(Part, frozen=True, tag=2):
    """Go on under another id."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.CHANGE
    lease_id: bytes
    proposed_id: bytes


class Release(Part, frozen=True, tag=3):
    """Give the lease up."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.RELEASE
    lease_id: bytes


class Break(Part, frozen=True, tag=4):
    """End the lease of whoever holds it, now or soon."""

    verb: ClassVar[LeaseVerb] = LeaseVerb.BREAK
    period_seconds: int | None = None
    """How long it may at most go on; None: as long as it would have, if that has an end."""


LeaseAction = Acquire | Renew | Change | Release | Break
FileLeaseAction = Acquire | Change | Release | Break
"""A file's lease has no end of its own, so there is nothing to renew."""


def new_lease_id() -> bytes:
    """Drawn before an operation. Not to be guessed: whoever knows it may write."""
    return uuid.uuid4().bytes
