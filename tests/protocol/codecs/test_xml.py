"""XML: parsing, refusals, limits and writing."""

from __future__ import annotations

import time
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.xml import Element, Limits

BILLION_LAUGHS = (
    b'<!DOCTYPE r [<!ENTITY a0 "ha">'
    + b"".join(
        b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 11)
    )
    + b"]><r>&a10;</r>"
)


def read(body: bytes, limits: Limits = xml.SMALL) -> Element:
    root = xml.read(body, "r", limits)
    assert isinstance(root, Element), root
    return root


def refused(body: bytes, limits: Limits = xml.SMALL) -> Refusal:
    refusal = xml.read(body, "r", limits)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidXmlDocument"
    return refusal


@pytest.mark.parametrize(
    "body",
    [
        b"<r>\xc3\xa9</r>",
        b"\xef\xbb\xbf<r>\xc3\xa9</r>",
        b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?><r>\xc3\xa9</r>',
        b'<?xml version="1.0"?><r>&#233;</r>',
        b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<r>&#xE9;</r>\n',
        b'<?xml version="1.0" encoding="ISO-8859-1"?><r>\xe9</r>',
        b'<?xml version="1.0" encoding="us-ascii"?><r>&#233;</r>',
        '<?xml version="1.0" encoding="utf-16"?><r>é</r>'.encode("utf-16"),
        "<r>é</r>".encode("utf-16"),
        b"<r><![CDATA[\xc3\xa9]]></r>",
        b"<r><!-- -->\xc3\xa9<?what ever?></r>",
        b'<r xmlns="http://schemas.example">\xc3\xa9</r>',
        b'<a:r xmlns:a="http://schemas.example" a:b="c">\xc3\xa9</a:r>',
    ],
)
def test_the_forms_of_one_document(body: bytes) -> None:
    assert read(body) == Element("r", "é")


def test_a_tree_keeps_order_and_whitespace() -> None:
    assert read(b"<r> <a>1</a><b/>&lt;\r\n<a> &amp;&gt;&apos;&quot;&#13; </a></r>") == Element(
        "r", " <\n", [Element("a", "1"), Element("b"), Element("a", " &>'\"\r ")]
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf",
        b"r",
        b"<r>",
        b"<r></s>",
        b"<r/><r/>",
        b"<r/>text",
        b"<other/>",
        b"<R/>",
        b"<r>&nbsp;</r>",
        b"<r>&#0;</r>",
        b"<r>&#xFFFE;</r>",
        b"<r>&#xD800;</r>",
        b"<r>\x01</r>",
        b"<r>\xff</r>",
        b"<r>\xed\xa0\x80</r>",
        b"<r a='1' a='2'/>",
        b"<a:r/>",
        b"<!DOCTYPE r><r/>",
        b'<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x"><r/>',
        b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>',
        b'<!DOCTYPE r [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><r/>',
        b'<?xml version="1.0" encoding="utf-7"?><r/>',
        b'<?xml version="1.0" encoding="idna"?><r/>',
        b'<?xml version="1.0" encoding="no-such"?><r/>',
        b'<?xml version="1.0" encoding="shift_jis"?><r/>',
        b'<?xml version="1.0" encoding="utf-16"?><r/>',
        b' <?xml version="1.0"?><r/>',
        BILLION_LAUGHS,
    ],
)
def test_malformed_documents(body: bytes) -> None:
    assert refused(body).facts["Reason"]


def test_refusals_contain_the_position() -> None:
    assert refused(b"<r>\n <a></b></r>").facts == {
        "LineNumber": 2,
        "LinePosition": 7,
        "Reason": "Error parsing Xml content",
    }
    assert refused(b"<!DOCTYPE r><r/>").facts["Reason"] == (
        "A document type declaration is not supported."
    )


def test_limits() -> None:
    limits = Limits(bytes_max=100, elements_max=4, depth_max=3)
    read(b"<r><a><b/></a><c/></r>", limits)
    assert refused(b"<r><a><b><c/></b></a></r>", limits).facts["Reason"] == (
        "The elements are nested too deeply."
    )
    assert refused(b"<r><a/><a/><a/><a/></r>", limits).facts["Reason"] == (
        "There are too many elements."
    )
    read(b"<r>" + b"x" * 93 + b"</r>", limits)
    assert refused(b"<r>" + b"x" * 94 + b"</r>", limits).facts == {
        "Reason": "The document is too large."
    }


@pytest.mark.parametrize(
    "body",
    [
        b"<r>" * 80_000,
        b"<r>" + b"<a>" * 35_000 + b"</a>" * 35_000 + b"</r>",
        b"<r>" + b"<a/>" * 60_000 + b"</r>",
        b"<r " + b" ".join(b"a%d=''" % number for number in range(25_000)) + b"/>",
        b"<r>" + b"a<!---->" * 30_000 + b"</r>",
        b"<r>" + b"&amp;" * 50_000 + b"</r>",
        BILLION_LAUGHS,
    ],
    ids=["open", "deep", "many", "attributes", "comments", "references", "laughs"],
)
def test_cost_is_linear_in_the_size(body: bytes) -> None:
    assert len(body) <= xml.SMALL.bytes_max
    started = time.process_time()
    xml.read(body, "r")
    assert time.process_time() - started < 1


_LONG = Limits(bytes_max=16 << 20, elements_max=1000, depth_max=16)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"<r><!--", b"--></r>"),
        (b"<r a='", b"'/>"),
        (b"<r xmlns:a='", b"'/>"),
        (b"<", b"/>"),
        (b"<?a ", b"?><r/>"),
        (b"<!DOCTYPE r SYSTEM '", b"'><r/>"),
        (b"<r><a></", b"></r>"),
    ],
    ids=["comment", "attribute", "namespace", "name", "instruction", "doctype", "end"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_long_token_is_refused_where_it_begins(
    before: bytes, after: bytes, encoding: str
) -> None:
    text = before + b"x" * (7 << 20) + after
    started = time.process_time()
    refusal = refused(text.decode().encode(encoding), _LONG)
    assert time.process_time() - started < 0.5
    assert "too long" in str(refusal.facts["Reason"])
    assert refusal.facts["LineNumber"] == 1
    assert 1 <= int(refusal.facts["LinePosition"]) <= len(before) + 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tokens_may_be_long_and_text_longer(encoding: str) -> None:
    comment = "<!--" + "x" * 30_000 + "-->"
    body = f"<r>{comment * 20}{'y' * (2 << 20)}<![CDATA[{'z' * (2 << 20)}]]></r>"
    assert read(body.encode(encoding), _LONG).text == "y" * (2 << 20) + "z" * (2 << 20)


@pytest.mark.parametrize("attribute", ["a%d=''", "xmlns:a%d='b'"])
def test_attributes_are_counted_in_the_whole_document(attribute: str) -> None:
    limits = Limits(bytes_max=1000, elements_max=10, depth_max=3, attributes_max=4)
    first, last = (
        " ".join(attribute % number for number in numbers) for numbers in ((1, 2), (3, 4))
    )
    read(f"<r {first}><a {last}/></r>".encode(), limits)
    refusal = refused(f"<r {first}><a {last} b=''/></r>".encode(), limits)
    assert refusal.facts["Reason"] == "There are too many attributes."


@given(st.binary(max_size=200))
def test_arbitrary_bytes(body: bytes) -> None:
    root = xml.read(body, "r")
    assert isinstance(root, Element) or root.code == "InvalidXmlDocument"


MARKUP = st.sampled_from(
    [
        *("<r>", "</r>", "<a>", "</a>", "<a/>", "<a b='c'>", "xmlns:a='", "x", " ", "\0", "\ufeff"),
        *("&amp;", "&x;", "&#9;", "<!--", "-->", "<![CDATA[", "]]>"),
        *("<!DOCTYPE r [", "]>", '<!ENTITY x "y">'),
        *("<?xml version='1.0'?>", "<?xml version='1.0' encoding='cp037'?>"),
    ]
)


@given(st.lists(MARKUP, max_size=12).map("".join))
def test_arbitrary_markup(text: str) -> None:
    for body in (text.encode(), f"<r>{text}</r>".encode(), text.encode("utf-16")):
        root = xml.read(body, "r")
        assert isinstance(root, Element) or root.code == "InvalidXmlDocument"


# Reading a tree


def node(content: str) -> Element:
    return read(f"<r>{content}</r>".encode())


def test_children_must_be_known_and_unique() -> None:
    assert xml.children(node("<a/>"), ("a", "b")) == {"a": Element("a")}
    with pytest.raises(xml.Unreadable) as unknown:
        xml.children(node("<c/>"), ("a", "b"))
    assert unknown.value.refusal == Refusal("UnsupportedXmlNode", {"XmlNodeName": "c"})
    with pytest.raises(xml.Unreadable) as twice:
        xml.children(node("<a/><a/>"), ("a", "b"))
    assert twice.value.refusal.code == "InvalidXmlDocument"
    with pytest.raises(xml.Unreadable) as missing:
        xml.required({}, "a")
    assert missing.value.refusal == Refusal("MissingRequiredXmlNode", {"XmlNodeName": "a"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), (" False\n", False), ("TRUE", True), ("1", None), ("", None), ("yes", None)],
)
def test_booleans(text: str, expected: bool | None) -> None:
    if expected is not None:
        assert xml.boolean(node(text)) is expected
        return
    with pytest.raises(xml.Unreadable) as refused_value:
        xml.boolean(node(text))
    assert refused_value.value.refusal == Refusal(
        "InvalidXmlNodeValue", {"XmlNodeName": "r", "XmlNodeValue": text}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (" 07 ", 7),
        ("-1", -1),
        ("9999999999", 9_999_999_999),
        *((text, None) for text in ("", "1.0", "+1", "٣", "1_0", "0x1", "9" * 5000)),
    ],
)
def test_integers(text: str, expected: int | None) -> None:
    if expected is not None:
        assert xml.integer(node(text)) == expected
        return
    with pytest.raises(xml.Unreadable):
        xml.integer(node(text))


def test_values_have_no_children() -> None:
    with pytest.raises(xml.Unreadable):
        xml.value(node("1<a/>"))


# Writing


@pytest.mark.parametrize(
    ("text", "escaped", "attribute"),
    [
        ("plain é 😊", "plain é 😊", "plain é 😊"),
        ("a<b>&c", "a&lt;b&gt;&amp;c", "a&lt;b&gt;&amp;c"),
        ("\"'", "\"'", "&quot;'"),
        ("\t\n\r", "\t\n&#13;", "&#9;&#10;&#13;"),
        ("\0\x1f\ufffe\uffff\ud800", "\ufffd" * 5, "\ufffd" * 5),
    ],
)
def test_escaping(text: str, escaped: str, attribute: str) -> None:
    assert xml.escape(text) == escaped
    assert xml.escape_attribute(text) == attribute


@given(st.text())
def test_round_trip(text: str) -> None:
    root = read(xml.document(xml.element("r", text)), Limits(10_000, 1, 1))
    carried = "".join(
        "\ufffd" if xml.must_be_encoded(character) else character for character in text
    )
    assert root.text == carried
    parsed = ElementTree.fromstring(f'<r a="{xml.escape_attribute(text)}"/>')
    assert parsed.attrib["a"] == carried


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a/b c", "<Name>a/b c</Name>"),
        ("a&b", "<Name>a&amp;b</Name>"),
        ("a\r", '<Name Encoded="true">a%0D</Name>'),
        ("a\n", "<Name>a\n</Name>"),
        ("a%/\uffff", '<Name Encoded="true">a%25%2F%EF%BF%BF</Name>'),
        ("\x01<", '<Name Encoded="true">%01%3C</Name>'),
    ],
)
def test_names(name: str, written: str) -> None:
    assert xml.name_element("Name", name) == written


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_names_round_trip(name: str) -> None:
    parsed = ElementTree.fromstring(xml.name_element("Name", name))
    text = parsed.text or ""
    assert (unquote(text) if parsed.get("Encoded") == "true" else text) == name


def test_elements() -> None:
    assert xml.element("a", "") == "<a />"
    assert xml.document("<a />") == b'<?xml version="1.0" encoding="utf-8"?><a />'
