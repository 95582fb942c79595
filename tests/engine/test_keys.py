"""Properties of the key encoding, for every shape of key."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etagere.engine.records import (
    BYTES,
    COLLECTIONS,
    ID,
    TEXT,
    UINT,
    UINT_MAX,
    Collection,
    KeyKind,
    Span,
    total_order,
)
from etagere.model.base import Record
from etagere.model.ids import ID_BYTES

Key = tuple[Any, ...]
Shape = Collection[Key, Record]

# Few characters: those that the encoding treats specially and those at the ends of each length in
# UTF-8, so that parts often share prefixes.
_CHARACTERS = "\x00\x01ab\x7f\x80\u00ff\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
_TEXTS = st.one_of(
    st.text(st.sampled_from("\x00\x01a"), max_size=4),
    st.text(st.sampled_from(_CHARACTERS), max_size=20),
)
_BYTES = st.one_of(
    st.lists(st.sampled_from([0, 1, 0x61, 0xFE, 0xFF]), max_size=4).map(bytes),
    st.binary(max_size=20),
)
_IDS = st.one_of(
    st.sampled_from([bytes(16), b"\x00" * 15 + b"\xff", b"\xfe" + b"\xff" * 15]),
    st.binary(min_size=ID_BYTES, max_size=ID_BYTES).filter(lambda value: value[0] != 0xFF),
)
_UINTS = st.one_of(
    st.sampled_from([0, 1, 255, 256, UINT_MAX]), st.integers(min_value=0, max_value=UINT_MAX)
)
_PARTS: dict[KeyKind, st.SearchStrategy[Any]] = {
    ID: _IDS,
    UINT: _UINTS,
    TEXT: _TEXTS,
    BYTES: _BYTES,
}


def allowed(kinds: tuple[KeyKind, ...]) -> bool:
    return not any(a in (TEXT, BYTES) and b is BYTES for a, b in pairwise(kinds))


@cache
def collection_of(kinds: tuple[KeyKind, ...]) -> Shape:
    """Returns a collection with keys of this shape that no engine has a table for."""
    name = "test_keys_" + "_".join(kind.name for kind in kinds)
    collection: Shape = Collection(name, Record, kinds)
    del COLLECTIONS[name]
    return collection


SHAPES = st.one_of(
    st.lists(st.sampled_from(KeyKind), min_size=1, max_size=4).map(tuple).filter(allowed),
    # These are packed or unpacked as a whole.
    st.sampled_from(
        [(ID, TEXT), (ID, TEXT, TEXT), (UINT, ID, TEXT), (ID, BYTES), (ID, UINT, BYTES, TEXT, TEXT)]
    ),
)


@st.composite
def keys_of_one_shape(draw: st.DrawFn) -> tuple[Shape, list[Key]]:
    kinds = draw(SHAPES)
    parts = st.tuples(*(_PARTS[kind] for kind in kinds))
    return collection_of(kinds), draw(st.lists(parts, min_size=1, max_size=8))


def holds(span: Span, packed: bytes) -> bool:
    return span.start <= packed < span.stop


@given(keys_of_one_shape())
def test_the_order_of_keys_is_the_order_of_their_bytes(drawn: tuple[Shape, list[Key]]) -> None:
    collection, keys = drawn
    assert total_order(keys, collection) == sorted(keys)


@given(keys_of_one_shape())
def test_keys_round_trip(drawn: tuple[Shape, list[Key]]) -> None:
    collection, keys = drawn
    for key in keys:
        assert collection.unpack(collection.pack(key)) == key
    packed = [collection.pack(key) for key in keys]
    assert collection.unpack_all(packed) == keys
    assert [collection.unpack_all([one]) for one in packed] == [[key] for key in keys]


@given(keys_of_one_shape())
@example((collection_of((BYTES,)), [(b"\xff",)]))
def test_all_holds_every_key(drawn: tuple[Shape, list[Key]]) -> None:
    collection, keys = drawn
    for key in keys:
        assert holds(collection.all(), collection.pack(key))


@given(keys_of_one_shape(), st.data())
@example((collection_of((TEXT,)), [("a",), ("a\x00b",)]), None)
def test_under_holds_exactly_the_keys_with_these_parts(
    drawn: tuple[Shape, list[Key]], data: st.DataObject | None
) -> None:
    collection, keys = drawn
    count = len(collection.kinds)
    if data is not None:
        count = data.draw(st.integers(min_value=0, max_value=count))
    prefix = keys[0][:count]
    span = collection.under(prefix)
    for key in keys:
        assert holds(span, collection.pack(key)) == (key[:count] == prefix)


@given(st.data())
def test_under_holds_exactly_the_keys_whose_next_part_begins_so(data: st.DataObject) -> None:
    before = data.draw(st.sampled_from([(), (ID,), (UINT,), (TEXT,), (TEXT, ID)]))
    behind = data.draw(st.sampled_from([(), (ID,), (UINT,), (TEXT,)]))
    collection = collection_of((*before, TEXT, *behind))
    parts = st.tuples(*(_PARTS[kind] for kind in collection.kinds))
    keys = data.draw(st.lists(parts, min_size=1, max_size=8))
    prefix = keys[0][: len(before)]
    text = data.draw(_TEXTS.filter(bool))
    span = collection.under(prefix, text)
    for key in keys:
        expected = key[: len(before)] == prefix and key[len(before)].startswith(text)
        assert holds(span, collection.pack(key)) == expected


@given(keys_of_one_shape())
def test_after_and_starting_cut_at_a_key(drawn: tuple[Shape, list[Key]]) -> None:
    collection, keys = drawn
    cut = keys[0]
    everything = collection.under(())
    for key in keys:
        packed = collection.pack(key)
        assert holds(collection.after(everything, cut), packed) == (key > cut)
        assert holds(collection.starting(everything, cut), packed) == (key >= cut)


@given(keys_of_one_shape())
def test_cutting_never_widens_a_span(drawn: tuple[Shape, list[Key]]) -> None:
    collection, keys = drawn
    span = collection.starting(collection.under(()), max(keys))
    for key in keys:
        for cut in (collection.after(span, key), collection.starting(span, key)):
            assert cut.start >= span.start
            assert cut.stop == span.stop


@pytest.mark.parametrize("kinds", [(TEXT, BYTES), (BYTES, BYTES), (ID, TEXT, BYTES)])
def test_ambiguous_shapes_are_refused(kinds: tuple[KeyKind, ...]) -> None:
    with pytest.raises(ValueError, match="BYTES cannot follow"):
        collection_of(kinds)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ID, b"\xff" + bytes(15)),
        (ID, bytes(15)),
        (ID, bytes(17)),
        (UINT, -1),
        (UINT, UINT_MAX + 1),
        (TEXT, "\ud800"),
    ],
)
def test_invalid_key_parts(kind: KeyKind, value: object) -> None:
    with pytest.raises(ValueError):
        collection_of((kind,)).pack((value,))


@given(keys_of_one_shape(), st.data())
def test_keys_have_as_many_parts_as_their_shape(
    drawn: tuple[Shape, list[Key]], data: st.DataObject
) -> None:
    collection, (key, *_) = drawn
    kept = data.draw(st.integers(min_value=0, max_value=len(key) - 1))
    kind = data.draw(st.sampled_from(KeyKind))
    for other in (key[:kept], (*key, data.draw(_PARTS[kind]))):
        with pytest.raises((ValueError, TypeError)):
            collection.pack(other)


@given(keys_of_one_shape())
def test_keys_are_packed_as_their_parts_are(drawn: tuple[Shape, list[Key]]) -> None:
    """However a shape is packed: a part is encoded like a key of that part alone."""
    collection, keys = drawn
    for key in keys:
        parts = [
            collection_of((kind,)).pack((part,))
            for kind, part in zip(collection.kinds, key, strict=True)
        ]
        assert collection.pack(key) == b"".join(parts)
