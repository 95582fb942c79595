"""Blocks: names, limits, and the blocks that a list refers to."""

from __future__ import annotations

import base64
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
from etagere.model.blobs import BlockSource, ListedBlock
from etagere.model.bodies import Block, Piece
from etagere.rules.blocks import (
    BLOCK_NAME_BYTES_MAX,
    COMMITTED_BLOCKS_MAX,
    STAGED_BLOCKS_MAX,
    check_block_name,
    check_list_length,
    check_staged_count,
    check_staged_name,
    decode_block_name,
    encode_block_name,
    may_refer_to_committed,
    resolve,
)

COMMITTED, UNCOMMITTED = BlockSource.COMMITTED, BlockSource.UNCOMMITTED
LATEST = BlockSource.LATEST

# Names


@given(st.binary(max_size=80))
def test_names_round_trip(name: bytes) -> None:
    written = encode_block_name(name)
    assert written == base64.b64encode(name).decode()
    assert decode_block_name(written) == name


@pytest.mark.parametrize(
    "written",
    [
        "Q",
        "QQ",
        "QQ=",
        "QQ===",
        "=QQ=",
        "====",
        "QQ==QQ==",
        "QUFB\n",
        "QU FB",
        "QU-_",  # the URL-safe alphabet differs
        "QU%2B",
        "block-1!",
        "é===",
        "QUFB\x00",
        "ＱＱ==",  # noqa: RUF001 - wide letters are not those of the alphabet
    ],
)
def test_invalid_base64_is_refused(written: str) -> None:
    assert decode_block_name(written) is None


@given(st.text(max_size=12))
def test_arbitrary_text_does_not_raise(written: str) -> None:
    name = decode_block_name(written)
    assert name is None or decode_block_name(encode_block_name(name)) == name


@pytest.mark.parametrize(
    ("length", "good"), [(0, False), (1, True), (63, True), (64, True), (65, False), (1000, False)]
)
def test_lengths_of_names(length: int, good: bool) -> None:
    facts: dict[str, str | int] = {"Length": length, "Maximum": 64}
    expected = None if good else Refusal("InvalidBlockId", facts)
    assert check_block_name(b"x" * length) == expected


@pytest.mark.parametrize(("length", "expected"), list(product([1, 5, 64], repeat=2)))
def test_uncommitted_names_have_one_length(length: int, expected: int) -> None:
    refusal = check_staged_name(b"x" * length, expected)
    if length == expected:
        assert refusal is None
    else:
        facts: dict[str, str | int] = {"BlockIdLength": length, "ExpectedLength": expected}
        assert refusal == Refusal("InvalidBlobOrBlock", facts)


# Limits


def test_the_limits_are_those_of_the_service() -> None:
    assert (BLOCK_NAME_BYTES_MAX, COMMITTED_BLOCKS_MAX, STAGED_BLOCKS_MAX) == (64, 50_000, 100_000)


@pytest.mark.parametrize(("count", "good"), [(1, True), (100_000, True), (100_001, False)])
def test_limit_of_uncommitted_blocks(count: int, good: bool) -> None:
    refusal = Refusal("BlockCountExceedsLimit", {"Maximum": 100_000})
    assert check_staged_count(count) == (None if good else refusal)


@pytest.mark.parametrize(("count", "good"), [(0, True), (1, True), (50_000, True), (50_001, False)])
def test_limit_of_a_list(count: int, good: bool) -> None:
    refusal = Refusal("BlockListTooLong", {"Maximum": 50_000})
    assert check_list_length(count) == (None if good else refusal)


def test_every_refusal_has_a_known_code() -> None:
    for code in ("InvalidBlockId", "InvalidBlobOrBlock", "BlockListTooLong", "InvalidBlockList"):
        assert ERRORS[code].status == 400
    assert ERRORS["BlockCountExceedsLimit"].status == 409


# Lookup


def block(name: bytes, at: int) -> Block:
    return Block(name, (Piece(1, at, 10),))


OLD, NEW = block(b"x", 100), block(b"x", 200)
STAGED, KEPT = {"staged": {b"x": NEW}, "": {}}, {"committed": {b"x": OLD}, "": {}}


@pytest.mark.parametrize(
    ("source", "staged", "committed", "meant"),
    [
        (COMMITTED, "", "", None),
        (COMMITTED, "staged", "", None),
        (COMMITTED, "", "committed", OLD),
        (COMMITTED, "staged", "committed", OLD),
        (UNCOMMITTED, "", "", None),
        (UNCOMMITTED, "staged", "", NEW),
        (UNCOMMITTED, "", "committed", None),
        (UNCOMMITTED, "staged", "committed", NEW),
        (LATEST, "", "", None),
        (LATEST, "staged", "", NEW),
        (LATEST, "", "committed", OLD),
        (LATEST, "staged", "committed", NEW),
    ],
)
def test_sources_of_a_block(
    source: BlockSource, staged: str, committed: str, meant: Block | None
) -> None:
    found = resolve([ListedBlock(source, b"x")], STAGED[staged], KEPT[committed])
    facts: dict[str, str | int] = {"BlockId": "eA==", "LookedFor": source.value}
    expected = Refusal("InvalidBlockList", facts) if meant is None else [meant]
    assert found == expected


def test_an_empty_block_is_found() -> None:
    nothing = Block(b"x", ())
    listed = [ListedBlock(LATEST, b"x")]
    assert resolve(listed, {b"x": nothing}, {b"x": OLD}) == [nothing]


def test_the_first_missing_block_is_reported() -> None:
    listed = [ListedBlock(LATEST, name) for name in (b"x", b"y", b"z")]
    found = resolve(listed, {b"x": NEW}, {})
    assert isinstance(found, Refusal)
    assert found.facts["BlockId"] == encode_block_name(b"y")


NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])
LISTS = st.lists(st.builds(ListedBlock, st.sampled_from(BlockSource), NAMES), max_size=12)


@given(LISTS, st.sets(NAMES), st.sets(NAMES))
def test_order_and_repetition_are_kept(
    listed: list[ListedBlock], staged: set[bytes], committed: set[bytes]
) -> None:
    waiting = {name: block(name, 1000) for name in staged}
    kept = {name: block(name, 0) for name in committed}
    found = resolve(listed, waiting, kept)
    whole = [
        waiting.get(each.name, kept.get(each.name))
        if each.source is LATEST
        else (waiting if each.source is UNCOMMITTED else kept).get(each.name)
        for each in listed
    ]
    if None in whole:
        assert isinstance(found, Refusal)
        first = listed[whole.index(None)]
        assert found.facts["BlockId"] == encode_block_name(first.name)
        assert found.facts["LookedFor"] == first.source.value
    else:
        assert found == whole


@given(LISTS)
def test_whether_committed_blocks_are_needed(listed: list[ListedBlock]) -> None:
    sources = {each.source for each in listed}
    assert may_refer_to_committed(listed) == bool(sources & {COMMITTED, LATEST})
