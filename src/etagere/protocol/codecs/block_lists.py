"""Block lists as XML: which blocks are to make a blob, and which there are."""

from __future__ import annotations

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
    root = xml.read(document, "BlockList", _LIMITS)
    if isinstance(root, Refusal):
        return root
    too_long = check_list_length(len(root.children))
    if too_long is not None:
        return too_long
    listed = []
    for element in root.children:
        source = _SOURCES.get(element.name)
        if source is None:
            return Refusal("UnsupportedXmlNode", {"XmlNodeName": element.name})
        name = decode_block_name(element.text.strip(xml.SPACE))
        if name is None or check_block_name(name) is not None:
            facts: dict[str, str | int] = {
                "XmlNodeName": element.name,
                "XmlNodeValue": element.text,
            }
            return Refusal("InvalidXmlNodeValue", facts)
        listed.append(ListedBlock(source, name))
    return tuple(listed)


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
