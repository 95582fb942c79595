"""TREE_CONNECT and TREE_DISCONNECT ([MS-SMB2] 2.2.9 to 2.2.12, 3.3.5.7 and 3.3.5.8)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from etagere.engine.interface import ReadTxn, Refused
from etagere.model.shares import ShareName, ShareProtocol
from etagere.nt_status import NtStatus
from etagere.opens import client as opens_client
from etagere.opens.handles import Handle
from etagere.opens.handles import Session as OpensSession
from etagere.operations.file import shares
from etagere.protocol.smb.access import FULL_ACCESS
from etagere.protocol.smb.limits import TREES_PER_CONNECTION_MAX, TREES_PER_SESSION_MAX
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.responses import EMPTY_REPLY
from etagere.protocol.smb.state import Tree, remove_open
from etagere.protocol.smb.status import SmbError
from etagere.protocol.time_slices import TimeSlice
from etagere.rules.file_names import check_share_name

if TYPE_CHECKING:
    from etagere.protocol.smb.exchanges import ServerRequest

_REQUEST: Final = struct.Struct("<HHHH")
_RESPONSE: Final = struct.Struct("<HBBIII")
_RESPONSE_STRUCTURE_SIZE: Final = 16
_DISK: Final = 0x01
_PIPE: Final = 0x02
_ENCRYPT_DATA: Final = 0x8000
"""The flag of a share that can only be used with encryption."""
_PIPE_SHARE: Final = "ipc$"
_PATH_BYTES_MAX: Final = 2_048


def parse_tree_connect(message: memoryview, body: memoryview) -> str:
    r"""Returns the name of the share in a request, in lower case. The path is \\host\share; which
    host does not matter. `message` begins with the header."""
    _, _flags, offset, length = _REQUEST.unpack_from(body)
    if offset + length > len(message) or length > _PATH_BYTES_MAX or length % 2:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    try:
        path = bytes(message[offset : offset + length]).decode("utf-16-le")
    except UnicodeDecodeError:
        raise SmbError(NtStatus.INVALID_PARAMETER) from None
    host, separator, share = path.removeprefix("\\\\").partition("\\")
    if not path.startswith("\\\\") or not host or not separator:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return share.lower()


async def tree_connect(request: ServerRequest) -> Reply:
    session = request.session
    if (
        len(session.trees) >= TREES_PER_SESSION_MAX
        or request.connection.count_trees() >= TREES_PER_CONNECTION_MAX
    ):
        raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
    name = parse_tree_connect(request.message, request.body)
    tree_id = request.connection.next_tree_id()
    if name == _PIPE_SHARE:
        tree = Tree(tree_id, session, None)
    else:
        tree = await _connect(request, tree_id, name)
    session.trees[tree_id] = tree
    request.use_tree(tree)
    flags = _ENCRYPT_DATA if session.requires_encryption else 0
    kind = _PIPE if tree.name is None else _DISK
    return Reply(_RESPONSE.pack(_RESPONSE_STRUCTURE_SIZE, kind, 0, flags, 0, FULL_ACCESS))


async def _connect(request: ServerRequest, tree_id: int, name: str) -> Tree:
    session, server = request.session, request.server
    share = ShareName(session.account, name)
    if check_share_name(name) is not None:
        raise SmbError(NtStatus.BAD_NETWORK_NAME)
    tree = Tree(tree_id, session, share)
    client_address = request.connection.client
    try:
        if not await server.engine.read(_is_smb_share, share):
            raise SmbError(NtStatus.BAD_NETWORK_NAME)
        tree.client = await opens_client.connect(
            server.engine,
            server.opens,
            share,
            OpensSession(session.id, client_address, session.client_name),
            server.clock,
            lambda handle: _forget(tree, handle),
        )
    except Refused:
        raise SmbError(NtStatus.BAD_NETWORK_NAME) from None
    if session.is_ended:
        await close_tree(tree)
        raise SmbError(NtStatus.USER_SESSION_DELETED)
    return tree


def _is_smb_share(txn: ReadTxn, name: ShareName) -> bool:
    return shares.find(txn, name).settings.protocol is ShareProtocol.SMB


def _forget(tree: Tree, handle: Handle) -> None:
    """Removes an open whose handle was closed by a REST client, or with its share."""
    opened = tree.opens.get(handle.id)
    if opened is not None:
        remove_open(opened)


async def tree_disconnect(request: ServerRequest) -> Reply:
    tree = request.tree
    del tree.session.trees[tree.id]
    await request.connection.end_requests(lambda one: one.has_tree(tree))
    await close_tree(tree)
    return EMPTY_REPLY


async def close_tree(tree: Tree) -> None:
    """Closes what is open in a tree that was removed from its session."""
    # First, so that nothing more is opened: other requests run between the time slices.
    client, tree.client = tree.client, None
    time_slice = TimeSlice()
    for opened in list(tree.opens.values()):
        remove_open(opened)
        await time_slice.yield_if_over()
    if client is not None:
        await client.disconnect()
