"""Shares in memory, with at most one planted bug."""

from __future__ import annotations

import enum
import random
from typing import NamedTuple

from msgspec.structs import replace

from tests.history.events import Refused
from tests.history.file.events import (
    LEASE_ACTIONS,
    READS,
    RENAMES,
    WRITES,
    Done,
    FileSeen,
    Request,
    Verb,
)
from tests.history.file.model import NO_SNAPSHOT, read
from tests.history.file.tree_model import (
    NO_LEASE,
    File,
    Tree,
    apply,
    crashed,
    flushed,
    parent_of,
    without_leases,
)


class Bug(enum.Enum):
    STALE_READ = "a read shows the state before the last change"
    STALE_LIST = "a list shows the names before the last change"
    TORN_READ = "a read shows a content with the metadata of the state before"
    DAMAGED_READ = "a read shows bytes of two writes"
    LOST_UPDATE = "a write is acknowledged and not carried out"
    ACKNOWLEDGED_LOST = "a kill undoes a change that was acknowledged"
    APPLIED_TWICE = "a change without an answer is made again after a kill"
    FAILED_BUT_DONE = "a change is made and answered with an error"
    RENAME_COPIES = "a renamed file stays at its old name too"
    RENAME_LOSES = "a renamed file is at neither name"
    RENAME_REPLACES = "a rename replaces a file although it may not"
    RENAME_KEEPS_REPLACED = "a rename over a file leaves the content of that file"
    NOT_EMPTY_DELETED = "a directory is deleted with what is in it"
    LOST_BELOW = "a rename of a directory loses a file in it"
    CREATED_IN_OLD_PLACE = "a file is created in a directory that was renamed or deleted"
    LEASE_IGNORED = "a file is changed without the ID of its lease"
    STALE_LEASE_ACCEPTED = "a file is changed with the ID of a lease that has ended"
    TWO_HOLDERS = "a leased file is leased again"
    LEASE_FORGOTTEN = "a kill ends a lease"
    LATE_SNAPSHOT = "a snapshot shows changes that were made after it"
    SPLIT_SNAPSHOT = "a snapshot lacks the last change of a file"
    SNAPSHOT_LOST = "a kill removes a snapshot"
    FLUSH_FORGOTTEN = "a kill undoes an SMB write that was flushed"
    WRITE_THROUGH_FORGOTTEN = "a kill undoes an SMB write with write-through"
    READ_BUT_UNDONE = "a kill undoes an SMB write that a REST client has read"
    SMB_WRITE_HIDDEN = "a REST client does not see an SMB write that is not flushed"
    SNAPSHOT_BEFORE_FLUSH = "a snapshot lacks an SMB write that is not flushed"
    ETAG_REUSED = "a write does not change the ETag"


class State(NamedTuple):
    """A share."""

    tree: Tree = ()
    snapshots: tuple[tuple[str, Tree], ...] = ()


class Store:
    """The shares of an account."""

    def __init__(self, source: random.Random, bug: Bug | None) -> None:
        self._random = source
        self._bug = bug
        self._states: dict[str, State] = {}
        self._before: dict[str, State] = {}
        """Each share before its last change."""
        self._etags: dict[tuple[str, FileSeen], str] = {}
        self._stamp = 0

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        """Whether the bug strikes now."""
        return self._bug is bug and self._random.random() < chance

    def kill(self) -> None:
        for share, before in self._states.items():
            # The last is one in which all files have lost something.
            left = list(crashed(before.tree))[-1 if self._bug else self._random.randrange(2) - 1]
            self._states[share] = state = before._replace(tree=left)
            if self.has(Bug.ACKNOWLEDGED_LOST) and share in self._before:
                self._states[share] = self._before[share]
            if self.has(Bug.SNAPSHOT_LOST):
                self._states[share] = state._replace(snapshots=state.snapshots[:-1])
            if self.has(Bug.LEASE_FORGOTTEN):
                self._states[share] = state._replace(tree=without_leases(state.tree))

    def carry_out(self, request: Request, moment: int) -> Done | Refused:
        del moment
        if request.verb in READS:
            return self._read(request)
        outcome = self._change(request)
        busy = isinstance(outcome, Done) and self.has(Bug.FAILED_BUT_DONE, 0.05)
        return Refused("ServerBusy") if busy else outcome

    # Reads

    def _read(self, request: Request) -> Done | Refused:
        state = self._states.get(request.share, State())
        before = self._before.get(request.share, State())
        stale = Bug.STALE_LIST if request.verb is Verb.LIST else Bug.STALE_READ
        if not request.snapshot and self.has(stale, 0.3):
            state = before
        tree = self._tree(state, request)
        shown = NO_SNAPSHOT if tree is None else read(tree, request)
        if isinstance(shown, str):
            return Refused(shown)
        file, names = shown
        if file is None:
            return Done(names=names)
        if request.verb is Verb.SMB_READ:
            return Done(file=file)
        node = dict(tree or ())[request.path]
        if isinstance(node, File) and node.former and self.has(Bug.SMB_WRITE_HIDDEN, 0.5):
            file = replace(file, content=node.former[0])
        if not request.snapshot and not self.has(Bug.READ_BUT_UNDONE):
            now = self._states[request.share]
            self._states[request.share] = now._replace(tree=flushed(now.tree, request.path))
        etag = self._etag(request.share, file)
        if self.has(Bug.DAMAGED_READ, 0.05):
            file = replace(file, content="damaged")
        former = dict(before.tree).get(request.path)
        if isinstance(former, File) and self.has(Bug.TORN_READ):
            file = replace(file, metadata=former.metadata)
        return Done(etag, file)

    def _tree(self, state: State, request: Request) -> Tree | None:
        if not request.snapshot:
            return state.tree
        if request.snapshot in dict(state.snapshots) and self.has(Bug.LATE_SNAPSHOT, 0.3):
            return without_leases(state.tree)
        return dict(state.snapshots).get(request.snapshot)

    def _etag(self, share: str, file: FileSeen) -> str:
        """Returns the ETag of a version. The model of a share has none; these are as good."""
        return self._etags.setdefault((share, file), f"{share}-{len(self._etags)}")

    # Changes

    def _change(self, request: Request) -> Done | Refused:
        old = self._states.get(request.share, State())
        self._stamp += 1
        done = Done(snapshot=f"s{self._stamp:06}" if request.verb is Verb.SNAPSHOT else "")
        new = _after(self._seen_by(old, request), self._understood(request), done.snapshot)
        if isinstance(new, str):
            return Refused(new)
        if request.verb in WRITES and self.has(Bug.LOST_UPDATE, 0.1):
            new = old
        new = self._spoiled(old, new, request)
        if new.tree != old.tree:
            self._before[request.share] = old
        self._states[request.share] = new
        return replace(done, etag=self._etag_after(old, new, request))

    def _etag_after(self, old: State, new: State, request: Request) -> str:
        file = dict(new.tree).get(request.path)
        if request.verb not in WRITES or not isinstance(file, File):
            return ""
        seen = FileSeen(file.content, file.metadata)
        former = dict(old.tree).get(request.path)
        if isinstance(former, File) and self.has(Bug.ETAG_REUSED, 0.2):
            etag = self._etag(request.share, FileSeen(former.content, former.metadata))
            self._etags[request.share, seen] = etag
        return self._etag(request.share, seen)

    def _seen_by(self, state: State, request: Request) -> State:
        """The state as a change with a bug sees it."""
        nodes = dict(state.tree)
        file = nodes.get(request.path)
        if isinstance(file, File) and self._ignores_lease(request):
            nodes[request.path] = file._replace(lease=NO_LEASE)
        before = dict(self._before.get(request.share, State()).tree)
        parent = parent_of(request.path)
        was_there = parent not in nodes and parent in before
        if request.verb is Verb.CREATE and was_there and self.has(Bug.CREATED_IN_OLD_PLACE):
            nodes[parent] = before[parent]
        if request.verb is Verb.DELETE_DIRECTORY and self.has(Bug.NOT_EMPTY_DELETED, 0.5):
            for path in [each for each in nodes if each.startswith(f"{request.path}/")]:
                del nodes[path]
        return state._replace(tree=tuple(sorted(nodes.items())))

    def _ignores_lease(self, request: Request) -> bool:
        if request.verb is Verb.ACQUIRE:
            return self.has(Bug.TWO_HOLDERS, 0.5)
        if request.verb in LEASE_ACTIONS:
            return False
        stale = request.lease and self.has(Bug.STALE_LEASE_ACCEPTED)
        return bool(stale) or (not request.lease and self.has(Bug.LEASE_IGNORED, 0.3))

    def _understood(self, request: Request) -> Request:
        """The request as a bug understands it."""
        if request.verb is Verb.SMB_WRITE_THROUGH and self.has(Bug.WRITE_THROUGH_FORGOTTEN):
            return replace(request, verb=Verb.SMB_WRITE)
        if self._bug is Bug.STALE_LEASE_ACCEPTED and request.verb in WRITES:
            return replace(request, lease="")
        if request.verb is Verb.RENAME and self.has(Bug.RENAME_REPLACES):
            return replace(request, replace=True)
        return request

    def _spoiled(self, old: State, new: State, request: Request) -> State:
        """The state after a change, with the effect of a bug."""
        nodes, former = dict(new.tree), dict(old.tree)
        if request.verb is Verb.SMB_FLUSH and self.has(Bug.FLUSH_FORGOTTEN):
            return old
        if request.verb is Verb.SNAPSHOT and self.has(Bug.SNAPSHOT_BEFORE_FLUSH):
            return _with_old_snapshot(old, new)
        if request.verb is Verb.RENAME:
            if self.has(Bug.RENAME_COPIES, 0.3):
                nodes[request.path] = former[request.path]
            if self.has(Bug.RENAME_LOSES, 0.3):
                del nodes[request.target]
            if request.target in former and self.has(Bug.RENAME_KEEPS_REPLACED, 0.5):
                nodes[request.target] = former[request.target]
        if request.verb in RENAMES and self.has(Bug.LOST_BELOW):
            below = [path for path in nodes if path.startswith(f"{request.target}/")]
            if below:
                del nodes[below[-1]]
        if request.verb is Verb.SNAPSHOT and self.has(Bug.SPLIT_SNAPSHOT, 0.5):
            return self._with_split_snapshot(new, request.share)
        return new._replace(tree=tuple(sorted(nodes.items())))

    def _with_split_snapshot(self, state: State, share: str) -> State:
        """Shows one file in the last snapshot as it was earlier."""
        (*others, (name, tree)) = state.snapshots
        before = dict(self._before.get(share, State()).tree)
        mixed = tuple((path, before.get(path, node)) for path, node in tree)
        return state._replace(snapshots=(*others, (name, without_leases(mixed))))


def _with_old_snapshot(old: State, new: State) -> State:
    """Shows files in the last snapshot as they were before SMB writes."""
    (*others, (name, tree)) = new.snapshots
    files = {path: node for path, node in old.tree if isinstance(node, File) and node.former}
    shown = tuple(
        (path, node._replace(content=files[path].former[0]))
        if isinstance(node, File) and path in files
        else (path, node)
        for path, node in tree
    )
    return new._replace(snapshots=(*others, (name, shown)))


def _after(state: State, request: Request, snapshot: str) -> State | str:
    """Returns the share after a change, or the error code."""
    if request.verb is Verb.SNAPSHOT:
        tree = flushed(state.tree)
        taken = (snapshot, without_leases(tree))
        return State(tree, (*state.snapshots, taken))
    if request.verb is Verb.DELETE_SNAPSHOT:
        left = tuple(each for each in state.snapshots if each[0] != request.snapshot)
        return state._replace(snapshots=left) if left != state.snapshots else NO_SNAPSHOT
    changed = apply(state.tree, request)
    return changed if isinstance(changed, str) else state._replace(tree=changed)
