"""Downloads: the files that the bytes of a plan are sent from.

A plan may lie in thousands of segments. Each is opened when its turn comes, and the pin on it
is taken back when the last of its bytes is out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from etagere.bodies.contents import Hole, Stretch
from etagere.coordination.interface import Pin
from etagere.descriptors import FilePart, OpenFile


class Run(NamedTuple):
    """Bytes that lie behind each other in a segment, or (None) in a hole."""

    segment: int | None
    offset: int
    length: int


def runs(plan: Iterable[Stretch | Hole]) -> Iterator[Run]:
    """A plan with neighbouring stretches put together."""
    segment: int | None = None
    offset = length = 0
    for stretch in plan:
        if isinstance(stretch, Hole):
            if length:
                yield Run(segment, offset, length)
            segment, offset, length = None, 0, stretch.length
        elif stretch.segment == segment and stretch.offset == offset + length:
            length += stretch.length
        else:
            if length:
                yield Run(segment, offset, length)
            segment, offset, length = stretch[:3]
    if length:
        yield Run(segment, offset, length)


def file_parts(
    plan: Iterable[Stretch | Hole], open_file: Callable[[int | None], OpenFile], pin: Pin | None
) -> Iterator[FilePart]:
    """The parts of files that make up a plan. The first one is open on return, so that its
    failure can still be answered; each other one is opened when it is asked for."""
    parts = _opened_in_turn(list(runs(plan)), open_file, pin)
    return chain((next(parts),), parts)


def _opened_in_turn(
    found: list[Run], open_file: Callable[[int | None], OpenFile], pin: Pin | None
) -> Iterator[FilePart]:
    last_use = {run.segment: number for number, run in enumerate(found)}
    for number, (segment, offset, length) in enumerate(found):
        file = open_file(segment)
        yield FilePart(file.descriptor, offset, length, file)
        if pin is not None and segment is not None and last_use[segment] == number:
            pin.release(segment)
