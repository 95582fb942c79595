"""A blob store in memory, with at most one planted bug.

It decides by the project's own rules and an exact clock, while the checker has a model of its own
and knows times only from outside.
"""

from __future__ import annotations

import random
import uuid
from typing import Final

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.conditions import Conditions
from etagere.model.leases import (
    NO_LEASE,
    Acquire,
    Break,
    BrokenLease,
    Change,
    LeaseAction,
    LeaseKind,
    NoLease,
    Release,
    Renew,
)
from etagere.rules import conditions, leases
from etagere.rules.conditions import format_etag
from tests.history.blob.bugs import Bug
from tests.history.blob.contents import size_of
from tests.history.blob.events import (
    CREATES,
    ONLY_ETAG_NAMES,
    READS,
    WRITES,
    Done,
    Request,
    Seen,
    Verb,
)
from tests.history.blob.fake_blobs import CHANGES, Blob, Refusing, check_state, details, insist
from tests.history.events import NANOSECONDS, Refused

NANOSECONDS_PER_TICK: Final = NANOSECONDS // TICKS_PER_SECOND
WALL_TICKS: Final = 1_700_000_000 * TICKS_PER_SECOND
"""The date at which a simulation begins."""


_NEEDS_BLOB: Final = WRITES - CREATES - {Verb.PUT, Verb.COMMIT, Verb.STAGE}


class Store:
    def __init__(self, source: random.Random, bug: Bug | None) -> None:
        self._random = source
        self._bug = bug
        self._blobs: dict[str, Blob] = {}
        self._before: dict[str, Blob] = {}
        """Each blob before its last change."""
        self._last_stamp = 0
        self._clock_error_ticks = 0

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        """Whether the bug strikes now."""
        return self._bug is bug and self._random.random() < chance

    def kill(self) -> None:
        """Called when the processes are killed; only bugs lose anything."""
        if self.has(Bug.ACKNOWLEDGED_LOST) and self._before:
            name = self._random.choice(sorted(self._before))
            self._blobs[name] = self._before[name]
        if self.has(Bug.LEASE_FORGOTTEN):
            for name, blob in self._blobs.items():
                self._blobs[name] = replace(blob, lease=NO_LEASE)
        if self.has(Bug.CLOCK_BACK):
            self._clock_error_ticks -= 100 * TICKS_PER_SECOND
            self._last_stamp = 0
        if self.has(Bug.SNAPSHOT_LOST):
            for name, blob in self._blobs.items():
                self._blobs[name] = replace(blob, snapshots={})

    def carry_out(self, request: Request, moment: int) -> Done | Refused:
        """Carries out a request at the current time."""
        ticks = moment // NANOSECONDS_PER_TICK
        try:
            if request.verb in READS:
                return Done(self._read(request, ticks))
            if request.verb in WRITES:
                done = Done(self._write(request, ticks))
                return Refused("ServerBusy") if self.has(Bug.FAILED_BUT_DONE, 0.05) else done
            if request.verb is Verb.SNAPSHOT:
                return Done(self._snapshot(request, ticks))
            if request.verb is Verb.GET_SNAPSHOT:
                return Done(self._read_snapshot(request))
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
        """The bug: some blocks become visible before the others."""
        blob = self._blobs.get(request.blob, Blob())
        if blob.stamp is not None and request.blocks and request.blocks[0] in blob.staged:
            content = (blob.staged[request.blocks[0]],)
            self._blobs[request.blob] = replace(blob, content=content)

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
        if request.verb is Verb.LIST_PAGES:
            return Seen(pages=tuple(number for number, token in enumerate(content) if token))
        return replace(
            _shown_in_full(blob),
            content=content if request.verb is Verb.GET else None,
            lease=leases.report(blob.lease, ticks).state,
        )

    # Snapshots

    def _snapshot(self, request: Request, ticks: int) -> Seen:
        blob = self._blobs.get(request.blob, Blob())
        if blob.stamp is None:
            raise Refusing(Refusal("BlobNotFound"))
        before = self._before.get(request.blob, blob)
        late = before.stamp is not None and self.has(Bug.LATE_SNAPSHOT, 0.3)
        name = str(self._next_stamp(ticks))
        snapshot = replace(blob, content=before.content if late else blob.content, snapshots={})
        self._store(request.blob, replace(blob, snapshots={**blob.snapshots, name: snapshot}))
        return replace(_shown(snapshot), snapshot=name)

    def _read_snapshot(self, request: Request) -> Seen:
        blob = self._blobs.get(request.blob, Blob())
        snapshot = blob.snapshots.get(request.snapshot)
        if snapshot is None:
            raise Refusing(Refusal("BlobNotFound"))
        shared = self.has(Bug.SHARED_SNAPSHOT, 0.3)
        return replace(
            _shown_in_full(snapshot), content=blob.content if shared else snapshot.content
        )

    # Writing

    def _check(self, request: Request, ticks: int) -> None:
        blob = self._blobs.get(request.blob, Blob())
        uncommitted = blob.stamp is None and request.verb is Verb.DELETE and bool(blob.staged)
        if blob.stamp is None and request.verb in _NEEDS_BLOB and not uncommitted:
            raise Refusing(Refusal("BlobNotFound"))
        lease_id = _id(request.lease_id)
        if lease_id not in blob.also_held_by:
            late = 3 * TICKS_PER_SECOND if self.has(Bug.LATE_WRITE) and lease_id else 0
            insist(leases.check_write(blob.lease, lease_id, ticks - late, LeaseKind.BLOB))
        asked = _conditions(request)
        if request.verb in CREATES | {Verb.PUT, Verb.COMMIT} or uncommitted:
            by_holder = request.lease_id is not None
            insist(conditions.check_create(asked, blob.stamp, by_holder=by_holder))
        elif blob.stamp is not None:
            insist(conditions.check_write(asked, blob.stamp))
        self._check_state(blob, request)

    def _check_state(self, blob: Blob, request: Request) -> None:
        if self.has(Bug.APPENDED_ELSEWHERE):
            request = replace(request, position=None)
        if self.has(Bug.ANY_NUMBER):
            request = replace(request, comparison="")
        if self.has(Bug.APPENDED_AFTER_SEAL):
            blob = replace(blob, sealed=False)
        check_state(blob, request)

    def _write(self, request: Request, ticks: int) -> Seen:
        self._check(request, ticks)
        old = self._blobs.get(request.blob, Blob())
        if request.verb is Verb.SEAL and old.sealed:
            return replace(_shown(old), sealed=True)
        new = CHANGES[request.verb](old, request)
        if request.verb not in (Verb.STAGE, Verb.DELETE):
            keeps_etag = old.stamp is not None and self.has(Bug.ETAG_REUSED, 0.1)
            keeps_version = request.verb in ONLY_ETAG_NAMES - CREATES
            new = replace(
                new,
                version=old.version if keeps_version else request.token,
                stamp=old.stamp if keeps_etag else self._next_stamp(ticks),
                lease=leases.after_write(old.lease, ticks, LeaseKind.BLOB),
                also_held_by=old.also_held_by,
            )
        self._store(request.blob, self._spoiled(old, new, request))
        return Seen() if request.verb in (Verb.STAGE, Verb.DELETE) else _told(new, request)

    def _spoiled(self, old: Blob, new: Blob, request: Request) -> Blob:
        """Returns what a silent bug stores instead."""
        verb, token = request.verb, request.token
        if verb is Verb.APPEND and self.has(Bug.LOST_APPEND, 0.1):
            return replace(new, content=old.content, length=old.length)
        if verb is Verb.APPEND and self.has(Bug.DOUBLED_APPEND, 0.1):
            length = new.length + size_of(token)
            return replace(new, content=(*new.content, token), length=length)
        if verb is Verb.APPEND and old.content and self.has(Bug.SWAPPED_APPEND, 0.1):
            return replace(new, content=(*old.content[:-1], token, old.content[-1]))
        if verb is Verb.PUT_PAGES and self.has(Bug.TORN_PAGES, 0.1):
            behind = request.first + 1
            return replace(new, content=new.content[:behind] + old.content[behind:])
        if verb is Verb.CLEAR_PAGES and self.has(Bug.KEPT_PAGES, 0.5):
            return replace(new, content=old.content)
        if verb is Verb.RENUMBER and self.has(Bug.NUMBER_LOST, 0.2):
            return replace(new, number=old.number)
        return new

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
        self._store(request.blob, replace(blob, lease=after, also_held_by=held))
        if isinstance(after, BrokenLease):
            seconds = leases.seconds_until_free(after, ticks)
            return replace(_shown(blob), seconds=seconds)
        return _shown(blob)


def _shown(blob: Blob) -> Seen:
    assert blob.stamp is not None
    return Seen(format_etag(blob.stamp), blob.stamp // TICKS_PER_SECOND)


def _shown_in_full(blob: Blob) -> Seen:
    shown = _shown(blob)
    return replace(details(blob), etag=shown.etag, modified=shown.modified)


def _told(blob: Blob, request: Request) -> Seen:
    """Returns what the answer to a write shows of the blob."""
    if request.verb is Verb.APPEND:
        return replace(_shown(blob), length=blob.length, blocks=len(blob.content))
    if request.verb is Verb.SEAL:
        return replace(_shown(blob), sealed=True)
    if blob.kind is Verb.CREATE_PAGES and request.verb not in CREATES:
        return replace(_shown(blob), number=blob.number)
    return _shown(blob)


def _id(text: str | None) -> bytes | None:
    return None if text is None else uuid.UUID(text).bytes


def _conditions(request: Request) -> Conditions:
    return Conditions(
        None if request.if_match is None else (request.if_match,),
        None if request.if_none_match is None else (request.if_none_match,),
    )


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
