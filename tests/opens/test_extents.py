"""Extents: bytes at offsets of a file, compared with a bytearray."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.opens.extents import Extents, part_of

_OFFSETS = st.integers(0, 60)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _OFFSETS, st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("clear"), _OFFSETS, st.integers(1, 20)),
        st.tuples(st.just("forget"), _OFFSETS, st.just(0)),
    ),
    max_size=20,
)


@given(_CHANGES)
@settings(deadline=None, max_examples=300, derandomize=True)
def test_extents_have_what_was_written_last(changes: list[tuple[str, int, bytes | int]]) -> None:
    extents = Extents()
    model: list[int | None] = [None] * 100
    for kind, offset, what in changes:
        if isinstance(what, bytes):
            extents.write(offset, what)
            model[offset : offset + len(what)] = list(what)
        elif kind == "clear":
            extents.clear(offset, offset + what)
            model[offset : offset + what] = [0] * what
        else:
            extents.forget(offset)
            model[offset:] = [None] * (100 - offset)
    shown: list[int | None] = [None] * 100
    for extent in extents:
        data = bytes(extent.end - extent.start) if extent.data is None else bytes(extent.data)
        assert len(data) == extent.end - extent.start > 0
        assert shown[extent.start : extent.end] == [None] * len(data)
        shown[extent.start : extent.end] = list(data)
    assert shown == model
    joined: list[int | None] = [None] * 100
    for run in extents.runs():
        data = b"".join(run.buffers) or bytes(run.end - run.start)
        joined[run.start : run.end] = list(data)
    assert joined == model
    for extent in extents.between(10, 30):
        first, last = max(10, extent.start), min(30, extent.end)
        part = part_of(extent, first, last)
        assert list(bytes(last - first) if part is None else part) == model[first:last]


def test_small_writes_that_follow_each_other_are_collected() -> None:
    extents = Extents()
    for number in range(64):
        extents.write(number * 1024, bytes([number]) * 1024)
    assert len(extents) == 1
    extents.write(64 * 1024, b"x")
    assert len(extents) == 2
    assert len(extents.runs()) == 1


def test_large_writes_are_not_copied() -> None:
    extents = Extents()
    data = bytes(1 << 20)
    extents.write(0, data)
    (extent,) = extents
    assert extent.data is data


def test_a_buffer_grows_although_a_part_of_it_was_read() -> None:
    extents = Extents()
    extents.write(0, b"abc")
    (extent,) = extents
    part = part_of(extent, 1, 2)
    extents.write(3, b"d")
    assert part == b"b"
    assert [bytes(one.data or b"") for one in extents] == [b"abcd"]
