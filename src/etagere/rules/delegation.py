"""Rules for user delegation keys: when they are valid, and whom they may be for."""

from __future__ import annotations

from typing import Final

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.rules.dates import format_instant

KEY_SECONDS_MAX: Final = 7 * 86_400
"""The greatest distance of the start and the expiry of a key from the current time."""
ID_CHARACTERS_MAX: Final = 128
"""The maximum length of a tenant id and an object id; in Entra ID, both are GUIDs."""


def check_key_times(start: int | None, expiry: int, now: int) -> Refusal | None:
    """Refuses a key that expires too late, or before it is valid. All times are dates in ticks. A
    key without a start is valid at once."""
    ticks_max = KEY_SECONDS_MAX * TICKS_PER_SECOND
    if start is not None and abs(start - now) > ticks_max:
        return _out_of_range("Start", start)
    if not 0 < expiry - now <= ticks_max or (start is not None and start >= expiry):
        return _out_of_range("Expiry", expiry)
    return None


def _out_of_range(element: str, ticks: int) -> Refusal:
    return Refusal(
        "InvalidXmlNodeValue", {"XmlNodeName": element, "XmlNodeValue": format_instant(ticks)}
    )


def check_user_ids(*ids: str) -> Refusal | None:
    """Refuses ids that cannot be stored or signed: empty ones, long ones, and those with control
    characters."""
    for one in ids:
        if not 1 <= len(one) <= ID_CHARACTERS_MAX or not one.isprintable():
            return Refusal("AuthorizationFailure", {"Reason": "The user has no usable id."})
    return None
