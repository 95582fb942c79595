"""Block lists as XML, in requests and responses.

A list may have 50,000 blocks. It is decoded and encoded in steps, so that other requests can run in
between.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import (
    BlockListResult,
    BlockSize,
    BlockSource,
    GetBlockList,
    ListedBlock,
)
from etagere.protocol.codecs import xml
from etagere.rules.blocks import (
    BLOCK_NAME_BYTES_MAX,
    check_block_name,
    check_list_length,
    check_one_source_each,
    decode_block_name,
    encode_block_name,
)

BYTES_MAX: Final = 16 << 20
_LIMITS: Final = xml.Limits(bytes_max=BYTES_MAX, elements_max=100_001, depth_max=2)
_STEP_BLOCKS: Final = 256
_NAME_CHARACTERS_MAX: Final = len(encode_block_name(bytes(BLOCK_NAME_BYTES_MAX)))
_SOURCES: Final = {source.value: source for source in BlockSource}


def decode(document: bytes) -> Generator[None, None, tuple[ListedBlock, ...] | Refusal]:
    """Decodes the blocks in the order of the document, whatever their elements are."""
    plain = yield from _read_plain(document)
    if plain is not None:
        return (yield from _with_one_source_each(plain))
    root = yield from xml.read_in_steps(document, "BlockList", _LIMITS)
    if isinstance(root, Refusal):
        return root
    elements = root.children
    too_long = check_list_length(len(elements))
    if too_long is not None:
        return too_long
    listed: list[ListedBlock] = []
    # Freeing all of them at once would take as long as several steps.
    elements.reverse()
    while elements:
        element = elements.pop()
        source = _SOURCES.get(element.name)
        if source is None:
            return Refusal("UnsupportedXmlNode", {"XmlNodeName": element.name})
        text = element.text.strip(xml.SPACE)
        name = decode_block_name(text) if len(text) <= _NAME_CHARACTERS_MAX else None
        if name is None or check_block_name(name) is not None:
            facts: dict[str, str | int] = {"XmlNodeName": element.name, "XmlNodeValue": text}
            return Refusal("InvalidXmlNodeValue", facts)
        listed.append(ListedBlock(source, name))
        if not len(listed) % _STEP_BLOCKS:
            yield
    return (yield from _with_one_source_each(listed))


def _with_one_source_each(
    listed: list[ListedBlock],
) -> Generator[None, None, tuple[ListedBlock, ...] | Refusal]:
    """Returns the list, or a refusal if it names a block in different elements."""
    # Nearly always all are in one kind of element, which is found out in a millisecond or two.
    if all(block.source is listed[0].source for block in listed):
        return tuple(listed)
    sources: dict[bytes, BlockSource] = {}
    for at in range(0, len(listed), _STEP_BLOCKS):
        refusal = check_one_source_each(listed[at : at + _STEP_BLOCKS], sources)
        if refusal is not None:
            return refusal
        yield
    return tuple(listed)


# The form that clients send, which is decoded in a third of the time.
_HEAD = re.compile(
    r"""(?:<\?xml version=["']1\.0["'](?: encoding=["']utf-8["'])? ?\?>)?\s{,9}<(?-i:BlockList)>""",
    re.ASCII | re.IGNORECASE,
)
_BLOCK = re.compile(r"<(Latest|Committed|Uncommitted)>([A-Za-z0-9+/=]*)</\1>")
_TAIL = "</BlockList>"
_SLICE = 32 << 10


def _read_plain(document: bytes) -> Generator[None, None, list[ListedBlock] | None]:
    """Decodes a document that is a plain list of valid blocks; returns None if it may be something
    else."""
    text = document.decode("ascii") if document.isascii() else ""
    head = _HEAD.match(text)
    if head is None or not text.endswith(_TAIL) or len(document) > BYTES_MAX:
        return None
    listed: list[ListedBlock] = []
    at, end = head.end(), len(text) - len(_TAIL)
    while at < end:
        # At the end of a block, and soon: nothing else runs during one call of the regular
        # expression.
        stop = end if end - at <= _SLICE else text.rfind("><", at, at + _SLICE) + 1
        for element, written in _BLOCK.findall(text, at, stop):
            name = decode_block_name(written)
            if name is None or check_block_name(name) is not None:
                return None
            listed.append(ListedBlock(_SOURCES[element], name))
            at += 2 * len(element) + len(written) + len("<></>")
        # Anything but blocks would be left over.
        if at != stop or check_list_length(len(listed)) is not None:
            return None
        yield
    return listed


def encode(shown: BlockListResult, asked: GetBlockList) -> Generator[None, None, bytes]:
    """Encodes the requested kinds of blocks, even if there are none."""
    parts = [xml.document("<BlockList>")]
    for name, wanted, blocks in (
        ("CommittedBlocks", asked.committed, shown.committed),
        ("UncommittedBlocks", asked.uncommitted, shown.uncommitted),
    ):
        if wanted and not blocks:
            parts.append(f"<{name} />".encode())
        elif wanted:
            parts.append(f"<{name}>".encode())
            for at in range(0, len(blocks), _STEP_BLOCKS):
                parts.append("".join(map(_block, blocks[at : at + _STEP_BLOCKS])).encode())
                yield
            parts.append(f"</{name}>".encode())
    parts.append(b"</BlockList>")
    return b"".join(parts)


def _block(block: BlockSize) -> str:
    name = encode_block_name(block.name)
    return f"<Block><Name>{name}</Name><Size>{block.length}</Size></Block>"
