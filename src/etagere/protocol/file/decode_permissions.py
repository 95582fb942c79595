"""Decoding of permissions in requests: security descriptors as text or bytes, and their keys."""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
from typing import Final

from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.model.files import NewPermission
from etagere.model.security_descriptors import SecurityDescriptor
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header
from etagere.rules.file_permissions import (
    INLINE_PERMISSION_BYTES_MAX,
    check_permission,
    parse_permission_key,
)
from etagere.rules.sddl import parse_sddl
from etagere.rules.security_descriptors import (
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)

_PERMISSION: Final = "x-ms-file-permission"
_KEY: Final = "x-ms-file-permission-key"
_FORMAT: Final = "x-ms-file-permission-format"

LONG_PERMISSION_BYTES: Final = 1_024
"""The length from which permissions are converted in a thread: those of 8 KiB take over 1 ms, and
the longest some 30 ms. The threads of long reads are few, so that the event loop gets its turn.
This halves the delay of other requests if a core is idle, and does not change it otherwise."""


class PermissionFormat(enum.Enum):
    """How a request or response writes a security descriptor."""

    SDDL = "sddl"
    BINARY = "binary"
    """The self-relative form in base64."""


async def permission_of_new(exchange: Exchange, engine: Engine) -> int | NewPermission | None:
    """Returns the permission that a new entry is to have; None: it inherits its permission."""
    return await _permission(exchange, engine, "inherit")


async def permission_to_set(exchange: Exchange, engine: Engine) -> int | NewPermission | None:
    """Returns the permission that an existing entry is to get; None: it keeps its permission."""
    return await _permission(exchange, engine, "preserve")


async def _permission(
    exchange: Exchange, engine: Engine, default: str
) -> int | NewPermission | None:
    written, key = exchange.header(_PERMISSION), exchange.header(_KEY)
    form = permission_format(exchange)
    if key:
        if written:
            raise invalid_header(_KEY, key)
        return permission_number(key)
    if not written or written.lower() == default:
        return None
    if len(written) > INLINE_PERMISSION_BYTES_MAX:
        raise Refused(Refusal("FileInvalidPermission"))
    if len(written) < LONG_PERMISSION_BYTES:
        return new_permission(written, form)
    return await engine.read_in_thread(
        lambda _, text: new_permission(text, form), written, exchange.read_class("permission")
    )


def permission_number(key: str) -> int:
    number = parse_permission_key(key)
    if number is None:
        raise Refused(Refusal("FileInvalidPermissionKey"))
    return number


def permission_format(exchange: Exchange) -> PermissionFormat:
    written = exchange.header(_FORMAT)
    if not written:
        return PermissionFormat.SDDL
    try:
        return PermissionFormat(written.lower())
    except ValueError:
        raise invalid_header(_FORMAT, written) from None


def new_permission(written: str, form: PermissionFormat) -> NewPermission:
    """Returns the security descriptor that a request contains."""
    try:
        descriptor = encode_descriptor(check_permission(_parse(written, form)))
    except InvalidDescriptorError:
        raise Refused(Refusal("FileInvalidPermission")) from None
    return NewPermission(descriptor, hashlib.sha256(descriptor).digest())


def _parse(written: str, form: PermissionFormat) -> SecurityDescriptor:
    if form is PermissionFormat.SDDL:
        return parse_sddl(written)
    try:
        return decode_descriptor(base64.b64decode(written, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidDescriptorError("not base64") from None
