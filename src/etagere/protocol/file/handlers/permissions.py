"""Operations on the permissions of a share."""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.files import CreatePermission, GetPermission, NewPermission
from etagere.operations.file import permissions
from etagere.protocol.file import decode
from etagere.protocol.file.decode_permissions import (
    LONG_PERMISSION_BYTES,
    PermissionFormat,
    new_permission,
    permission_format,
    permission_number,
)
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import required_header
from etagere.rules.file_permissions import format_permission_key
from etagere.rules.sddl import SDDL_LENGTH_MAX, NoSddlFormError, format_sddl
from etagere.rules.security_descriptors import decode_descriptor

_DOCUMENT_BYTES_MAX: Final = SDDL_LENGTH_MAX + 1_024


class _Document(msgspec.Struct):
    """The document with a permission."""

    permission: str
    format: str = ""


_decode_document: Final = msgspec.json.Decoder(_Document).decode


async def create_permission(exchange: Exchange, deps: FileDependencies) -> Response:
    decode.refuse_snapshot(exchange)
    share = decode.share_name(exchange)
    document = await exchange.http.body.read(_DOCUMENT_BYTES_MAX)
    if len(document) >= LONG_PERMISSION_BYTES:
        read_class = exchange.read_class("permission")
        new = await deps.engine.read_in_thread(
            lambda _, written: _read_document(written), document, read_class
        )
    else:
        new = _read_document(document)
    number = await deps.engine.write(permissions.create_permission, CreatePermission(share, new))
    key = format_permission_key(number).encode()
    return Response(201, [(b"x-ms-file-permission-key", key)])


def _read_document(document: bytes) -> NewPermission:
    try:
        decoded = _decode_document(document)
        form = PermissionFormat(decoded.format.lower() or "sddl")
    except (msgspec.DecodeError, ValueError):
        raise Refused(Refusal("FileInvalidPermission")) from None
    return new_permission(decoded.permission, form)


async def get_permission(exchange: Exchange, deps: FileDependencies) -> Response:
    """Returns a permission as JSON, without a content type, as the service does."""
    share, form = decode.share_name(exchange), permission_format(exchange)
    number = permission_number(required_header(exchange, "x-ms-file-permission-key"))
    command = GetPermission(share, number)
    descriptor = await deps.engine.read(permissions.get_permission, command)
    if len(descriptor) >= LONG_PERMISSION_BYTES:
        read_class = exchange.read_class("permission")
        document = await deps.engine.read_in_thread(
            lambda _, found: _write_document(found, form), descriptor, read_class
        )
        return Response(200, [], document)
    return Response(200, [], _write_document(descriptor, form))


def _write_document(descriptor: bytes, form: PermissionFormat) -> bytes:
    if form is PermissionFormat.BINARY:
        text = base64.b64encode(descriptor).decode()
        return msgspec.json.encode({"permission": text, "format": form.value})
    try:
        return msgspec.json.encode({"permission": format_sddl(decode_descriptor(descriptor))})
    except NoSddlFormError:
        raise Refused(Refusal("CannotConvertToSddlDueToCustomAce")) from None
