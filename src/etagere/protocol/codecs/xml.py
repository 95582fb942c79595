"""A minimal XML parser and writer for the protocols.

Parsing is safe because of what it omits. A document type declaration is refused, so there are no
entities but the five predefined ones and no external references; size, depth, the number of
elements and attributes and the length of a token are limited, so the cost of a document is linear
in its size. Malformed documents are refused as `InvalidXmlDocument`, with the position.

Namespaces are parsed and ignored: clients declare some, but no elements are distinguished by them.
Attributes are ignored, since no request uses them.

Writing is string concatenation. Almost no text needs escaping, which is found out cheaply.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote
from xml.parsers import expat

from etagere.errors import Refusal
from etagere.protocol.time_slices import run_at_once

# Parsing


@dataclass(slots=True)
class Element:
    """An element: its name without a namespace, its own text, and its children in order."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)
    end_line: int = 0
    """The line of its end tag, or of the end of the tag of an empty element; 0 if positions were
    not requested."""
    end_position: int = 0
    """The position in the line, counted from 1."""


class Limits(NamedTuple):
    """The limits of a document. The root is at depth 1."""

    bytes_max: int
    elements_max: int
    depth_max: int
    attributes_max: int = 1000
    """Of the whole document, including namespace declarations: the parser keeps each name until the
    end."""
    token_bytes_max: int = 64 * 1024
    """A token is a tag, a comment, a processing instruction or a literal, but not text. The parser
    scans an unfinished token again, from its start, whenever more of the document arrives."""


SMALL: Final = Limits(bytes_max=256 * 1024, elements_max=1000, depth_max=16)
"""For small documents; block lists have their own limits."""

_ENCODINGS: Final = frozenset({"utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1"})
"""The encodings that expat supports itself. For others Python would look up a codec of that
name."""


class _Unacceptable(Exception):
    """Raised inside the parser to stop it."""


class _Builder:
    """Builds a tree from the events of the parser."""

    def __init__(self, limits: Limits) -> None:
        self.root: Element | None = None
        self._limits = limits
        self._count = 0
        self._attributes = 0
        self._open: list[tuple[Element, list[str]]] = []

    def declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise _Unacceptable("The encoding is not supported.")

    def doctype(self, *_: object) -> None:
        raise _Unacceptable("A document type declaration is not supported.")

    def namespace(self, *_: object) -> None:
        self._count_attributes(1)

    def _count_attributes(self, count: int) -> None:
        self._attributes += count
        if self._attributes > self._limits.attributes_max:
            raise _Unacceptable("There are too many attributes.")

    def start(self, name: str, attributes: Sequence[str]) -> None:
        self._count += 1
        if attributes:
            self._count_attributes(len(attributes) // 2)
        if self._count > self._limits.elements_max:
            raise _Unacceptable("There are too many elements.")
        if len(self._open) >= self._limits.depth_max:
            raise _Unacceptable("The elements are nested too deeply.")
        element = Element(name.rpartition(_NAMESPACE_END)[2])
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.root = element
        self._open.append((element, []))

    def end(self, _name: str) -> None:
        element, pieces = self._open.pop()
        element.text = "".join(pieces)

    def end_at(self, parser: expat.XMLParserType, name: str) -> None:
        element, _ = self._open[-1]
        element.end_line = parser.CurrentLineNumber
        element.end_position = parser.CurrentColumnNumber + 1
        self.end(name)

    def data(self, text: str) -> None:
        # Joined at the end: comments can split a text into very many pieces.
        self._open[-1][1].append(text)


_NAMESPACE_END: Final = " "
_NOT_WELL_FORMED: Final = "Error parsing Xml content"
"""The message of the service; the position tells more."""
_STEP_BYTES: Final = 16 << 10


def read(
    body: bytes, root_name: str, limits: Limits = SMALL, *, with_positions: bool = False
) -> Element | Refusal:
    """Returns the root of a document, which must have this name. `with_positions`: elements have
    their end positions, for refusals."""
    return run_at_once(read_in_steps(body, root_name, limits, with_positions=with_positions))


def read_in_steps(
    body: bytes, root_name: str, limits: Limits, *, with_positions: bool = False
) -> Generator[None, None, Element | Refusal]:
    """Parses a document that may be long, in steps."""
    if len(body) > limits.bytes_max:
        return invalid_document("The document is too large.")
    builder = _Builder(limits)
    parser = expat.ParserCreate(namespace_separator=_NAMESPACE_END)
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartNamespaceDeclHandler = builder.namespace
    parser.XmlDeclHandler = builder.declaration
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = partial(builder.end_at, parser) if with_positions else builder.end
    parser.CharacterDataHandler = builder.data
    try:
        for at in range(0, len(body), _STEP_BYTES):
            step = body[at : at + _STEP_BYTES]
            parser.Parse(step, False)
            # The unfinished token begins at this position.
            if at + len(step) - parser.CurrentByteIndex > limits.token_bytes_max:
                raise _Unacceptable("A tag, a comment or an instruction is too long.")
            yield
        parser.Parse(b"", True)
    except _Unacceptable as error:
        return invalid_document(
            str(error), parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        )
    except expat.ExpatError as error:
        return invalid_document(_NOT_WELL_FORMED, error.lineno, error.offset + 1)
    root = builder.root
    if root is None or root.name != root_name:
        return invalid_document(f"The root element is not {root_name}.")
    return root


def invalid_document(reason: str, line: int | None = None, position: int | None = None) -> Refusal:
    facts: dict[str, str | int] = {}
    if line is not None and position is not None:
        facts = {"LineNumber": line, "LinePosition": position}
    return Refusal("InvalidXmlDocument", {**facts, "Reason": reason})


# Access


class Unreadable(Exception):
    """A tree that cannot be decoded. Caught by each codec, which returns the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def children(element: Element, names: Iterable[str]) -> dict[str, Element]:
    """Returns the children by name; each may occur once, and must have a known name."""
    known = frozenset(names)
    found: dict[str, Element] = {}
    for child in element.children:
        if child.name not in known:
            raise Unreadable(Refusal("UnsupportedXmlNode", {"XmlNodeName": child.name}))
        if child.name in found:
            raise Unreadable(invalid_document(f"The element {child.name} is there twice."))
        found[child.name] = child
    return found


def required(found: dict[str, Element], name: str) -> Element:
    element = found.get(name)
    if element is None:
        raise Unreadable(Refusal("MissingRequiredXmlNode", {"XmlNodeName": name}))
    return element


def text(element: Element) -> str:
    """Returns the text of an element without children, unchanged."""
    if element.children:
        raise Unreadable(invalid_document(f"The element {element.name} has elements inside."))
    return element.text


def value(element: Element) -> str:
    """Returns the text of an element without surrounding whitespace."""
    return text(element).strip(SPACE)


def boolean(element: Element) -> bool:
    word = value(element).lower()
    if word not in {"true", "false"}:
        raise bad_value(element)
    return word == "true"


def integer(element: Element) -> int:
    """Parses a number of at most ten digits; the rules check its range."""
    digits = value(element)
    if _INTEGER.fullmatch(digits) is None:
        raise bad_value(element)
    return int(digits)


def bad_value(element: Element) -> Unreadable:
    return Unreadable(
        Refusal(
            "InvalidXmlNodeValue",
            {"XmlNodeName": element.name, "XmlNodeValue": element.text.strip(SPACE)},
        )
    )


SPACE: Final = " \t\r\n"
_INTEGER = re.compile(r"-?[0-9]{1,10}")


# Formatting

DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'

_NOT_IN_XML_CLASS = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_NOT_IN_XML = re.compile(f"[{_NOT_IN_XML_CLASS}]")
_NOT_TEXT = re.compile(f"[&<>\r{_NOT_IN_XML_CLASS}]")
_REPLACEMENT: Final = "\ufffd"


def escape(text: str) -> str:
    """Escapes text between tags. Characters that XML does not allow become U+FFFD."""
    # Implemented with C functions, because a text may be long and consist of characters that need a
    # reference. Printable text is allowed, which is faster to check than what is not.
    if not text.isprintable():
        # Parsers normalize this whitespace, unless it is a character reference.
        text = _NOT_IN_XML.sub(_REPLACEMENT, text)
        return _referenced(text).replace("\r", "&#13;")
    return _referenced(text)


def _referenced(text: str) -> str:
    if "&" in text:
        text = text.replace("&", "&amp;")
    if "<" in text:
        text = text.replace("<", "&lt;")
    return text.replace(">", "&gt;") if ">" in text else text


def escape_attribute(text: str) -> str:
    """Escapes text between double quotes."""
    escaped = escape(text).replace('"', "&quot;")
    return escaped.replace("\t", "&#9;").replace("\n", "&#10;")


def element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>" if text else f"<{name} />"


def is_plain(text: str) -> bool:
    """Returns whether a text, or several joined ones, needs no escaping."""
    if text.isprintable():
        return "&" not in text and "<" not in text and ">" not in text
    return _NOT_TEXT.search(text) is None


def must_be_encoded(name: str) -> bool:
    """Returns whether a blob name has characters that XML does not allow, even as references."""
    return _NOT_IN_XML.search(name) is not None


def name_element(tag: str, name: str) -> str:
    """Encodes a blob name or prefix, percent-encoded and marked as such if necessary."""
    if is_plain(name):
        return f"<{tag}>{name}</{tag}>"
    # Some clients do not parse numeric character references, which a carriage return would need.
    if must_be_encoded(name) or "\r" in name:
        return f'<{tag} Encoded="true">{quote(name, safe="", errors="replace")}</{tag}>'
    return f"<{tag}>{escape(name)}</{tag}>"


def document(content: str) -> bytes:
    return (DECLARATION + content).encode()
