"""The sequential specification of a share: its tree after a request, or the code of a refusal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.history.file.events import ROOT, Request, Verb

AVAILABLE: Final = "available"
LEASED: Final = "leased"
BROKEN: Final = "broken"


class Lease(NamedTuple):
    """The lease of a file, which does not expire."""

    state: str = AVAILABLE
    token: str = ""


NO_LEASE: Final = Lease()


class File(NamedTuple):
    content: str = ""
    """The token of the write; empty: only zeros."""
    metadata: str = ""
    lease: Lease = NO_LEASE
    former: tuple[str, ...] = ()
    """Contents before SMB writes that were not flushed: a crash may bring them back."""


class Directory(NamedTuple):
    """A directory, which has nothing that a write could change."""


DIRECTORY: Final = Directory()
Node = File | Directory
Tree = tuple[tuple[str, Node], ...]
"""Everything in a share, by path."""
Nodes = dict[str, Node]
Change = Callable[[Nodes, Request], str | None]
"""Changes the nodes, or returns the code of a refusal."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def names_in(tree: Tree, directory: str) -> tuple[str, ...]:
    """Returns the names of the entries of a directory, in order."""
    return tuple(path.rpartition("/")[2] for path, _ in tree if parent_of(path) == directory)


def missing(nodes: Nodes, path: str) -> str | None:
    """Returns the refusal of a request for this path, if nothing is there."""
    if path in nodes or path == ROOT:
        return None
    return _parent_missing(nodes, path) or "ResourceNotFound"


def without_leases(tree: Tree) -> Tree:
    return tuple(
        (path, node._replace(lease=NO_LEASE) if isinstance(node, File) else node)
        for path, node in tree
    )


def flushed(tree: Tree, path: str | None = None) -> Tree:
    """Returns the tree after everything that was written to a file, or (None) to all, was made
    durable."""
    return tuple(
        (each, node._replace(former=()))
        if isinstance(node, File) and path in (None, each)
        else (each, node)
        for each, node in tree
    )


def crashed(tree: Tree) -> Iterator[Tree]:
    """Yields the trees that a crash may leave behind."""
    choices: list[list[Node]] = [
        [node._replace(content=one, former=()) for one in (node.content, *node.former)]
        if isinstance(node, File)
        else [node]
        for _, node in tree
    ]
    for nodes in itertools.product(*choices):
        yield tuple((path, node) for (path, _), node in zip(tree, nodes, strict=True))


def apply(tree: Tree, request: Request) -> Tree | str:
    """Returns the tree after a change, or the error code."""
    nodes = dict(tree)
    refusal = _CHANGES[request.verb](nodes, request)
    return tuple(sorted(nodes.items())) if refusal is None else refusal


def _parent_missing(nodes: Nodes, path: str) -> str | None:
    parent = parent_of(path)
    return None if parent == ROOT or parent in nodes else "ParentNotFound"


# Leases


def _refused_by_lease(lease: Lease, sent: str) -> str | None:
    """Returns why a write with this lease ID is refused."""
    if lease.state == LEASED:
        if not sent:
            return "LeaseIdMissing"
        return None if sent == lease.token else "LeaseIdMismatchWithFileOperation"
    if not sent:
        return None
    return "LeaseLost" if lease.state == BROKEN else "LeaseNotPresentWithFileOperation"


def _written(file: File) -> File:
    """Returns the file with its lease as it is after a write: a broken one is forgotten."""
    return file._replace(lease=NO_LEASE) if file.lease.state == BROKEN else file


def _acquired(lease: Lease, request: Request) -> Lease | str:
    if lease.state == LEASED and lease.token != request.token:
        return "LeaseAlreadyPresent"
    return Lease(LEASED, request.token)


def _changed(lease: Lease, request: Request) -> Lease | str:
    if lease.state != LEASED:
        return "LeaseNotPresentWithLeaseOperation"
    # A change to the ID that the lease has is one whose answer was lost.
    if lease.token not in (request.lease, request.token):
        return "LeaseIdMismatchWithLeaseOperation"
    return Lease(LEASED, request.token)


def _released(lease: Lease, request: Request) -> Lease | str:
    if lease.state == AVAILABLE or lease.token != request.lease:
        return "LeaseIdMismatchWithLeaseOperation"
    return NO_LEASE


def _broken(lease: Lease, request: Request) -> Lease | str:
    del request
    if lease.state == AVAILABLE:
        return "LeaseNotPresentWithLeaseOperation"
    return Lease(BROKEN, lease.token)


_LEASE_ACTIONS: Final[dict[Verb, Callable[[Lease, Request], Lease | str]]] = {
    Verb.ACQUIRE: _acquired,
    Verb.CHANGE: _changed,
    Verb.RELEASE: _released,
    Verb.BREAK: _broken,
}


def _act_on_lease(nodes: Nodes, request: Request) -> str | None:
    refusal = missing(nodes, request.path)
    if refusal:
        return refusal
    file = nodes[request.path]
    assert isinstance(file, File)
    lease = _LEASE_ACTIONS[request.verb](file.lease, request)
    if isinstance(lease, str):
        return lease
    nodes[request.path] = file._replace(lease=lease)
    return None


# Files


def _changeable(nodes: Nodes, path: str, sent: str) -> File | str:
    """Returns a file as a write leaves it, or why the write is refused."""
    refusal = missing(nodes, path)
    if refusal:
        return refusal
    file = nodes[path]
    assert isinstance(file, File)
    return _refused_by_lease(file.lease, sent) or _written(file)


def _create(nodes: Nodes, request: Request) -> str | None:
    """Creates a file of zeros, or replaces all of one except its lease."""
    path, lease = request.path, NO_LEASE
    if path in nodes:
        file = _changeable(nodes, path, request.lease)
        if isinstance(file, str):
            return file
        lease = file.lease
    else:
        refusal = _parent_missing(nodes, path)
        if refusal:
            return refusal
        if request.lease:
            return "LeaseNotPresentWithFileOperation"
    nodes[path] = File("", request.token, lease)
    return None


def _write(nodes: Nodes, request: Request) -> str | None:
    file = _changeable(nodes, request.path, request.lease)
    if isinstance(file, str):
        return file
    if request.verb is Verb.SET_METADATA:
        nodes[request.path] = file._replace(metadata=request.token, former=())
    else:
        nodes[request.path] = file._replace(content=request.token, former=())
    return None


def _write_over_smb(nodes: Nodes, request: Request) -> str | None:
    refusal = missing(nodes, request.path)
    if refusal:
        return refusal
    file = nodes[request.path]
    assert isinstance(file, File)
    former = {*file.former, file.content} - {request.token}
    nodes[request.path] = file._replace(content=request.token, former=tuple(sorted(former)))
    return None


def _write_through_over_smb(nodes: Nodes, request: Request) -> str | None:
    return _write_over_smb(nodes, request) or _flush_over_smb(nodes, request)


def _flush_over_smb(nodes: Nodes, request: Request) -> str | None:
    refusal = missing(nodes, request.path)
    if refusal:
        return refusal
    file = nodes[request.path]
    assert isinstance(file, File)
    nodes[request.path] = file._replace(former=())
    return None


def _delete(nodes: Nodes, request: Request) -> str | None:
    file = _changeable(nodes, request.path, request.lease)
    if isinstance(file, str):
        return file
    del nodes[request.path]
    return None


def _rename(nodes: Nodes, request: Request) -> str | None:
    refusal = _refused_paths(nodes, request)
    if refusal:
        return refusal
    file = _changeable(nodes, request.path, request.lease)
    if isinstance(file, str):
        return file
    if request.target in nodes:
        if not request.replace:
            return "ResourceAlreadyExists"
        replaced = _changeable(nodes, request.target, request.target_lease)
        if isinstance(replaced, str):
            return replaced
    elif request.target_lease:
        return "LeaseNotPresentWithFileOperation"
    del nodes[request.path]
    nodes[request.target] = file
    return None


def _refused_paths(nodes: Nodes, request: Request) -> str | None:
    """Returns why a rename is refused: a directory of the new path is checked before the source."""
    return (
        _parent_missing(nodes, request.path)
        or _parent_missing(nodes, request.target)
        or missing(nodes, request.path)
    )


# Directories


def _create_directory(nodes: Nodes, request: Request) -> str | None:
    refusal = _parent_missing(nodes, request.path)
    if refusal:
        return refusal
    if request.path in nodes:
        return "ResourceAlreadyExists"
    nodes[request.path] = DIRECTORY
    return None


def _delete_directory(nodes: Nodes, request: Request) -> str | None:
    refusal = missing(nodes, request.path)
    if refusal:
        return refusal
    if any(parent_of(path) == request.path for path in nodes):
        return "DirectoryNotEmpty"
    del nodes[request.path]
    return None


def _rename_directory(nodes: Nodes, request: Request) -> str | None:
    source, target = request.path, request.target
    refusal = _refused_paths(nodes, request)
    if refusal:
        return refusal
    if target.startswith(f"{source}/"):
        return "InvalidInput"
    if target in nodes:
        return "ResourceAlreadyExists"
    for path in [each for each in nodes if each == source or each.startswith(f"{source}/")]:
        nodes[target + path.removeprefix(source)] = nodes.pop(path)
    return None


_CHANGES: Final[dict[Verb, Change]] = {
    Verb.CREATE: _create,
    Verb.PUT: _write,
    Verb.CLEAR: _write,
    Verb.SET_METADATA: _write,
    Verb.DELETE: _delete,
    Verb.RENAME: _rename,
    Verb.CREATE_DIRECTORY: _create_directory,
    Verb.DELETE_DIRECTORY: _delete_directory,
    Verb.RENAME_DIRECTORY: _rename_directory,
    Verb.SMB_WRITE: _write_over_smb,
    Verb.SMB_WRITE_THROUGH: _write_through_over_smb,
    Verb.SMB_FLUSH: _flush_over_smb,
    **dict.fromkeys(_LEASE_ACTIONS, _act_on_lease),
}
