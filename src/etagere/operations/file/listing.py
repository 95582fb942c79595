"""Listings: the entries of a directory, and the shares of an account."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from etagere.engine.interface import ReadTxn, Steps
from etagere.engine.records import UINT_MAX, Collection, K, R, Span
from etagere.model.files import Entry, ListEntries
from etagere.model.shares import NO_SNAPSHOT, ListShares, ShareRow
from etagere.operations import pages
from etagere.operations.file.collections import (
    DELETED_SHARES,
    ENTRIES,
    FORMER_ENTRIES,
    SHARE_SNAPSHOTS,
    SHARES,
)
from etagere.operations.file.shares import SNAPSHOTS_MAX, as_share
from etagere.operations.file.tree import (
    AFTER_ROOT,
    Tree,
    find_directory,
    find_tree,
    follow_link,
    without_lease,
)
from etagere.operations.pages import FilledPage, FillPage, StepSize
from etagere.rules.file_names import fold_name

# Entries


class ListedDirectory(NamedTuple):
    """A page of a directory."""

    directory_id: int
    filled: FilledPage[Entry]


def list_directory(txn: ReadTxn, command: FillPage[ListEntries, Entry]) -> Steps[ListedDirectory]:
    """Lists the entries of a directory, as they are or in a snapshot, in the order of their folded
    names."""
    asked, step_size = command.asked, StepSize()
    tree = find_tree(txn, asked.path.ref)
    directory_id = asked.directory_id
    if directory_id is None:
        directory_id = find_directory(txn, tree, asked.path.components).id
    if tree.generation is None:
        slices = _current(txn, tree, directory_id, asked, step_size)
    else:
        slices = _in_snapshot(txn, tree, directory_id, asked, step_size, tree.generation)
    filled = yield from pages.fill(txn, command, slices, asked.limit, step_size)
    return ListedDirectory(directory_id, filled)


def _current(
    txn: ReadTxn, tree: Tree, directory_id: int, asked: ListEntries, step_size: StepSize
) -> Iterator[list[Entry]]:
    directory = (tree.share.id, directory_id)
    span = ENTRIES.under(directory, fold_name(asked.prefix))
    span = ENTRIES.starting(span, (*directory, asked.marker or AFTER_ROOT))
    hidden_ids = asked.hidden_ids
    limit = asked.limit + len(hidden_ids)
    for rows in pages.scan_in_steps(txn, ENTRIES, span, limit, step_size):
        yield [follow_link(txn, tree, entry) for _, entry in rows if entry.id not in hidden_ids]


_State = tuple[str, int, Entry]
"""A state of an entry: the folded name, and the generation in which it was replaced."""


def _in_snapshot(
    txn: ReadTxn,
    tree: Tree,
    directory_id: int,
    asked: ListEntries,
    step_size: StepSize,
    generation: int,
) -> Iterator[list[Entry]]:
    """Yields the entries that a snapshot shows. A slice may be empty: many states may have been
    written after the snapshot, or replaced before it."""
    states = heapq.merge(
        _former_states(txn, tree, directory_id, asked, step_size),
        _current_states(txn, tree, directory_id, asked, step_size),
        key=_place,
    )
    is_first = True
    while some := list(islice(states, step_size.rows)):
        if txn.is_overdue and not is_first:
            # Ends the page, which is full at the next slice, and tells where the next one starts.
            yield []
            yield [some[0][2]]
            return
        is_first = False
        yield [
            without_lease(follow_link(txn, tree, entry))
            for _, replaced, entry in some
            if entry.generation <= generation < replaced
        ]


def _place(state: _State) -> tuple[str, int]:
    return state[0], state[1]


def _current_states(
    txn: ReadTxn, tree: Tree, directory_id: int, asked: ListEntries, step_size: StepSize
) -> Iterator[_State]:
    directory = (tree.share.id, directory_id)
    span = ENTRIES.under(directory, fold_name(asked.prefix))
    span = ENTRIES.starting(span, (*directory, asked.marker or AFTER_ROOT))
    for (_, _, name), entry in _all_rows(txn, ENTRIES, span, step_size):
        yield name, UINT_MAX, entry


def _former_states(
    txn: ReadTxn, tree: Tree, directory_id: int, asked: ListEntries, step_size: StepSize
) -> Iterator[_State]:
    directory = (tree.share.id, directory_id)
    span = FORMER_ENTRIES.under(directory, fold_name(asked.prefix))
    span = FORMER_ENTRIES.starting(span, (*directory, asked.marker or AFTER_ROOT, 0))
    for (_, _, name, replaced), entry in _all_rows(txn, FORMER_ENTRIES, span, step_size):
        yield name, replaced, entry


def _all_rows(
    txn: ReadTxn, collection: Collection[K, R], span: Span, step_size: StepSize
) -> Iterator[tuple[K, R]]:
    while rows := txn.scan(collection, span, step_size.rows):
        yield from rows
        span = collection.after(span, rows[-1][0])


# Shares


def list_shares(
    txn: ReadTxn, command: FillPage[ListShares, ShareRow]
) -> Steps[FilledPage[ShareRow]]:
    """Lists shares in the order of their names: the snapshots of a share before it, and deleted
    shares of its name after it."""
    asked, step_size = command.asked, StepSize()
    rows = _existing(txn, asked, step_size)
    if asked.deleted:
        rows = heapq.merge(rows, _deleted(txn, asked, step_size), key=_order)
    return pages.fill(txn, command, pages.in_slices(rows, step_size), asked.limit, step_size)


def _order(row: ShareRow) -> tuple[str, int, int]:
    return row[:3]


def _existing(txn: ReadTxn, asked: ListShares, step_size: StepSize) -> Iterator[ShareRow]:
    span = SHARES.under((asked.account,), asked.prefix)
    marker = (asked.marker, asked.marker_version, asked.marker_snapshot)
    if asked.marker:
        span = SHARES.starting(span, (asked.account, asked.marker))
    for (_, name), share in _all_rows(txn, SHARES, span, step_size):
        rows = []
        if asked.snapshots and share.snapshot_generations:
            taken = txn.scan(SHARE_SNAPSHOTS, SHARE_SNAPSHOTS.under((share.id,)), SNAPSHOTS_MAX)
            rows = [ShareRow(name, 0, at, as_share(share, shown)) for (_, at), shown in taken]
        rows.append(ShareRow(name, 0, NO_SNAPSHOT, share))
        yield from (row for row in rows if _order(row) >= marker)


def _deleted(txn: ReadTxn, asked: ListShares, step_size: StepSize) -> Iterator[ShareRow]:
    """Yields the deleted shares whose retention has not ended."""
    span = DELETED_SHARES.under((asked.account,), asked.prefix)
    if asked.marker:
        marker = (asked.account, asked.marker, asked.marker_version)
        span = DELETED_SHARES.starting(span, marker)
    for (_, name, version), kept in _all_rows(txn, DELETED_SHARES, span, step_size):
        if kept.expires > txn.steady_now:
            yield ShareRow(name, version, NO_SNAPSHOT, kept.share, kept)
