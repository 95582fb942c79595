"""Block lists as XML: order is kept, and malformed lists are refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
from etagere.model.blobs import (
    BlobName,
    BlockListResult,
    BlockSize,
    BlockSource,
    GetBlockList,
    ListedBlock,
)
from etagere.model.containers import ContainerName
from etagere.protocol.codecs import block_lists as codec
from etagere.protocol.codecs.block_lists import BYTES_MAX
from etagere.protocol.time_slices import run_at_once
from etagere.rules.blocks import encode_block_name

COMMITTED, UNCOMMITTED = BlockSource.COMMITTED, BlockSource.UNCOMMITTED
LATEST = BlockSource.LATEST


def decode(document: bytes) -> tuple[ListedBlock, ...] | Refusal:
    return run_at_once(codec.decode(document))


def encode(shown: BlockListResult, asked: GetBlockList) -> bytes:
    return run_at_once(codec.encode(shown, asked))


# Requests


def written(listed: list[ListedBlock], space: str = "") -> str:
    elements = [
        f"{space}<{block.source.value}>{encode_block_name(block.name)}</{block.source.value}>"
        for block in listed
    ]
    return f"<BlockList>{''.join(elements)}{space}</BlockList>"


LISTS = st.lists(
    st.builds(ListedBlock, st.sampled_from(BlockSource), st.binary(min_size=1, max_size=64)),
    max_size=20,
)


@given(LISTS, st.sampled_from(["", " ", "\n  ", "\r\n\t"]))
def test_mixed_elements_keep_their_order(listed: list[ListedBlock], space: str) -> None:
    """All references to one block must be in elements of the same kind."""
    sources = {(block.name, block.source) for block in listed}
    decoded = decode(written(listed, space).encode())
    if len(sources) > len({block.name for block in listed}):
        assert isinstance(decoded, Refusal)
        assert decoded.code == "InvalidBlockList"
    else:
        assert decoded == tuple(listed)


AB = (ListedBlock(LATEST, b"a"), ListedBlock(UNCOMMITTED, b"b"))
PLAIN = "<BlockList><Latest>YQ==</Latest><Uncommitted>Yg==</Uncommitted></BlockList>"


@pytest.mark.parametrize(
    "document",
    [
        PLAIN.encode(),
        b'<?xml version="1.0" encoding="utf-8"?>' + PLAIN.encode(),
        b"\xef\xbb\xbf<?xml version='1.0' encoding='UTF-8'?>\n" + PLAIN.encode() + b"\n",
        b'<?xml version="1.0" encoding="us-ascii" standalone="yes"?>' + PLAIN.encode(),
        b'<?xml version="1.0" encoding="iso-8859-1"?>' + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        f'<?xml version="1.0" encoding="utf-16"?>{PLAIN}'.encode("utf-16"),
        PLAIN.replace("YQ==", "\n    YQ==\t\r\n ").encode(),
        PLAIN.replace("YQ==", "<![CDATA[YQ==]]>").encode(),
        PLAIN.replace("YQ==", "&#89;Q&#x3D;=").encode(),
        PLAIN.replace("YQ==", "Y<!-- what -->Q<?ever?>==").encode(),
        PLAIN.replace("<BlockList>", '<BlockList xmlns="http://schemas.example" a="b">').encode(),
    ],
)
def test_the_forms_of_one_document(document: bytes) -> None:
    assert decode(document) == AB


@pytest.mark.parametrize(
    "document", ["<BlockList/>", "<BlockList></BlockList>", "<BlockList>\n</BlockList>"]
)
def test_a_list_may_be_empty(document: str) -> None:
    assert decode(document.encode()) == ()


def element(name: str, content: str) -> bytes:
    return f"<BlockList><{name}>{content}</{name}></BlockList>".encode()


BILLION_LAUGHS = (
    b'<!DOCTYPE BlockList [<!ENTITY a0 "YQ==">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 11))
    + b"]>"
    + element("Latest", "&a10;")
)
QUADRATIC = b'<!DOCTYPE BlockList [<!ENTITY a "%s">]>' % (b"Y" * 50_000) + element(
    "Latest", "&a;" * 50_000
)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"", "InvalidXmlDocument"),
        (b"YQ==", "InvalidXmlDocument"),
        (b'{"Latest": "YQ=="}', "InvalidXmlDocument"),
        (b"\x00\x01\x02", "InvalidXmlDocument"),
        (b"<BlockList>", "InvalidXmlDocument"),
        (b"<blocklist/>", "InvalidXmlDocument"),
        (b"<Latest>YQ==</Latest>", "InvalidXmlDocument"),
        (PLAIN.encode() * 2, "InvalidXmlDocument"),
        (PLAIN.encode()[:-1], "InvalidXmlDocument"),
        (b'<?xml version="1.0" encoding="utf-7"?>' + PLAIN.encode(), "InvalidXmlDocument"),
        (b"<!DOCTYPE BlockList>" + PLAIN.encode(), "InvalidXmlDocument"),
        (BILLION_LAUGHS, "InvalidXmlDocument"),
        (QUADRATIC, "InvalidXmlDocument"),
        (element("Latest", "&a;"), "InvalidXmlDocument"),
        (element("Latest", "<Latest>YQ==</Latest>"), "InvalidXmlDocument"),
        (element("Latest", "YQ==<Name/>"), "InvalidXmlDocument"),
        (b"<BlockList>" * 100_000, "InvalidXmlDocument"),
        (element("Newest", "YQ=="), "UnsupportedXmlNode"),
        (element("latest", "YQ=="), "UnsupportedXmlNode"),
        (element("Block", "YQ=="), "UnsupportedXmlNode"),
        (PLAIN.replace("</BlockList>", "<Other/></BlockList>").encode(), "UnsupportedXmlNode"),
        (element("Latest", ""), "InvalidXmlNodeValue"),
        (element("Latest", " \n "), "InvalidXmlNodeValue"),
        (element("Latest", "YQ"), "InvalidXmlNodeValue"),
        (element("Latest", "Y Q=="), "InvalidXmlNodeValue"),
        (element("Latest", "block-1!"), "InvalidXmlNodeValue"),
        (element("Latest", "é"), "InvalidXmlNodeValue"),
        (element("Latest", encode_block_name(b"x" * 65)), "InvalidXmlNodeValue"),
        (element("Latest", encode_block_name(b"x" * 64)), None),
    ],
)
def test_refusals(document: bytes, code: str | None) -> None:
    began = time.process_time()
    result = decode(document)
    assert (result.code if isinstance(result, Refusal) else None) == code
    assert time.process_time() - began < 5


def test_refusals_name_the_value() -> None:
    assert decode(element("Committed", "no base64")) == Refusal(
        "InvalidXmlNodeValue", {"XmlNodeName": "Committed", "XmlNodeValue": "no base64"}
    )


def test_the_number_of_blocks_is_limited() -> None:
    """With the longest names and elements, and as much whitespace as some clients send."""
    names = [b"%064d" % number for number in range(50_000)]
    listed = [ListedBlock(UNCOMMITTED, name) for name in names]
    document = written(listed, "\n" + " " * 16).encode()
    assert len(document) < BYTES_MAX
    assert decode(document) == tuple(listed)
    one_more = document.replace(b"</BlockList>", b"<Latest>YQ==</Latest></BlockList>")
    assert decode(one_more) == Refusal("BlockListTooLong", {"Maximum": 50_000})


@pytest.mark.parametrize("space", ["", "\n"])
def test_a_long_list_is_decoded_in_short_steps(space: str) -> None:
    """No step does more than a hundredth of it, not even the last."""
    listed = [ListedBlock(LATEST, b"%064d" % number) for number in range(20_000)]
    document = written(listed, space).encode()
    reading = codec.decode(document)
    seconds = []
    while True:
        began = time.thread_time()
        try:
            next(reading)
        except StopIteration as ended:
            assert ended.value == tuple(listed)
            break
        seconds.append(time.thread_time() - began)
    assert len(seconds) > 50
    # A few steps are longer than the others.
    assert sorted(seconds)[-5] < sum(seconds) / 20


@pytest.mark.parametrize("space", ["", "\n"])
@pytest.mark.parametrize("place", [0, 700, 1_999])
def test_a_refusal_in_the_middle_of_a_long_list(space: str, place: int) -> None:
    listed = [ListedBlock(LATEST, b"%064d" % number) for number in range(2_000)]
    document = written(listed, space)
    right = encode_block_name(listed[place].name)
    for wrong in ("", "YQ", encode_block_name(b"x" * 65)):
        facts: dict[str, str | int] = {"XmlNodeName": "Latest", "XmlNodeValue": wrong}
        refusal = Refusal("InvalidXmlNodeValue", facts)
        assert decode(document.replace(right, wrong).encode()) == refusal
    # Malformed XML is reported before malformed blocks.
    broken = document.replace(right, "").replace("</BlockList>", "<Latest></BlockList>")
    refused = decode(broken.encode())
    assert isinstance(refused, Refusal)
    assert refused.code == "InvalidXmlDocument"


def test_documents_beyond_the_limits_are_refused() -> None:
    padded = PLAIN.encode() + b" " * BYTES_MAX
    refusal = decode(padded)
    assert isinstance(refusal, Refusal)
    assert ERRORS[refusal.code].status in {400, 413}
    crowd = b"<BlockList>" + b"<Latest>YQ==</Latest>" * 150_000 + b"</BlockList>"
    refusal = decode(crowd)
    assert isinstance(refusal, Refusal)
    assert ERRORS[refusal.code].status == 400


NAMES = ["BlockList", "Latest", "Committed", "Uncommitted", "Name"]
TREES = st.recursive(
    st.sampled_from(["", "YQ==", "a", "&amp;", "&x;", "<!-- -->", "]]>", "<"]),
    lambda inner: st.tuples(st.sampled_from(NAMES), st.lists(inner, max_size=3)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=8,
)


@given(TREES)
def test_arbitrary_trees(content: str) -> None:
    result = decode(f"<BlockList>{content}</BlockList>".encode())
    if isinstance(result, Refusal):
        assert ERRORS[result.code].status == 400
    else:
        assert all(0 < len(block.name) <= 64 for block in result)


# Responses

NAME = BlobName(ContainerName("account", "box"), "blob")
SHOWN = BlockListResult(
    0,
    None,
    (BlockSize(b"b", 7), BlockSize(b"a", 4 << 30), BlockSize(b"b", 7)),
    (BlockSize(b"\x00\xff", 0),),
)
COMMITTED_PART = (
    "<CommittedBlocks>"
    "<Block><Name>Yg==</Name><Size>7</Size></Block>"
    "<Block><Name>YQ==</Name><Size>4294967296</Size></Block>"
    "<Block><Name>Yg==</Name><Size>7</Size></Block>"
    "</CommittedBlocks>"
)
UNCOMMITTED_PART = (
    "<UncommittedBlocks>"
    "<Block><Name>AP8=</Name><Size>0</Size></Block>"
    "</UncommittedBlocks>"
)  # fmt: skip


@pytest.mark.parametrize(
    ("committed", "uncommitted", "content"),
    [
        (True, False, COMMITTED_PART),
        (False, True, UNCOMMITTED_PART),
        (True, True, COMMITTED_PART + UNCOMMITTED_PART),
    ],
)
def test_golden_responses(committed: bool, uncommitted: bool, content: str) -> None:
    document = encode(SHOWN, GetBlockList(NAME, committed, uncommitted))
    declaration = '<?xml version="1.0" encoding="utf-8"?>'
    assert document.decode() == f"{declaration}<BlockList>{content}</BlockList>"


def test_requested_lists_are_present_if_empty() -> None:
    document = encode(BlockListResult(0, None), GetBlockList(NAME, True, True))
    assert document.endswith(b"<BlockList><CommittedBlocks /><UncommittedBlocks /></BlockList>")


def test_a_long_response_is_encoded_in_short_steps() -> None:
    blocks = tuple(BlockSize(b"%05d" % number, number) for number in range(5_000))
    shown, asked = BlockListResult(0, None, blocks, blocks[:300]), GetBlockList(NAME, True, True)
    assert sum(1 for _ in codec.encode(shown, asked)) > 10
    document = encode(shown, asked).decode()
    found = re.findall(r"<Name>([^<]*)</Name><Size>(\d*)</Size>", document)
    expected = [(encode_block_name(block.name), str(block.length)) for block in blocks]
    assert found == expected + expected[:300]
