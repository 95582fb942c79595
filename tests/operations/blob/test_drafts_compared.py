"""A drafted block list gives the same blob and counts as one that is put in one step, whatever was
staged and committed before."""

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
from tests.operations.blob.fixture import BOX, BlobFixture, blob_property_test

pytestmark = pytest.mark.usefixtures("short_chunks")

AT_ONCE, DRAFTED = "at once", "drafted"

NAMES = st.sampled_from([b"%d" % number for number in range(8)])
LISTS = st.one_of(
    # Runs of blocks recur with edits, so that there is something to share.
    st.lists(st.builds(ListedBlock, st.sampled_from(BlockSource), NAMES), min_size=1, max_size=12),
    st.tuples(st.integers(0, 3), st.integers(4, 8), st.integers(1, 2)).map(
        lambda cut: [ListedBlock(BlockSource.LATEST, b"%d" % n) for n in range(*cut[:2])] * cut[2]
    ),
)
STAGINGS = st.dictionaries(NAMES, st.binary(min_size=1, max_size=6), max_size=4)
ROUNDS = st.lists(st.tuples(STAGINGS, LISTS, st.booleans()), min_size=1, max_size=4)


async def _outcome(blobs: BlobFixture, name: str, listed: list[ListedBlock]) -> object:
    """Returns the result of a list: the refusal, or the bytes and blocks of the blob."""
    asked = PutBlockList(BlobName(BOX, name), new_id(), tuple(listed))
    try:
        if name == DRAFTED:
            assert await put_drafted(blobs.engine, asked) is not None
        else:
            await blobs.write(put_block_list, asked)
    except Refused as refused:
        return refused.refusal
    shown = await blobs.block_list(name)
    return await blobs.get(name), shown.committed, shown.uncommitted


@blob_property_test(ROUNDS, count=40)
async def test_drafted_and_direct_lists_are_equal(
    blobs: BlobFixture, rounds: list[tuple[dict[bytes, bytes], list[ListedBlock], bool]]
) -> None:
    await _create_once(blobs)
    for name in (AT_ONCE, DRAFTED):
        await blobs.stage_all(name, {b"%d" % n: b"[%d]" % n for n in range(8)})
        await blobs.commit(name, [ListedBlock(BlockSource.LATEST, b"%d" % n) for n in range(8)])
    for staged, listed, purged in rounds:
        for name in (AT_ONCE, DRAFTED):
            await blobs.stage_all(name, staged)
        outcomes = [await _outcome(blobs, name, listed) for name in (AT_ONCE, DRAFTED)]
        assert outcomes[0] == outcomes[1]
        if purged:
            await blobs.purge()
    await blobs.require_sound()
    for name in (AT_ONCE, DRAFTED):
        await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, name)))
    await blobs.require_empty()


async def _create_once(blobs: BlobFixture) -> None:
    """Creates the container for the first example; all examples share it."""
    try:
        await blobs.create()
    except Refused as refused:
        assert refused.refusal.code == "ContainerAlreadyExists"
