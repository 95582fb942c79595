"""Stored access policies of a container, queue, table or share as XML.

They are stored as they were sent. They are validated here, so that they need not be checked when a
token names the policy. Times are returned with all digits, as by the service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from etagere.auth.sas import LETTERS, iso_time
from etagere.errors import Refusal
from etagere.model.service import NO_LIMITS, AccessPolicy, SignedIdentifier
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.xml import Element
from etagere.rules.dates import format_instant
from etagere.rules.service_properties import invalid_document

ROOT: Final = "SignedIdentifiers"
BYTES_MAX: Final = 1 << 20
POLICIES_MAX = 5
ID_CHARACTERS_MAX = 64

_LETTERS: Final[dict[str, frozenset[str]]] = {
    "blob": frozenset(LETTERS["blob", "c"]),
    "queue": frozenset(LETTERS["queue", ""]),
    "table": frozenset(LETTERS["table", ""]),
    "file": frozenset(LETTERS["file", "s"]),
}


# Decoding


def decode(body: bytes, service: str) -> tuple[SignedIdentifier, ...] | Refusal:
    """Decodes the policies of a document; an empty body means none, like an empty document."""
    if not body:
        return ()
    root = xml.read(body, ROOT)
    if isinstance(root, Refusal):
        return root
    if len(root.children) > POLICIES_MAX:
        return invalid_document(f"There are more than {POLICIES_MAX} signed identifiers.")
    try:
        identifiers = tuple(_identifier(child, service) for child in root.children)
    except xml.Unreadable as unreadable:
        return unreadable.refusal
    if len({identifier.id for identifier in identifiers}) < len(identifiers):
        return xml.invalid_document("Two signed identifiers have the same Id.")
    return identifiers


def _identifier(element: Element, service: str) -> SignedIdentifier:
    if element.name != "SignedIdentifier":
        raise xml.Unreadable(Refusal("UnsupportedXmlNode", {"XmlNodeName": element.name}))
    found = xml.children(element, ("Id", "AccessPolicy"))
    id_element = xml.required(found, "Id")
    id_text = xml.text(id_element)
    if not 1 <= len(id_text) <= ID_CHARACTERS_MAX:
        raise xml.bad_value(id_element)
    policy = found.get("AccessPolicy")
    return SignedIdentifier(id_text, NO_LIMITS if policy is None else _policy(policy, service))


def _policy(element: Element, service: str) -> AccessPolicy:
    found = xml.children(element, ("Start", "Expiry", "Permission"))
    return AccessPolicy(
        start=_time(found.get("Start")),
        expiry=_time(found.get("Expiry")),
        permission=_permission(found.get("Permission"), service),
    )


def _time(element: Element | None) -> str | None:
    """Returns a time as it was sent. An empty element is treated like a missing one."""
    text = "" if element is None else xml.value(element)
    if element is None or not text:
        return None
    if iso_time(text) is None:
        raise xml.bad_value(element)
    return text


def _permission(element: Element | None, service: str) -> str | None:
    text = "" if element is None else xml.value(element)
    if element is None or not text:
        return None
    if not _LETTERS[service].issuperset(text) or len(set(text)) < len(text):
        raise xml.bad_value(element)
    return text


# Encoding


def encode(identifiers: Iterable[SignedIdentifier]) -> bytes:
    content = "".join(map(_write_identifier, identifiers))
    return xml.document(f"<{ROOT}>{content}</{ROOT}>" if content else f"<{ROOT} />")


def _write_identifier(identifier: SignedIdentifier) -> str:
    policy = identifier.policy
    parts = "".join(
        xml.element(name, text)
        for name, text in (
            ("Start", _shown_time(policy.start)),
            ("Expiry", _shown_time(policy.expiry)),
            ("Permission", policy.permission),
        )
        if text is not None
    )
    # The service returns no element for a policy without limits, and clients distinguish that.
    written = f"<AccessPolicy>{parts}</AccessPolicy>" if parts else ""
    return f"<SignedIdentifier>{xml.element('Id', identifier.id)}{written}</SignedIdentifier>"


def _shown_time(written: str | None) -> str | None:
    ticks = iso_time(written) if written else None
    return written if ticks is None else format_instant(ticks)
