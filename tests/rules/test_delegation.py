"""The times of user delegation keys."""

from __future__ import annotations

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.rules.delegation import check_key_times

DAY = 86_400 * TICKS_PER_SECOND
NOW = 20_000 * DAY


@pytest.mark.parametrize(
    ("start", "expiry", "refused"),
    [
        (0, 7 * DAY, None),
        (None, 7 * DAY, None),
        (None, 1, None),
        (-7 * DAY, 7 * DAY, None),
        (6 * DAY, 7 * DAY, None),
        (0, 7 * DAY + 1, "Expiry"),
        (None, 7 * DAY + 1, "Expiry"),
        (None, 0, "Expiry"),
        (-2 * DAY, -DAY, "Expiry"),
        (DAY, DAY, "Expiry"),
        (2 * DAY, DAY, "Expiry"),
        (-7 * DAY - 1, DAY, "Start"),
        (7 * DAY + 1, 7 * DAY, "Start"),
    ],
)
def test_times(start: int | None, expiry: int, refused: str | None) -> None:
    refusal = check_key_times(None if start is None else NOW + start, NOW + expiry, NOW)
    if refused is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.code == "InvalidXmlNodeValue"
        assert refusal.facts["XmlNodeName"] == refused
