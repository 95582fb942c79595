"""Block lists as XML: which blocks are to make a blob, and which there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import (
    BlockSize,
    BlockSource,
    GetBlockList,
    ListedBlock,
    ShownBlockList,
)
from etagere.protocol.codecs import xml
from etagere.rules.blocks import (
    check_block_name,
    check_list_length,
    decode_block_name,
    encode_block_name,
)

BYTES_MAX: Final = 16 << 20
_LIMITS: Final = xml.Limits(bytes_max=BYTES_MAX, elements_max=100_001, depth_max=2)
_SOURCES: Final = {source.value: source for source in BlockSource}


def decode(document: bytes) -> tuple[ListedBlock, ...] | Refusal:
    """The blocks in the order of the document, whichever elements they stand in."""
    found = _read_plain(document)
    if found is None:
        root = xml.read(document, "BlockList", _LIMITS)
        if isinstance(root, Refusal):
            return root
        found = [(element.name, element.text.strip(xml.SPACE)) for element in root.children]
    too_long = check_list_length(len(found))
    if too_long is not None:
        return too_long
    listed = []
    for element, text in found:
        source = _SOURCES.get(element)
        if source is None:
            return Refusal("UnsupportedXmlNode", {"XmlNodeName": element})
        name = decode_block_name(text)
        if name is None or check_block_name(name) is not None:
            facts: dict[str, str | int] = {"XmlNodeName": element, "XmlNodeValue": text}
            return Refusal("InvalidXmlNodeValue", facts)
        listed.append(ListedBlock(source, name))
    return tuple(listed)


# As clients write it: a list may have 50,000 blocks, for which others should not have to wait.
_HEAD = re.compile(
    r"""(?:<\?xml version=["']1\.0["'](?: encoding=["']utf-8["'])? ?\?>)?\s*<(?-i:BlockList)>""",
    re.ASCII | re.IGNORECASE,
)
_BLOCK = re.compile(r"<(Latest|Committed|Uncommitted)>([A-Za-z0-9+/=]*)</\1>")
_TAIL = "</BlockList>"
_SLICE = 32 << 10


def _read_plain(document: bytes) -> list[tuple[str, str]] | None:
    """Elements and their texts, if the document is nothing but a plain list; None: it may be
    something else."""
    text = document.decode("ascii") if document.isascii() else ""
    head = _HEAD.match(text)
    if head is None or not text.endswith(_TAIL) or len(document) > BYTES_MAX:
        return None
    blocks: list[tuple[str, str]] = []
    at, end = head.end(), len(text) - len(_TAIL)
    while at < end:
        # Between two blocks, and not far: no other thread runs while one call looks for them.
        stop = end if end - at <= _SLICE else text.rfind("><", at, at + _SLICE) + 1
        found = _BLOCK.findall(text, at, stop)
        # Whatever is no block would be left over.
        read = sum([2 * len(element) + len(name) + len("<></>") for element, name in found])
        if not found or at + read != stop:
            return None
        blocks += found
        at = stop
    return blocks


def encode(shown: ShownBlockList, asked: GetBlockList) -> bytes:
    """Only the kinds that were asked for, and those also if there are none."""
    content = ""
    if asked.committed:
        content += f"<CommittedBlocks>{_blocks(shown.committed)}</CommittedBlocks>"
    if asked.uncommitted:
        content += f"<UncommittedBlocks>{_blocks(shown.uncommitted)}</UncommittedBlocks>"
    return xml.document(f"<BlockList>{content}</BlockList>")


def _blocks(blocks: Iterable[BlockSize]) -> str:
    return "".join(
        f"<Block><Name>{encode_block_name(block.name)}</Name><Size>{block.length}</Size></Block>"
        for block in blocks
    )
