"""Last access times."""

from __future__ import annotations

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.model.blobs import Blob, BlobKind
from etagere.model.bodies import Empty
from etagere.rules.last_access import is_read_to_record, last_access

HOUR = 3600 * TICKS_PER_SECOND
WRITTEN = 1_000_000 * HOUR


def blob(read_at: int = 0, kind: BlobKind = BlobKind.BLOCK) -> Blob:
    return Blob(kind, WRITTEN - 5 * HOUR, WRITTEN, Empty(), read_at=read_at)


@pytest.mark.parametrize(
    ("read_at", "accessed"),
    [(0, WRITTEN), (WRITTEN - HOUR, WRITTEN), (WRITTEN + HOUR, WRITTEN + HOUR)],
)
def test_the_last_access_is_the_later_of_change_and_read(read_at: int, accessed: int) -> None:
    assert last_access(blob(read_at)) == accessed


@pytest.mark.parametrize(
    ("read_at", "now", "is_recorded"),
    [
        (0, WRITTEN, True),
        (WRITTEN, WRITTEN, False),
        (WRITTEN, WRITTEN + 24 * HOUR - 1, False),
        (WRITTEN, WRITTEN + 24 * HOUR, True),
        # A change between two reads does not make the second one count.
        (WRITTEN - HOUR, WRITTEN + HOUR, False),
        (WRITTEN - 30 * HOUR, WRITTEN + HOUR, True),
    ],
)
def test_one_read_of_24_hours_is_recorded(read_at: int, now: int, is_recorded: bool) -> None:
    assert is_read_to_record(blob(read_at), now) is is_recorded


@pytest.mark.parametrize("kind", [BlobKind.PAGE, BlobKind.APPEND])
def test_only_block_blobs_are_tracked(kind: BlobKind) -> None:
    assert last_access(blob(kind=kind)) is None
    assert not is_read_to_record(blob(kind=kind), WRITTEN + 48 * HOUR)
