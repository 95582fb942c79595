"""CREATE: opens files, directories and pipes ([MS-SMB2] 2.2.13, 2.2.14, 3.3.5.9)."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.config import KIB
from etagere.engine.interface import Refused
from etagere.model.files import EntryPath
from etagere.model.shares import ShareRef
from etagere.nt_status import NtStatus
from etagere.opens.requests import (
    Action,
    CachingRequest,
    Disposition,
    EntryKind,
    Opened,
    OpenRequest,
)
from etagere.operations.file.tree import find_tree
from etagere.protocol.smb.access import (
    ATTRIBUTE_ACCESS,
    FULL_ACCESS,
    READ_ONLY_ACCESS,
    AccessMask,
    open_mode,
    resolve_access,
    without_writing,
)
from etagere.protocol.smb.buffers import decode_utf16, variable_part
from etagere.protocol.smb.commands.breaks import (
    OPLOCK_LEASE,
    OPLOCK_NONE,
    BreakNotifier,
    caching_of_oplock,
    lease_client,
    oplock_of_caching,
)
from etagere.protocol.smb.create_contexts import (
    DISK_ID,
    LEASE,
    MAXIMAL_ACCESS,
    CreateContexts,
    pack_contexts,
    pack_disk_id,
    pack_lease,
    pack_maximal_access,
    parse_contexts,
)
from etagere.protocol.smb.dialects import DIALECT_3_0
from etagere.protocol.smb.filetimes import FILETIME_MAX
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.information.files import NORMAL, network_open
from etagere.protocol.smb.information.security import permission_of_new
from etagere.protocol.smb.information.volumes import serial_number
from etagere.protocol.smb.limits import PIPES_PER_SESSION_MAX
from etagere.protocol.smb.paths import RequestedPath, decode_path, snapshot_at
from etagere.protocol.smb.pipes import open_pipe
from etagere.protocol.smb.requests import Reply, Request
from etagere.protocol.smb.state import Open
from etagere.protocol.smb.status import SmbError
from etagere.rules.caching import Caching
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.file_ranges import FILE_BYTES_MAX

if TYPE_CHECKING:
    from etagere.opens.client import ShareClient

_REQUEST: Final = struct.Struct("<HBBI8x8xIIIIIHHII")
_RESPONSE_HEAD: Final = struct.Struct("<HBBI")
_RESPONSE_TAIL: Final = struct.Struct("<4xQQII")
_RESPONSE_STRUCTURE_SIZE: Final = 89
_RESPONSE_BYTES: Final = 88
_PIPE_INFORMATION: Final = struct.pack("<32xQQI", 4 * KIB, 0, NORMAL)
_PIPE_IDS: Final = itertools.count(1 << 63)
"""The IDs of the opens of pipes, which are not handles."""
_IMPERSONATION_LEVEL_MAX: Final = 3
_SHARE_ACCESS: Final = 0x7

DIRECTORY_FILE: Final = 0x0000_0001
WRITE_THROUGH: Final = 0x0000_0002
NON_DIRECTORY_FILE: Final = 0x0000_0040
DELETE_ON_CLOSE: Final = 0x0000_1000
_UNSUPPORTED_OPTIONS: Final = 0x0010_2080
"""FILE_CREATE_TREE_CONNECTION, FILE_OPEN_BY_FILE_ID, FILE_RESERVE_OPFILTER."""
_INVALID_OPTIONS: Final = 0xFF00_0000

_INVALID_ATTRIBUTES: Final = 0xFFFF_8048
"""Those that are not defined, and FILE_ATTRIBUTE_DEVICE and 8, which was a volume label."""
_ENCRYPTED: Final = 0x4000
_NEW_ATTRIBUTES: Final = int(
    FileAttributes.READ_ONLY
    | FileAttributes.HIDDEN
    | FileAttributes.SYSTEM
    | FileAttributes.OFFLINE
    | FileAttributes.NOT_CONTENT_INDEXED
)
_NEW_FILE_ATTRIBUTES: Final = int(
    _NEW_ATTRIBUTES | FileAttributes.ARCHIVE | FileAttributes.TEMPORARY
)
"""Other attributes are ignored."""

_DISPOSITIONS: Final = (
    Disposition.SUPERSEDE,
    Disposition.OPEN,
    Disposition.CREATE,
    Disposition.OPEN_IF,
    Disposition.OVERWRITE,
    Disposition.OVERWRITE_IF,
)
"""By their values in requests."""
_OVERWRITING: Final = frozenset(
    {Disposition.SUPERSEDE, Disposition.OVERWRITE, Disposition.OVERWRITE_IF}
)
_CHANGING: Final = _OVERWRITING | {Disposition.CREATE}
_ACTIONS: Final = {
    Action.SUPERSEDED: 0,
    Action.OPENED: 1,
    Action.CREATED: 2,
    Action.OVERWRITTEN: 3,
}


class CreateRequest(NamedTuple):
    """A CREATE request ([MS-SMB2] 2.2.13)."""

    oplock_level: int
    impersonation_level: int
    desired_access: int
    attributes: int
    share_access: int
    disposition: int
    options: int
    name: memoryview
    contexts: memoryview


def parse_create(body: memoryview) -> CreateRequest:
    if len(body) < _REQUEST.size:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    (
        _size,
        _security_flags,
        oplock_level,
        impersonation_level,
        desired_access,
        attributes,
        share_access,
        disposition,
        options,
        name_offset,
        name_length,
        contexts_offset,
        contexts_length,
    ) = _REQUEST.unpack_from(body)
    return CreateRequest(
        oplock_level,
        impersonation_level,
        desired_access,
        attributes,
        share_access,
        disposition,
        options,
        variable_part(body, name_offset, name_length, _REQUEST.size),
        variable_part(body, contexts_offset, contexts_length, _REQUEST.size),
    )


async def create(request: Request) -> Reply:
    asked = parse_create(request.body)
    if asked.impersonation_level > _IMPERSONATION_LEVEL_MAX:
        raise SmbError(NtStatus.BAD_IMPERSONATION_LEVEL)
    client = request.tree.client
    if client is None:
        return _open_pipe(request, asked)
    has_lease_v2 = request.negotiated.dialect >= DIALECT_3_0
    contexts = parse_contexts(asked.contexts, has_lease_v2=has_lease_v2)
    path = _path(asked, contexts)
    rights = resolve_access(asked.desired_access, is_snapshot=path.snapshot is not None)
    notifier = BreakNotifier(request.session.notify) if asked.oplock_level else None
    open_request = _open_request(request, asked, contexts, path, rights, notifier)
    if path.snapshot is not None and open_request.disposition in _CHANGING:
        await request.server.engine.read(find_tree, open_request.path.ref)
        raise SmbError(NtStatus.MEDIA_WRITE_PROTECTED)
    if contexts.descriptor is not None:
        permission = await permission_of_new(contexts.descriptor)
        open_request = open_request._replace(permission=permission)
    opened, rights = await _open(request, client, asked, open_request, rights)
    handle = opened.handle
    if request.tree.client is not client:
        # The tree was disconnected meanwhile.
        await client.close(handle)
        raise SmbError(NtStatus.NETWORK_NAME_DELETED)
    allocation = 0 if opened.entry.is_directory else contexts.allocation
    request.add_open(
        Open(handle.id, request.tree, rights, asked.options, handle, allocation=allocation)
    )
    if notifier is not None:
        notifier.start(handle.id)
    information = network_open(opened.entry, allocation)
    level, packed = _pack_contexts(client, asked, contexts, opened)
    return Reply(_pack_response(level, opened.action, information, handle.id, packed))


def _open_pipe(request: Request, asked: CreateRequest) -> Reply:
    session = request.session
    pipe = open_pipe(request.server, session.account, decode_utf16(asked.name))
    if session.pipes >= PIPES_PER_SESSION_MAX:
        raise SmbError(NtStatus.TOO_MANY_OPENED_FILES)
    pipe_id = next(_PIPE_IDS)
    access = resolve_access(asked.desired_access)
    request.add_open(Open(pipe_id, request.tree, access, asked.options, pipe=pipe))
    session.pipes += 1
    return Reply(_pack_response(OPLOCK_NONE, Action.OPENED, _PIPE_INFORMATION, pipe_id, b""))


def _path(asked: CreateRequest, contexts: CreateContexts) -> RequestedPath:
    path = decode_path(asked.name)
    if contexts.snapshot:
        path = path._replace(snapshot=snapshot_at(contexts.snapshot))
    if path.snapshot is not None and not 0 <= path.snapshot <= FILETIME_MAX:
        # Before 1970 there was none, and what is no time at all is the time of none.
        raise SmbError(NtStatus.OBJECT_NAME_NOT_FOUND)
    return path


def _open_request(
    request: Request,
    asked: CreateRequest,
    contexts: CreateContexts,
    path: RequestedPath,
    rights: int,
    notifier: BreakNotifier | None,
) -> OpenRequest:
    """Returns what the client asks for, or raises `SmbError` if the request contradicts itself."""
    options = asked.options
    if asked.disposition >= len(_DISPOSITIONS) or asked.share_access & ~_SHARE_ACCESS:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if options & _INVALID_OPTIONS or asked.attributes & _INVALID_ATTRIBUTES:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    if options & _UNSUPPORTED_OPTIONS:
        raise SmbError(NtStatus.NOT_SUPPORTED)
    disposition = _DISPOSITIONS[asked.disposition]
    if asked.attributes & _ENCRYPTED and disposition is not Disposition.OPEN:
        raise SmbError(NtStatus.ACCESS_DENIED)
    if contexts.allocation > FILE_BYTES_MAX:
        raise SmbError(NtStatus.DISK_FULL)
    kind = _kind(options, path, disposition)
    deletes_on_close = bool(options & DELETE_ON_CLOSE)
    if deletes_on_close and not rights & AccessMask.DELETE:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    name = request.tree.name
    assert name is not None
    is_directory = kind is EntryKind.DIRECTORY
    if path.snapshot is not None and disposition is Disposition.OPEN_IF:
        disposition = Disposition.OPEN
    return OpenRequest(
        EntryPath(ShareRef(name, path.snapshot), path.components),
        open_mode(rights, asked.share_access),
        disposition,
        kind,
        attributes=asked.attributes & (_NEW_ATTRIBUTES if is_directory else _NEW_FILE_ATTRIBUTES),
        deletes_on_close=deletes_on_close,
        caching=_caching(request, asked, contexts, notifier),
        is_attribute_only=not rights & ~ATTRIBUTE_ACCESS,
        spares_leases=not rights & ~(ATTRIBUTE_ACCESS | AccessMask.READ_CONTROL),
        allocation=contexts.allocation,
    )


def _kind(options: int, path: RequestedPath, disposition: Disposition) -> EntryKind:
    if options & NON_DIRECTORY_FILE:
        if options & DIRECTORY_FILE:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        if path.names_directory:
            raise SmbError(NtStatus.OBJECT_NAME_INVALID)
        return EntryKind.FILE
    if options & DIRECTORY_FILE:
        if disposition in _OVERWRITING:
            raise SmbError(NtStatus.INVALID_PARAMETER)
        return EntryKind.DIRECTORY
    return EntryKind.DIRECTORY if path.names_directory else EntryKind.ANY


def _caching(
    request: Request,
    asked: CreateRequest,
    contexts: CreateContexts,
    notifier: BreakNotifier | None,
) -> CachingRequest | None:
    if notifier is None:
        return None
    client = lease_client(request)
    if asked.oplock_level == OPLOCK_LEASE:
        lease = contexts.lease
        if lease is None:
            return None
        return CachingRequest(
            lease.state, lease.key, client, notifier, epoch=lease.epoch, is_v2=lease.is_v2
        )
    wanted = caching_of_oplock(asked.oplock_level)
    if not wanted:
        return None
    return CachingRequest(wanted, None, client, notifier)


async def _open(
    request: Request,
    client: ShareClient,
    asked: CreateRequest,
    open_request: OpenRequest,
    rights: int,
) -> tuple[Opened, int]:
    """Opens the entry; returns the rights that are granted, too."""
    try:
        return await client.open(open_request, on_wait=request.pend), rights
    except Refused as refused:
        if refused.refusal.code != "ReadOnlyAttribute" or not _tolerates_read_only(asked):
            raise
    # The client wants as much as possible, which does not include writing.
    rights = without_writing(rights)
    read_only = open_request._replace(mode=open_mode(rights, asked.share_access))
    return await client.open(read_only, on_wait=request.pend), rights


def _tolerates_read_only(asked: CreateRequest) -> bool:
    desired = asked.desired_access
    if not desired & AccessMask.MAXIMUM_ALLOWED:
        return False
    explicit = desired & ~AccessMask.MAXIMUM_ALLOWED
    rights = resolve_access(explicit) if explicit else 0
    return rights == without_writing(rights)


# The response


def _pack_contexts(
    client: ShareClient,
    asked: CreateRequest,
    contexts: CreateContexts,
    opened: Opened,
) -> tuple[int, bytes]:
    """Returns the oplock level and the contexts of a response."""
    entry, grant = opened.entry, opened.handle.grant
    granted = Caching.NONE if grant is None else grant.state
    level = oplock_of_caching(granted)
    if not asked.contexts:
        return level, b""
    answers: list[tuple[bytes, bytes]] = []
    if contexts.asks_maximal_access:
        is_snapshot = opened.handle.entry.snapshot is not None
        access = READ_ONLY_ACCESS if is_snapshot else FULL_ACCESS
        answers.append((MAXIMAL_ACCESS, pack_maximal_access(access)))
    if contexts.asks_disk_id:
        disk_id = pack_disk_id(entry.id, serial_number(client.share.id))
        answers.append((DISK_ID, disk_id))
    lease = contexts.lease if asked.oplock_level == OPLOCK_LEASE else None
    if lease is not None and not entry.is_directory:
        level = OPLOCK_LEASE
        is_breaking = grant is not None and grant.is_breaking
        epoch = lease.epoch if grant is None else grant.epoch
        if grant is not None and lease.is_v2 is not grant.is_v2:
            # A lease stays as it was when the client got it.
            lease = lease._replace(is_v2=grant.is_v2, parent_key=None)
        packed = pack_lease(lease, granted, is_breaking=is_breaking, epoch=epoch)
        answers.append((LEASE, packed))
    return level, pack_contexts(answers)


def _pack_response(
    level: int, action: Action, information: bytes, file_id: int, contexts: bytes
) -> bytes:
    """Returns the body of a response ([MS-SMB2] 2.2.14). `information` are times, sizes and
    attributes."""
    contexts_at = HEADER_BYTES + _RESPONSE_BYTES if contexts else 0
    return b"".join(
        (
            _RESPONSE_HEAD.pack(_RESPONSE_STRUCTURE_SIZE, level, 0, _ACTIONS[action]),
            information,
            _RESPONSE_TAIL.pack(file_id, file_id, contexts_at, len(contexts)),
            contexts,
        )
    )
