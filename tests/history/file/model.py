"""Shares as the search for an order uses them: the tree, and the names of its snapshots.

What a snapshot shows does not change. So it is enough to compare the tree, at the moment at which
the snapshot is taken, with everything that reads of the snapshot have ever shown. States that
contained the trees of snapshots would be far too many.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from tests.history import linearizability
from tests.history.configurations import Part
from tests.history.events import NEVER, Refused, Unknown, latest_moment
from tests.history.file.events import (
    OVER_SMB,
    READS,
    Done,
    FileSeen,
    History,
    Operation,
    Request,
    Verb,
)
from tests.history.file.tree_model import (
    File,
    Node,
    Tree,
    apply,
    crashed,
    flushed,
    missing,
    names_in,
)

NOTHING_CHANGED: Final = frozenset({"ServerBusy", "ShareSnapshotCountExceeded"})
"""Errors that are right in every state. Snapshots whose answer was lost count too."""
NO_SNAPSHOT: Final = "ShareSnapshotNotFound"
_NO_CLIENT: Final = -2
UNSEEN: Final = "unseen"
"""The name of all tokens on which no outcome depends."""


class State(NamedTuple):
    tree: Tree = ()
    snapshots: tuple[str, ...] = ()
    """Those that exist."""


class SearchEntry(NamedTuple):
    """An operation as the search sees it."""

    operation: Operation
    request: Request
    """With one name for all tokens that nobody saw."""
    part: Part
    began: int
    latest: int
    refusal: str | None = None
    alike: Hashable = None


class ShareModel(linearizability.Model[State, SearchEntry]):
    """The sequential specification of a share."""

    initial = State()

    def __init__(self, entries: Sequence[SearchEntry]) -> None:
        self._entries = entries
        self._shown: dict[str, list[SearchEntry]] = {}
        """The reads of each snapshot that show its tree."""
        for entry in entries:
            request = entry.request
            if request.verb in READS and request.snapshot and _shows_tree(entry):
                self._shown.setdefault(request.snapshot, []).append(entry)

    def step(self, state: State, entry: SearchEntry, until: int) -> Iterator[State]:
        del until
        if entry.refusal in NOTHING_CHANGED:
            yield state
            return
        request = entry.request
        if request.verb is Verb.CRASH:
            for tree in crashed(state.tree):
                yield state._replace(tree=tree)
        elif request.verb is Verb.SNAPSHOT:
            name = _snapshot_of(entry)
            tree = flushed(state.tree)
            if all(_explains(read(tree, each.request), each) for each in self._shown.get(name, ())):
                snapshots = tuple(sorted((*state.snapshots, name)))
                yield State(tree, snapshots)
        elif request.snapshot:
            yield from _with_snapshot(state, entry)
        elif request.verb in READS:
            if _explains(read(state.tree, request), entry):
                # What a REST client has read stays.
                is_rest = request.verb is Verb.GET and entry.refusal is None
                yield state._replace(tree=flushed(state.tree, request.path)) if is_rest else state
        else:
            after = apply(state.tree, request)
            if isinstance(after, str):
                if after == entry.refusal:
                    yield state
            elif entry.refusal is None:
                yield state._replace(tree=after)

    def last_uses(self) -> dict[str, int]:
        """Returns the names of snapshots, with the time of the last request for each, and tokens,
        with the time of the last read that showed them."""
        uses: dict[str, int] = {}
        for entry in self._entries:
            names = entry.request.snapshot, _snapshot_of(entry), *_shown_tokens(entry.operation)
            for name in filter(None, names):
                uses[name] = max(entry.latest, uses.get(name, 0))
        return uses

    def forget(self, state: State, names: Collection[str]) -> State:
        left = tuple(each for each in state.snapshots if each not in names)
        tree = tuple((path, _without(node, names)) for path, node in state.tree)
        return State(tree, left)


def _shown_tokens(operation: Operation) -> tuple[str, ...]:
    """Returns the tokens of the file that was read."""
    outcome = operation.outcome
    if not isinstance(outcome, Done) or outcome.file is None:
        return ()
    return tuple(filter(None, (outcome.file.content, outcome.file.metadata)))


def _without(node: Node, tokens: Collection[str]) -> Node:
    """Returns a file with one name for all tokens that are not shown any more."""
    if not isinstance(node, File):
        return node
    content, metadata = (UNSEEN if each in tokens else each for each in node[:2])
    former = {UNSEEN if each in tokens else each for each in node.former} - {content}
    return node._replace(content=content, metadata=metadata, former=tuple(sorted(former)))


def _snapshot_of(entry: SearchEntry) -> str:
    """Returns the name of the snapshot that an operation took."""
    outcome = entry.operation.outcome
    return outcome.snapshot if isinstance(outcome, Done) else ""


def _shows_tree(entry: SearchEntry) -> bool:
    return entry.refusal != NO_SNAPSHOT and entry.refusal not in NOTHING_CHANGED


def _with_snapshot(state: State, entry: SearchEntry) -> Iterator[State]:
    """Yields the state after a read or the deletion of a snapshot."""
    exists = entry.request.snapshot in state.snapshots
    if exists != (entry.refusal != NO_SNAPSHOT):
        return
    if entry.request.verb is Verb.DELETE_SNAPSHOT and exists:
        left = tuple(each for each in state.snapshots if each != entry.request.snapshot)
        yield state._replace(snapshots=left)
    else:
        yield state


Shown = tuple[FileSeen | None, tuple[str, ...]]
"""What a read shows: a file, or the names in a directory."""


def _explains(shown: Shown | str, entry: SearchEntry) -> bool:
    outcome = entry.operation.outcome
    if isinstance(outcome, Done):
        return shown == (outcome.file, outcome.names)
    return shown == entry.refusal


def read(tree: Tree, request: Request) -> Shown | str:
    """Returns what a read of this tree shows, or the error code."""
    nodes = dict(tree)
    refusal = missing(nodes, request.path)
    if refusal:
        return refusal
    if request.verb is Verb.LIST:
        return None, names_in(tree, request.path)
    file = nodes[request.path]
    assert isinstance(file, File)
    return FileSeen(file.content, "" if request.verb is Verb.SMB_READ else file.metadata), ()


def prepare(operations: Sequence[Operation], history: History) -> list[SearchEntry]:
    """Returns the entries of the operations of one share.

    A write with an unknown outcome whose token was read has been carried out before the first of
    these reads ended. Tokens that no read shows get the same name, so that states that differ only
    in them are one. Unknown reads and snapshots are left out, because nobody saw them, and so is
    what was sent while there was no server.
    """
    read_at: dict[str, int] = {}
    for operation in operations:
        for token in _shown_tokens(operation):
            read_at[token] = min(operation.ended, read_at.get(token, NEVER))
    entries = [_entry(operation, history, read_at) for operation in operations]
    return [entry for entry in entries if entry is not None and entry.began <= entry.latest]


_NAMES_NOTHING: Final = READS | {Verb.SNAPSHOT, Verb.SMB_FLUSH}
_WRITES_TOKEN: Final = frozenset(
    {Verb.CREATE, Verb.PUT, Verb.SET_METADATA, Verb.SMB_WRITE, Verb.SMB_WRITE_THROUGH}
)


def crash_entries(operations: Sequence[Operation], history: History) -> list[SearchEntry]:
    """Returns the crashes as the search sees them: they matter to a share with SMB clients."""
    shares = {each.request.share for each in operations if each.request.verb in OVER_SMB}
    made = (
        Operation(_NO_CLIENT, Request(Verb.CRASH, share), each.began, each.ended, Done())
        for share in shares
        for each in history.crashes
    )
    return [SearchEntry(each, each.request, Part.ACTIVE, each.began, each.ended) for each in made]


def _entry(operation: Operation, history: History, read_at: dict[str, int]) -> SearchEntry | None:
    request, outcome = operation.request, operation.outcome
    if request.verb in _WRITES_TOKEN and request.token not in read_at:
        request = replace(request, token=UNSEEN)
    latest = latest_moment(operation, history.kills)
    entry = SearchEntry(operation, request, Part.PASSIVE, operation.began, latest)
    if isinstance(outcome, Refused):
        return entry._replace(refusal=outcome.code)
    if isinstance(outcome, Done):
        return entry if request.verb in READS else entry._replace(part=Part.ACTIVE)
    assert isinstance(outcome, Unknown)
    if request.verb in _NAMES_NOTHING:
        return None
    if request.verb is Verb.SMB_WRITE_THROUGH:
        # Others may have seen it before it was durable.
        entry = entry._replace(request=replace(request, verb=Verb.SMB_WRITE))
    if request.verb in OVER_SMB:
        # Nothing of it is left in another process.
        ends = [each.ended for each in history.crashes if operation.ended <= each.ended]
        latest = min(latest, *ends, NEVER)
        entry = entry._replace(latest=latest)
    first_read = read_at.get(request.token, NEVER)
    if request.verb in _WRITES_TOKEN and first_read < NEVER:
        latest = max(operation.began, min(latest, first_read))
        return entry._replace(part=Part.ACTIVE, latest=latest)
    return entry._replace(part=Part.DOUBTFUL, alike=entry.request)
