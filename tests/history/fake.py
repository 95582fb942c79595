"""A store of blobs in memory that is right, unless it is told to have one certain bug.

It decides by the project's own rules and an exact clock, while the judge has a model of its own
and knows times only from outside.
"""

from __future__ import annotations

import enum
import random
import uuid
from collections.abc import Callable
from typing import Final

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.conditions import Conditions
from etagere.model.leases import (
    NO_LEASE,
    Acquire,
    Break,
    BrokenLease,
    Change,
    Lease,
    LeaseAction,
    LeaseKind,
    NoLease,
    Release,
    Renew,
)
from etagere.rules import conditions, leases
from etagere.rules.conditions import format_etag
from tests.history.events import NANOSECONDS, READS, WRITES, Done, Refused, Request, Seen, Verb

NANOSECONDS_PER_TICK: Final = NANOSECONDS // TICKS_PER_SECOND
WALL_TICKS: Final = 1_700_000_000 * TICKS_PER_SECOND
"""The date at which a simulation begins."""


class Bug(enum.Enum):
    LOST_UPDATE = "a condition is checked some time before the write"
    STALE_READ = "a read shows the version before"
    TORN_READ = "a read shows the content of the version before"
    ACKNOWLEDGED_LOST = "a kill undoes a change that was acknowledged"
    APPLIED_TWICE = "what was done but not answered is done again after a kill"
    APPLIED_LATE = "what was not done is done after a kill and a restart"
    FAILED_BUT_DONE = "a write is done and answered as if nothing had happened"
    LATE_WRITE = "a write is let through after its lease has ended"
    TWO_HOLDERS = "a lease is granted while another one holds"
    LEASE_FORGOTTEN = "a kill makes leases forgotten"
    ETAG_REUSED = "a write leaves the ETag as it is"
    CLOCK_BACK = "after a kill the clock starts in the past"
    HALF_COMMIT = "a list of blocks is committed block by block"


class Refusing(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.code = refusal.code


def insist(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refusing(refusal)


class Blob(msgspec.Struct, frozen=True):
    """Also of one that is not there but has staged blocks: it has no stamp."""

    stamp: int | None = None
    version: str = ""
    content: tuple[str, ...] = ()
    committed: dict[str, str] = {}
    staged: dict[str, str] = {}
    lease: Lease = NO_LEASE
    also_held_by: frozenset[bytes] = frozenset()
    """Only with the bug."""


class Store:
    def __init__(self, source: random.Random, bug: Bug | None) -> None:
        self._random = source
        self._bug = bug
        self._blobs: dict[str, Blob] = {}
        self._before: dict[str, Blob] = {}
        """What each was until its last change."""
        self._last_stamp = 0
        self._clock_error_ticks = 0

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        """Whether the bug strikes now."""
        return self._bug is bug and self._random.random() < chance

    def kill(self) -> None:
        """What the store forgets when its processes die: nothing, but for bugs."""
        if self.has(Bug.ACKNOWLEDGED_LOST) and self._before:
            name = self._random.choice(sorted(self._before))
            self._blobs[name] = self._before[name]
        if self.has(Bug.LEASE_FORGOTTEN):
            for name, blob in self._blobs.items():
                self._blobs[name] = msgspec.structs.replace(blob, lease=NO_LEASE)
        if self.has(Bug.CLOCK_BACK):
            self._clock_error_ticks -= 100 * TICKS_PER_SECOND
            self._last_stamp = 0

    def carry_out(self, request: Request, moment: int) -> Done | Refused:
        """At once, at this moment."""
        ticks = moment // NANOSECONDS_PER_TICK
        try:
            if request.verb in READS:
                return Done(self._read(request, ticks))
            if request.verb in WRITES:
                done = Done(self._write(request, ticks))
                return Refused("ServerBusy") if self.has(Bug.FAILED_BUT_DONE, 0.05) else done
            return Done(self._act_on_lease(request, ticks))
        except Refusing as refusing:
            return Refused(refusing.code)

    def foresee(self, request: Request, moment: int) -> Refused | None:
        """Whether a write would be refused now."""
        try:
            if request.verb in WRITES:
                self._check(request, moment // NANOSECONDS_PER_TICK)
        except Refusing as refusing:
            return Refused(refusing.code)
        return None

    def show_part_of_commit(self, request: Request) -> None:
        """The bug: some blocks are there before the others."""
        blob = self._blobs.get(request.blob, Blob())
        if blob.stamp is not None and request.blocks and request.blocks[0] in blob.staged:
            content = (blob.staged[request.blocks[0]],)
            self._blobs[request.blob] = msgspec.structs.replace(blob, content=content)

    # Reading

    def _read(self, request: Request, ticks: int) -> Seen:
        blob = self._blobs.get(request.blob, Blob())
        before = self._before.get(request.blob, blob)
        if before.stamp is not None and self.has(Bug.STALE_READ, 0.05):
            blob = before
        if blob.stamp is None:
            raise Refusing(Refusal("BlobNotFound"))
        insist(leases.check_read(blob.lease, _id(request.lease_id), ticks, LeaseKind.BLOB))
        content = blob.content
        if before.stamp is not None and self.has(Bug.TORN_READ, 0.05):
            content = before.content
        return msgspec.structs.replace(
            _shown(blob),
            version=blob.version,
            content=content if request.verb is Verb.GET else None,
            lease=leases.report(blob.lease, ticks).state,
        )

    # Writing

    def _check(self, request: Request, ticks: int) -> None:
        blob = self._blobs.get(request.blob, Blob())
        if blob.stamp is None and request.verb in (Verb.DESCRIBE, Verb.DELETE):
            raise Refusing(Refusal("BlobNotFound"))
        lease_id = _id(request.lease_id)
        if lease_id not in blob.also_held_by:
            late = 3 * TICKS_PER_SECOND if self.has(Bug.LATE_WRITE) and lease_id else 0
            insist(leases.check_write(blob.lease, lease_id, ticks - late, LeaseKind.BLOB))
        asked = _conditions(request)
        if request.verb in (Verb.PUT, Verb.COMMIT):
            by_holder = request.lease_id is not None
            insist(conditions.check_create(asked, blob.stamp, by_holder=by_holder))
        elif blob.stamp is not None:
            insist(conditions.check_write(asked, blob.stamp))
        if request.verb is Verb.COMMIT and not blob.committed.keys() | blob.staged.keys() >= set(
            request.blocks
        ):
            raise Refusing(Refusal("InvalidBlockList"))

    def _write(self, request: Request, ticks: int) -> Seen:
        self._check(request, ticks)
        old = self._blobs.get(request.blob, Blob())
        new = _CHANGES[request.verb](old, request)
        if request.verb not in (Verb.STAGE, Verb.DELETE):
            keeps_etag = old.stamp is not None and self.has(Bug.ETAG_REUSED, 0.1)
            new = msgspec.structs.replace(
                new,
                version=request.token,
                stamp=old.stamp if keeps_etag else self._next_stamp(ticks),
                lease=leases.after_write(old.lease, ticks, LeaseKind.BLOB),
                also_held_by=old.also_held_by,
            )
        self._store(request.blob, new)
        return Seen() if request.verb in (Verb.STAGE, Verb.DELETE) else _shown(new)

    def _next_stamp(self, ticks: int) -> int:
        wall = WALL_TICKS + ticks + self._clock_error_ticks
        self._last_stamp = max(wall, self._last_stamp + 1)
        return self._last_stamp

    def _store(self, name: str, blob: Blob) -> None:
        self._before[name] = self._blobs.get(name, Blob())
        self._blobs[name] = blob

    # Leases

    def _act_on_lease(self, request: Request, ticks: int) -> Seen:
        blob = self._blobs.get(request.blob, Blob())
        if blob.stamp is None:
            raise Refusing(Refusal("BlobNotFound"))
        held = blob.also_held_by
        lease = blob.lease
        if request.verb is Verb.ACQUIRE and self.has(Bug.TWO_HOLDERS, 0.3):
            if not isinstance(lease, NoLease):
                held |= {lease.id}
            lease = NO_LEASE
        after = leases.step(lease, _action(request), ticks)
        if isinstance(after, Refusal):
            raise Refusing(after)
        self._store(request.blob, msgspec.structs.replace(blob, lease=after, also_held_by=held))
        if isinstance(after, BrokenLease):
            seconds = leases.seconds_until_free(after, ticks)
            return msgspec.structs.replace(_shown(blob), seconds=seconds)
        return _shown(blob)


def _shown(blob: Blob) -> Seen:
    assert blob.stamp is not None
    return Seen(format_etag(blob.stamp), blob.stamp // TICKS_PER_SECOND)


def _id(text: str | None) -> bytes | None:
    return None if text is None else uuid.UUID(text).bytes


def _conditions(request: Request) -> Conditions:
    return Conditions(
        None if request.if_match is None else (request.if_match,),
        None if request.if_none_match is None else (request.if_none_match,),
    )


def _put(_old: Blob, request: Request) -> Blob:
    return Blob(content=(request.token,))


def _stage(old: Blob, request: Request) -> Blob:
    return msgspec.structs.replace(old, staged={**old.staged, request.block: request.token})


def _commit(old: Blob, request: Request) -> Blob:
    latest = {**old.committed, **old.staged}
    content = tuple(latest[block] for block in request.blocks)
    return Blob(content=content, committed={block: latest[block] for block in request.blocks})


def _describe(old: Blob, _request: Request) -> Blob:
    return old


def _delete(_old: Blob, _request: Request) -> Blob:
    return Blob()


_CHANGES: Final[dict[Verb, Callable[[Blob, Request], Blob]]] = {
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
}


def _action(request: Request) -> LeaseAction:
    lease_id, proposed_id = _id(request.lease_id) or b"", _id(request.proposed_id) or b""
    actions: dict[Verb, LeaseAction] = {
        Verb.ACQUIRE: Acquire(proposed_id, request.seconds),
        Verb.RENEW: Renew(lease_id),
        Verb.CHANGE: Change(lease_id, proposed_id),
        Verb.RELEASE: Release(lease_id),
        Verb.BREAK: Break(request.seconds),
    }
    return actions[request.verb]
