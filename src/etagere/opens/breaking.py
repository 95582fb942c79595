"""Breaks of the caches of the clients that have a file open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.opens.caches import CacheGrant
from etagere.opens.handles import Handle, OpenEntry
from etagere.rules.caching import (
    CacheBreak,
    Caching,
    OtherOpens,
    cache_break,
    handle_cache_break,
    open_break,
    write_break,
)
from etagere.rules.opens import OpenMode, RestAccess, conflicts, refused_by


def break_for_rest(
    entry: OpenEntry, access: RestAccess, by: Handle | None = None
) -> asyncio.Future[None] | None:
    """Breaks the caches that an operation has to wait for, except that of the handle that carries
    it out. Returns what it has to wait for."""
    awaited = None
    for grant, wanted in _breaks_for_rest(entry, access, by):
        if wanted.waits:
            awaited = grant.demand(wanted) or awaited
    return awaited


def discard_for_rest(entry: OpenEntry, access: RestAccess, by: Handle | None = None) -> None:
    """Breaks the caches that an operation makes worthless, but does not wait for: once nothing
    refuses it."""
    for grant, wanted in _breaks_for_rest(entry, access, by):
        if not wanted.waits:
            grant.demand(wanted)


def _breaks_for_rest(
    entry: OpenEntry, access: RestAccess, by: Handle | None
) -> list[tuple[CacheGrant, CacheBreak]]:
    own = None if by is None else by.grant
    return [
        (grant, wanted)
        for grant in entry.grants
        if grant is not own and (wanted := cache_break(access, grant.effective)) is not None
    ]


def break_handles_for_rest(
    entry: OpenEntry, access: RestAccess, by: Handle | None = None
) -> asyncio.Future[None] | None:
    """Refuses an operation that handles exclude. If clients may only cache these handles, asks them
    to close them, and returns what the operation has to wait for."""
    if not any(refused_by(access, mode) for mode in entry.modes):
        return None
    in_the_way = [
        handle
        for handle in entry.handles.values()
        if handle is not by and refused_by(access, handle.mode)
    ]
    return ask_to_close(in_the_way) if in_the_way else None


def ask_to_close(handles: Iterable[Handle]) -> asyncio.Future[None]:
    """Asks the clients of handles that may be cached to close them; refuses if others are among
    them. Returns what ends when one of the clients has answered."""
    breaks: dict[CacheGrant, CacheBreak] = {}
    for handle in handles:
        grant = handle.grant
        wanted = None if grant is None else handle_cache_break(grant.effective)
        if grant is None or wanted is None:
            raise Refused(Refusal("SharingViolation"))
        breaks[grant] = wanted
    ends = [grant.demand(wanted) for grant, wanted in breaks.items()]
    awaited = ends[-1]
    assert awaited is not None
    return awaited


def break_for_open(
    entry: OpenEntry, own: CacheGrant | None, *, overwrites: bool, spares_leases: bool = False
) -> asyncio.Future[None] | None:
    """Breaks the caches of others before an open with access to more than attributes. Returns what
    it has to wait for."""
    awaited = None
    for grant in list(entry.grants):
        if grant is own or (spares_leases and grant.lease is not None):
            continue
        wanted = open_break(grant.effective, overwrites=overwrites)
        if wanted is not None:
            awaited = grant.demand(wanted, in_steps=True) or awaited
    return awaited


def break_handles_for_open(
    entry: OpenEntry, mode: OpenMode, own: CacheGrant | None
) -> asyncio.Future[None] | None:
    """Refuses an open that handles exclude, unless clients may only cache them. Those with the
    lease of the open itself are in use."""
    if not any(conflicts(mode, held) for held in entry.modes):
        return None
    in_the_way = [one for one in entry.handles.values() if conflicts(mode, one.mode)]
    if own is not None and any(one.grant is own for one in in_the_way):
        raise Refused(Refusal("SharingViolation"))
    return ask_to_close(in_the_way)


def break_for_write(entry: OpenEntry, by: Handle) -> None:
    """Breaks the caches of others when a handle writes, locks a range or changes the length.

    Its own lease stays, and so does an oplock for writes; one of level II does not.
    """
    if not entry.grants:
        return
    own = by.grant
    for grant in list(entry.grants):
        if grant is own and (grant.lease is not None or grant.effective & Caching.WRITE):
            continue
        wanted = write_break(grant.effective)
        if wanted is not None:
            # Nobody else caches writes while this handle is open, so that there is nothing to wait
            # for.
            grant.demand(wanted)


def break_after_overwrite(entry: OpenEntry, by: Handle) -> None:
    """Breaks the caches that others have got since an open began to overwrite the file: they may
    have what it was."""
    for grant in list(entry.grants):
        wanted = None if grant is by.grant else write_break(grant.effective)
        if wanted is not None:
            grant.demand(wanted)


def other_opens(entry: OpenEntry, own: CacheGrant | None) -> OtherOpens:
    """Returns what limits the cache of a new open, which is not registered yet. `own` is the lease
    that it asks for, if the client has it already."""
    with_data = entry.data_handles - (0 if own is None else own.data_handles) > 0
    oplocks = leases = handle_leases = writes = False
    for grant in entry.grants:
        if grant is own:
            continue
        state = grant.effective
        if grant.lease is None:
            oplocks = True
        else:
            leases = True
            handle_leases = handle_leases or bool(state & Caching.HANDLE)
        writes = writes or bool(state & Caching.WRITE)
    return OtherOpens(with_data, oplocks, leases, handle_leases, writes, bool(entry.locks))
