"""Caches of SMB clients: what a client may cache of a file, and what makes it cache less.

A client has an oplock with a handle, or an SMB lease, which all its handles with the same key
share. Both allow it to cache reads, writes, and handles that the program has closed.

An open with access to the bytes first ends the caching of writes by others, an overwrite all
caching, and a conflict of share modes the caching of handles, because the program that opened the
file may have closed it. Writes and byte-range locks end the caching of reads ([MS-FSA] 2.1.4.12).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from etagere.nt_status import NtStatus
from etagere.rules.opens import RestAccess


class Caching(enum.IntFlag):
    """What an SMB client may cache of a file: an oplock, or an SMB lease."""

    NONE = 0
    READ = 1
    WRITE = 2
    """Writes that the server has not seen yet."""
    HANDLE = 4
    """Handles that the program has closed, but the client has not."""


class CacheBreak(NamedTuple):
    """A demand to cache less."""

    left: Caching
    """What the client may still cache."""
    waits: bool
    """Whether the operation waits for the acknowledgement of the client."""


_R: Final = Caching.READ
_RW: Final = Caching.READ | Caching.WRITE
_RH: Final = Caching.READ | Caching.HANDLE
_RWH: Final = Caching.READ | Caching.WRITE | Caching.HANDLE

_Breaks = Mapping[Caching, CacheBreak]
_NO_BREAKS: Final[_Breaks] = {}
_FLUSH_WRITES: Final[_Breaks] = {
    _RWH: CacheBreak(_RH, waits=True),
    _RW: CacheBreak(_R, waits=True),
}
_DISCARD: Final[_Breaks] = {
    _RWH: CacheBreak(Caching.NONE, waits=True),
    _RW: CacheBreak(Caching.NONE, waits=True),
    _RH: CacheBreak(Caching.NONE, waits=False),
    _R: CacheBreak(Caching.NONE, waits=False),
}
_CLOSE_HANDLES: Final[_Breaks] = {
    _RWH: CacheBreak(_RW, waits=True),
    _RH: CacheBreak(_R, waits=True),
}

_CACHE_BREAKS: Final[Mapping[RestAccess, _Breaks]] = {
    RestAccess.LIST: _NO_BREAKS,
    RestAccess.CREATE: _NO_BREAKS,
    RestAccess.QUERY: _FLUSH_WRITES,
    RestAccess.READ: _FLUSH_WRITES,
    RestAccess.WRITE: _DISCARD,
    RestAccess.SET: _DISCARD,
    RestAccess.REPLACE: _DISCARD,
    RestAccess.RENAME: _CLOSE_HANDLES,
    RestAccess.DELETE: _CLOSE_HANDLES,
    RestAccess.LEASE: _FLUSH_WRITES,
}


def cache_break(asked: RestAccess, held: Caching) -> CacheBreak | None:
    """Returns what a client must stop caching before a REST operation; None: nothing."""
    return _CACHE_BREAKS[asked].get(held)


def discards_caches(asked: RestAccess) -> bool:
    """Whether nothing that clients cache of a file is valid after a REST operation."""
    return _CACHE_BREAKS[asked] is _DISCARD


def handle_cache_break(held: Caching) -> CacheBreak | None:
    """Returns the break that shows whether a handle that is in the way is still in use; None: it
    is not cached."""
    return _CLOSE_HANDLES.get(held)


# Breaks by SMB clients


def open_break(held: Caching, *, overwrites: bool) -> CacheBreak | None:
    """Returns what a client must stop caching before another one opens the file; None: nothing.

    Opens for attributes alone break nothing, unless they overwrite.
    """
    return (_DISCARD if overwrites else _FLUSH_WRITES).get(held)


def write_break(held: Caching) -> CacheBreak | None:
    """Returns what a client must stop caching before another one writes to the file, changes its
    length or locks a range of it; None: nothing."""
    return _DISCARD.get(held)


def oplock_after(left: Caching) -> Caching:
    """Returns what is left of an oplock after a break to this state of a lease: level II, or
    nothing. There are no other breaks of oplocks."""
    return left & Caching.READ


def next_break(acknowledged: Caching, required: Caching) -> Caching | None:
    """Returns the next break of a lease if others have demanded more than the client has
    acknowledged meanwhile; None: it has done enough.

    As in Windows, the client may keep its reads until the break after that one.
    """
    if not acknowledged & ~required:
        return None
    return required | _R if acknowledged & ~_R else required


def needs_acknowledgement(held: Caching) -> bool:
    """Whether a client has to acknowledge a break ([MS-SMB2] 3.3.4.6, 3.3.4.7): not if it caches
    reads alone."""
    return bool(held & ~_R)


def check_acknowledgement(
    state: Caching, left: Caching | None, *, is_lease: bool
) -> NtStatus | None:
    """Returns the error for an acknowledgement that does not fit ([MS-SMB2] 3.3.5.22).

    `left` is what the client was told that it may still cache; None: it was told nothing, or has
    acknowledged already, or too late.
    """
    if left is None:
        return NtStatus.UNSUCCESSFUL if is_lease else NtStatus.INVALID_OPLOCK_PROTOCOL
    if state & ~left:
        return NtStatus.REQUEST_NOT_ACCEPTED if is_lease else NtStatus.INVALID_OPLOCK_PROTOCOL
    return None


# Grants


class OtherOpens(NamedTuple):
    """What an open finds at a file. The handles with the lease that it asks for do not count."""

    with_data: bool = False
    """Whether there are handles with more than access to attributes."""
    oplocks: bool = False
    leases: bool = False
    handle_leases: bool = False
    """Whether there are leases that include handles."""
    writes: bool = False
    """Whether another client caches writes: an open for attributes does not end that."""
    locks: bool = False
    """Whether ranges are locked."""
    changes: bool = False
    """Whether a REST client is just changing the file."""


NO_OTHERS: Final = OtherOpens()


def granted(wanted: Caching, others: OtherOpens, *, is_lease: bool) -> Caching:
    """Returns what a client gets of what it wants to cache.

    Only one client caches writes, and only while nobody else has access to the bytes, or caches
    them. Oplocks and leases with handles exclude each other, and the later request gets less.
    """
    if not wanted & _R or others.writes or others.changes:
        return Caching.NONE
    state = wanted
    if others.with_data or others.oplocks or others.leases:
        state &= ~Caching.WRITE
    if others.locks and not state & Caching.WRITE:
        return Caching.NONE
    if is_lease:
        return state & ~Caching.HANDLE if others.oplocks else state
    if others.handle_leases:
        return Caching.NONE
    return state if state & Caching.WRITE else _R


def upgraded(held: Caching, wanted: Caching, others: OtherOpens, *, is_breaking: bool) -> Caching:
    """Returns the state of a lease after another open with its key. It changes only if the client
    gets all that it wants, and keeps all that it has."""
    is_more = wanted & held == held and wanted != held
    if is_breaking or not is_more or granted(wanted, others, is_lease=True) != wanted:
        return held
    return wanted
