"""The blobs of the fake store, changed by the project's own rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from etagere.errors import Refusal
from etagere.model.blobs import AppendTraits
from etagere.model.leases import NO_LEASE, Lease
from etagere.model.page_blobs import SequenceAction, SequenceChange, SequenceConditions
from etagere.rules import appends, page_blobs
from tests.history.blob.contents import PAGE_BYTES, size_of
from tests.history.blob.events import Request, Seen, Verb


class Refusing(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.code = refusal.code


def insist(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refusing(refusal)


class Blob(msgspec.Struct, frozen=True):
    """A blob; without a stamp it does not exist, but may have staged blocks or snapshots."""

    stamp: int | None = None
    version: str = ""
    content: tuple[str, ...] = ()
    committed: dict[str, str] = {}
    staged: dict[str, str] = {}
    lease: Lease = NO_LEASE
    also_held_by: frozenset[bytes] = frozenset()
    """Only with the bug."""
    kind: Verb | None = None
    """What created it, if it is an append or page blob."""
    length: int = 0
    sealed: bool = False
    number: int = 0
    snapshots: dict[str, Blob] = {}


def details(blob: Blob) -> Seen:
    """Returns the further properties that a read shows."""
    if blob.kind is None:
        return Seen(version=blob.version)
    if blob.kind is Verb.CREATE_PAGES:
        return Seen(origin=blob.version, length=blob.length, number=blob.number)
    return Seen(
        origin=blob.version, length=blob.length, blocks=len(blob.content), sealed=blob.sealed
    )


# Checks of writes, after leases and conditions


def check_state(blob: Blob, request: Request) -> None:
    if request.verb is Verb.COMMIT:
        if not blob.committed.keys() | blob.staged.keys() >= set(request.blocks):
            raise Refusing(Refusal("InvalidBlockList"))
    elif request.verb in (Verb.APPEND, Verb.SEAL):
        insist(appends.check_position(request.position, blob.length))
        if request.verb is Verb.APPEND:
            insist(appends.check_appendable(AppendTraits(sealed=blob.sealed)))
    elif request.verb in (Verb.PUT_PAGES, Verb.CLEAR_PAGES):
        insist(page_blobs.check_sequence(_sequence_conditions(request), blob.number))
        end = (request.first + request.count) * PAGE_BYTES
        insist(page_blobs.check_inside(end, blob.length))


def _sequence_conditions(request: Request) -> SequenceConditions:
    return SequenceConditions(
        at_most=request.number if request.comparison == "lte" else None,
        below=request.number if request.comparison == "lt" else None,
        equal=request.number if request.comparison == "eq" else None,
    )


# Effects of writes


def _put(_old: Blob, request: Request) -> Blob:
    return Blob(content=(request.token,))


def _stage(old: Blob, request: Request) -> Blob:
    return replace(old, staged={**old.staged, request.block: request.token})


def _commit(old: Blob, request: Request) -> Blob:
    latest = {**old.committed, **old.staged}
    content = tuple(latest[block] for block in request.blocks)
    return Blob(content=content, committed={block: latest[block] for block in request.blocks})


def _describe(old: Blob, _request: Request) -> Blob:
    return old


def _delete(_old: Blob, _request: Request) -> Blob:
    return Blob()


def _create(old: Blob, request: Request) -> Blob:
    return Blob(
        content=("",) * request.count,
        kind=request.verb,
        length=request.count * PAGE_BYTES,
        number=request.number or 0,
        snapshots=old.snapshots,
    )


def _append(old: Blob, request: Request) -> Blob:
    length = old.length + size_of(request.token)
    return replace(old, content=(*old.content, request.token), length=length)


def _seal(old: Blob, _request: Request) -> Blob:
    return replace(old, sealed=True)


def _change_pages(old: Blob, request: Request) -> Blob:
    token = request.token if request.verb is Verb.PUT_PAGES else ""
    pages = list(old.content)
    pages[request.first : request.first + request.count] = [token] * request.count
    return replace(old, content=tuple(pages))


def _renumber(old: Blob, request: Request) -> Blob:
    change = SequenceChange(SequenceAction(request.action), request.number or 0)
    number = page_blobs.next_sequence_number(old.number, change)
    assert isinstance(number, int)
    return replace(old, number=number)


def _resize(old: Blob, request: Request) -> Blob:
    pages = (*old.content, *("",) * request.count)[: request.count]
    return replace(old, content=pages, length=request.count * PAGE_BYTES)


CHANGES: Final[dict[Verb, Callable[[Blob, Request], Blob]]] = {
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
    Verb.CREATE_APPEND: _create,
    Verb.APPEND: _append,
    Verb.SEAL: _seal,
    Verb.CREATE_PAGES: _create,
    Verb.PUT_PAGES: _change_pages,
    Verb.CLEAR_PAGES: _change_pages,
    Verb.RENUMBER: _renumber,
    Verb.RESIZE: _resize,
}
