"""Rules for block lists: names, limits, and which blocks a list refers to.

A block may be uncommitted, part of the current blob, or both. A list names blocks in the order of
their bytes, and may name a block more than once.
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
    """Decodes a block name from base64; returns None if it is not valid base64."""
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
    """Requires that all uncommitted blocks of a blob have names of one length."""
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
    """Refuses a list that names a block both as committed and as uncommitted. `sources` are those
    of the preceding blocks; these are added to it."""
    for block in listed:
        if sources.setdefault(block.name, block.source) is not block.source:
            return Refusal("InvalidBlockList", {"BlockId": encode_block_name(block.name)})
    return None


def may_refer_to_committed(listed: Iterable[ListedBlock]) -> bool:
    """Returns whether a list may refer to committed blocks."""
    return any(block.source is not BlockSource.UNCOMMITTED for block in listed)


def resolve(
    listed: Iterable[ListedBlock], staged: Mapping[bytes, Block], committed: Mapping[bytes, Block]
) -> list[Block] | Refusal:
    """Returns the blocks that a list refers to, or a refusal if one is missing."""
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
    """Yields the sets to search, in order."""
    if source is not BlockSource.COMMITTED:
        yield staged
    if source is not BlockSource.UNCOMMITTED:
        yield committed
