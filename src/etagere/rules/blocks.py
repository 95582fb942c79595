"""The rules of block lists: what blocks may be called, how many there may be, and which are meant.

A block may be staged, part of the blob as it is, or both. A list names blocks in the order in which
their bytes are to follow each other; it may name one more than once.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import BlockSource, ListedBlock
from etagere.model.bodies import Block

BLOCK_NAME_BYTES_MAX: Final = 64
COMMITTED_BLOCKS_MAX: Final = 50_000
STAGED_BLOCKS_MAX: Final = 100_000


def decode_block_name(written: str) -> bytes | None:
    """The bytes that a block is called, which are written in base64; None if these are not."""
    try:
        return binascii.a2b_base64(written, strict_mode=True)
    except ValueError:
        return None


def encode_block_name(name: bytes) -> str:
    return binascii.b2a_base64(name, newline=False).decode()


def check_block_name(name: bytes) -> Refusal | None:
    if 0 < len(name) <= BLOCK_NAME_BYTES_MAX:
        return None
    facts: dict[str, str | int] = {"Length": len(name), "Maximum": BLOCK_NAME_BYTES_MAX}
    return Refusal("InvalidBlockId", facts)


def check_staged_name(name: bytes, length: int) -> Refusal | None:
    """All blocks that wait for one blob have names of one length."""
    if len(name) == length:
        return None
    return Refusal("InvalidBlobOrBlock", {"BlockIdLength": len(name), "ExpectedLength": length})


def check_staged_count(count: int) -> Refusal | None:
    if count <= STAGED_BLOCKS_MAX:
        return None
    return Refusal("BlockCountExceedsLimit", {"Maximum": STAGED_BLOCKS_MAX})


def check_list_length(count: int) -> Refusal | None:
    if count <= COMMITTED_BLOCKS_MAX:
        return None
    return Refusal("BlockListTooLong", {"Maximum": COMMITTED_BLOCKS_MAX})


def check_one_source_each(
    listed: Iterable[ListedBlock], sources: dict[bytes, BlockSource]
) -> Refusal | None:
    """Refuses a list that names a block as committed and as uncommitted. `sources` are those of
    the blocks before, to which these are added."""
    for block in listed:
        if sources.setdefault(block.name, block.source) is not block.source:
            return Refusal("InvalidBlockList", {"BlockId": encode_block_name(block.name)})
    return None


def looks_at_committed(listed: Iterable[ListedBlock]) -> bool:
    """Whether a list may name blocks of the blob as it is."""
    return any(block.source is not BlockSource.UNCOMMITTED for block in listed)


def resolve(
    listed: Iterable[ListedBlock], staged: Mapping[bytes, Block], committed: Mapping[bytes, Block]
) -> list[Block] | Refusal:
    """The blocks that a list means, or which of them is not there."""
    found = []
    for block in listed:
        meant = None
        for candidates in _candidates(block.source, staged, committed):
            meant = meant or candidates.get(block.name)
        if meant is None:
            name = encode_block_name(block.name)
            return Refusal("InvalidBlockList", {"BlockId": name, "LookedFor": block.source.value})
        found.append(meant)
    return found


def _candidates(
    source: BlockSource, staged: Mapping[bytes, Block], committed: Mapping[bytes, Block]
) -> Iterator[Mapping[bytes, Block]]:
    """Where to look, in this order."""
    if source is not BlockSource.COMMITTED:
        yield staged
    if source is not BlockSource.UNCOMMITTED:
        yield committed
