"""What clearing a range frees, and what it overwrites."""

from __future__ import annotations

import pytest

from etagere.rules.file_ranges import ClearedRange, cleared_range


@pytest.mark.parametrize(
    ("start", "end", "freed", "zeroed"),
    [
        (0, 512, (0, 512), ()),
        (512, 2_048, (512, 2_048), ()),
        (100, 1_124, (512, 1_024), ((100, 512), (1_024, 1_124))),
        (500, 1_500, (512, 1_024), ((1_024, 1_500), (500, 512))),
        (0, 1_000, (0, 512), ((512, 1_000),)),
        (1, 512, (512, 512), ((1, 512),)),
        (10, 20, (20, 20), ((10, 20),)),
        (511, 513, (512, 512), ((511, 512), (512, 513))),
    ],
)
def test_the_aligned_part_is_freed(
    start: int, end: int, freed: tuple[int, int], zeroed: tuple[tuple[int, int], ...]
) -> None:
    found = cleared_range(start, end)
    assert found == ClearedRange(start, *freed, end)
    assert found.zeroed == zeroed
    assert found.zeros_length == max((b - a for a, b in zeroed), default=0)
