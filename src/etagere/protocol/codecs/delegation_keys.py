"""User delegation keys as XML."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from etagere.auth.sas import DelegationKey, iso_time
from etagere.errors import Refusal
from etagere.protocol.codecs import xml
from etagere.rules.delegation import check_user_ids

BYTES_MAX: Final = 16 << 10
_LIMITS: Final = xml.Limits(bytes_max=BYTES_MAX, elements_max=16, depth_max=3)
_DELEGATED_TENANT: Final = "DelegatedUserTid"
_DELEGATED_TENANT_SINCE: Final = "2025-07-05"


class KeyInfo(NamedTuple):
    """The key that a user asks for. Times are dates in ticks."""

    start: int | None
    expiry: int
    delegated_tenant_id: str
    """The tenant of the users for whom the key may sign tokens; "": the user's own."""


def decode(document: bytes, version: str) -> KeyInfo | Refusal:
    root = xml.read(document, "KeyInfo", _LIMITS)
    if isinstance(root, Refusal):
        return root
    names = ["Start", "Expiry"]
    if version >= _DELEGATED_TENANT_SINCE:
        names.append(_DELEGATED_TENANT)
    try:
        found = xml.children(root, names)
        start = found.get("Start")
        tenant = found.get(_DELEGATED_TENANT)
        return KeyInfo(
            # Some clients send an empty element if they have no start.
            _time(start) if start is not None and xml.value(start) else None,
            _time(xml.required(found, "Expiry")),
            "" if tenant is None else _id(tenant),
        )
    except xml.Unreadable as unreadable:
        return unreadable.refusal


def _time(element: xml.Element) -> int:
    ticks = iso_time(xml.value(element))
    if ticks is None:
        raise xml.bad_value(element)
    return ticks


def _id(element: xml.Element) -> str:
    written = xml.value(element)
    if written and check_user_ids(written) is not None:
        raise xml.bad_value(element)
    return written


def encode(key: DelegationKey, value: bytes) -> bytes:
    tenant = key.delegated_tenant_id
    content = (
        f"{xml.element('SignedOid', key.object_id)}{xml.element('SignedTid', key.tenant_id)}"
        f"{xml.element('SignedStart', key.start)}{xml.element('SignedExpiry', key.expiry)}"
        f"{xml.element('SignedService', key.service)}{xml.element('SignedVersion', key.version)}"
        f"{xml.element('SignedDelegatedUserTid', tenant) if tenant else ''}"
        f"{xml.element('Value', base64.b64encode(value).decode())}"
    )
    return xml.document(f"<UserDelegationKey>{content}</UserDelegationKey>")
