"""A list that is drafted becomes the same blob as one that is put in one step, whatever was
staged and committed before, and counts the same."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.model.blobs import (
    BlobName,
    BlockSource,
    DeleteBlob,
    ListedBlock,
    PutBlockList,
)
from etagere.model.ids import new_id
from etagere.operations.blob.blobs import delete_blob
from etagere.operations.blob.block_lists import put_block_list
from etagere.protocol.blob.drafting import put_drafted
from tests.operations.blob.shelf import BOX, Shelf, on_a_shelf_for_any

pytestmark = pytest.mark.usefixtures("short_chunks")

AT_ONCE, DRAFTED = "at once", "drafted"

NAMES = st.sampled_from([b"%d" % number for number in range(8)])
LISTS = st.one_of(
    # Whole rows of blocks come again as they are edited, so that there is something to share.
    st.lists(st.builds(ListedBlock, st.sampled_from(BlockSource), NAMES), min_size=1, max_size=12),
    st.tuples(st.integers(0, 3), st.integers(4, 8), st.integers(1, 2)).map(
        lambda cut: [ListedBlock(BlockSource.LATEST, b"%d" % n) for n in range(*cut[:2])] * cut[2]
    ),
)
STAGINGS = st.dictionaries(NAMES, st.binary(min_size=1, max_size=6), max_size=4)
ROUNDS = st.lists(st.tuples(STAGINGS, LISTS, st.booleans()), min_size=1, max_size=4)


async def _outcome(shelf: Shelf, name: str, listed: list[ListedBlock]) -> object:
    """What a list comes to: the refusal, or the bytes and blocks of the blob."""
    asked = PutBlockList(BlobName(BOX, name), new_id(), tuple(listed))
    try:
        if name == DRAFTED:
            assert await put_drafted(shelf.engine, asked) is not None
        else:
            await shelf.write(put_block_list, asked)
    except Refused as refused:
        return refused.refusal
    shown = await shelf.block_list(name)
    return await shelf.get(name), shown.committed, shown.uncommitted


@on_a_shelf_for_any(ROUNDS, count=40)
async def test_a_draft_comes_to_the_same(
    shelf: Shelf, rounds: list[tuple[dict[bytes, bytes], list[ListedBlock], bool]]
) -> None:
    await _create_once(shelf)
    for name in (AT_ONCE, DRAFTED):
        await shelf.stage_all(name, {b"%d" % n: b"[%d]" % n for n in range(8)})
        await shelf.commit(name, [ListedBlock(BlockSource.LATEST, b"%d" % n) for n in range(8)])
    for staged, listed, purged in rounds:
        for name in (AT_ONCE, DRAFTED):
            await shelf.stage_all(name, staged)
        outcomes = [await _outcome(shelf, name, listed) for name in (AT_ONCE, DRAFTED)]
        assert outcomes[0] == outcomes[1]
        if purged:
            await shelf.purge()
    await shelf.require_sound()
    for name in (AT_ONCE, DRAFTED):
        await shelf.write(delete_blob, DeleteBlob(BlobName(BOX, name)))
    await shelf.require_bare()


async def _create_once(shelf: Shelf) -> None:
    """All examples have one shelf."""
    try:
        await shelf.create()
    except Refused as refused:
        assert refused.refusal.code == "ContainerAlreadyExists"
